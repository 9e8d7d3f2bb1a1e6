-- The journal of what runs: see ../mysql/00004_toc_running.up.sql.
CREATE TABLE IF NOT EXISTS toc_running (
  job_id   INTEGER NOT NULL PRIMARY KEY,
  instance TEXT    NOT NULL,
  attempts INTEGER NOT NULL,
  cuts     INTEGER NOT NULL DEFAULT 0,
  since    TEXT    NOT NULL
) STRICT;
