-- The column of ../mysql/00008_task_errors.up.sql, which says what it is.
ALTER TABLE {{.Table}} ADD COLUMN errors TEXT NULL;
