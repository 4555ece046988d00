/*---- How tasks ended, and who has done what ----*/

/*
 * Three tables are written in turn, so that TRUNCATE can remove old rows.  Rows are never
 * updated or deleted, so there is nothing to vacuum.
 */
CREATE TABLE delay_wheel_data.history_0
(
	task bigint NOT NULL,
	due timestamptz NOT NULL,
	started timestamptz,
	ended timestamptz NOT NULL,
	rows bigint,
	recurring bigint,
	owner regrole NOT NULL,
	queue smallint NOT NULL,
	attempt smallint,
	outcome text NOT NULL,
	command_tag text,
	sqlstate text,
	message text,
	sql text,
	key text,
	tag text,
	sample double precision,
	result jsonb,
	group_key text,
	-- the differences in the view must be finite, too
	CONSTRAINT history_times_check CHECK (pg_catalog.isfinite(due) AND pg_catalog.isfinite(started) AND pg_catalog.isfinite(ended)
		AND pg_catalog.isfinite(started - due) AND pg_catalog.isfinite(ended - started))
)
USING heap
WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
-- values stay in the row: a reader needs no TOAST table
ALTER TABLE delay_wheel_data.history_0
	ALTER COLUMN message SET STORAGE MAIN,
	ALTER COLUMN sql SET STORAGE MAIN,
	ALTER COLUMN key SET STORAGE MAIN,
	ALTER COLUMN tag SET STORAGE MAIN,
	ALTER COLUMN result SET STORAGE MAIN,
	ALTER COLUMN group_key SET STORAGE MAIN;
COMMENT ON TABLE delay_wheel_data.history_0 IS
'One of three tables, written in turn, that record how tasks ended. To read them, use the view delay_wheel.history. Dumps do not contain them.';
COMMENT ON COLUMN delay_wheel_data.history_0.task IS 'Id of the task';
COMMENT ON COLUMN delay_wheel_data.history_0.due IS 'Due time of this attempt';
COMMENT ON COLUMN delay_wheel_data.history_0.started IS 'Start of this attempt';
COMMENT ON COLUMN delay_wheel_data.history_0.ended IS 'End of the SQL, or time at which the task was given up or cancelled; the commit came later';
COMMENT ON COLUMN delay_wheel_data.history_0.rows IS 'Number of rows that the last statement of the SQL wrote or returned';
COMMENT ON COLUMN delay_wheel_data.history_0.recurring IS 'Id of the recurring task, if the task was a run of a recurring task';
COMMENT ON COLUMN delay_wheel_data.history_0.owner IS 'Role that scheduled the task';
COMMENT ON COLUMN delay_wheel_data.history_0.queue IS 'Id of the queue; 0 is the default queue';
COMMENT ON COLUMN delay_wheel_data.history_0.attempt IS 'Number of this attempt, from 1';
COMMENT ON COLUMN delay_wheel_data.history_0.outcome IS 'done, failed, retried, skipped or cancelled';
COMMENT ON COLUMN delay_wheel_data.history_0.command_tag IS 'Command tag of the last statement of the SQL';
COMMENT ON COLUMN delay_wheel_data.history_0.sqlstate IS 'SQLSTATE of the error, if the outcome is failed or retried';
COMMENT ON COLUMN delay_wheel_data.history_0.message IS 'First 1,000 bytes of the error message';
COMMENT ON COLUMN delay_wheel_data.history_0.sql IS 'First 200 bytes of the SQL, without the values of parameters';
COMMENT ON COLUMN delay_wheel_data.history_0.key IS 'Key';
COMMENT ON COLUMN delay_wheel_data.history_0.tag IS 'Tag';
COMMENT ON COLUMN delay_wheel_data.history_0.sample IS 'Share of ends of this kind that was recorded; NULL: all';
COMMENT ON COLUMN delay_wheel_data.history_0.result IS 'First row that the SQL returned, or the result that the receiver of a message passed to delay_done(); JSON null if the value was too long';
COMMENT ON COLUMN delay_wheel_data.history_0.group_key IS 'Name of the group';

CREATE TABLE delay_wheel_data.history_1 (LIKE delay_wheel_data.history_0 INCLUDING STORAGE INCLUDING CONSTRAINTS INCLUDING COMMENTS)
USING heap
WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
COMMENT ON TABLE delay_wheel_data.history_1 IS
'As delay_wheel_data.history_0';

