ALTER TABLE {{.Table}} DROP COLUMN errors;
