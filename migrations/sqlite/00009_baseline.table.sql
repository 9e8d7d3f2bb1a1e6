-- One task table, rendered for each of this database's tables: the columns of ../mysql/00009_baseline.table.sql, which says
-- what each is for. This file never changes.
--
-- biz_id and biz_type hold the two's complement of a uint64 (SQLite's integers are signed); the masks of the CHECKs do not
-- mind. Times are text in UTC, 'YYYY-MM-DD HH:MM:SS' with or without a fraction, because they are compared as text: an
-- ISO 'T' would sort behind every time of its day and fire late. STRICT refuses what MySQL's column types refuse.
-- gmt_modified is not refreshed by an UPDATE made by hand. Index names are per database, so they end with the table's number.
CREATE TABLE IF NOT EXISTS {{.Table}} (
  job_id       INTEGER NOT NULL PRIMARY KEY,
  gmt_create   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  gmt_modified TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  biz_id       INTEGER NOT NULL,
  biz_type     INTEGER NOT NULL,
  status       INTEGER NOT NULL DEFAULT 0,
  action_time  TEXT    NOT NULL,
  attribute    TEXT    NOT NULL DEFAULT '',
  attempts     INTEGER NOT NULL DEFAULT 0,
  last_error   TEXT    NOT NULL DEFAULT '',
  dedup_key    TEXT    NULL,
  due_time     TEXT    NULL,
  timeout_ms   INTEGER NULL,
  lease        INTEGER NULL,
  trace        TEXT    NULL,
  biz_key      TEXT    NULL,
  errors       TEXT    NULL,
  CONSTRAINT status_must_be_0_2_3_or_4_in_{{.Number}} CHECK (status IN (0, 2, 3, 4)),
  CONSTRAINT job_id_must_be_63_bits_with_shard_{{.Shard}} CHECK (job_id >= 0 AND ((job_id >> 10) & 8191) = {{.Shard}}),
  CONSTRAINT biz_id_must_belong_to_database_{{.Database}}_table_{{.Number}} CHECK (
    (biz_id & {{.DatabaseMask}}) = {{.Database}} AND ((biz_id >> {{.DatabaseBits}}) & {{.TableMask}}) = {{.TableIndex}}),
  CONSTRAINT "action_time must be UTC as YYYY-MM-DD HH:MM:SS.mmm" CHECK (
    datetime(substr(action_time, 1, 19)) IS substr(action_time, 1, 19) AND substr(action_time, 12, 2) < '24'
    AND (length(action_time) = 19 OR substr(action_time, 20) GLOB '.[0-9]*' AND substr(action_time, 21) NOT GLOB '*[^0-9]*')),
  CONSTRAINT attempts_must_be_0_to_255 CHECK (attempts BETWEEN 0 AND 255),
  CONSTRAINT attribute_is_over_4096_characters CHECK (length(attribute) <= 4096),
  CONSTRAINT last_error_is_over_255_characters CHECK (length(last_error) <= 255),
  CONSTRAINT dedup_key_is_over_64_characters CHECK (length(dedup_key) <= 64),
  CONSTRAINT "due_time must be UTC as YYYY-MM-DD HH:MM:SS.mmm" CHECK (
    due_time IS NULL OR datetime(substr(due_time, 1, 19)) IS substr(due_time, 1, 19) AND substr(due_time, 12, 2) < '24'
    AND (length(due_time) = 19 OR substr(due_time, 20) GLOB '.[0-9]*' AND substr(due_time, 21) NOT GLOB '*[^0-9]*')),
  CONSTRAINT timeout_ms_must_be_0_to_4294967295 CHECK (timeout_ms BETWEEN 0 AND 4294967295),
  CONSTRAINT trace_is_over_55_characters CHECK (length(trace) <= 55),
  CONSTRAINT biz_key_is_over_128_characters CHECK (length(biz_key) <= 128),
  CONSTRAINT errors_is_over_65535_characters CHECK (length(errors) <= 65535)
) STRICT;

CREATE INDEX IF NOT EXISTS idx_status_action_time_{{.Number}} ON {{.Table}} (status, action_time);

CREATE UNIQUE INDEX IF NOT EXISTS uk_biz_id_biz_type_dedup_key_{{.Number}} ON {{.Table}} (biz_id, biz_type, dedup_key);
