/*---- Triggers on the tables: what plain SQL may write, and who is told of it ----*/

-- what plain SQL does to rows reaches the timer, and sessions that wait, through this
-- trigger; also in a restore, whence ALWAYS
CREATE FUNCTION delay_wheel_internal.task_changed() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_task_changed' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.task_changed() IS
'tells the timer, and sessions in delay_wait(), that plain SQL has written or deleted rows of delay_wheel_data.task';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.task_changed() FROM PUBLIC;
CREATE TRIGGER task_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON delay_wheel_data.task
	FOR EACH STATEMENT EXECUTE FUNCTION delay_wheel_internal.task_changed();
ALTER TABLE delay_wheel_data.task ENABLE ALWAYS TRIGGER task_changed;

-- the period in which a key is unique goes with its task, and ends with it
CREATE FUNCTION delay_wheel_internal.period_follows() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_period_follows' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.period_follows() IS
'removes the row of delay_wheel_data.unique_key of a task that plain SQL deletes, and changes it with the owner, queue and key of the task';
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

-- who may write to any table, as pg_write_all_data, must not run SQL as others
CREATE FUNCTION delay_wheel_internal.task_guard() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_task_guard' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.task_guard() IS
'refuses rows that plain SQL writes for a role whose rights the current user does not have';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.task_guard() FROM PUBLIC;
CREATE TRIGGER task_guard BEFORE INSERT OR UPDATE ON delay_wheel_data.task
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.task_guard();
ALTER TABLE delay_wheel_data.task ENABLE ALWAYS TRIGGER task_guard;

-- queues and pauses that plain SQL changes reach timer and executors, too
CREATE FUNCTION delay_wheel_internal.queue_changed() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_queue_changed' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.queue_changed() IS
'tells timer and executors that plain SQL changed delay_wheel_data.queue or delay_wheel_data.pause';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.queue_changed() FROM PUBLIC;
CREATE TRIGGER queue_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON delay_wheel_data.queue
	FOR EACH STATEMENT EXECUTE FUNCTION delay_wheel_internal.queue_changed();
ALTER TABLE delay_wheel_data.queue ENABLE ALWAYS TRIGGER queue_changed;
CREATE TRIGGER queue_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON delay_wheel_data.pause
	FOR EACH STATEMENT EXECUTE FUNCTION delay_wheel_internal.queue_changed();
ALTER TABLE delay_wheel_data.pause ENABLE ALWAYS TRIGGER queue_changed;

-- who may write to any table must not decide who may use a queue, and what is paused
CREATE FUNCTION delay_wheel_internal.queue_guard() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_queue_guard' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.queue_guard() IS
'refuses plain SQL that changes delay_wheel_data.queue or delay_wheel_data.pause, but by superusers and the owner of the table';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.queue_guard() FROM PUBLIC;
CREATE TRIGGER queue_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel_data.queue
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.queue_guard();
ALTER TABLE delay_wheel_data.queue ENABLE ALWAYS TRIGGER queue_guard;
CREATE TRIGGER queue_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel_data.pause
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.queue_guard();
ALTER TABLE delay_wheel_data.pause ENABLE ALWAYS TRIGGER queue_guard;

-- nor cancel what others have scheduled, or undo that; also tells of marks that
-- plain SQL, a restore or replication wrote
CREATE FUNCTION delay_wheel_internal.cancellation_guard() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_cancellation_guard' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.cancellation_guard() IS
'refuses cancellations that plain SQL writes for a role whose rights the current user does not have; tells timer and executors of the others';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.cancellation_guard() FROM PUBLIC;
CREATE TRIGGER cancellation_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel_data.cancellation
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.cancellation_guard();
ALTER TABLE delay_wheel_data.cancellation ENABLE ALWAYS TRIGGER cancellation_guard;

-- plain SQL that writes to a table leaves a row in the audit, also what changes the audit itself
CREATE FUNCTION delay_wheel_internal.plain_sql() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_plain_sql' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.plain_sql() IS
'records in delay_wheel.audit that plain SQL has written to a table of the extension, if the setting delay_wheel.audit says so';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.plain_sql() FROM PUBLIC;
