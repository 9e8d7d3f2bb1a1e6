-- The tables that a database has once, beside its task tables. ../mysql/00009_baseline.sql says what each is for, and how
-- to change the schema. This file never changes.
CREATE TABLE IF NOT EXISTS toc_meta (
  name  TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT;

INSERT OR IGNORE INTO toc_meta (name, value) VALUES
  ('layout_version',      '{{.LayoutVersion}}'),
  ('databases',           '{{.Databases}}'),
  ('tables_per_database', '{{.Tables}}'),
  ('database',            '{{.Database}}');

CREATE TABLE IF NOT EXISTS toc_running (
  job_id   INTEGER NOT NULL PRIMARY KEY,
  instance TEXT    NOT NULL,
  attempts INTEGER NOT NULL,
  cuts     INTEGER NOT NULL DEFAULT 0,
  since    TEXT    NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS toc_control (
  biz_type     INTEGER NOT NULL PRIMARY KEY,
  paused       INTEGER NOT NULL DEFAULT 1 CHECK (paused IN (0, 1)),
  reason       TEXT    NOT NULL DEFAULT '',
  actor        TEXT    NOT NULL DEFAULT 'sql',
  paused_until TEXT    NULL,
  changed_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
) STRICT;

CREATE TRIGGER IF NOT EXISTS toc_control_changed AFTER UPDATE ON toc_control WHEN NEW.changed_at = OLD.changed_at
BEGIN UPDATE toc_control SET changed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE biz_type = NEW.biz_type; END;

CREATE TABLE IF NOT EXISTS toc_audit (
  id     INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  at     TEXT    NOT NULL,
  actor  TEXT    NOT NULL,
  action TEXT    NOT NULL,
  target TEXT    NOT NULL DEFAULT '',
  count  INTEGER NOT NULL DEFAULT 0,
  detail TEXT    NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX IF NOT EXISTS idx_audit_at ON toc_audit (at);

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
