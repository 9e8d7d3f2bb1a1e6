DROP TABLE IF EXISTS toc_operation_task;
DROP TABLE IF EXISTS toc_operation;
