-- The column of ../mysql/00008_task_errors.up.sql, which says what it is.
ALTER TABLE {{.Table}} ADD COLUMN errors TEXT NULL CONSTRAINT errors_is_over_65535_characters CHECK (length(errors) <= 65535);
