-- Who did what to many tasks: one row an action. A row lies in any one of the databases (the first that took it), so
-- that one that is down keeps nobody from acting; a reader merges all of them. Purged by store.audit_retention.
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
