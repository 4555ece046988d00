/* delay_wheel--1.1--1.2.sql: what came with 1.2: views that hold against strangers */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION delay_wheel UPDATE TO '1.2'" to load this file. \quit

/*---- Default privileges: this stands first, its call last ----*/

-- takes back what ALTER DEFAULT PRIVILEGES grants on what is created from here on, see 1.0
CREATE FUNCTION delay_wheel.revoke_defaults() RETURNS void
AS 'MODULE_PATHNAME', 'dw_revoke_new_defaults' LANGUAGE C
SET search_path = pg_catalog, pg_temp;

/*---- New objects go here, above the next heading, with GRANTs to PUBLIC only ----*/

COMMENT ON COLUMN delay_wheel.cancellations.waiting_for IS 'pids of some of the transactions waited for, 0 for prepared ones, and of executors whose task, of mode at_most_once, may yet be tried again; null in other states';
/*---- Comments that said too much, or not enough ----*/

COMMENT ON FUNCTION @extschema@.delay_arm() IS
'makes tasks that came with a copy of another database (a restored dump, CREATE DATABASE ... TEMPLATE, logical replication, pg_upgrade) this database''s own, if this transaction commits: how many. Until then they are not run. Those that are overdue run at once, begun in the order of their due times, so look before: SELECT * FROM delay_wheel.tasks WHERE NOT armed; delay_cancel and delay_reschedule work on them. Arms the tasks of all roles whose rights the caller has, of all roles for a superuser; tasks of roles that do not exist are left, with a warning. Only for superusers and the owner of the function, unless granted';

COMMENT ON FUNCTION @extschema@.delay_resume(text) IS
'ends what delay_pause with the same argument began, if this transaction commits: tasks that are overdue run at once, at the rate of their queue, begun in the order of their due times: where several executors work off a queue (max_running is not 1), one may be done before another that was due earlier. What is paused otherwise, too (queue, role, database), stays paused. If there is no such pause nothing changes. Waits and rights as in delay_pause';

COMMENT ON FUNCTION delay_wheel.allow(name[]) IS
'allows roles to schedule, cancel and reschedule tasks of their own: grants EXECUTE on all functions of the extension that lie in the schema given to CREATE EXTENSION, but those for administrators: delay_arm, delay_queue, delay_queue_drop, delay_pause_database, delay_resume_database. Names are as in pg_roles, upper and lower case as they are; public stands for all roles. Only for superusers and the owner of the functions, for others an error, SQLSTATE 42501. No name at all is one, 42883, an empty array (VARIADIC) another, 22023, a null name, 22004, and a role that does not exist, 42704. Plain GRANT does as well; a dump carries the grants. For many roles allow a group once, and grant that to them: a call for each of thousands takes minutes, as so many GRANTs would';
/*---- The forecast ----*/

/*
 * The same as in 1.1, but that a role which could create operators in the schema
 * given to CREATE EXTENSION had a say in that one: there is no integer * interval
 * in pg_catalog, so a better match in that schema was taken.
 */
CREATE OR REPLACE VIEW delay_wheel.forecast AS
WITH clock AS MATERIALIZED (
	SELECT pg_catalog.statement_timestamp() AS now,
		   pg_catalog.date_trunc('minute'::text, pg_catalog.statement_timestamp()) AS minute,
		   pg_catalog.date_trunc('hour'::text, pg_catalog.statement_timestamp()) AS hour,
		   pg_catalog.date_trunc('day'::text, pg_catalog.statement_timestamp()::timestamp) AS day	-- local: some days have no midnight
), period AS MATERIALIZED (
	SELECT 1 AS place, 'overdue'::text AS step, NULL::timestamptz AS due_from, now AS due_until FROM clock
	UNION ALL
	SELECT 2, 'minute'::text, GREATEST(t, now), t + '1 minute'::interval
		FROM clock, pg_catalog.generate_series(minute, minute + '59 minutes'::interval, '1 minute'::interval) t
	UNION ALL
	SELECT 3, 'hour'::text, GREATEST(t, now), t + '1 hour'::interval
		FROM clock, pg_catalog.generate_series(hour, hour + '47 hours'::interval, '1 hour'::interval) t
	UNION ALL
	SELECT 4, 'day'::text, CASE n WHEN 0 THEN now ELSE (day + pg_catalog.make_interval(days => n))::timestamptz END, (day + pg_catalog.make_interval(days => n + 1))::timestamptz
		FROM clock, pg_catalog.generate_series(0, 30) n
	UNION ALL
	SELECT 5, 'later'::text, (day + '31 days'::interval)::timestamptz, NULL::timestamptz FROM clock
), cell AS MATERIALIZED (
	SELECT c.due_from, c.due_until, c.tasks, c.exact
	FROM delay_wheel.count_due((
		SELECT pg_catalog.array_agg(b.bound ORDER BY b.bound)
		FROM (SELECT due_from AS bound FROM period WHERE due_from IS NOT NULL
			  UNION SELECT due_until FROM period WHERE due_until IS NOT NULL) b)) c
)
SELECT p.step, p.due_from, p.due_until, pg_catalog.sum(c.tasks)::bigint AS tasks, pg_catalog.bool_and(c.exact) AS exact
FROM period p
	 JOIN cell c ON (p.due_from IS NULL OR c.due_from >= p.due_from) AND (p.due_until IS NULL OR c.due_until <= p.due_until)
GROUP BY p.place, p.step, p.due_from, p.due_until
ORDER BY p.place, p.due_from;
/*---- Rights ----*/

