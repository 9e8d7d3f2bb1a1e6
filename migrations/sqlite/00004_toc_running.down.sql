DROP TABLE IF EXISTS toc_running;
