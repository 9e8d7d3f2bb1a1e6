package io.github.timeoutcenter.toc;

/**
 * Answers a submit.
 *
 * @param task the task, which is committed
 * @param isDuplicate the dedup_key was known: task is the one that has it
 */
public record Submitted(Task task, boolean isDuplicate) {}