COMMENT ON FUNCTION delay_run(bigint) IS
'runs a pending task now, as its owner and in the caller''s transaction, whatever its due time, expires, skip_after, attempts, and pauses of its queue; errors are the caller''s. If the caller''s transaction is rolled back the task stays as it was. False if an executor runs the task just now, or it is gone. Waits for another session''s open change of the task as UPDATE does. The task''s timeout does not apply, the caller''s statement_timeout does; settings that the task makes are undone. Only for members of the owner role and superusers; in a session that is not the owner''s own (session_user, current_user) the SQL runs in a security-restricted operation: temporary tables, cursors WITH HOLD, deferred triggers, SET CONSTRAINTS, prepared statements and delay_ functions are refused, cursors of the caller are out of its reach, custom settings such as app.user are empty meanwhile, random() goes on from a new seed afterwards, and it is an error if the caller has large objects open. The task can still reach session-level advisory locks, the texts of the query and of prepared statements, session_user, the value of lastval(), which may be that of the task''s sequence afterwards, custom settings of the start of the session (by RESET), settings that extensions have declared, and what extensions keep for a session, such as named connections of dblink. Errors, beside those of the SQL: a task that is not armed, or has a mode, SQLSTATE 55000; that of a role whose rights one does not have, 42501; a null id, 22004';

/*---- Failed tasks ----*/

