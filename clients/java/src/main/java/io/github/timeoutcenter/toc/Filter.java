package io.github.timeoutcenter.toc;

import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;

/** Says which tasks: what is left out does not narrow. Which parts a call reads stands at the call. */
public final class Filter {
    final Map<String, Object> fields = new LinkedHashMap<>();

    /** Only tasks of a business type. */
    public Filter bizType(String name) {
        fields.put("biz_type", name);
        return this;
    }

    /** Only tasks of a biz_id. */
    public Filter bizId(String bizId) {
        fields.put("biz_id", bizId);
        return this;
    }

    /** Only tasks that are pending, processed, cancelled or dead. */
    public Filter status(String status) {
        fields.put("status", status);
        return this;
    }

    /** Only tasks whose last_error has this part. */
    public Filter error(String part) {
        fields.put("error", part);
        return this;
    }

    /** Only tasks of this time or later. */
    public Filter since(Instant at) {
        fields.put("since", Values.time("since", at));
        return this;
    }

    /** Only tasks before this time. */
    public Filter until(Instant at) {
        fields.put("until", Values.time("until", at));
        return this;
    }

    /** At most so many tasks; of a page 1 to 1000, and 100 if left out. */
    public Filter limit(int limit) {
        fields.put("limit", (long) limit);
        return this;
    }

    /** The page that follows: the nextCursor of the one before. */
    public Filter cursor(String cursor) {
        fields.put("cursor", cursor);
        return this;
    }

    /** Of redriveDead and discardDead: so many tasks a second, by an operation. */
    public Filter rate(double perSecond) {
        fields.put("rate", perSecond);
        return this;
    }

    /** Of redriveDead and discardDead: count only, change nothing. */
    public Filter dryRun() {
        fields.put("dry_run", true);
        return this;
    }

    String query(String since, String until) {
        return Values.query("biz_id", fields.get("biz_id"), "biz_type", fields.get("biz_type"), "status", fields.get("status"),
                "error", fields.get("error"), since, fields.get("since"), until, fields.get("until"), "limit", fields.get("limit"),
                "cursor", fields.get("cursor"));
    }
}
