/*---- How tasks ended, and who has done what ----*/

/*
 * Three tables in turn, so that what is old goes by TRUNCATE.  Nothing in them
 * is ever updated or deleted, so there is nothing to vacuum.
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
	-- the view has the differences, which may be infinite, or too large
	CONSTRAINT history_times_check CHECK (pg_catalog.isfinite(due) AND pg_catalog.isfinite(started) AND pg_catalog.isfinite(ended)
		AND pg_catalog.isfinite(started - due) AND pg_catalog.isfinite(ended - started))
)
USING heap
WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
-- not moved out of line
ALTER TABLE delay_wheel_data.history_0
	ALTER COLUMN message SET STORAGE MAIN,
	ALTER COLUMN sql SET STORAGE MAIN,
	ALTER COLUMN key SET STORAGE MAIN,
	ALTER COLUMN tag SET STORAGE MAIN,
	ALTER COLUMN result SET STORAGE MAIN,
	ALTER COLUMN group_key SET STORAGE MAIN;
COMMENT ON TABLE delay_wheel_data.history_0 IS
'how tasks ended, one of three tables that are written in turn: the oldest one is emptied as a whole, by size and age, see the settings delay_wheel.history_max_size and delay_wheel.history_max_age. Read it by the view delay_wheel.history. Not in dumps';
COMMENT ON COLUMN delay_wheel_data.history_0.task IS 'number of the task';
COMMENT ON COLUMN delay_wheel_data.history_0.due IS 'due time of this attempt';
COMMENT ON COLUMN delay_wheel_data.history_0.started IS 'when it began; null if it was not run';
COMMENT ON COLUMN delay_wheel_data.history_0.ended IS 'when its SQL had ended, or it was given up, or cancelled';
COMMENT ON COLUMN delay_wheel_data.history_0.rows IS 'that the last statement of its SQL wrote or returned; null unless done';
COMMENT ON COLUMN delay_wheel_data.history_0.recurring IS 'number of the recurring task that it was a run of, or null';
COMMENT ON COLUMN delay_wheel_data.history_0.owner IS 'role that scheduled the task';
COMMENT ON COLUMN delay_wheel_data.history_0.queue IS 'queue, see delay_wheel_data.queue; 0 is the default queue';
COMMENT ON COLUMN delay_wheel_data.history_0.attempt IS '1 for the first one; null if it was not run';
COMMENT ON COLUMN delay_wheel_data.history_0.outcome IS 'done, failed, retried, skipped or cancelled';
COMMENT ON COLUMN delay_wheel_data.history_0.command_tag IS 'of the last statement of its SQL; null unless done';
COMMENT ON COLUMN delay_wheel_data.history_0.sqlstate IS 'of the error, if failed or retried';
COMMENT ON COLUMN delay_wheel_data.history_0.message IS 'of the error, its first 1000 bytes';
COMMENT ON COLUMN delay_wheel_data.history_0.sql IS 'its first 200 bytes, without the values of its parameters; null for a message';
COMMENT ON COLUMN delay_wheel_data.history_0.key IS 'its key, or null';
COMMENT ON COLUMN delay_wheel_data.history_0.tag IS 'its tag, or null';
COMMENT ON COLUMN delay_wheel_data.history_0.sample IS 'the share of such ends that were recorded then, see delay_wheel.history_sample; null is all of them';
COMMENT ON COLUMN delay_wheel_data.history_0.result IS 'the first row that its SQL returned, or what the receiver of a message said, see delay_wheel.history_result; JSON null if it was longer';
COMMENT ON COLUMN delay_wheel_data.history_0.group_key IS 'the group that it belonged to, or null';

CREATE TABLE delay_wheel_data.history_1 (LIKE delay_wheel_data.history_0 INCLUDING STORAGE INCLUDING CONSTRAINTS INCLUDING COMMENTS)
USING heap
WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
COMMENT ON TABLE delay_wheel_data.history_1 IS 'see delay_wheel_data.history_0';

CREATE TABLE delay_wheel_data.history_2 (LIKE delay_wheel_data.history_0 INCLUDING STORAGE INCLUDING CONSTRAINTS INCLUDING COMMENTS)
USING heap
WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
COMMENT ON TABLE delay_wheel_data.history_2 IS 'see delay_wheel_data.history_0';

CREATE SEQUENCE delay_wheel_data.history_seq AS smallint MINVALUE 0 MAXVALUE 2 START 0 CACHE 1 CYCLE;
COMMENT ON SEQUENCE delay_wheel_data.history_seq IS 'number of the table of delay_wheel.history that is written';

/*
 * Who has done what, see audit.c.  Rows go by deletion, from the oldest on.
 */
