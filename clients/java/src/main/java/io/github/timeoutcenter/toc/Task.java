package io.github.timeoutcenter.toc;

import java.time.Duration;
import java.time.Instant;
import java.util.Collections;
import java.util.Map;

/**
 * A task as the center answered it.
 *
 * @param jobId its id: an unsigned 64-bit number
 * @param bizType the name of its business type
 * @param bizId the business's own id: an unsigned 64-bit number, or a text
 * @param status pending, processed, cancelled or dead
 * @param actionTime when it runs next, to the millisecond
 * @param dueTime the time that was promised
 * @param timeout how long one run may take, if it has a time of its own; else null
 * @param attribute the caller's payload; may be empty
 * @param attempts failed runs so far
 * @param lastError why the last failed run failed; may be empty
 * @param dedupKey the key of its submit; may be empty
 * @param etag names this state of the task, for a conditional change; empty in a list
 * @param fields every field as it was answered, such as gmt_create and running
 */
public record Task(String jobId, String bizType, String bizId, String status, Instant actionTime, Instant dueTime, Duration timeout,
        String attribute, int attempts, String lastError, String dedupKey, String etag, Map<String, Object> fields) {

    static Task of(Object answer, String etag) {
        Map<String, Object> f = Values.object(answer);
        return new Task(Values.text(f.get("job_id")), Values.text(f.get("biz_type")), Values.text(f.get("biz_id")),
                Values.text(f.get("status")), Values.time(f.get("action_time")), Values.time(f.get("due_time")),
                Values.duration(f.get("timeout")), Values.text(f.get("attribute")), Values.count(f.get("attempts")),
                Values.text(f.get("last_error")), Values.text(f.get("dedup_key")), etag, Collections.unmodifiableMap(f));
    }
}
