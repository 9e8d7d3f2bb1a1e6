-- The tables that a database has once, beside its task tables (00009_baseline.table.sql).
--
-- This file never changes: every store was made with it, and a test compares its checksum. To change the schema, write the
-- next number, here and in ../sqlite, and add it to the list in steps.go. MySQL commits each statement that creates or
-- alters a table, so a step that was stopped runs again from its start: write statements that can be repeated. An
-- ALTER TABLE whose column or key is there already counts as done (run.go).

-- The database's place in the layout. Written once and compared by every later start (meta.go), so that no program
-- with another layout looks for tasks in the wrong table.
CREATE TABLE IF NOT EXISTS toc_meta (
  name  varchar(64)  NOT NULL,
  value varchar(255) NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{.Collation}};

INSERT IGNORE INTO toc_meta (name, value) VALUES
  ('layout_version',      '{{.LayoutVersion}}'),
  ('databases',           '{{.Databases}}'),
  ('tables_per_database', '{{.Tables}}'),
  ('database',            '{{.Database}}');

-- The journal of started runs: one row for each task that was started and whose end is not recorded yet, for tasks that may
-- have ended a process before (package processor). A row whose process is gone is a run that was cut short.
CREATE TABLE IF NOT EXISTS toc_running (
  job_id   bigint unsigned  NOT NULL,
  instance varchar(64)      NOT NULL,
  attempts tinyint unsigned NOT NULL,
  cuts     tinyint unsigned NOT NULL DEFAULT 0,
  since    datetime(3)      NOT NULL,
  PRIMARY KEY (job_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{.Collation}} STATS_PERSISTENT=1 STATS_AUTO_RECALC=0 STATS_SAMPLE_PAGES=1;

-- Operators' decisions about business types: one row for each type, the same in each database, so that a database that is
-- down takes no decision along. The row that was changed last wins. changed_at is a timestamp because a timestamp does
-- not follow the time zone of the session.
CREATE TABLE IF NOT EXISTS toc_control (
  biz_type     bigint unsigned  NOT NULL,
  paused       tinyint unsigned NOT NULL DEFAULT 1,
  reason       varchar(255)     NOT NULL DEFAULT '',
  actor        varchar(64)      NOT NULL DEFAULT 'sql',
  paused_until datetime(3)      NULL,
  changed_at   timestamp(3)     NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
  PRIMARY KEY (biz_type)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{.Collation}};

-- The audit log of actions on many tasks: one row an action. A row lies in any one of the databases (the first that took
-- it), so that a database that is down keeps nobody from acting; a reader merges all of them. Purged by store.audit_retention.
CREATE TABLE IF NOT EXISTS toc_audit (
  id     bigint unsigned NOT NULL AUTO_INCREMENT,
  at     datetime(3)     NOT NULL,
  actor  varchar(64)     NOT NULL,
  action varchar(32)     NOT NULL,
  target varchar(255)    NOT NULL DEFAULT '',
  count  bigint          NOT NULL DEFAULT 0,
  detail varchar(1024)   NOT NULL DEFAULT '',
  PRIMARY KEY (id),
  KEY idx_at (at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{.Collation}} STATS_PERSISTENT=1 STATS_AUTO_RECALC=0 STATS_SAMPLE_PAGES=1;

-- Redrives and discards of dead tasks at a rate. Each database has a row of each operation, with the counts of its own
-- tasks, written in the transaction that changes the tasks. walked is the last job_id that was taken, step the number of
-- that transaction, seen how many tasks were taken and done how many of them were changed.
CREATE TABLE IF NOT EXISTS toc_operation (
  id         bigint unsigned NOT NULL,
  kind       varchar(16)     NOT NULL,
  actor      varchar(64)     NOT NULL,
  biz_type   bigint unsigned NULL,
  error      varchar(4096)   NOT NULL DEFAULT '',
  dead_since datetime(3)     NULL,
  dead_until datetime(3)     NULL,
  most       bigint          NOT NULL DEFAULT 0,
  rate       double          NOT NULL,
  state      varchar(16)     NOT NULL,
  matched    bigint          NOT NULL,
  walked     bigint unsigned NOT NULL DEFAULT 0,
  step       bigint unsigned NOT NULL DEFAULT 0,
  done       bigint          NOT NULL DEFAULT 0,
  seen       bigint          NOT NULL DEFAULT 0,
  started    datetime(3)     NOT NULL,
  ended      datetime(3)     NULL,
  undoes     bigint unsigned NOT NULL DEFAULT 0,
  PRIMARY KEY (id),
  KEY idx_state (state)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{.Collation}};

-- The tasks that an operation has changed, for an undo: attempts, due_time and action_time as they were before, and status,
-- action_time and gmt_modified (stamp) after the change, which show whether a task has changed since.
CREATE TABLE IF NOT EXISTS toc_operation_task (
  operation      bigint unsigned NOT NULL,
  job_id         bigint unsigned NOT NULL,
  attempts       int             NOT NULL,
  due_time       datetime(3)     NULL,
  action_time    datetime(3)     NOT NULL,
  to_status      tinyint         NOT NULL,
  to_action_time datetime(3)     NOT NULL,
  stamp          datetime(3)     NOT NULL,
  PRIMARY KEY (operation, job_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{.Collation}};
