-- One task table, rendered for each of this database's tables. This file never changes: see 00009_baseline.sql.
--
-- Times are UTC. The CHECKs refuse rows that no engine would ever find; a server's error shows only a constraint's name,
-- so the name says what is wrong. MySQL wants names that are unique in the database: they end with a number.
--
-- The collation compares byte by byte and pads nothing: a dedup_key 'a' is neither 'A' nor 'a '.
--
-- The columns from due_time on may be NULL, so an INSERT by hand needs four columns only.
--   due_time    the promised time; NULL: action_time
--   timeout_ms  this task's own time-out; NULL: its biz_type's
--   lease       the worker that has leased the task, where workers pull
--   trace       the submitter's trace context (W3C traceparent)
--   biz_key     the business's id where it is a text; biz_id is then the first 64 bits of its MD5
--   errors      the failed runs: a JSON object a line, the oldest first, {"attempt":1,"at":"2026-01-02T15:04:05.000Z","error":"…"}.
--               The last 8192 characters are kept. No scan reads it (store/failed_runs.go).
--
-- STATS_*: InnoDB analyses a table again whenever a tenth of it has changed, which thousands of small tables do all the
-- time (it cost 18 of 19 inserts a second). So statistics stand still, and every hot statement names its index.
CREATE TABLE IF NOT EXISTS {{.Table}} (
  job_id       bigint unsigned  NOT NULL,
  gmt_create   datetime(3)      NOT NULL DEFAULT (UTC_TIMESTAMP(3)),
  gmt_modified datetime(3)      NOT NULL DEFAULT (UTC_TIMESTAMP(3)) ON UPDATE CURRENT_TIMESTAMP(3),
  biz_id       bigint unsigned  NOT NULL,
  biz_type     bigint unsigned  NOT NULL,
  status       tinyint          NOT NULL DEFAULT 0,
  action_time  datetime(3)      NOT NULL,
  attribute    varchar(4096)    NOT NULL DEFAULT '',
  attempts     tinyint unsigned NOT NULL DEFAULT 0,
  last_error   varchar(255)     NOT NULL DEFAULT '',
  dedup_key    varchar(64)      NULL,
  due_time     datetime(3)      NULL,
  timeout_ms   int unsigned     NULL,
  lease        bigint unsigned  NULL,
  trace        varchar(55)      NULL,
  biz_key      varchar(128)     NULL,
  errors       text             NULL,
  PRIMARY KEY (job_id),
  KEY idx_status_action_time (status, action_time),
  UNIQUE KEY uk_biz_id_biz_type_dedup_key (biz_id, biz_type, dedup_key),
  CONSTRAINT status_must_be_0_2_3_or_4_in_{{.Number}} CHECK (status IN (0, 2, 3, 4)),
  CONSTRAINT job_id_must_be_63_bits_with_shard_{{.Shard}} CHECK (job_id >> 63 = 0 AND ((job_id >> 10) & 8191) = {{.Shard}}),
  CONSTRAINT biz_id_must_belong_to_database_{{.Database}}_table_{{.Number}} CHECK (
    (biz_id & {{.DatabaseMask}}) = {{.Database}} AND ((biz_id >> {{.DatabaseBits}}) & {{.TableMask}}) = {{.TableIndex}})
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={{.Collation}}
  STATS_PERSISTENT=1 STATS_AUTO_RECALC=0 STATS_SAMPLE_PAGES=1;
