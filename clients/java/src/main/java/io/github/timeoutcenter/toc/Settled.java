package io.github.timeoutcenter.toc;

/**
 * What became of a settlement.
 *
 * @param lease the lease
 * @param result ok; lost: the lease is over or was settled before; invalid: this is no lease; unavailable: send it again
 */
public record Settled(String lease, String result) {}
