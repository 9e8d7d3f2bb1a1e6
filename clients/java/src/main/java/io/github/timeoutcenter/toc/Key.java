package io.github.timeoutcenter.toc;

/**
 * The caller's own name for a task, as its submit gave it.
 *
 * @param bizType the name of its business type
 * @param bizId the business's own id
 * @param dedupKey the key of its submit
 */
public record Key(String bizType, String bizId, String dedupKey) {
    String query() {
        return Values.query("biz_type", bizType, "biz_id", bizId, "dedup_key", dedupKey);
    }
}
