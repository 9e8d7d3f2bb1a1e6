package io.github.timeoutcenter.toc;

/**
 * Answers a submit.
 *
 * @param task the task, which is committed
 * @param isDuplicate the dedup_key was known: task is the first one
 */
public record Submitted(Task task, boolean isDuplicate) {}
