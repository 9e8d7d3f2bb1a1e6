-- Who did what: see ../mysql/00006_toc_audit.up.sql.
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