-- with CYCLE, so that nobody who may set it can make actions fail
CREATE SEQUENCE delay_wheel_data.audit_id_seq AS bigint CACHE 1 CYCLE;
COMMENT ON SEQUENCE delay_wheel_data.audit_id_seq IS 'ids of rows of delay_wheel.audit';

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
'who has done what, as far as the setting delay_wheel.audit says that it is recorded, for delay_wheel.audit_max_age. Read it by the view delay_wheel.audit. Only its owner and superusers may change it. Not in dumps';
COMMENT ON COLUMN delay_wheel_data.audit.id IS 'number of the row, ascending in the order of the actions';
COMMENT ON COLUMN delay_wheel_data.audit.at IS 'when it was done; the commit came after';
COMMENT ON COLUMN delay_wheel_data.audit.task IS 'number of the task; of a delay_cancel_all(), its number; or null';
COMMENT ON COLUMN delay_wheel_data.audit.due IS 'new due time of the task; of a delay_run_due(), its argument; or null';
COMMENT ON COLUMN delay_wheel_data.audit.rows IS 'how many tasks, or rows of plain SQL; null if it is one, or if they were not counted: plain SQL that deletes, or writes to a table without tasks';
COMMENT ON COLUMN delay_wheel_data.audit.owner IS 'role whose task it is; that of role, where it is no single task';
COMMENT ON COLUMN delay_wheel_data.audit.pid IS 'process of the session, as in pg_stat_activity and the log';
COMMENT ON COLUMN delay_wheel_data.audit.queue IS 'queue of the task, see delay_wheel_data.queue; 0 is the default queue; or null';
COMMENT ON COLUMN delay_wheel_data.audit.action IS 'what was done: the name of the function without delay_; plain_sql is a statement that has written to a table of the extension';
COMMENT ON COLUMN delay_wheel_data.audit.key IS 'key of the task, or null';
COMMENT ON COLUMN delay_wheel_data.audit.tag IS 'tag of the task, or that the call named; or null';
COMMENT ON COLUMN delay_wheel_data.audit.name IS 'name of the queue, the recurring task or the table, or null';
COMMENT ON COLUMN delay_wheel_data.audit.detail IS 'what else was given, its first 1000 bytes, or null';
COMMENT ON COLUMN delay_wheel_data.audit.login_role IS 'role that has connected: SET ROLE and SET SESSION AUTHORIZATION do not change it; in a task, its owner; null if it is dropped meanwhile';
COMMENT ON COLUMN delay_wheel_data.audit.role IS 'role whose rights counted, current_user: another one than login_role after SET ROLE, and in a SECURITY DEFINER function';
COMMENT ON COLUMN delay_wheel_data.audit.client_addr IS 'address of the client; null for a Unix socket, and in a task';
COMMENT ON COLUMN delay_wheel_data.audit.application_name IS 'as the client gives it; in a task, that of its executor; null if it is empty';

-- what happened is not for others to say: neither for those who may write to
-- any table, nor for a publisher
CREATE FUNCTION delay_wheel_internal.history_guard() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_history_guard' LANGUAGE C;
COMMENT ON FUNCTION delay_wheel_internal.history_guard() IS
'refuses plain SQL that changes rows of delay_wheel.history and delay_wheel.audit, but by superusers and the owner of the table; leaves out what is replicated: the history and the audit of a publisher are its own';
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
'how one''s own tasks ended, as far as the setting delay_wheel.history, or their queue, says that it is recorded; all of them for pg_read_all_data and superusers. One row for each attempt, written in the task''s own transaction, so exactly if that was committed. In no particular order; no index, unless one was added to delay_wheel_data.history_0, history_1 and history_2. Rows go when they are older than delay_wheel.history_max_age, or there are more than delay_wheel.history_max_size allows, a third of them or more at a time. Cancelled tasks have a row where all is recorded; those of delay_cancel_all() get it when their rows are removed, and the setting is that of the database then, or of the server; what plain SQL deletes has none';
COMMENT ON COLUMN delay_wheel.history.task IS 'number of the task';
COMMENT ON COLUMN delay_wheel.history.key IS 'its key, or null';
COMMENT ON COLUMN delay_wheel.history.tag IS 'its tag, or null';
COMMENT ON COLUMN delay_wheel.history.owner IS 'role that scheduled the task';
COMMENT ON COLUMN delay_wheel.history.started IS 'when this attempt began; null if it was not run';
COMMENT ON COLUMN delay_wheel.history.ended IS 'when its SQL had ended, or it was given up, or cancelled; the commit came after';
COMMENT ON COLUMN delay_wheel.history.outcome IS 'done; failed: it was given up; retried: this attempt failed, another one follows; skipped: it came too late; cancelled, also by a newer task that replaces it';
COMMENT ON COLUMN delay_wheel.history.lateness IS 'milliseconds from due to started; waiting for limits, and pauses, are part of it; null if it was not run';
COMMENT ON COLUMN delay_wheel.history.duration IS 'milliseconds from started to ended; null if it was not run';
COMMENT ON COLUMN delay_wheel.history.rows IS 'that the last statement of its SQL wrote or returned; null unless done';
COMMENT ON COLUMN delay_wheel.history.command_tag IS 'of the last statement of its SQL, as psql shows it, without numbers; null unless done, or if a rule replaced it by one of another kind';
COMMENT ON COLUMN delay_wheel.history.sqlstate IS 'of the error, if failed or retried';
COMMENT ON COLUMN delay_wheel.history.message IS 'of the error, its first 1000 bytes';
COMMENT ON COLUMN delay_wheel.history.queue IS 'null if it was dropped since';
COMMENT ON COLUMN delay_wheel.history.attempt IS '1 for the first one; null if it was not run';
COMMENT ON COLUMN delay_wheel.history.due IS 'of this attempt';
COMMENT ON COLUMN delay_wheel.history.sql IS 'its first 200 bytes, without the values of its parameters';
COMMENT ON COLUMN delay_wheel.history.recurring IS 'number of the recurring task that it was a run of, or null';
COMMENT ON COLUMN delay_wheel.history.sample IS 'the share of such ends that were recorded then, as delay_wheel.history_sample said, where history is sample; null is all of them. So sum(1 / COALESCE(sample, 1)) says how many there were, about';
COMMENT ON COLUMN delay_wheel.history.group_key IS 'the group that it belonged to, or null';
COMMENT ON COLUMN delay_wheel.history.result IS 'the first row that the last statement of its SQL returned, by SELECT, RETURNING, CALL and the like, as an object; or the result that delay_done() gave a message. It is kept if delay_wheel.history_result says so, up to that many bytes; JSON null, which is not null, stands for one that is longer, or that has no form as jsonb. Null unless done, or if there was none';

