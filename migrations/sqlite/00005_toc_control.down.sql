DROP TABLE IF EXISTS toc_control;
