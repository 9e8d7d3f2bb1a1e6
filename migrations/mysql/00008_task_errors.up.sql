-- The failed runs of a task, for whoever looks at it: a JSON object a line, the oldest first,
--   {"attempt":1,"at":"2026-01-02T15:04:05.000Z","error":"…"}
-- Of a task that goes on to fail the last 8192 characters are kept. NULL: no run has failed. store/failed_runs.go writes
-- and reads it. No scan reads it, and no index has it.
--
-- MySQL cannot repeat this statement. Where the step stopped half way, tables that have the column are left out (run.go).
ALTER TABLE {{.Table}} ADD COLUMN errors text NULL;
