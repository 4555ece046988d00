/*---- Views of tasks: pending, failed, ended, running, recurring, cancelled ----*/

CREATE FUNCTION delay_wheel_internal.place(due timestamptz, OUT slot integer, OUT cycle_num bigint)
AS 'MODULE_PATHNAME', 'dw_place' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.place(timestamptz) IS
'slot of the ring and whole turns until a due time';

CREATE FUNCTION delay_wheel_internal.crashes(id bigint) RETURNS smallint
AS 'MODULE_PATHNAME', 'dw_crashes' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.crashes(bigint) IS
'number of times that the process that ran this pending task has crashed. Needs the rights of the task''s owner, pg_read_all_data or a superuser''s; 0 for all others. A task that has crashed is run alone, and set aside after three crashes';

CREATE VIEW delay_wheel.tasks WITH (security_invoker) AS
SELECT t.id, COALESCE(t.first_due, t.due) AS due, pg_catalog.pg_get_userbyid(t.owner::oid)::text AS owner, COALESCE(q.name, CASE t.queue WHEN 0 THEN 'default' END) AS queue, t.priority, t.key, t.tag, t.sql, t.args,
	   (delay_wheel_internal.place(t.due)).slot, (delay_wheel_internal.place(t.due)).cycle_num, COALESCE(t.attempts, 0::smallint) AS attempts,
	   t.more OPERATOR(pg_catalog.->>) 'last_error'::text AS last_error,
	   t.origin = delay_wheel_internal.origin() AS armed,
	   t.more OPERATOR(pg_catalog.->>) 'mode'::text AS mode,
	   delay_wheel_internal.crashes(t.id) AS crashes,
	   t.arg_types::text[] AS arg_types, t.max_attempts, t.retry_delay::text AS retry_delay,
	   pg_catalog.make_interval(secs => pg_catalog.float8(t.timeout) / 1000::double precision)::text AS timeout, t.expires::text AS expires,
	   -- whatever plain SQL may have written
	   CASE WHEN pg_catalog.jsonb_typeof(t.more OPERATOR(pg_catalog.->) 'skip_after'::text) = 'number' THEN
			pg_catalog.make_interval(secs => LEAST(GREATEST((t.more OPERATOR(pg_catalog.->) 'skip_after'::text)::numeric, 0::numeric), 1e15::numeric)::double precision / 1000000::double precision)::text
	   END AS skip_after,
	   t.more OPERATOR(pg_catalog.->>) 'notify'::text AS notify,
	   t.more OPERATOR(pg_catalog.->>) 'on_success'::text AS on_success,
	   t.more OPERATOR(pg_catalog.->>) 'on_failure'::text AS on_failure, t.payload, t.group_key,
	   CASE WHEN t.token IS NOT NULL AND t.due > pg_catalog.clock_timestamp() THEN t.due END AS leased_until,
	   t.more OPERATOR(pg_catalog.->>) 'retry_backoff'::text AS retry_backoff,
	   CASE WHEN pg_catalog.jsonb_typeof(t.more OPERATOR(pg_catalog.->) 'retry_max_delay'::text) = 'number' THEN
			pg_catalog.make_interval(secs => LEAST(GREATEST((t.more OPERATOR(pg_catalog.->) 'retry_max_delay'::text)::numeric, 0::numeric), 1e15::numeric)::double precision / 1000000::double precision)::text
	   END AS retry_max_delay,
	   pg_catalog.string_to_array(t.more OPERATOR(pg_catalog.->>) 'retry_on'::text, ','::text) AS retry_on,
	   pg_catalog.string_to_array(t.more OPERATOR(pg_catalog.->>) 'give_up_on'::text, ','::text) AS give_up_on,
	   t.more OPERATOR(pg_catalog.->) 'settings'::text AS settings,
	   ('2000-01-01'::timestamp + pg_catalog.make_interval(days => pg_catalog.div(l.us, 86400000000::numeric)::integer,
			secs => pg_catalog.mod(l.us, 86400000000::numeric)::double precision / 1000000::double precision))::text AS local_time,
	   t.more OPERATOR(pg_catalog.#>>) '{local,zone}'::text[] AS time_zone
FROM delay_wheel_data.readable_task t
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = t.queue
	 CROSS JOIN LATERAL (
		SELECT CASE WHEN pg_catalog.jsonb_typeof(t.more OPERATOR(pg_catalog.#>) '{local,time}'::text[]) = 'number' THEN
			LEAST(GREATEST((t.more OPERATOR(pg_catalog.#>) '{local,time}'::text[])::numeric, -211813488000000000::numeric), 9223371331199999999::numeric)
		END AS us) l
-- superseded by a newer one; what a receiver has under a lease is not
WHERE NOT EXISTS (
		SELECT FROM delay_wheel_data.keyed n
		WHERE n.owner OPERATOR(pg_catalog.=) t.owner AND n.queue = t.queue AND n.key = t.key AND n.id > t.id
			AND (t.token IS NULL OR t.due <= pg_catalog.now())
			AND (n.origin = t.origin OR n.origin = delay_wheel_internal.origin()))
	-- as in marks.c: what is cancelled of all roles, and of its own.  Each of these is compared with the tasks
	-- of its role only, and those of roles whose tasks are not shown with none: they can be many
	AND NOT EXISTS (
		SELECT FROM delay_wheel_data.mark c
		WHERE c.owners IS NULL AND COALESCE(t.spared, t.id) < c.id
			AND (c.origin = t.origin OR c.origin = delay_wheel_internal.origin())
			AND (c.queue IS NULL OR c.queue = t.queue)
			AND (c.tag IS NULL OR c.tag = t.tag)
			AND (c.due_from IS NULL OR COALESCE(t.first_due, t.due) >= c.due_from)
			AND (c.due_until IS NULL OR COALESCE(t.first_due, t.due) < c.due_until))
	AND NOT EXISTS (
		SELECT FROM delay_wheel_data.owner_mark c
		WHERE c.owner OPERATOR(pg_catalog.=) t.owner AND COALESCE(t.spared, t.id) < c.id
			AND (c.origin = t.origin OR c.origin = delay_wheel_internal.origin())
			AND (c.queue IS NULL OR c.queue = t.queue)
			AND (c.tag IS NULL OR c.tag = t.tag)
			AND (c.due_from IS NULL OR COALESCE(t.first_due, t.due) >= c.due_from)
			AND (c.due_until IS NULL OR COALESCE(t.first_due, t.due) < c.due_until));
COMMENT ON VIEW delay_wheel.tasks IS
'one''s own pending tasks; all of them for pg_read_all_data and superusers';
COMMENT ON COLUMN delay_wheel.tasks.id IS 'number of the task, as delay_schedule returned it; the order of ids is the order of scheduling';
COMMENT ON COLUMN delay_wheel.tasks.due IS 'the task runs at this time or after, never before; of a task that is tried again, the time of the next attempt';
COMMENT ON COLUMN delay_wheel.tasks.owner IS 'role that scheduled the task and whose rights it has';
COMMENT ON COLUMN delay_wheel.tasks.queue IS 'name of its queue; default is that of tasks that name none; null if the queue has been dropped';
COMMENT ON COLUMN delay_wheel.tasks.priority IS '-9 to 9; higher first among due tasks';
COMMENT ON COLUMN delay_wheel.tasks.key IS 'at most one pending task for each owner, queue and key; null if it has none';
COMMENT ON COLUMN delay_wheel.tasks.tag IS 'free grouping, for instance a sender or a campaign; null if it has none';
COMMENT ON COLUMN delay_wheel.tasks.sql IS 'one or several SQL statements';
COMMENT ON COLUMN delay_wheel.tasks.leased_until IS 'of a message that a receiver has, see delay_lease(): when its lease ends; else null';
COMMENT ON COLUMN delay_wheel.tasks.payload IS 'of a message, see delay_send(); null for an SQL task';
COMMENT ON COLUMN delay_wheel.tasks.group_key IS 'the group that it belongs to, see delay_queue(); null is none';
COMMENT ON COLUMN delay_wheel.tasks.args IS 'values of $1, $2 ... in text form; null if there are none';
COMMENT ON COLUMN delay_wheel.tasks.attempts IS 'how often the task was run and failed; 0 is never';
COMMENT ON COLUMN delay_wheel.tasks.last_error IS 'SQLSTATE and message of the last attempt that failed, with a colon between; null if none has';
COMMENT ON COLUMN delay_wheel.tasks.slot IS 'slot of the ring that the due time belongs into';
COMMENT ON COLUMN delay_wheel.tasks.cycle_num IS 'whole turns of the ring until the task is due';
COMMENT ON COLUMN delay_wheel.tasks.armed IS 'false for a task that came with a copy of another database; it is not run until delay_arm() is called';
COMMENT ON COLUMN delay_wheel.tasks.crashes IS 'how often the process that ran it has crashed: it is run alone then, and set aside as failed after three times; 4: the server crashed even when it was to be set aside, so it is not run any more';
COMMENT ON COLUMN delay_wheel.tasks.mode IS 'at_most_once or at_least_once: it runs outside of a transaction, see delay_schedule_task(); null for all others';
COMMENT ON COLUMN delay_wheel.tasks.arg_types IS 'types of the args; ''-'' for an untyped literal, which takes its type from the statement; null if there are none';
COMMENT ON COLUMN delay_wheel.tasks.max_attempts IS 'how often the task may be run in all; null is as often as its queue says, or else once';
COMMENT ON COLUMN delay_wheel.tasks.retry_delay IS 'an interval as text: pause before the second attempt; null is the queue''s, or else 10 seconds';
COMMENT ON COLUMN delay_wheel.tasks.retry_backoff IS 'how the pause before further attempts grows: exponential, linear or fixed; null is as the queue says, or else exponential';
COMMENT ON COLUMN delay_wheel.tasks.retry_max_delay IS 'an interval as text: no pause is longer; 0 is an hour, or retry_delay if that is longer; null is the queue''s, or else 0';
COMMENT ON COLUMN delay_wheel.tasks.retry_on IS 'SQLSTATEs, or their classes, after which alone it is tried again; empty is after all; null is the queue''s, or else empty';
COMMENT ON COLUMN delay_wheel.tasks.settings IS 'settings of the caller that were kept for it, see keep_settings of delay_schedule_task(): names with their values, null for what was not set; null is none';
COMMENT ON COLUMN delay_wheel.tasks.local_time IS 'a timestamp as text, of a task of delay_schedule_local(): what the clocks of time_zone show when it is due; null of one that was moved, or has failed and is tried again';
COMMENT ON COLUMN delay_wheel.tasks.time_zone IS 'of a task that has local_time: the name of its time zone';
COMMENT ON COLUMN delay_wheel.tasks.give_up_on IS 'SQLSTATEs, or their classes, after which it is not tried again; null is the queue''s, or else empty';
COMMENT ON COLUMN delay_wheel.tasks.timeout IS 'an interval as text: time that each attempt may take; 0 is any; null is the queue''s, or else the shorter one of the role''s settings statement_timeout and delay_wheel.default_timeout';
COMMENT ON COLUMN delay_wheel.tasks.expires IS 'an interval as text: the task fails if it cannot begin within that after it was due; null is at any time';
COMMENT ON COLUMN delay_wheel.tasks.skip_after IS 'an interval as text: the task is skipped if it cannot begin within that after it was due; null is at any time';
COMMENT ON COLUMN delay_wheel.tasks.notify IS 'channel on which its end is told; null is none';
COMMENT ON COLUMN delay_wheel.tasks.on_success IS 'SQL of the task that follows if it is done; null is none';
COMMENT ON COLUMN delay_wheel.tasks.on_failure IS 'SQL of the task that follows if it has failed; null is none';

CREATE FUNCTION delay_wheel_internal.is_running(id bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_is_running' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.is_running(bigint) IS
'whether an executor runs this task, of a role whose rights one has, in mode at_most_once just now; all of them for pg_read_all_data and superusers. It stands in delay_wheel_data.failed_task meanwhile; see delay_wheel.failed';

CREATE VIEW delay_wheel.failed WITH (security_invoker) AS
SELECT f.id, f.failed_at, f.due, pg_catalog.pg_get_userbyid(f.owner::oid)::text AS owner, COALESCE(q.name, CASE f.queue WHEN 0 THEN 'default' END) AS queue, f.priority, f.key, f.tag, f.sql, f.args,
	   f.attempts, f.sqlstate, f.message, f.detail, f.hint, f.context, COALESCE(f.crashes, 0::smallint) AS crashes, f.payload, f.group_key
FROM delay_wheel_data.readable_failed_task f
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = f.queue
-- begun in mode at_most_once, and not ended yet
WHERE NOT (f.sqlstate = 'DW003' AND delay_wheel_internal.is_running(f.id));
COMMENT ON VIEW delay_wheel.failed IS
'one''s own tasks that were given up, with their error; all of them for pg_read_all_data and superusers';
COMMENT ON COLUMN delay_wheel.failed.id IS 'number of the task, as delay_schedule returned it; for delay_retry()';
COMMENT ON COLUMN delay_wheel.failed.failed_at IS 'when it was given up';
COMMENT ON COLUMN delay_wheel.failed.due IS 'due time of its last attempt';
COMMENT ON COLUMN delay_wheel.failed.owner IS 'role that scheduled the task';
COMMENT ON COLUMN delay_wheel.failed.queue IS 'name of its queue; null if the queue has been dropped';
COMMENT ON COLUMN delay_wheel.failed.priority IS '-9 to 9';
COMMENT ON COLUMN delay_wheel.failed.key IS 'its key, or null; a task of the same key can be scheduled again';
COMMENT ON COLUMN delay_wheel.failed.tag IS 'its tag, or null';
COMMENT ON COLUMN delay_wheel.failed.payload IS 'of a message; null for an SQL task';
COMMENT ON COLUMN delay_wheel.failed.group_key IS 'the group that it belonged to; null is none';
COMMENT ON COLUMN delay_wheel.failed.sql IS 'one or several SQL statements; null for a message';
COMMENT ON COLUMN delay_wheel.failed.args IS 'values of $1, $2 ... in text form; null if there are none';
COMMENT ON COLUMN delay_wheel.failed.attempts IS 'how often it was run and failed; 0 if it was given up without having been run';
COMMENT ON COLUMN delay_wheel.failed.sqlstate IS 'of the error of the last attempt, five characters; DW001: superseded by a newer task of its key, DW002: expired, DW003: its end is not known (mode at_most_once), DW004: it crashed the server, DW005: it ended its own executor; of messages DW006: its last lease has ended, DW007: its receiver has called delay_fail(), DW008: its receivers were rolled back';
COMMENT ON COLUMN delay_wheel.failed.message IS 'of that error, its first 16 kB';
COMMENT ON COLUMN delay_wheel.failed.detail IS 'of that error, or null';
COMMENT ON COLUMN delay_wheel.failed.hint IS 'of that error, or null';
COMMENT ON COLUMN delay_wheel.failed.context IS 'of that error: where it was raised; with the place in which SQL, if it is known';
COMMENT ON COLUMN delay_wheel.failed.crashes IS 'how often the process that ran it had crashed; no attempts are counted for these';

CREATE VIEW delay_wheel_internal.newest_failed WITH (security_invoker) AS
SELECT * FROM delay_wheel.failed ORDER BY failed_at DESC, id DESC LIMIT 1000;
COMMENT ON VIEW delay_wheel_internal.newest_failed IS
'the 1,000 rows of delay_wheel.failed that failed last, the newest first. It reads an index from its end, so that it takes the same time for a million of failed tasks as for a thousand, if they are one''s own; all of them for pg_read_all_data and superusers. Columns as in delay_wheel.failed';

-- the same words for the same columns
DO $$
DECLARE c record;
BEGIN
	FOR c IN SELECT a.attname, pg_catalog.col_description(a.attrelid, a.attnum) AS words
			 FROM pg_catalog.pg_attribute a
			 WHERE a.attrelid = 'delay_wheel.failed'::regclass::oid AND a.attnum > 0
			 ORDER BY a.attnum
	LOOP
		EXECUTE pg_catalog.format('COMMENT ON COLUMN delay_wheel_internal.newest_failed.%I IS %L', c.attname, c.words);
	END LOOP;
END
$$;

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

CREATE FUNCTION delay_wheel_internal.get_running(OUT pid integer, OUT owner regrole, OUT task bigint, OUT due timestamptz, OUT since timestamptz, OUT state text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_running' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel_internal.get_running() IS 'one''s own executors of this database, all of them for pg_read_all_stats and superusers; see delay_wheel.running';

CREATE VIEW delay_wheel.running AS
SELECT r.pid, pg_catalog.pg_get_userbyid(r.owner::oid)::text AS owner, r.task, r.due, r.since
FROM delay_wheel_internal.get_running() r
WHERE r.task IS NOT NULL;
COMMENT ON VIEW delay_wheel.running IS
'one''s own tasks that executors of this database run just now; all of them for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers';
COMMENT ON COLUMN delay_wheel.running.pid IS 'of the executor, as in pg_stat_activity; pg_terminate_backend() makes the task run again, pg_cancel_backend() makes it fail';
COMMENT ON COLUMN delay_wheel.running.owner IS 'role whose task it is';
COMMENT ON COLUMN delay_wheel.running.task IS 'number of the task';
COMMENT ON COLUMN delay_wheel.running.due IS 'its due time';
COMMENT ON COLUMN delay_wheel.running.since IS 'when it began; of a task that is repeated at once after a serialization failure or deadlock, the first time';

CREATE VIEW delay_wheel.recurring WITH (security_invoker) AS
SELECT d.name, pg_catalog.pg_get_userbyid(d.owner::oid)::text AS owner,
	   CASE WHEN d.next_due IS NULL AND r.task IS NULL THEN 'finished'
			WHEN d.origin <> delay_wheel_internal.origin() THEN 'unarmed'
			WHEN r.task IS NOT NULL THEN 'running'
			WHEN d.paused THEN 'paused'
			ELSE 'waiting' END AS state,
	   d.every::text AS every, d.schedule, d.time_zone, d.starts, d.until, d.max_runs, d.catch_up,
	   CASE WHEN d.task IS NOT NULL THEN d.next_due END AS next_due, d.task,
	   d.last_due, d.last_started, d.last_ended, d.last_outcome, d.last_error,
	   d.runs, d.failures, d.skipped, d.paused,
	   COALESCE(q.name, CASE d.queue WHEN 0 THEN 'default' END) AS queue, d.priority, d.tag, d.sql, d.args,
	   d.id, d.arg_types::text[] AS arg_types, d.max_attempts, d.retry_delay::text AS retry_delay,
	   pg_catalog.make_interval(secs => pg_catalog.float8(d.timeout) / 1000::double precision)::text AS timeout,
	   -- whatever plain SQL may have written
	   CASE WHEN pg_catalog.jsonb_typeof(d.more OPERATOR(pg_catalog.->) 'skip_after'::text) = 'number' THEN
			pg_catalog.make_interval(secs => LEAST(GREATEST((d.more OPERATOR(pg_catalog.->) 'skip_after'::text)::numeric, 0::numeric), 1e15::numeric)::double precision / 1000000::double precision)::text
	   END AS skip_after,
	   d.more OPERATOR(pg_catalog.->>) 'notify'::text AS notify,
	   d.more OPERATOR(pg_catalog.->>) 'on_success'::text AS on_success,
	   d.more OPERATOR(pg_catalog.->>) 'on_failure'::text AS on_failure,
	   d.more OPERATOR(pg_catalog.->>) 'mode'::text AS mode,
	   d.more OPERATOR(pg_catalog.->>) 'retry_backoff'::text AS retry_backoff,
	   CASE WHEN pg_catalog.jsonb_typeof(d.more OPERATOR(pg_catalog.->) 'retry_max_delay'::text) = 'number' THEN
			pg_catalog.make_interval(secs => LEAST(GREATEST((d.more OPERATOR(pg_catalog.->) 'retry_max_delay'::text)::numeric, 0::numeric), 1e15::numeric)::double precision / 1000000::double precision)::text
	   END AS retry_max_delay,
	   pg_catalog.string_to_array(d.more OPERATOR(pg_catalog.->>) 'retry_on'::text, ','::text) AS retry_on,
	   pg_catalog.string_to_array(d.more OPERATOR(pg_catalog.->>) 'give_up_on'::text, ','::text) AS give_up_on,
	   d.more OPERATOR(pg_catalog.->) 'settings'::text AS settings,
	   d.group_key
FROM delay_wheel_data.readable_recurring_task d
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = d.queue
	 -- two executors may hold the same task for a moment, until one has claimed it
	 LEFT JOIN (SELECT DISTINCT task FROM delay_wheel_internal.get_running()) r ON r.task = d.task;
COMMENT ON VIEW delay_wheel.recurring IS
'one''s own recurring tasks, see delay_every() and delay_cron(); all of them for pg_read_all_data and superusers';
COMMENT ON COLUMN delay_wheel.recurring.name IS 'as given to delay_every() or delay_cron(), unique for its owner';
COMMENT ON COLUMN delay_wheel.recurring.owner IS 'role that declared it, whose rights its runs have';
COMMENT ON COLUMN delay_wheel.recurring.every IS 'interval, as text, between ideal times; null if it has a cron schedule';
COMMENT ON COLUMN delay_wheel.recurring.schedule IS 'cron schedule; null if it has an interval';
COMMENT ON COLUMN delay_wheel.recurring.time_zone IS 'in which days, months and the cron schedule are counted';
COMMENT ON COLUMN delay_wheel.recurring.starts IS 'first ideal time, from which the others are counted; with a cron schedule, there is none before';
COMMENT ON COLUMN delay_wheel.recurring.until IS 'no ideal time is later; null is no limit';
COMMENT ON COLUMN delay_wheel.recurring.max_runs IS 'no further run after so many; null is no limit';
COMMENT ON COLUMN delay_wheel.recurring.catch_up IS 'what is done with ideal times that have passed: skip or all';
COMMENT ON COLUMN delay_wheel.recurring.last_ended IS 'when the last run ended, or was given up; null if there was none';
COMMENT ON COLUMN delay_wheel.recurring.paused IS 'whether delay_pause_recurring() holds';
COMMENT ON COLUMN delay_wheel.recurring.queue IS 'name of the queue of its runs; null if it has been dropped';
COMMENT ON COLUMN delay_wheel.recurring.priority IS 'of its runs: -9 to 9';
COMMENT ON COLUMN delay_wheel.recurring.group_key IS 'the group that its runs belong to, or null';
COMMENT ON COLUMN delay_wheel.recurring.tag IS 'of its runs, or null';
COMMENT ON COLUMN delay_wheel.recurring.sql IS 'of its runs';
COMMENT ON COLUMN delay_wheel.recurring.args IS 'of its runs: values of $1, $2 ... in text form; null if there are none';
COMMENT ON COLUMN delay_wheel.recurring.state IS 'waiting for its next run; running (if one may see that in delay_wheel.running); paused by delay_pause_recurring(); finished: there are no runs any more; unarmed: it came with a copy of another database, see delay_arm()';
COMMENT ON COLUMN delay_wheel.recurring.next_due IS 'ideal time of the next run, or of the one that is going on; null if there is none';
COMMENT ON COLUMN delay_wheel.recurring.task IS 'id of that run in delay_wheel.tasks, which has its own due time if it was moved or is tried again';
COMMENT ON COLUMN delay_wheel.recurring.last_due IS 'ideal time of the last run that has ended';
COMMENT ON COLUMN delay_wheel.recurring.last_started IS 'when its last attempt was started; null if it was not';
COMMENT ON COLUMN delay_wheel.recurring.last_outcome IS 'how it ended: done, failed (see delay_wheel.failed), skipped (it was too late) or cancelled';
COMMENT ON COLUMN delay_wheel.recurring.last_error IS 'its error, up to 1000 bytes of it, or why there is no further run; null if there was none';
COMMENT ON COLUMN delay_wheel.recurring.runs IS 'runs that have ended, with success or not';
COMMENT ON COLUMN delay_wheel.recurring.failures IS 'those that failed';
COMMENT ON COLUMN delay_wheel.recurring.skipped IS 'runs that were cancelled, or too late; times that were left out since they had passed (catch_up => skip, or all with skip_after) have no run, and are not counted';
COMMENT ON COLUMN delay_wheel.recurring.id IS 'number of the recurring task, as in column recurring of delay_wheel.history';
COMMENT ON COLUMN delay_wheel.recurring.arg_types IS 'of its runs: types of the args, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.max_attempts IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.retry_delay IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.retry_backoff IS 'of its runs: how the pause before further attempts grows: exponential, linear or fixed; null is as the queue says, or else exponential';
COMMENT ON COLUMN delay_wheel.recurring.retry_max_delay IS 'an interval as text: of its runs: no pause is longer; 0 is an hour, or retry_delay if that is longer; null is the queue''s, or else 0';
COMMENT ON COLUMN delay_wheel.recurring.retry_on IS 'of its runs: SQLSTATEs, or their classes, after which alone it is tried again; empty is after all; null is the queue''s, or else empty';
COMMENT ON COLUMN delay_wheel.recurring.settings IS 'of its runs: settings of the caller that were kept for it, see keep_settings of delay_schedule_task(): names with their values, null for what was not set; null is none';
COMMENT ON COLUMN delay_wheel.recurring.give_up_on IS 'of its runs: SQLSTATEs, or their classes, after which it is not tried again; null is the queue''s, or else empty';
COMMENT ON COLUMN delay_wheel.recurring.timeout IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.skip_after IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.notify IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.on_success IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.on_failure IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.mode IS 'of its runs, as in delay_wheel.tasks';

CREATE FUNCTION delay_wheel_internal.get_cancellations(
	OUT id bigint, OUT made_at timestamptz, OUT made_by regrole, OUT owners regrole[], OUT queue smallint,
	OUT tag text, OUT due_from timestamptz, OUT due_until timestamptz, OUT removed bigint, OUT running integer,
	OUT state text, OUT waiting_for integer[])
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_cancellations' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel_internal.get_cancellations() IS 'one''s own cancellations that are not complete, all of them for pg_read_all_data and superusers; see delay_wheel.cancellations';

CREATE VIEW delay_wheel.cancellations AS
SELECT c.id, c.made_at, pg_catalog.pg_get_userbyid(c.made_by::oid)::text AS made_by,
	   CASE WHEN c.owners IS NOT NULL THEN ARRAY(SELECT CASE WHEN r.id OPERATOR(pg_catalog.=) 0::oid THEN '-' ELSE pg_catalog.pg_get_userbyid(r.id)::text END FROM pg_catalog.unnest(c.owners::oid[]) WITH ORDINALITY r(id, n) ORDER BY r.n) END AS owners,
	   COALESCE(q.name, CASE c.queue WHEN 0 THEN 'default' ELSE c.queue::text END) AS queue,
	   c.tag, c.due_from, c.due_until, c.running, c.removed, c.state, c.waiting_for
FROM delay_wheel_internal.get_cancellations() c
	 LEFT JOIN delay_wheel_data.queue q ON q.id = c.queue;
COMMENT ON VIEW delay_wheel.cancellations IS
'calls of delay_cancel_all() whose tasks are not all removed yet: they are cancelled nevertheless. One''s own; all of them for pg_read_all_data and superusers, and without their tags for pg_monitor and pg_read_all_stats';
COMMENT ON COLUMN delay_wheel.cancellations.made_at IS 'when delay_cancel_all() was called: start of that transaction';
COMMENT ON COLUMN delay_wheel.cancellations.made_by IS 'role that called it';
COMMENT ON COLUMN delay_wheel.cancellations.queue IS 'tasks of this queue; null is of all';
COMMENT ON COLUMN delay_wheel.cancellations.tag IS 'tasks with this tag; null is all';
COMMENT ON COLUMN delay_wheel.cancellations.due_from IS 'tasks that are due then or later; null is all';
COMMENT ON COLUMN delay_wheel.cancellations.due_until IS 'tasks that are due before; null is all';
COMMENT ON COLUMN delay_wheel.cancellations.id IS 'as delay_cancel_all() returned it';
COMMENT ON COLUMN delay_wheel.cancellations.owners IS 'roles whose tasks are cancelled; null is all';
COMMENT ON COLUMN delay_wheel.cancellations.running IS 'its tasks that were running before and still are; delay_cancel_all() does not stop them';
COMMENT ON COLUMN delay_wheel.cancellations.removed IS 'rows of tasks removed so far, as of a second ago';
COMMENT ON COLUMN delay_wheel.cancellations.state IS 'sweeping: rows are being removed; waiting: all that can be seen are removed, but transactions are open that may have scheduled more before, see waiting_for; queued: the process that removes them is not there yet, for want of a background worker perhaps, see delay_wheel.status.last_problem; unarmed: it came with a copy of another database, concerns tasks that came with it, and ends with delay_arm()';
COMMENT ON COLUMN delay_wheel.cancellations.waiting_for IS 'pids of some of the transactions waited for, 0 for prepared ones, and of executors whose task, of mode at_most_once, may yet be tried again; null in other states';

CREATE VIEW delay_wheel.unique_keys WITH (security_invoker) AS
SELECT u.id, pg_catalog.pg_get_userbyid(u.owner::oid)::text AS owner, COALESCE(q.name, CASE u.queue WHEN 0 THEN 'default' END) AS queue, u.key, u.until
FROM delay_wheel_data.readable_unique_key u
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = u.queue
WHERE u.until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp();
COMMENT ON VIEW delay_wheel.unique_keys IS
'one''s own keys that are unique for a period, see unique_for of delay_schedule_task(): until then calls with this option schedule no other task of the key; all of them for pg_read_all_data and superusers';
COMMENT ON COLUMN delay_wheel.unique_keys.id IS 'number of the task that began the period; it is pending, runs, or is done';
COMMENT ON COLUMN delay_wheel.unique_keys.owner IS 'role that scheduled it';
COMMENT ON COLUMN delay_wheel.unique_keys.queue IS 'name of the queue that it was scheduled into; null if the queue has been dropped';
COMMENT ON COLUMN delay_wheel.unique_keys.key IS 'its key';
COMMENT ON COLUMN delay_wheel.unique_keys.until IS 'end of the period';

GRANT SELECT ON delay_wheel.tasks, delay_wheel.failed, delay_wheel_internal.newest_failed, delay_wheel.history, delay_wheel.audit, delay_wheel.running, delay_wheel.recurring, delay_wheel.cancellations, delay_wheel.unique_keys
	TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel_internal.place(timestamptz), delay_wheel_internal.crashes(bigint), delay_wheel_internal.is_running(bigint), delay_wheel_internal.get_running(), delay_wheel_internal.get_cancellations()
	TO PUBLIC;
