-- What a task carries besides its time and its attribute. All of it may be NULL, so an INSERT by hand still needs
-- four columns, and a server that can adds the columns without touching a row.
--
--   due_time    the time that was promised; NULL: action_time
--   timeout_ms  this task's own time-out; NULL: its biz_type's
--   lease       who has the task in hand, where workers pull
--   trace       the submitter's trace context (W3C traceparent)
--   biz_key     the business's id where it is a text; biz_id is then the first 64 bits of its MD5
--
-- MySQL cannot repeat this statement. Where the step stopped half way, tables that have biz_key are left out (run.go).
ALTER TABLE {{.Table}}
  ADD COLUMN due_time   datetime(3)     NULL,
  ADD COLUMN timeout_ms int unsigned    NULL,
  ADD COLUMN lease      bigint unsigned NULL,
  ADD COLUMN trace      varchar(55)     NULL,
  ADD COLUMN biz_key    varchar(128)    NULL;
