ALTER TABLE {{.Table}} DROP COLUMN biz_key;

ALTER TABLE {{.Table}} DROP COLUMN trace;

ALTER TABLE {{.Table}} DROP COLUMN lease;

ALTER TABLE {{.Table}} DROP COLUMN timeout_ms;

ALTER TABLE {{.Table}} DROP COLUMN due_time;
