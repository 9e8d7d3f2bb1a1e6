-- What this database is: see ../mysql/00001_toc_meta.up.sql, also for what to do
-- if you want to change this file.
CREATE TABLE IF NOT EXISTS toc_meta (
  name  TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT;

INSERT OR IGNORE INTO toc_meta (name, value) VALUES
  ('layout_version',      '{{.LayoutVersion}}'),
  ('databases',           '{{.Databases}}'),
  ('tables_per_database', '{{.Tables}}'),
  ('database',            '{{.Database}}');
