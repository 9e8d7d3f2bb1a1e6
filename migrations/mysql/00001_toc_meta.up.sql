-- What this database is: its place in the layout. Written once, compared by
-- every later start (meta.go), so that no program with another layout looks for
-- tasks in the wrong table.
--
-- If you change this file: don't, once it was released. Write the next number,
-- up and down, here and in ../sqlite, and add it to the list in steps.go. MySQL
-- can stop in the middle of a step and then runs it again from its start: write
-- what can be repeated.
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