CREATE TABLE delay_wheel_data.history_2 (LIKE delay_wheel_data.history_0 INCLUDING STORAGE INCLUDING CONSTRAINTS INCLUDING COMMENTS)
USING heap
WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
COMMENT ON TABLE delay_wheel_data.history_2 IS
'As delay_wheel_data.history_0';

CREATE SEQUENCE delay_wheel_data.history_seq AS smallint MINVALUE 0 MAXVALUE 2 START 0 CACHE 1 CYCLE;
COMMENT ON SEQUENCE delay_wheel_data.history_seq IS
'Number of the history table that is written now, 0 to 2';

/*
 * The audit: who has done what, see audit.c.  The sweeper deletes the oldest rows.
 */
-- CYCLE: a role that may set the sequence must not be able to make actions fail
CREATE SEQUENCE delay_wheel_data.audit_id_seq AS bigint CACHE 1 CYCLE;
COMMENT ON SEQUENCE delay_wheel_data.audit_id_seq IS
'Ids of rows of delay_wheel.audit';

CREATE TABLE delay_wheel_data.audit
(
	id bigint NOT NULL,
	at timestamptz NOT NULL,
	task bigint,
	due timestamptz,
	rows bigint,
	owner regrole NOT NULL,
	pid integer NOT NULL,
	queue smallint,
	action text NOT NULL,
	key text,
	tag text,
	name text,
	detail text,
	login_role text,
	role text,
	client_addr text,
	application_name text,
	CONSTRAINT audit_pkey PRIMARY KEY (at, id)
)
USING heap
WITH (autovacuum_vacuum_scale_factor = 0.05, vacuum_truncate = off);
ALTER SEQUENCE delay_wheel_data.audit_id_seq OWNED BY delay_wheel_data.audit.id;
COMMENT ON TABLE delay_wheel_data.audit IS
'Actions that the setting delay_wheel.audit selects. To read them, use the view delay_wheel.audit. Dumps do not contain them.';
COMMENT ON COLUMN delay_wheel_data.audit.id IS 'Number of the row; numbers are in the order of the actions';
COMMENT ON COLUMN delay_wheel_data.audit.at IS 'Time of the action, before the commit';
COMMENT ON COLUMN delay_wheel_data.audit.task IS 'Id of the task, of the batch, or of the cancellation by delay_cancel_all()';
COMMENT ON COLUMN delay_wheel_data.audit.due IS 'New due time of the task, or the argument of delay_run_due()';
COMMENT ON COLUMN delay_wheel_data.audit.rows IS 'Number of tasks, or of rows that plain SQL wrote; NULL: one, or not counted';
COMMENT ON COLUMN delay_wheel_data.audit.owner IS 'Owner of the task or batch, or the same role as in column role if the action is about neither';
COMMENT ON COLUMN delay_wheel_data.audit.pid IS 'Process id of the session, as in pg_stat_activity and the log';
COMMENT ON COLUMN delay_wheel_data.audit.queue IS 'Id of the queue of the task, or of the queue that the call named; 0: default queue, NULL: no queue';
COMMENT ON COLUMN delay_wheel_data.audit.action IS 'Name of the function without delay_ or schema; plain_sql: a statement has written to a table of the extension';
COMMENT ON COLUMN delay_wheel_data.audit.key IS 'Key of the task';
COMMENT ON COLUMN delay_wheel_data.audit.tag IS 'Tag of the task, or the tag that the call named';
COMMENT ON COLUMN delay_wheel_data.audit.name IS 'Name of the queue, the recurring task or the table';
COMMENT ON COLUMN delay_wheel_data.audit.detail IS 'First 1,000 bytes of the other arguments';
COMMENT ON COLUMN delay_wheel_data.audit.login_role IS 'Role that has logged in, before any SET ROLE; in a task, the owner of the task. NULL if the role was dropped.';
COMMENT ON COLUMN delay_wheel_data.audit.role IS 'current_user: the role whose rights were checked';
COMMENT ON COLUMN delay_wheel_data.audit.client_addr IS 'Address of the client; NULL for a Unix socket, and in a task';
COMMENT ON COLUMN delay_wheel_data.audit.application_name IS 'application_name of the session, or of the executor in a task; NULL if the name is empty';

