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

/*---- Arguments ----*/

COMMENT ON FUNCTION delay_schedule(interval, text, "any") IS
'like delay_schedule(interval, text), with values for $1, $2 ... of the SQL, bound with their types; an untyped literal takes its type from the statement. A parameter without a value, SQLSTATE 42P02, a value without a parameter, 22023, and more than 65535 values, 54000, are errors';

/*---- The end ----*/

SELECT delay_wheel.revoke_defaults();
DROP FUNCTION delay_wheel.revoke_defaults();

-- GRANTs to certain roles go below
