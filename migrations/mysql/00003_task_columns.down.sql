ALTER TABLE {{.Table}} DROP COLUMN due_time, DROP COLUMN timeout_ms, DROP COLUMN lease, DROP COLUMN trace, DROP COLUMN biz_key;
