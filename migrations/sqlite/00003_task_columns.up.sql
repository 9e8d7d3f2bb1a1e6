-- The columns of ../mysql/00003_task_columns.up.sql, which says what they are.
ALTER TABLE {{.Table}} ADD COLUMN due_time TEXT NULL CONSTRAINT "due_time must be UTC as YYYY-MM-DD HH:MM:SS.mmm" CHECK (
  due_time IS NULL OR datetime(substr(due_time, 1, 19)) IS substr(due_time, 1, 19) AND substr(due_time, 12, 2) < '24'
  AND (length(due_time) = 19 OR substr(due_time, 20) GLOB '.[0-9]*' AND substr(due_time, 21) NOT GLOB '*[^0-9]*'));

ALTER TABLE {{.Table}} ADD COLUMN timeout_ms INTEGER NULL CONSTRAINT timeout_ms_must_be_0_to_4294967295 CHECK (timeout_ms BETWEEN 0 AND 4294967295);

ALTER TABLE {{.Table}} ADD COLUMN lease INTEGER NULL;

ALTER TABLE {{.Table}} ADD COLUMN trace TEXT NULL CONSTRAINT trace_is_over_55_characters CHECK (length(trace) <= 55);

ALTER TABLE {{.Table}} ADD COLUMN biz_key TEXT NULL CONSTRAINT biz_key_is_over_128_characters CHECK (length(biz_key) <= 128);