CREATE FUNCTION delay_discard(id bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_discard' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_discard(bigint) FROM PUBLIC;
COMMENT ON FUNCTION delay_discard(bigint) IS
'removes a failed task from delay_wheel.failed for good, if this transaction commits; the history keeps it. False if there is no failed task of that id (any more); waits for another session that puts it back or discards it. A pending task is not concerned, see delay_cancel(). Only for members of the owner role and superusers, for others an error, SQLSTATE 42501; a task that runs just now, 55006; a null id, 22004';

CREATE FUNCTION delay_discard_all(queue text DEFAULT NULL, tag text DEFAULT NULL, sqlstate text DEFAULT NULL,
	failed_from timestamptz DEFAULT NULL, failed_until timestamptz DEFAULT NULL, max_tasks integer DEFAULT NULL)
RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_discard_all' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_discard_all(text, text, text, timestamptz, timestamptz, integer) FROM PUBLIC;
COMMENT ON FUNCTION delay_discard_all(text, text, text, timestamptz, timestamptz, integer) IS
'removes failed tasks as delay_discard() does, those that failed first before others, at most max_tasks; returns how many. Those whose rights the caller has, all of them for a superuser, that are in this queue, have this tag and this sqlstate (five characters), and failed in [failed_from, failed_until); null stands for any, so without arguments all of one''s own. A queue that does not exist, SQLSTATE 42704, a malformed sqlstate and a negative max_tasks, 22023, are errors. Those that run just now, or that another transaction changes or locks, are left, without waiting and without a notice: a second call has the rest';

/*---- Waiting ----*/

COMMENT ON FUNCTION delay_wait(bigint, interval) IS
'waits until a task has ended, at most for timeout (null: without limit; zero or less: not at all; a day counts 24 hours, a month 30 days): done, failed, skipped, cancelled, or timeout if it has not. A failed attempt that is followed by another, and a task that is moved, are waited on. A task that had ended before the call is failed if it stands in delay_wheel.failed; else its end is looked for among the newest rows of the history (512 kB, some thousand of them), which has all ends but cancellations if the setting delay_wheel.history, or its queue, says all; else gone: done, skipped, cancelled, or never there as far as this session can see. An error, SQLSTATE 55000, if this very transaction has written or locked the task, or is the task. It does not poll; only a row of delay_wheel.task that was deleted by plain SQL is noticed up to a minute late, as cancelled. The waiting transaction stays open, with its locks and its snapshot: a task that needs one of the locks is not waited for successfully. If somebody waits for one of its locks on the tables of delay_wheel (VACUUM FULL, say), so that no task can begin, it is an error, SQLSTATE 40P01. Only for members of the owner role and superusers: for others an error while the task is pending, and gone afterwards';

/*---- Options ----*/

COMMENT ON FUNCTION delay_schedule_task(text, text[], regtype[], interval, timestamptz, text, text, text, text, integer, integer, interval, interval, interval, interval, text, text, text, text) IS
'delay_schedule with all options, to be called with names: delay_schedule_task(''SELECT f($1)'', args => ''{1}'', delay => ''1 hour'', key => ''f 1''). Null is always: not given.
args: values of $1, $2 ... as text, read as literals are in this session; at most 65535, SQLSTATE 54000.
arg_types: their types, as many, ''-'' or null for one that takes its type from the statement, as all do without arg_types.
delay: counted from the start of this transaction; zero or less is at once after the commit.
due: point in time, instead of delay; with neither, the task runs at once after the commit; both are an error.
key, 1 to 1000 bytes: at most one pending task for each owner, queue and key.
if_exists: what to do if there is one: keep (the default) returns its id and leaves it as it is, with the promise that it begins after this transaction, and sees what it did; replace deletes it and makes a new one, with a new id; error raises unique_violation, SQLSTATE 23505. A task that an executor runs just now is not pending: there is a new one then, and it is not waited for. Other transactions that have scheduled, moved or cancelled it, and are open, are waited for as UPDATE does.
queue: name of a declared queue, see delay_queue(); null is the default queue.
tag, 1 to 1000 bytes: for grouping, as for delay_cancel_all().
priority: -1, 0 or 1, higher first; null is the queue''s, or else 0.
max_attempts, 1 to 32767: how often it is run if it fails; null is the queue''s, or else 1.
retry_delay, 0 to 366 days: pause before the second attempt, doubled before each further one up to an hour; 0 is at once; null is the queue''s, or else 10 seconds.
timeout, 0 to 2147483647 ms: after which each attempt is cancelled, rounded up to whole ms; 0 is never, whatever the queue and the settings say; null is the queue''s, or else the shorter one of the role''s settings statement_timeout and delay_wheel.default_timeout.
expires: it is not run later than that after due, but fails with SQLSTATE DW002; greater than zero; null is at any time.
skip_after: it is not run later than that after due, which of a later attempt is its own, and leaves no failed task: its row goes, and it is counted as skipped; greater than zero, null is not at all. The shorter one of expires and skip_after decides, expires if they are equal.
notify, 1 to 63 bytes: a channel, as given to pg_notify(), that is notified of its end, in the transaction that ends it: a JSON object with id, outcome (done, failed: given up, skipped, cancelled), sqlstate if it failed, key and tag if it has them and they are not too long.
on_success, on_failure: SQL that is scheduled as a task of its own, due at once, in the transaction in which this one is done, or given up; with its owner, queue, priority, tag and search_path. on_success may use $1, its id (bigint), and $2, the number of rows of its last statement (bigint); on_failure $1, its id, $2, SQLSTATE, and $3, the message of its last error (text). Neither is run for tasks that are skipped or cancelled. Together they have 128 MB at most, SQLSTATE 54000.
mode, for a statement that cannot run inside a transaction (VACUUM, CREATE INDEX CONCURRENTLY, CALL of a procedure that commits ...): at_most_once or at_least_once; it is run by itself then, as a client would run it, and only this one statement is allowed. at_most_once: it is not begun a second time if its end is not known, after a crash of the server or the end of its executor, but stands in delay_wheel.failed with SQLSTATE DW003; at_least_once: it is run again then. Both are run again after an error if max_attempts allows; what the statement had committed before the error stays. Not for tasks of roles without LOGIN before PostgreSQL 17: these fail with SQLSTATE 0A000. Null, the default, for all that can run in a transaction: only these are run exactly once.
Other errors as in delay_schedule. The id of a task with the key that is pending already is returned with keep, else that of the new one';

COMMENT ON FUNCTION delay_queue(text, integer, integer, integer, interval, integer, interval, boolean, interval, name[], text) IS
'declares a queue, which the current user owns, or changes one, if this transaction commits; acts at once. What is null is left as it is, or is the default of a new queue.
name: up to 63 bytes, not ''default''.
max_running: how many of its tasks run at a time; 0 (the default) is no limit.
rate, up to 1000000: how many are started in a second; 0 (the default) is no limit.
priority: of tasks that say none: -1, 0 (the default) or 1.
timeout, 0 to 2147483647 ms: of tasks that say none; 0 (the default) is none of the queue''s own: for them the settings of the role hold.
max_attempts, 1 (the default) to 32767: of tasks that say none.
retry_delay, 0 to 366 days: of tasks that say none; 0 is at once, 10 seconds the default.
batch: whether its tasks may share a transaction with others, true by default.
spread, up to 366 days: due times of new tasks are put off, each by another part of this; 0 (the default) is not at all.
users: roles that may schedule into it, beside members of its owner and superusers, names as in pg_roles, public for all roles; none by default.
history: which ends of its tasks are recorded in delay_wheel.history, off, errors or all, or default (the default): as the setting delay_wheel.history says.
Limits hold for the whole database, whoever owns the tasks. To be called by those granted it; a queue is changed only by members of its owner and superusers, for others it is an error, SQLSTATE 42501. So is more than delay_wheel.max_queues in all databases, 53400, a value out of its range, 22023, and a name that is null, 22004, or too long, 42622';

COMMENT ON FUNCTION delay_every(text, interval, text, text[], regtype[], timestamptz, text, timestamptz, bigint, text, text, text, integer, integer, interval, interval, interval, text, text, text, text) IS
'declares a recurring task of the current user, if this transaction commits, or changes the one of this name; returns the id of the task that is its next run (while a run is going on, of that one; null if there is none). Each run is an ordinary task, which schedules the next one in its own transaction, also if it fails; so no two of them ever overlap. Null is always: not given.
name, 1 to 1000 bytes: unique for its owner.
every, 100 ms at least, without negative parts: ideal times are starts plus 0, 1, 2 ... times every, computed from starts, never from an actual start; months and days are counted in time_zone (null: that of this session), as timestamptz + interval does: 31 January plus n months is the last day of shorter months; 24 hours are elapsed time.
starts: the first one; null is every after the start of this transaction; it may be past.
time_zone: a name as in pg_timezone_names; null is that of this session.
until: no run has a later ideal time; null is no limit.
max_runs: no run after so many; null is no limit. A recurring task without further runs stays listed in delay_wheel.recurring until delay_unschedule.
catch_up: what to do with ideal times that have passed, since the server was down, a run took longer than every, or its queue was paused: skip (the default) makes the run that was waiting at once, then goes on with the first ideal time that is not past; all makes all of them, in order, one after the other. With a starts that is past, skip begins with the first ideal time from now on, all with starts.
args, arg_types, queue, tag, priority, max_attempts, retry_delay, timeout, notify, on_success, on_failure, mode: of each run, as in delay_schedule_task.
skip_after: of each run, too: a run that is later than that is left out, and with catch_up => all, only ideal times that are not too late by then are made up for. What a queue spreads is not spread here. A run that is cancelled (delay_cancel) is left out; one that is moved (delay_reschedule), or made early (delay_run), leaves the ideal times as they are.
If the task exists, all is as given now, what is null included; but if starts is null, and every and time_zone are as before, starts stays, and so does the ideal time of the next run. A run that waits is replaced by a new one; one that is going on is not touched, and its end goes by what is declared then. It stays paused if it was. If nothing is changed nothing is done. Waits for another session''s open change of the same as INSERT does, and for the end of a run that delay_run makes in an open transaction.
Errors as in delay_schedule_task (more than 65535 arguments, and on_success and on_failure of more than 128 MB together, SQLSTATE 54000, among them); also an interval or a schedule that is none, and a new one that would never have a run, SQLSTATE 22023';

/*---- Arguments ----*/

COMMENT ON FUNCTION delay_schedule(interval, text, "any") IS
'like delay_schedule(interval, text), with values for $1, $2 ... of the SQL, bound with their types; an untyped literal takes its type from the statement, and means what it would mean in that place; only that ARRAY[$1]::d[] and ROW($1)::r do not cut what is too long for a domain over varchar(n), char(n) or bit(n), but fail, SQLSTATE 22001. A parameter without a value, SQLSTATE 42P02, a value without a parameter, 22023, and more than 65535 values, 54000, are errors';

/*---- Rows that the reader may read ----*/

/*
 * The views are made of these instead of the tables: a condition in a view hides
 * rows, but neither from leakproof operators, nor from EXPLAIN ANALYZE, nor from
 * estimates.  See visible.c.
 */
CREATE FUNCTION delay_wheel.visible_handler() RETURNS fdw_handler
AS 'MODULE_PATHNAME', 'dw_visible_handler' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION delay_wheel.visible_handler() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.visible_handler() IS
'handler of the foreign-data wrapper delay_wheel, for PostgreSQL alone';
CREATE FOREIGN DATA WRAPPER delay_wheel HANDLER delay_wheel.visible_handler;
COMMENT ON FOREIGN DATA WRAPPER delay_wheel IS
'reads tables of extension delay_wheel: those rows that the reader may read';
CREATE SERVER delay_wheel FOREIGN DATA WRAPPER delay_wheel;
COMMENT ON SERVER delay_wheel IS
'this database; for the foreign tables of extension delay_wheel, see delay_wheel.visible_task';

CREATE FOREIGN TABLE delay_wheel.visible_task
(
	id bigint,
	due timestamptz,
	origin bigint,
	owner regrole,
	queue smallint,
	priority smallint,
	attempts smallint,
	max_attempts smallint,
	timeout integer,
	spared bigint,
	retry_delay interval,
	expires interval,
	sql text,
	args text[],
	arg_types regtype[],
	search_path text,
	key text,
	tag text,
	more jsonb
)
SERVER delay_wheel OPTIONS (table 'task');
COMMENT ON FOREIGN TABLE delay_wheel.visible_task IS
'rows of tasks that are pending of roles that one is a member of, of all for pg_read_all_data and superusers; those that delay_cancel_all() has cancelled, or that a newer one of the same key has superseded, are among them until they are removed. Nobody is meant to read it: the view delay_wheel.tasks does. To PostgreSQL there are no other rows, so conditions, counts and estimates tell nothing of these';
CREATE FOREIGN TABLE delay_wheel.visible_failed_task
(
	id bigint,
	failed_at timestamptz,
	due timestamptz,
	origin bigint,
	owner regrole,
	queue smallint,
	priority smallint,
	attempts smallint,
	crashes smallint,
	max_attempts smallint,
	timeout integer,
	retry_delay interval,
	expires interval,
	sqlstate text,
	message text,
	detail text,
	hint text,
	context text,
	sql text,
	args text[],
	arg_types regtype[],
	search_path text,
	key text,
	tag text,
	more jsonb
)
SERVER delay_wheel OPTIONS (table 'failed_task');
COMMENT ON FOREIGN TABLE delay_wheel.visible_failed_task IS
'rows of failed tasks of roles that one is a member of, of all for pg_read_all_data and superusers. Nobody is meant to read it: the view delay_wheel.failed does. To PostgreSQL there are no other rows, so conditions, counts and estimates tell nothing of these';
CREATE FOREIGN TABLE delay_wheel.visible_recurring_task
(
	id bigint,
	task bigint,
	next_due timestamptz,
	origin bigint,
	starts timestamptz,
	until timestamptz,
	last_due timestamptz,
	last_started timestamptz,
	last_ended timestamptz,
	runs bigint,
	failures bigint,
	skipped bigint,
	max_runs bigint,
	owner regrole,
	timeout integer,
	queue smallint,
	priority smallint,
	max_attempts smallint,
	paused boolean,
	every interval,
	retry_delay interval,
	name text COLLATE "C",
	schedule text,
	time_zone text,
	catch_up text,
	last_outcome text,
	last_error text,
	sql text,
	args text[],
	arg_types regtype[],
	search_path text,
	tag text,
	more jsonb
)
SERVER delay_wheel OPTIONS (table 'recurring_task');
COMMENT ON FOREIGN TABLE delay_wheel.visible_recurring_task IS
'rows of recurring tasks of roles that one is a member of, of all for pg_read_all_data and superusers. Nobody is meant to read it: the view delay_wheel.recurring does. To PostgreSQL there are no other rows, so conditions, counts and estimates tell nothing of these';
CREATE FOREIGN TABLE delay_wheel.visible_history
(
	task bigint,
	due timestamptz,
	started timestamptz,
	ended timestamptz,
	rows bigint,
	recurring bigint,
	owner regrole,
	queue smallint,
	attempt smallint,
	outcome text,
	command_tag text,
	sqlstate text,
	message text,
	sql text,
	key text,
	tag text
)
SERVER delay_wheel OPTIONS (table 'history');
COMMENT ON FOREIGN TABLE delay_wheel.visible_history IS
'rows of the history of roles that one is a member of, of all for pg_read_all_data and superusers: its three tables, one after the other. Nobody is meant to read it: the view delay_wheel.history does. To PostgreSQL there are no other rows, so conditions, counts and estimates tell nothing of these';
CREATE FOREIGN TABLE delay_wheel.visible_queue
(
	id smallint,
	priority smallint,
	max_attempts smallint,
	paused boolean,
	batch boolean,
	owner regrole,
	max_running integer,
	rate integer,
	timeout integer,
	name text COLLATE "C",
	users regrole[],
	retry_delay interval,
	spread interval,
	history text,
	more jsonb
)
SERVER delay_wheel OPTIONS (table 'queue');
COMMENT ON FOREIGN TABLE delay_wheel.visible_queue IS
'rows of queues that one may use, or see: of roles that one is a member of, or that were declared for such a role, or for all; all of them for pg_read_all_data, pg_monitor, pg_read_all_stats and superusers. Nobody is meant to read it: the view delay_wheel.queues does. To PostgreSQL there are no other rows, so conditions, counts and estimates tell nothing of these';

-- the same words for the same columns
DO $$
DECLARE c record;
BEGIN
	FOR c IN SELECT 'visible_' OPERATOR(pg_catalog.||) v.name AS name, a.attname, pg_catalog.col_description(a.attrelid, a.attnum) AS words
			 FROM (VALUES ('task', 'task'), ('failed_task', 'failed_task'), ('recurring_task', 'recurring_task'), ('history', 'history_0'), ('queue', 'queue')) v(name, of),
				  pg_catalog.pg_attribute a
			 WHERE a.attrelid = pg_catalog.format('delay_wheel.%I', v.of)::regclass::oid AND a.attnum > 0
			 ORDER BY v.name, a.attnum
	LOOP
		EXECUTE pg_catalog.format('COMMENT ON COLUMN delay_wheel.%I.%I IS %L', c.name, c.attname, c.words);
	END LOOP;
END
$$;

/*---- The views, made of these ----*/

CREATE OR REPLACE VIEW delay_wheel.tasks AS
SELECT t.id, t.due, t.owner, COALESCE(q.name, CASE t.queue WHEN 0 THEN 'default' END) AS queue, t.priority, t.key, t.tag, t.sql, t.args,
	   p.slot, p.cycle_num, COALESCE(t.attempts, 0::smallint) AS attempts,
	   t.more OPERATOR(pg_catalog.->>) 'last_error'::text AS last_error,
	   t.origin = delay_wheel.origin() AS armed,
	   t.more OPERATOR(pg_catalog.->>) 'mode'::text AS mode,
	   delay_wheel.crashes(t.id) AS crashes,
	   t.arg_types, t.max_attempts, t.retry_delay,
	   pg_catalog.make_interval(secs => pg_catalog.float8(t.timeout) / 1000::double precision) AS timeout, t.expires,
	   -- whatever plain SQL may have written
	   CASE WHEN pg_catalog.jsonb_typeof(t.more OPERATOR(pg_catalog.->) 'skip_after'::text) = 'number' THEN
			pg_catalog.make_interval(secs => LEAST(GREATEST((t.more OPERATOR(pg_catalog.->) 'skip_after'::text)::numeric, 0::numeric), 1e15::numeric)::double precision / 1000000::double precision)
	   END AS skip_after,
	   t.more OPERATOR(pg_catalog.->>) 'notify'::text AS notify,
	   t.more OPERATOR(pg_catalog.->>) 'on_success'::text AS on_success,
	   t.more OPERATOR(pg_catalog.->>) 'on_failure'::text AS on_failure
FROM delay_wheel.visible_task t
	 LEFT JOIN delay_wheel.queue q ON q.id = t.queue
	 CROSS JOIN LATERAL delay_wheel.place(t.due) p
-- superseded by a newer one
WHERE NOT EXISTS (
		SELECT FROM delay_wheel.visible_task n
		WHERE n.owner OPERATOR(pg_catalog.=) t.owner AND n.queue = t.queue AND n.key = t.key AND n.id > t.id
			AND (n.origin = t.origin OR n.origin = delay_wheel.origin()))
	-- as in marks.c: what is cancelled of all roles, and of its own.  Each of these is compared with the tasks
	-- of its role only, and those of roles whose tasks are not shown with none: they can be many
	AND NOT EXISTS (
		SELECT FROM delay_wheel.cancellation c
		WHERE c.owners IS NULL AND COALESCE(t.spared, t.id) < c.id
			AND (c.origin = t.origin OR c.origin = delay_wheel.origin())
			AND (c.queue IS NULL OR c.queue = t.queue)
			AND (c.tag IS NULL OR c.tag = t.tag)
			AND (c.due_from IS NULL OR t.due >= c.due_from)
			AND (c.due_until IS NULL OR t.due < c.due_until))
	AND NOT EXISTS (
		SELECT FROM delay_wheel.cancellation c CROSS JOIN LATERAL pg_catalog.unnest(c.owners) o(owner)
		WHERE o.owner OPERATOR(pg_catalog.=) t.owner AND COALESCE(t.spared, t.id) < c.id
			AND (pg_catalog.pg_has_role(o.owner::oid, 'USAGE') OR pg_catalog.pg_has_role('pg_read_all_data'::name, 'USAGE'))
			AND (c.origin = t.origin OR c.origin = delay_wheel.origin())
			AND (c.queue IS NULL OR c.queue = t.queue)
			AND (c.tag IS NULL OR c.tag = t.tag)
			AND (c.due_from IS NULL OR t.due >= c.due_from)
			AND (c.due_until IS NULL OR t.due < c.due_until));
COMMENT ON COLUMN delay_wheel.tasks.arg_types IS 'types of the args; ''-'' for an untyped literal, which takes its type from the statement; null if there are none';
COMMENT ON COLUMN delay_wheel.tasks.max_attempts IS 'how often the task may be run in all; null is as often as its queue says, or else once';
COMMENT ON COLUMN delay_wheel.tasks.retry_delay IS 'pause before the second attempt, doubled before each further one up to an hour; null is the queue''s, or else 10 seconds';
COMMENT ON COLUMN delay_wheel.tasks.timeout IS 'time that each attempt may take; 0 is any; null is the queue''s, or else the shorter one of the role''s settings statement_timeout and delay_wheel.default_timeout';
COMMENT ON COLUMN delay_wheel.tasks.expires IS 'the task fails if it cannot begin within that after it was due; null is at any time';
COMMENT ON COLUMN delay_wheel.tasks.skip_after IS 'the task is skipped if it cannot begin within that after it was due; null is at any time';
COMMENT ON COLUMN delay_wheel.tasks.notify IS 'channel on which its end is told; null is none';
COMMENT ON COLUMN delay_wheel.tasks.on_success IS 'SQL of the task that follows if it is done; null is none';
COMMENT ON COLUMN delay_wheel.tasks.on_failure IS 'SQL of the task that follows if it has failed; null is none';

CREATE OR REPLACE VIEW delay_wheel.failed_rows AS
SELECT f.id, f.failed_at, f.due, f.owner, COALESCE(q.name, CASE f.queue WHEN 0 THEN 'default' END) AS queue, f.priority, f.key, f.tag, f.sql, f.args,
	   f.attempts, f.sqlstate, f.message, f.detail, f.hint, f.context, COALESCE(f.crashes, 0::smallint) AS crashes
FROM delay_wheel.visible_failed_task f
	 LEFT JOIN delay_wheel.queue q ON q.id = f.queue
-- begun in mode at_most_once, and not ended yet
WHERE NOT (f.sqlstate = 'DW003' AND delay_wheel.is_running(f.id));
CREATE OR REPLACE VIEW delay_wheel.failed AS SELECT * FROM delay_wheel.failed_rows;
CREATE OR REPLACE VIEW delay_wheel.newest_failed AS
SELECT * FROM delay_wheel.failed_rows ORDER BY failed_at DESC, id DESC LIMIT 1000;

CREATE OR REPLACE VIEW delay_wheel.history AS
SELECT h.ended, h.task, h.outcome, h.started - h.due AS lateness, h.ended - h.started AS duration, h.rows, h.command_tag, h.sqlstate, h.message,
	   COALESCE(q.name, CASE h.queue WHEN 0 THEN 'default' END) AS queue, h.key, h.tag, h.owner, h.attempt, h.due, h.started, h.sql, h.recurring
FROM delay_wheel.visible_history h
	 LEFT JOIN delay_wheel.queue q ON q.id = h.queue;

CREATE OR REPLACE VIEW delay_wheel.recurring AS
SELECT d.name, d.owner,
	   CASE WHEN d.next_due IS NULL AND r.task IS NULL THEN 'finished'
			WHEN d.origin <> delay_wheel.origin() THEN 'unarmed'
			WHEN r.task IS NOT NULL THEN 'running'
			WHEN d.paused THEN 'paused'
			ELSE 'waiting' END AS state,
	   d.every, d.schedule, d.time_zone, d.starts, d.until, d.max_runs, d.catch_up,
	   CASE WHEN d.task IS NOT NULL THEN d.next_due END AS next_due, d.task,
	   d.last_due, d.last_started, d.last_ended, d.last_outcome, d.last_error,
	   d.runs, d.failures, d.skipped, d.paused,
	   COALESCE(q.name, CASE d.queue WHEN 0 THEN 'default' END) AS queue, d.priority, d.tag, d.sql, d.args,
	   d.id, d.arg_types, d.max_attempts, d.retry_delay,
	   pg_catalog.make_interval(secs => pg_catalog.float8(d.timeout) / 1000::double precision) AS timeout,
	   -- whatever plain SQL may have written
	   CASE WHEN pg_catalog.jsonb_typeof(d.more OPERATOR(pg_catalog.->) 'skip_after'::text) = 'number' THEN
			pg_catalog.make_interval(secs => LEAST(GREATEST((d.more OPERATOR(pg_catalog.->) 'skip_after'::text)::numeric, 0::numeric), 1e15::numeric)::double precision / 1000000::double precision)
	   END AS skip_after,
	   d.more OPERATOR(pg_catalog.->>) 'notify'::text AS notify,
	   d.more OPERATOR(pg_catalog.->>) 'on_success'::text AS on_success,
	   d.more OPERATOR(pg_catalog.->>) 'on_failure'::text AS on_failure,
	   d.more OPERATOR(pg_catalog.->>) 'mode'::text AS mode
FROM delay_wheel.visible_recurring_task d
	 LEFT JOIN delay_wheel.queue q ON q.id = d.queue
	 -- two executors may hold the same task for a moment, until one has claimed it
	 LEFT JOIN (SELECT DISTINCT task FROM delay_wheel.get_running()) r ON r.task = d.task;
COMMENT ON COLUMN delay_wheel.recurring.id IS 'number of the recurring task, as in column recurring of delay_wheel.history';
COMMENT ON COLUMN delay_wheel.recurring.arg_types IS 'of its runs: types of the args, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.max_attempts IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.retry_delay IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.timeout IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.skip_after IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.notify IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.on_success IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.on_failure IS 'of its runs, as in delay_wheel.tasks';
COMMENT ON COLUMN delay_wheel.recurring.mode IS 'of its runs, as in delay_wheel.tasks';

CREATE OR REPLACE VIEW delay_wheel.queues AS
SELECT q.name, q.owner, q.users, q.paused, q.max_running, q.rate, q.priority,
	   pg_catalog.make_interval(secs => pg_catalog.float8(q.timeout) / 1000::double precision) AS timeout,
	   COALESCE(q.max_attempts, 1::smallint) AS max_attempts,
	   COALESCE(q.retry_delay, '10 seconds'::interval) AS retry_delay, q.batch, q.spread, q.history,
	   s.state, s.reason, s.running, s.near, s.ready, s.lanes, s.done, s.failed, s.retried, s.cancelled, s.skipped
FROM delay_wheel.visible_queue q
	 LEFT JOIN delay_wheel.get_queues() s ON s.id OPERATOR(pg_catalog.=) q.id;
/*---- The page ----*/

CREATE FUNCTION delay_wheel.readable(document json) RETURNS json
AS 'MODULE_PATHNAME', 'dw_readable' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel.readable(json) IS
'the document with a question mark for each byte that is not valid in the client''s encoding, and could not be sent, in a database whose encoding is SQL_ASCII; if that is an encoding which only clients can have (SJIS, BIG5, GBK, UHC, GB18030, JOHAB, SHIFT_JIS_2004), for each byte that is not ASCII. Elsewhere, and if the client''s encoding is SQL_ASCII, as it is. For delay_wheel.page_data()';
GRANT EXECUTE ON FUNCTION delay_wheel.readable(json) TO PUBLIC;

-- the same as in 1.1, but readable
CREATE OR REPLACE FUNCTION delay_wheel.page_data(max_rows integer DEFAULT 50, texts boolean DEFAULT true) RETURNS json
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
WITH params AS (
	SELECT LEAST(GREATEST(COALESCE(max_rows, 50), 0), 1000) AS n,
		   -- null without the library: the views say what is wrong then
		   current_setting('delay_wheel.slots', true)::integer AS slots,
		   (current_setting('delay_wheel.slots', true)::integer + 359) / 360 AS per_part
), ring AS (
	SELECT slot / per_part AS part, sum(tasks) AS tasks, COALESCE(max(max_cycle), 0) AS cycle
	FROM delay_wheel.ring, params GROUP BY part
), running AS (
	SELECT r.task AS id, r.pid, r.owner, r.due, r.since, t.queue, t.key, t.tag, CASE WHEN texts THEN "left"(t.sql, 500) END AS sql,
		   count(*) OVER () AS total, row_number() OVER (ORDER BY r.since, r.pid) AS pos
	FROM delay_wheel.running r
		 LEFT JOIN LATERAL (SELECT * FROM delay_wheel.tasks t WHERE t.id = r.task LIMIT 1) t ON true
), newest_failed AS MATERIALIZED (
	SELECT *, row_number() OVER (ORDER BY failed_at DESC, id DESC) AS pos FROM delay_wheel.newest_failed
), errors AS (
	SELECT sqlstate, count(*) AS tasks, max(failed_at) AS newest, CASE WHEN texts THEN "left"(min(message), 200) END AS message,
		   row_number() OVER (ORDER BY count(*) DESC, sqlstate) AS pos
	FROM newest_failed GROUP BY sqlstate
), failed AS (
	SELECT id, failed_at, due, owner, queue, key, tag, attempts, sqlstate, crashes, CASE WHEN texts THEN "left"(message, 500) END AS message,
		   CASE WHEN texts THEN "left"(detail, 500) END AS detail, CASE WHEN texts THEN "left"(hint, 500) END AS hint,
		   CASE WHEN texts THEN "left"(context, 500) END AS context, CASE WHEN texts THEN "left"(sql, 500) END AS sql, pos
	FROM newest_failed
), queues AS (
	SELECT name, owner, state, reason, paused, max_running, rate, running, near, ready, done, failed, retried, skipped,
		   count(*) OVER () AS total,
		   row_number() OVER (ORDER BY COALESCE(ready, 0) DESC, COALESCE(running, 0) DESC, COALESCE(near, 0) DESC, name) AS pos
	FROM delay_wheel.queues
), lanes AS (
	SELECT owner, queue, priority, state, reason, retry_at, near, ready, running, done, failed, retried, skipped,
		   lateness_p50, lateness_p95, lateness_max,
		   count(*) OVER () AS total,
		   row_number() OVER (ORDER BY state = 'blocked' DESC, ready DESC, running DESC, state = 'paused' DESC, near DESC, done DESC, owner, queue, priority) AS pos
	FROM delay_wheel.lanes
), recurring AS (
	SELECT name, owner, state, schedule, time_zone, EXTRACT(epoch FROM every) AS every_s, next_due, last_due, last_ended, last_outcome,
		   CASE WHEN texts THEN "left"(last_error, 500) END AS last_error, runs, failures, skipped, queue,
		   count(*) OVER () AS total,
		   row_number() OVER (ORDER BY COALESCE(last_outcome = 'failed', false) DESC, next_due NULLS LAST, name, owner) AS pos
	FROM delay_wheel.recurring
), lateness AS (
	SELECT lag(below, 1, 0) OVER w * 1000 AS from_ms, CASE WHEN below < 'Infinity' THEN below * 1000 END AS until_ms,
		   tasks - lag(tasks, 1, 0) OVER w AS attempts
	FROM delay_wheel.lateness WHERE database = current_database()
	WINDOW w AS (ORDER BY below)
), cancellations AS (
	SELECT id, made_at, made_by, queue, tag, due_from, due_until, running, removed, state,
		   count(*) OVER () AS total, row_number() OVER (ORDER BY made_at, id) AS pos
	FROM delay_wheel.cancellations
)
SELECT delay_wheel.readable(json_strip_nulls(json_build_object(
	'format', 1,
	'now', clock_timestamp(),
	'role', CURRENT_USER,
	'sees_all_tasks', pg_has_role('pg_read_all_data', 'USAGE'),
	'sees_all_stats', pg_has_role('pg_read_all_stats', 'USAGE'),
	'texts', texts,
	'server_version', current_setting('server_version'),
	'server_started', pg_postmaster_start_time(),
	'version', (SELECT extversion FROM pg_extension WHERE extname = 'delay_wheel'),
	'database', current_database(),
	'max_executors', current_setting('delay_wheel.max_executors', true)::integer,
	'status', (SELECT to_json(s) FROM delay_wheel.status s WHERE s.database = current_database()),
	'databases', (SELECT COALESCE(json_agg(s ORDER BY s.database), '[]')
				  FROM (SELECT database, state, near, ready, running, executors, done, failed, lateness_p99, last_problem, last_problem_at
						FROM delay_wheel.status LIMIT (SELECT n FROM params)) s),
	'ring', (SELECT json_build_object('slots', max(p.slots), 'per_part', max(p.per_part),
									  'tick_s', EXTRACT(epoch FROM current_setting('delay_wheel.tick', true)::interval),
									  'tasks', COALESCE(json_agg(r.tasks ORDER BY r.part) FILTER (WHERE r.part IS NOT NULL), '[]'),
									  'cycles', COALESCE(json_agg(r.cycle ORDER BY r.part) FILTER (WHERE r.part IS NOT NULL), '[]'))
			 FROM params p LEFT JOIN ring r ON true),
	'waiting_since', (SELECT min(first_due) FROM delay_wheel.waiting WHERE database = current_database()),
	'progress', (SELECT COALESCE(json_agg(p ORDER BY p.started), '[]')
				 FROM (SELECT work, phase, started, done, total, unit FROM delay_wheel.progress WHERE active AND database = current_database()) p),
	'lateness', (SELECT COALESCE(json_agg(json_build_array(from_ms, until_ms, attempts) ORDER BY from_ms), '[]') FROM lateness WHERE attempts > 0),
	'forecast', (SELECT json_build_object('next_due', delay_wheel.next_due(),
										  'overdue', sum(tasks) FILTER (WHERE step = 'overdue'),
										  'later', sum(tasks) FILTER (WHERE step = 'later'),
										  'pending', sum(tasks) FILTER (WHERE step IN ('overdue', 'day', 'later')),
										  'exact', bool_and(exact),
										  'minutes', json_agg(json_build_array(due_from, tasks, exact) ORDER BY due_from) FILTER (WHERE step = 'minute'),
										  'hours', json_agg(json_build_array(due_from, tasks, exact) ORDER BY due_from) FILTER (WHERE step = 'hour'),
										  'days', json_agg(json_build_array(due_from, tasks, exact) ORDER BY due_from) FILTER (WHERE step = 'day'))
				 FROM delay_wheel.forecast),
	'running', (SELECT json_build_object('total', COALESCE(max(r.total), 0), 'rows', COALESCE(json_agg(r ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
				FROM params LEFT JOIN running r ON true),
	-- counted no further than a person cares
	'failed', (SELECT json_build_object(
					'total', (SELECT count(*) FROM (SELECT FROM delay_wheel.failed LIMIT 10001) f),
					'last_hour', (SELECT count(*) FROM newest_failed WHERE failed_at > clock_timestamp() - interval '1 hour'),
					'newest', (SELECT count(*) FROM newest_failed),
					'errors', (SELECT COALESCE(json_agg(e ORDER BY pos), '[]') FROM errors e WHERE pos <= 20),
					'rows', COALESCE(json_agg(f ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
			   FROM params LEFT JOIN failed f ON true),
	'queues', (SELECT json_build_object('total', COALESCE(max(q.total), 0), 'rows', COALESCE(json_agg(q ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
			   FROM params LEFT JOIN queues q ON true),
	'lanes', (SELECT json_build_object('total', COALESCE(max(l.total), 0), 'rows', COALESCE(json_agg(l ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
			  FROM params LEFT JOIN lanes l ON true),
	'recurring', (SELECT json_build_object('total', COALESCE(max(r.total), 0), 'failing', count(*) FILTER (WHERE r.last_outcome = 'failed'),
										   'rows', COALESCE(json_agg(r ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
				  FROM params LEFT JOIN recurring r ON true),
	'cancellations', (SELECT json_build_object('total', COALESCE(max(c.total), 0), 'rows', COALESCE(json_agg(c ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
					  FROM params LEFT JOIN cancellations c ON true)
)))
$$;
COMMENT ON FUNCTION delay_wheel.page_data(integer, boolean) IS
'all that web/delay_wheel.html shows, as one JSON document: what the views of delay_wheel show to the caller, in a form that stays small. Of each list the first max_rows entries (default 50, at most 1000; null is the default), those in trouble first, and how many there are; failed tasks are counted up to 10,001; the ring in at most 360 parts. texts => false leaves out SQL and the texts of errors, which can contain values of one''s tables. Values of arguments are never in it. In a database whose encoding is SQL_ASCII each byte that is not valid in the client''s encoding stands as a question mark. It reads and changes nothing, also in a read-only transaction and on a standby. SQLSTATE 55000 if delay_wheel is not in shared_preload_libraries';

/*---- What is said of functions that there were ----*/

COMMENT ON FUNCTION delay_cancel_all(text, text, timestamptz, timestamptz) IS
'cancels all pending tasks of this queue, with this tag, that are due from due_from (inclusive) to due_until (exclusive), if this transaction commits: at once, however many they are, also those that open and prepared transactions have scheduled before. Null does not restrict; one of the four must be given (all tasks: due_from => ''-infinity''). Concerns the tasks of all roles whose rights the caller has, of all roles for a superuser. Returns the number of the cancellation in the view delay_wheel.cancellations: it shows which of the tasks are running, which are not stopped, and how far the removal of their rows is, which goes on in the background. Tasks that are scheduled, or moved to such a time, afterwards are not concerned. No restriction at all, SQLSTATE 22004, an unknown queue, 42704, a tag of more than 1000 bytes, due times in the wrong order, 22023, and more than 10,000 cancellations of one role, which is no superuser, whose rows are not removed yet, 53400, are errors; the last one not for a whole queue, or all tasks, without tag and due times (other than ''-infinity'' and ''infinity''): so an emergency stop always works. Such a cancellation takes the place of older ones that hit nothing but what it hits, which are not in the view any more';

/*---- One rule for all views ----*/

COMMENT ON VIEW delay_wheel.running IS
'one''s own tasks that executors of this database run just now; all of them for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers';
COMMENT ON VIEW delay_wheel.lanes IS
'for each combination of owner, queue and priority that has tasks in this database: how it stands. One''s own; all of them for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers';
COMMENT ON FUNCTION delay_wheel.lateness_svg() IS
'how late tasks of this database were begun since the start of the server, as a picture in SVG, which any browser shows: a histogram of all attempts, and median, 95th percentile and maximum of the lanes that were latest, which are one''s own ones, or those of all roles for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers';
COMMENT ON COLUMN delay_wheel.status.last_problem IS 'what last kept tasks from being run, as the reference lists it; null if there was nothing since the start of the server, and for roles that are neither in pg_monitor nor in pg_read_all_stats. It stays when it is over. The message of an error that it quotes is shown to pg_read_all_data and superusers, since it can contain SQL and values of a task; others are referred to the server''s log';
COMMENT ON COLUMN delay_wheel.prepared.gid IS 'of the prepared transaction; empty if an apply worker of logical replication has prepared it, whose name for it is not known';
COMMENT ON FUNCTION delay_redrive(text, text, text, timestamptz, timestamptz, integer) IS
'puts failed tasks back as delay_retry() does, those that failed first before others, at most max_tasks; returns how many. Those whose rights the caller has, all of them for a superuser, that are in this queue, have this tag and this SQLSTATE (five characters), and failed in [failed_from, failed_until); null stands for any, so without arguments all of one''s own. Tasks that delay_retry() would refuse, or for which it would have to wait since another transaction changes them, are left, with a notice of their number. A queue that does not exist, SQLSTATE 42704, a malformed sqlstate and a negative max_tasks, 22023, are errors';

/*---- The end ----*/

SELECT delay_wheel.revoke_defaults();
DROP FUNCTION delay_wheel.revoke_defaults();

-- GRANTs to certain roles go below
