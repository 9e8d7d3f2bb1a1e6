-- Redrives and discards of dead tasks at a rate. Each database has a row of each operation, with the counts of its own
-- tasks, written in the same transaction as these. walked is the last job_id that was taken,
-- step the number of that transaction, seen how many tasks were taken and done how many of them were changed.
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

-- The tasks that an operation has changed, for an undo: attempts, due_time and action_time as they were before,
-- and what tells whether a task has changed since: its status, action_time and gmt_modified after the change.
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