-- only the owner may write records: not a role that may write to any table, and not a publisher
-- of logical replication
CREATE FUNCTION delay_wheel_internal.history_guard() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_history_guard' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.history_guard() IS
'Trigger function: refuses changes of history and audit by plain SQL, except by superusers and the owner of the table. Skips replicated rows.';
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.history_guard() FROM PUBLIC;
CREATE TRIGGER history_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel_data.history_0
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.history_guard();
ALTER TABLE delay_wheel_data.history_0 ENABLE ALWAYS TRIGGER history_guard;
CREATE TRIGGER history_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel_data.history_1
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.history_guard();
ALTER TABLE delay_wheel_data.history_1 ENABLE ALWAYS TRIGGER history_guard;
CREATE TRIGGER history_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel_data.history_2
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.history_guard();
ALTER TABLE delay_wheel_data.history_2 ENABLE ALWAYS TRIGGER history_guard;
CREATE TRIGGER history_guard BEFORE INSERT OR UPDATE OR DELETE ON delay_wheel_data.audit
	FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.history_guard();
ALTER TABLE delay_wheel_data.audit ENABLE ALWAYS TRIGGER history_guard;

CREATE TABLE delay_wheel_data.readable_history (LIKE delay_wheel_data.history_0 INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.history_0 INHERIT delay_wheel_data.readable_history;
ALTER TABLE delay_wheel_data.history_1 INHERIT delay_wheel_data.readable_history;
ALTER TABLE delay_wheel_data.history_2 INHERIT delay_wheel_data.readable_history;

CREATE TABLE delay_wheel_data.readable_audit (LIKE delay_wheel_data.audit INCLUDING COMMENTS) USING heap;
ALTER TABLE delay_wheel_data.audit INHERIT delay_wheel_data.readable_audit;

CREATE VIEW delay_wheel.history WITH (security_invoker) AS
SELECT h.ended, h.task, h.outcome,
	   pg_catalog.round((pg_catalog.date_part('epoch'::text, h.started - h.due) * 1000::double precision)::numeric, 3)::double precision AS lateness,
	   pg_catalog.round((pg_catalog.date_part('epoch'::text, h.ended - h.started) * 1000::double precision)::numeric, 3)::double precision AS duration, h.rows, h.command_tag, h.sqlstate, h.message,
	   COALESCE(q.name, CASE h.queue WHEN 0 THEN 'default' END) AS queue, h.key, h.tag, pg_catalog.pg_get_userbyid(h.owner::oid)::text AS owner, h.attempt, h.due, h.started, h.sql, h.recurring, h.sample, h.result, h.group_key
FROM delay_wheel_data.readable_history h
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = h.queue;
COMMENT ON VIEW delay_wheel.history IS
'Ends of tasks, one row for each attempt. The setting delay_wheel.history, or the queue, selects the ends that are recorded.';
COMMENT ON COLUMN delay_wheel.history.task IS 'Id of the task';
COMMENT ON COLUMN delay_wheel.history.key IS 'Key';
COMMENT ON COLUMN delay_wheel.history.tag IS 'Tag';
COMMENT ON COLUMN delay_wheel.history.owner IS 'Role that scheduled the task';
COMMENT ON COLUMN delay_wheel.history.started IS 'Start of this attempt';
COMMENT ON COLUMN delay_wheel.history.ended IS 'End of the SQL, or time at which the task was given up or cancelled; the commit came later';
COMMENT ON COLUMN delay_wheel.history.outcome IS 'done; failed: the task was given up; retried: another attempt follows the failed one; skipped: the task was too late; cancelled: also if a newer task has replaced the task';
COMMENT ON COLUMN delay_wheel.history.lateness IS 'Milliseconds from due to started';
COMMENT ON COLUMN delay_wheel.history.duration IS 'Milliseconds from started to ended';
COMMENT ON COLUMN delay_wheel.history.rows IS 'Number of rows that the last statement of the SQL wrote or returned';
COMMENT ON COLUMN delay_wheel.history.command_tag IS 'Command tag of the last statement of the SQL, without numbers; NULL if a rule changed the kind of statement';
COMMENT ON COLUMN delay_wheel.history.sqlstate IS 'SQLSTATE of the error, if the outcome is failed or retried';
COMMENT ON COLUMN delay_wheel.history.message IS 'First 1,000 bytes of the error message';
COMMENT ON COLUMN delay_wheel.history.queue IS 'Name of the queue; NULL if the queue was dropped';
COMMENT ON COLUMN delay_wheel.history.attempt IS 'Number of this attempt, from 1';
COMMENT ON COLUMN delay_wheel.history.due IS 'Due time of this attempt';
COMMENT ON COLUMN delay_wheel.history.sql IS 'First 200 bytes of the SQL, without the values of parameters';
COMMENT ON COLUMN delay_wheel.history.recurring IS 'Id of the recurring task, if the task was a run of a recurring task';
COMMENT ON COLUMN delay_wheel.history.sample IS 'Share of ends of this kind that was recorded; NULL: all';
COMMENT ON COLUMN delay_wheel.history.group_key IS 'Name of the group';
COMMENT ON COLUMN delay_wheel.history.result IS 'First row that the SQL returned, or the result that the receiver of a message passed to delay_done()';

CREATE VIEW delay_wheel.audit WITH (security_invoker) AS
SELECT a.at, a.action, a.task, COALESCE(q.name, CASE a.queue WHEN 0 THEN 'default' END) AS queue, a.key, a.tag, a.name, a.detail, a.due, a.rows, a.login_role, a.role, a.client_addr, a.application_name, a.pid, pg_catalog.pg_get_userbyid(a.owner::oid)::text AS owner, a.id
FROM delay_wheel_data.readable_audit a
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = a.queue;
COMMENT ON VIEW delay_wheel.audit IS
'Actions of roles on tasks and queues. The setting delay_wheel.audit selects the actions that are recorded.';
COMMENT ON COLUMN delay_wheel.audit.at IS 'Time of the action, before the commit';
COMMENT ON COLUMN delay_wheel.audit.action IS 'Name of the function without delay_ or schema; all functions and triggers that schedule or send: schedule, or reschedule for a move; plain_sql: a statement has written to a table of the extension';
COMMENT ON COLUMN delay_wheel.audit.task IS 'Id of the task, of the batch, or of the cancellation by delay_cancel_all()';
COMMENT ON COLUMN delay_wheel.audit.queue IS 'Name of the queue of the task, or of the queue that the call named; NULL: no queue, or the queue was dropped';
COMMENT ON COLUMN delay_wheel.audit.key IS 'Key of the task';
COMMENT ON COLUMN delay_wheel.audit.tag IS 'Tag of the task, or the tag that the call named';
COMMENT ON COLUMN delay_wheel.audit.name IS 'Name of the queue, the recurring task or the table';
COMMENT ON COLUMN delay_wheel.audit.detail IS 'First 1,000 bytes of the other arguments';
COMMENT ON COLUMN delay_wheel.audit.due IS 'New due time of the task, or the argument of delay_run_due()';
COMMENT ON COLUMN delay_wheel.audit.rows IS 'Number of tasks, or of rows that plain SQL wrote; NULL: one, or not counted';
COMMENT ON COLUMN delay_wheel.audit.login_role IS 'Role that has logged in, before any SET ROLE; in a task, the owner of the task. NULL if the role was dropped.';
COMMENT ON COLUMN delay_wheel.audit.role IS 'current_user: the role whose rights were checked';
COMMENT ON COLUMN delay_wheel.audit.client_addr IS 'Address of the client; NULL for a Unix socket, and in a task';
COMMENT ON COLUMN delay_wheel.audit.application_name IS 'application_name of the session, or of the executor in a task; NULL if the name is empty';
COMMENT ON COLUMN delay_wheel.audit.pid IS 'Process id of the session, as in pg_stat_activity and the log';
COMMENT ON COLUMN delay_wheel.audit.owner IS 'Owner of the task or batch, or the same role as in column role if the action is about neither';
COMMENT ON COLUMN delay_wheel.audit.id IS 'Number of the row; numbers are in the order of the actions';

GRANT SELECT ON delay_wheel.history, delay_wheel.audit TO PUBLIC;
