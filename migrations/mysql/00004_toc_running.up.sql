-- The journal of what runs: one row a task that was started and whose end is not recorded yet, for tasks that may have
-- ended a process before (package processor). A row whose process is gone is a start without an end, a cut.
CREATE TABLE IF NOT EXISTS toc_running (
  job_id   bigint unsigned  NOT NULL,
  instance varchar(64)      NOT NULL,
  attempts tinyint unsigned NOT NULL,
  cuts     tinyint unsigned NOT NULL DEFAULT 0,
  since    datetime(3)      NOT NULL,
  PRIMARY KEY (job_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{.Collation}} STATS_PERSISTENT=1 STATS_AUTO_RECALC=0 STATS_SAMPLE_PAGES=1;
