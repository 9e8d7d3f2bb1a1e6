package io.github.timeoutcenter.toc;

import java.util.Map;

/**
 * What became of one task of a batch.
 *
 * @param jobId the id of the task; empty: it was not stored
 * @param isDuplicate the dedup_key was known: jobId is the first task's
 * @param field the field that is wrong; may be empty
 * @param message why it was not stored; empty: it is
 * @param outcome why the first task could not be moved; may be empty
 * @param isWorthRetrying nothing is wrong with the task: submit it again
 */
public record BatchResult(String jobId, boolean isDuplicate, String field, String message, String outcome, boolean isWorthRetrying) {
    static BatchResult of(Object answer) {
        Map<String, Object> f = Values.object(answer);
        Map<String, Object> e = f.get("error") == null ? Map.of() : Values.object(f.get("error"));
        return new BatchResult(Values.text(f.get("job_id")), f.get("duplicate") == Boolean.TRUE, Values.text(e.get("field")),
                Values.text(e.get("message")), Values.text(e.get("outcome")), e.get("retry") == Boolean.TRUE);
    }
}
