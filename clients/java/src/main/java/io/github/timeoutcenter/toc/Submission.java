package io.github.timeoutcenter.toc;

import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;

/** Asks for one task, due at a time or after a delay. */
public final class Submission {
    private final Map<String, Object> body = new LinkedHashMap<>();

    private Submission(String bizType, String bizId) {
        body.put("biz_type", bizType);
        body.put("biz_id", bizId);
    }

    /** A task of a business type. bizId is the business's own id: a text of up to 128 bytes; digits are a number. */
    public static Submission of(String bizType, String bizId) {
        return new Submission(bizType, bizId);
    }

    /** The same where the business's own id is a number: the bits of bizId, as an unsigned one. */
    public static Submission of(String bizType, long bizId) {
        return new Submission(bizType, Long.toUnsignedString(bizId));
    }

    /** When to fire; the center rounds it up to a millisecond. */
    public Submission actionTime(Instant at) {
        body.put("action_time", Values.time("action_time", at));
        return this;
    }

    /** When to fire, from the moment in which the center gets it; zero: at once. */
    public Submission delay(Duration delay) {
        body.put("delay", Values.duration("delay", delay));
        return this;
    }

    /** Handed to the processor; at most 4096 bytes of UTF-8. */
    public Submission attribute(String attribute) {
        body.put("attribute", attribute);
        return this;
    }

    /** Makes the submit safe to repeat; at most 64 bytes of UTF-8. */
    public Submission dedupKey(String key) {
        body.put("dedup_key", key);
        return this;
    }

    /** How long one run may take, 1 ms to 24 h, instead of the business type's time. */
    public Submission timeout(Duration timeout) {
        body.put("timeout", Values.duration("timeout", timeout));
        return this;
    }

    /** If the key is known, the first task gets this time and attribute; one that is not pending, or runs, is a conflict. */
    public Submission moveDuplicate() {
        body.put("on_duplicate", "move");
        return this;
    }

    /**
     * If the key is known and its task has ended (processed, cancelled, dead), a new task takes the key. While that task is
     * pending it is the answer, unchanged.
     */
    public Submission again() {
        body.put("on_duplicate", "again");
        return this;
    }

    /** An actionTime more than 5 s ago is due at once; without this it is refused. */
    public Submission firePast() {
        body.put("past", "fire");
        return this;
    }

    /** Whether it makes no second task, however often it is sent. */
    boolean isRepeatable() {
        return !Values.text(body.get("dedup_key")).isEmpty() && !body.containsKey("on_duplicate");
    }

    Map<String, Object> body() {
        if (body.containsKey("action_time") == body.containsKey("delay")) {
            throw new IllegalArgumentException("action_time: give a time or a delay, one of them");
        }
        return body;
    }
}
