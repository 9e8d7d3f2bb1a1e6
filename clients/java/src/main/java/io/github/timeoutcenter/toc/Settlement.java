package io.github.timeoutcenter.toc;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/** What a consumer does with a lease. */
public final class Settlement {
    /** How much of an error the center keeps, in bytes. */
    private static final int MAX_ERROR = 255;

    private final Map<String, Object> body = new LinkedHashMap<>();

    private Settlement(String lease, String what) {
        body.put("lease", lease);
        body.put("do", what);
    }

    /** The task is processed. */
    public static Settlement ack(String lease) {
        return new Settlement(lease, "ack");
    }

    /** The run has failed: the task is tried again after the back-off of its business type, or is dead. */
    public static Settlement nack(String lease, String error) {
        return new Settlement(lease, "nack").error(error);
    }

    /** The run has failed: the task is tried again after a while, or is dead. */
    public static Settlement nack(String lease, String error, Duration retryAfter) {
        Settlement s = nack(lease, error);
        s.body.put("retry_after", Values.duration("retry_after", retryAfter.isNegative() ? Duration.ZERO : retryAfter));
        return s;
    }

    /** Nobody wants the task any more: it is cancelled. */
    public static Settlement reject(String lease, String error) {
        return new Settlement(lease, "reject").error(error);
    }

    /** The task was not begun: it is due again at once, and this was no attempt. */
    public static Settlement release(String lease) {
        return new Settlement(lease, "release");
    }

    /** The lease ends ttr from now, 100 ms to 24 h; null: the task's timeout, or else pull.ttr of its business type. */
    public static Settlement extend(String lease, Duration ttr) {
        Settlement s = new Settlement(lease, "extend");
        if (ttr != null) {
            s.body.put("ttr", Values.duration("ttr", ttr));
        }
        return s;
    }

    private Settlement error(String error) {
        if (error != null && !error.isEmpty()) {
            int end = Math.min(error.length(), MAX_ERROR);
            body.put("error", end < error.length() && Character.isHighSurrogate(error.charAt(end - 1)) ? error.substring(0, end - 1) : error.substring(0, end));
        }
        return this;
    }

    Map<String, Object> body() {
        return body;
    }
}
