package io.github.timeoutcenter.toc;

import java.time.Instant;
import java.util.List;
import java.util.Map;

/**
 * Answers a request for leases.
 *
 * @param tasks the tasks, which are the caller's until each one's expiresAt; may be empty
 * @param isPaused the business type is paused and hands out no tasks
 */
public record Leased(List<One> tasks, boolean isPaused) {
    /**
     * A task that its caller has for a while.
     *
     * @param lease names this hand-out of the task; settle it by this
     * @param expiresAt when the lease ends, by the center's clock
     * @param attempt 1 for the first hand-out
     * @param task the task
     */
    public record One(String lease, Instant expiresAt, int attempt, Task task) {
        private static One of(Object answer) {
            Map<String, Object> f = Values.object(answer);
            return new One(Values.text(f.get("lease")), Values.time(f.get("expires_at")), Values.count(f.get("attempt")), Task.of(f.get("task"), ""));
        }
    }

    static Leased of(Map<String, Object> answer) {
        return new Leased(Values.list(answer.get("tasks")).stream().map(One::of).toList(), answer.get("paused") == Boolean.TRUE);
    }
}
