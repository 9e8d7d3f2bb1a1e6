-- What operators have decided about business types: one row a type, the same in each database, so that one that is
-- down takes nothing along. The row that was changed last wins. changed_at is a timestamp because that does not follow the
-- time zone of the session.
CREATE TABLE IF NOT EXISTS toc_control (
  biz_type     bigint unsigned  NOT NULL,
  paused       tinyint unsigned NOT NULL DEFAULT 1,
  reason       varchar(255)     NOT NULL DEFAULT '',
  actor        varchar(64)      NOT NULL DEFAULT 'sql',
  paused_until datetime(3)      NULL,
  changed_at   timestamp(3)     NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
  PRIMARY KEY (biz_type)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{.Collation}};
