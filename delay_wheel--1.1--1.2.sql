/* delay_wheel--1.1--1.2.sql: what came with 1.2: views that hold against strangers */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION delay_wheel UPDATE TO '1.2'" to load this file. \quit

/*---- Default privileges: this stands first, its call last ----*/

-- takes back what ALTER DEFAULT PRIVILEGES grants on what is created from here on, see 1.0
CREATE FUNCTION delay_wheel.revoke_defaults() RETURNS void
AS 'MODULE_PATHNAME', 'dw_revoke_new_defaults' LANGUAGE C
SET search_path = pg_catalog, pg_temp;

/*---- New objects go here, above the next heading, with GRANTs to PUBLIC only ----*/

/*---- The forecast ----*/

/*
 * The same as in 1.1, but that whoever can create operators in the schema given
 * to CREATE EXTENSION had a say in it where 1.1 was first installed: there is no
 * integer * interval in pg_catalog, so a better match of his was taken.
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
'runs a pending task now, as its owner and in the caller''s transaction, whatever its due time, expires, skip_after, attempts, and pauses of its queue; errors are the caller''s. If the caller''s transaction is rolled back the task stays as it was. False if an executor runs the task just now, or it is gone. Waits for another session''s open change of the task as UPDATE does. The task''s timeout does not apply, the caller''s statement_timeout does; settings that the task makes are undone. Only for members of the owner role and superusers; in a session that is not the owner''s own (session_user, current_user) the SQL runs in a security-restricted operation: temporary tables, cursors WITH HOLD, deferred triggers, SET CONSTRAINTS, prepared statements and delay_ functions are refused, cursors of the caller are out of its reach, custom settings such as app.user are empty meanwhile, random() goes on from a new seed afterwards, and it is an error if the caller has large objects open. What is left within reach of the task are session-level advisory locks, the texts of the query and of prepared statements, session_user, the value of lastval(), which may be that of the task''s sequence afterwards, custom settings of the start of the session (by RESET), settings that extensions have declared, and what extensions keep for a session, such as named connections of dblink. Errors, beside those of the SQL: a task that is not armed, or has a mode, SQLSTATE 55000; that of a role whose rights one does not have, 42501; a null id, 22004';

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
'removes failed tasks as delay_discard() does, those that failed first before others, at most max_tasks; returns how many. Those whose rights the caller has, all of them for a superuser, that are in this queue, have this tag and this sqlstate (five characters), and failed in [failed_from, failed_until); null stands for any, so without arguments all of one''s own. A queue that does not exist, SQLSTATE 42704, a malformed sqlstate and a negative max_tasks, 22023, are errors';

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
on_success, on_failure: SQL that is scheduled as a task of its own, due at once, in the transaction in which this one is done, or given up; with its owner, queue, priority, tag and search_path. on_success may use $1, its id (bigint), and $2, the number of rows of its last statement (bigint); on_failure $1, its id, $2, SQLSTATE, and $3, the message of its last error (text). Neither is run for tasks that are skipped or cancelled.
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

/*---- Arguments ----*/

COMMENT ON FUNCTION delay_schedule(interval, text, "any") IS
'like delay_schedule(interval, text), with values for $1, $2 ... of the SQL, bound with their types; an untyped literal takes its type from the statement. A parameter without a value, SQLSTATE 42P02, a value without a parameter, 22023, and more than 65535 values, 54000, are errors';

/*---- The end ----*/

SELECT delay_wheel.revoke_defaults();
DROP FUNCTION delay_wheel.revoke_defaults();

-- GRANTs to certain roles go below
