-- What operators have decided about business types: see ../mysql/00005_toc_control.up.sql.
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
