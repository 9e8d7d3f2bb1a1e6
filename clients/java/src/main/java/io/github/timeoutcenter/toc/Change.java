package io.github.timeoutcenter.toc;

import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;

/** Asks for another time, another attribute, another timeout, or several of them; what is left out stays. */
public final class Change {
    private final Map<String, Object> body = new LinkedHashMap<>();
    private String etag = "";

    /** When to fire. */
    public Change actionTime(Instant at) {
        body.put("action_time", Values.time("action_time", at));
        return this;
    }

    /** When to fire, from now. */
    public Change delay(Duration delay) {
        body.put("delay", Values.duration("delay", delay));
        return this;
    }

    /** Replaces the attribute; at most 4096 bytes of UTF-8. */
    public Change attribute(String attribute) {
        body.put("attribute", attribute);
        return this;
    }

    /** How long one run may take, 1 ms to 24 h. */
    public Change timeout(Duration timeout) {
        body.put("timeout", Values.duration("timeout", timeout));
        return this;
    }

    /** An actionTime more than 5 s ago is due at once; without this it is refused. */
    public Change firePast() {
        body.put("past", "fire");
        return this;
    }

    /** Changes the task only if it is still in the state of this etag (TocException.Changed). */
    public Change ifMatch(String etag) {
        this.etag = etag;
        return this;
    }

    Map<String, Object> body() {
        return body;
    }

    String etag() {
        return etag;
    }
}
