DROP TABLE IF EXISTS toc_operation;