CREATE VIEW delay_wheel.audit WITH (security_invoker) AS
SELECT a.at, a.action, a.task, COALESCE(q.name, CASE a.queue WHEN 0 THEN 'default' END) AS queue, a.key, a.tag, a.name, a.detail, a.due, a.rows, a.login_role, a.role, a.client_addr, a.application_name, a.pid, pg_catalog.pg_get_userbyid(a.owner::oid)::text AS owner, a.id
FROM delay_wheel_data.readable_audit a
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = a.queue;
COMMENT ON VIEW delay_wheel.audit IS
'who has done what, superusers included, as far as the setting delay_wheel.audit said that it is recorded: what one has done, and what was done to one''s own tasks; all of it for pg_read_all_data and superusers. One row for each call that has changed something, written in its own transaction, so exactly if that was committed; but a running task that delay_cancel() stops is told at once. What executors do by themselves is no action, nor is what receivers do with messages: see delay_wheel.history. Rows are kept for delay_wheel.audit_max_age';
COMMENT ON COLUMN delay_wheel.audit.at IS 'when it was done; the commit came after';
COMMENT ON COLUMN delay_wheel.audit.action IS 'what was done: the name of the function without delay_; plain_sql is a statement that has written to a table of the extension';
COMMENT ON COLUMN delay_wheel.audit.task IS 'number of the task; of a delay_cancel_all(), its number; or null';
COMMENT ON COLUMN delay_wheel.audit.queue IS 'name of the queue of the task; null if it was dropped since, and where it is no task';
COMMENT ON COLUMN delay_wheel.audit.key IS 'key of the task, or null';
COMMENT ON COLUMN delay_wheel.audit.tag IS 'tag of the task, or that the call named; or null';
COMMENT ON COLUMN delay_wheel.audit.name IS 'name of the queue, the recurring task or the table, or null';
COMMENT ON COLUMN delay_wheel.audit.detail IS 'what else was given, its first 1000 bytes, or null';
COMMENT ON COLUMN delay_wheel.audit.due IS 'new due time of the task; of a delay_run_due(), its argument; or null';
COMMENT ON COLUMN delay_wheel.audit.rows IS 'how many tasks, or rows of plain SQL; null if it is one, or if they were not counted: plain SQL that deletes, or writes to a table without tasks';
COMMENT ON COLUMN delay_wheel.audit.login_role IS 'role that has connected: SET ROLE and SET SESSION AUTHORIZATION do not change it; in a task, its owner; null if it is dropped meanwhile';
COMMENT ON COLUMN delay_wheel.audit.role IS 'role whose rights counted, current_user: another one than login_role after SET ROLE, and in a SECURITY DEFINER function';
COMMENT ON COLUMN delay_wheel.audit.client_addr IS 'address of the client; null for a Unix socket, and in a task';
COMMENT ON COLUMN delay_wheel.audit.application_name IS 'as the client gives it; in a task, that of its executor; null if it is empty';
COMMENT ON COLUMN delay_wheel.audit.pid IS 'process of the session, as in pg_stat_activity and the log';
COMMENT ON COLUMN delay_wheel.audit.owner IS 'role whose task it is; that of role, where it is no single task';
COMMENT ON COLUMN delay_wheel.audit.id IS 'number of the row, ascending in the order of the actions';

GRANT SELECT ON delay_wheel.history, delay_wheel.audit TO PUBLIC;
