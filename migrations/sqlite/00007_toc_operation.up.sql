-- Redrives and discards of dead tasks at a rate: see ../mysql/00007_toc_operation.up.sql.
CREATE TABLE IF NOT EXISTS toc_operation (
  id         INTEGER NOT NULL PRIMARY KEY,
  kind       TEXT    NOT NULL,
  actor      TEXT    NOT NULL,
  biz_type   INTEGER NULL,
  error      TEXT    NOT NULL DEFAULT '',
  dead_since TEXT    NULL,
  dead_until TEXT    NULL,
  most       INTEGER NOT NULL DEFAULT 0,
  rate       REAL    NOT NULL,
  state      TEXT    NOT NULL,
  matched    INTEGER NOT NULL,
  walked     INTEGER NOT NULL DEFAULT 0,
  step       INTEGER NOT NULL DEFAULT 0,
  done       INTEGER NOT NULL DEFAULT 0,
  seen       INTEGER NOT NULL DEFAULT 0,
  started    TEXT    NOT NULL,
  ended      TEXT    NULL,
  undoes     INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX IF NOT EXISTS idx_operation_state ON toc_operation (state);

CREATE TABLE IF NOT EXISTS toc_operation_task (
  operation      INTEGER NOT NULL,
  job_id         INTEGER NOT NULL,
  attempts       INTEGER NOT NULL,
  due_time       TEXT    NULL,
  action_time    TEXT    NOT NULL,
  to_status      INTEGER NOT NULL,
  to_action_time TEXT    NOT NULL,
  stamp          TEXT    NOT NULL,
  PRIMARY KEY (operation, job_id)
) STRICT, WITHOUT ROWID;
