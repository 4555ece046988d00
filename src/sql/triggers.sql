/*---- Triggers on the tables: they check what plain SQL writes, and report it ----*/

-- Informs the timer, and waiting sessions, of rows that plain SQL writes.  ALWAYS, since
-- a restore must inform them, too.
CREATE FUNCTION delay_wheel_internal.task_changed() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_task_changed' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.task_changed() IS
'Trigger function: reports changes of delay_wheel_data.task by plain SQL to the timer and to sessions in delay_wait().';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.task_changed() FROM PUBLIC;
CREATE TRIGGER task_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON delay_wheel_data.task
	FOR EACH STATEMENT EXECUTE FUNCTION delay_wheel_internal.task_changed();
ALTER TABLE delay_wheel_data.task ENABLE ALWAYS TRIGGER task_changed;

-- the period of a unique key changes and ends with its task
CREATE FUNCTION delay_wheel_internal.period_follows() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_period_follows' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.period_follows() IS
'Trigger function: when plain SQL deletes or changes a task, removes or changes the row of the task in delay_wheel_data.unique_key.';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.period_follows() FROM PUBLIC;
CREATE TRIGGER period_deleted AFTER DELETE ON delay_wheel_data.task
	FOR EACH ROW WHEN (OLD.more OPERATOR(pg_catalog.?) 'unique_for')
	EXECUTE FUNCTION delay_wheel_internal.period_follows();
ALTER TABLE delay_wheel_data.task ENABLE ALWAYS TRIGGER period_deleted;
CREATE TRIGGER period_changed AFTER UPDATE ON delay_wheel_data.task
	FOR EACH ROW WHEN (OLD.more OPERATOR(pg_catalog.?) 'unique_for')
	EXECUTE FUNCTION delay_wheel_internal.period_follows();
ALTER TABLE delay_wheel_data.task ENABLE ALWAYS TRIGGER period_changed;
CREATE TRIGGER period_truncated BEFORE TRUNCATE ON delay_wheel_data.task
	FOR EACH STATEMENT EXECUTE FUNCTION delay_wheel_internal.period_follows();
ALTER TABLE delay_wheel_data.task ENABLE ALWAYS TRIGGER period_truncated;

-- a role that may write to any table, such as pg_write_all_data, must not run SQL as another role
CREATE FUNCTION delay_wheel_internal.task_guard() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_task_guard' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.task_guard() IS
'Trigger function: refuses rows that plain SQL writes for a role whose rights the current user does not have.';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.task_guard() FROM PUBLIC;
CREATE TRIGGER task_guard BEFORE INSERT OR UPDATE ON delay_wheel_data.task
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.task_guard();
ALTER TABLE delay_wheel_data.task ENABLE ALWAYS TRIGGER task_guard;

-- informs timer and executors of queues and pauses that plain SQL changes
CREATE FUNCTION delay_wheel_internal.queue_changed() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_queue_changed' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.queue_changed() IS
'Trigger function: reports changes of delay_wheel_data.queue and delay_wheel_data.pause by plain SQL to timer and executors.';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.queue_changed() FROM PUBLIC;
CREATE TRIGGER queue_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON delay_wheel_data.queue
	FOR EACH STATEMENT EXECUTE FUNCTION delay_wheel_internal.queue_changed();
ALTER TABLE delay_wheel_data.queue ENABLE ALWAYS TRIGGER queue_changed;
CREATE TRIGGER queue_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON delay_wheel_data.pause
	FOR EACH STATEMENT EXECUTE FUNCTION delay_wheel_internal.queue_changed();
ALTER TABLE delay_wheel_data.pause ENABLE ALWAYS TRIGGER queue_changed;

-- a role that may write to any table must not decide who uses a queue, or what is paused
CREATE FUNCTION delay_wheel_internal.queue_guard() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_queue_guard' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.queue_guard() IS
'Trigger function: refuses plain SQL on delay_wheel_data.queue and delay_wheel_data.pause, except by superusers and the owner of the table.';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.queue_guard() FROM PUBLIC;
CREATE TRIGGER queue_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel_data.queue
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.queue_guard();
ALTER TABLE delay_wheel_data.queue ENABLE ALWAYS TRIGGER queue_guard;
CREATE TRIGGER queue_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel_data.pause
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.queue_guard();
ALTER TABLE delay_wheel_data.pause ENABLE ALWAYS TRIGGER queue_guard;

-- A role that may write to any table must not cancel tasks of other roles, or undo a cancellation.
-- This trigger also informs timer and executors of cancellations that plain SQL, a restore or replication wrote.
CREATE FUNCTION delay_wheel_internal.cancellation_guard() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_cancellation_guard' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.cancellation_guard() IS
'Trigger function: refuses cancellations by plain SQL for a role whose rights the current user does not have. Reports allowed cancellations to timer and executors.';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.cancellation_guard() FROM PUBLIC;
CREATE TRIGGER cancellation_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel_data.cancellation
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.cancellation_guard();
ALTER TABLE delay_wheel_data.cancellation ENABLE ALWAYS TRIGGER cancellation_guard;

-- plain SQL that writes to a table leaves a row in the audit, even if it changes the audit itself
CREATE FUNCTION delay_wheel_internal.plain_sql() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_plain_sql' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.plain_sql() IS
'Trigger function: records in delay_wheel.audit that plain SQL has written to a table of the extension, if delay_wheel.audit is on.';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.plain_sql() FROM PUBLIC;
