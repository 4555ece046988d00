/* delay_wheel--1.0--1.1.sql: what came with 1.1: pictures, forecast, progress, for those who watch */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION delay_wheel UPDATE TO '1.1'" to load this file. \quit

/*---- Default privileges: this stands first, its call last ----*/

-- takes back what ALTER DEFAULT PRIVILEGES grants on what is created from here on, see 1.0
CREATE FUNCTION delay_wheel.revoke_defaults() RETURNS void
AS 'MODULE_PATHNAME', 'dw_revoke_new_defaults' LANGUAGE C
SET search_path = pg_catalog, pg_temp;

/*---- New objects go here, above the next heading, with GRANTs to PUBLIC only ----*/

/*---- Pictures: when tasks are due, the ring, lateness ----*/

-- not in a parallel query, also not in its leader: the marks of delay_cancel_all() take a new snapshot
CREATE FUNCTION delay_wheel.count_due(bounds timestamptz[], OUT due_from timestamptz, OUT due_until timestamptz, OUT tasks bigint, OUT exact boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_count_due' LANGUAGE C STABLE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel.count_due(timestamptz[]) IS
'how many of one''s own pending tasks are due in each period between the bounds, those that run just now included; of all roles for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers. One row more than there are bounds: due_from, inclusive, is null in the first one, due_until, exclusive, in the last. exact: the tasks were counted. They are where up to 10,000 rows are due in the period, and up to 50,000 before it in all periods that are given; or if the table of tasks is smaller than 31 MB. Rows that VACUUM has not yet removed count for these limits. Other numbers are estimates, by the tasks in 2,000 to 4,000 pages of the table, evenly spread: some percent off for a period that has a hundredth of all tasks, more for fewer; no ANALYZE is needed. Tasks that came with a copy of another database and are not armed do not count. There can be up to 500 bounds, SQLSTATE 54000; they must be in ascending order, 22023, and not null, 22004';

CREATE FUNCTION delay_wheel.next_due() RETURNS timestamptz
AS 'MODULE_PATHNAME', 'dw_next_due' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel.next_due() IS
'the next time from now on at which one of one''s own pending tasks is due, of all roles for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers; null if there is none. What is overdue does not count. If 50,000 rows that are cancelled, or not visible, come first, it is the time of such a row: it does not look further';

CREATE VIEW delay_wheel.forecast AS
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
COMMENT ON VIEW delay_wheel.forecast IS
'how many of one''s own pending tasks will be due, and when; of all roles for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers. For each of the next 60 minutes, 48 hours and 31 days one row, in the time zone of the session; one for what is overdue, one for what is due later. Each minute lies in one of the hours, and each hour in one of the days. It is cheap however many tasks there are, since large numbers are estimated, see delay_wheel.count_due()';
COMMENT ON COLUMN delay_wheel.forecast.step IS 'overdue, minute, hour, day or later';
COMMENT ON COLUMN delay_wheel.forecast.due_from IS 'begin of the period, inclusive; now for the first minute, hour and day, null for overdue';
COMMENT ON COLUMN delay_wheel.forecast.due_until IS 'end of the period, exclusive; now for overdue, null for later';
COMMENT ON COLUMN delay_wheel.forecast.tasks IS 'pending tasks that are due in the period; those that run just now are among the overdue ones';
COMMENT ON COLUMN delay_wheel.forecast.exact IS 'false if the number of tasks is an estimate, some percent off for a large part of all tasks, more for a small one; up to 10,000 are mostly counted, see delay_wheel.count_due()';

CREATE FUNCTION delay_wheel.ring_svg() RETURNS text
AS 'MODULE_PATHNAME', 'dw_ring_svg' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION delay_wheel.ring_svg() IS
'a picture of this database''s ring as SVG, which any browser shows: how many tasks its slots hold, the current index, the horizon up to which tasks are in memory, and which slots hold tasks of a later turn. These are tasks of all roles, as in delay_wheel.ring; the next due time is of one''s own tasks, see delay_wheel.next_due(). Times are in the time zone of the session';

CREATE FUNCTION delay_wheel.forecast_svg() RETURNS text
AS 'MODULE_PATHNAME', 'dw_forecast_svg' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION delay_wheel.forecast_svg() IS
'the view delay_wheel.forecast as a picture in SVG, which any browser shows: tasks due in each of the next 60 minutes, 48 hours and 31 days, in the time zone of the session. Estimates are hatched';

CREATE FUNCTION delay_wheel.lateness_svg() RETURNS text
AS 'MODULE_PATHNAME', 'dw_lateness_svg' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION delay_wheel.lateness_svg() IS
'how late tasks of this database were begun since the start of the server, as a picture in SVG, which any browser shows: a histogram of all attempts, and median, 95th percentile and maximum of the lanes that were latest, which are one''s own ones, or those of all roles for pg_monitor, pg_read_all_stats and superusers';

GRANT SELECT ON delay_wheel.forecast TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel.count_due(timestamptz[]), delay_wheel.next_due(),
	delay_wheel.ring_svg(), delay_wheel.forecast_svg(), delay_wheel.lateness_svg()
	TO PUBLIC;

/*---- Progress of what is done in the background ----*/

CREATE FUNCTION delay_wheel.get_progress(
	OUT database name, OUT work text, OUT phase text, OUT active boolean, OUT pid integer,
	OUT started timestamptz, OUT duration interval, OUT unit text, OUT done bigint, OUT total bigint,
	OUT rate double precision, OUT steps bigint, OUT steps_total bigint, OUT times bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_progress' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_progress() IS
'what goes on in the background in this database, or in each one that is served, see delay_wheel.progress';
CREATE VIEW delay_wheel.progress AS SELECT * FROM delay_wheel.get_progress();
COMMENT ON VIEW delay_wheel.progress IS
'how far the background processes have come: a row for each kind of work that was begun in this database since the start of the server, as it goes on, or as it was the last time; for pg_read_all_stats and superusers also those of other databases. It is kept in shared memory; reading it takes microseconds, and waits for nobody';
COMMENT ON COLUMN delay_wheel.progress.database IS 'name of the database';
COMMENT ON COLUMN delay_wheel.progress.work IS
'load: tasks of the near future are read into memory, all of them, since the timer has started, an inbox was full, or plain SQL wrote rows (loads of single lanes in between, as the ring turns, are not shown); dropped roles: tasks of roles that were dropped are moved to the failed ones; cancel: rows of tasks that delay_cancel_all() has cancelled are removed; failed: old rows of failed tasks are removed, see delay_wheel.failed_max_age and delay_wheel.failed_max_count; history: the oldest table of the history is emptied; recurring: it is looked whether recurring tasks have their runs';
COMMENT ON COLUMN delay_wheel.progress.phase IS
'of load: looking for lanes, loading; of dropped roles: moving; of cancel: sweeping; of failed: counting, deleting; of history: emptying; of recurring: checking. Of all: waiting: for a lock, or for transactions that may have scheduled cancelled tasks, and it is tried again; done; interrupted: the process ended in the middle, and it begins anew';
COMMENT ON COLUMN delay_wheel.progress.active IS 'it goes on; false if phase is done or interrupted';
COMMENT ON COLUMN delay_wheel.progress.pid IS
'process that does it: the timer (load, dropped roles) or the sweeper; null if it does not go on, or waits without a process';
COMMENT ON COLUMN delay_wheel.progress.started IS 'when it began';
COMMENT ON COLUMN delay_wheel.progress.duration IS 'how long it has lasted so far, or lasted in all, waiting included; right also if the clock is set';
COMMENT ON COLUMN delay_wheel.progress.unit IS
'what done and total count: tasks (load, dropped roles, cancel), rows (failed), pages of 8 kB, or as the server was built (history), recurring tasks (recurring)';
COMMENT ON COLUMN delay_wheel.progress.done IS
'read into memory, moved, removed, counted, emptied or looked at so far; what is committed only';
COMMENT ON COLUMN delay_wheel.progress.total IS
'of so many at most, while rows of failed tasks are counted: delay_wheel.failed_max_count; else null: not known, since nobody counts rows beforehand';
COMMENT ON COLUMN delay_wheel.progress.rate IS 'done for each second of duration; null in the first microsecond';
COMMENT ON COLUMN delay_wheel.progress.steps IS
'of load: lanes that have in memory what they can have; of cancel: calls of delay_cancel_all() that are complete; null for others';
COMMENT ON COLUMN delay_wheel.progress.steps_total IS
'of load: lanes known so far; of cancel: calls of delay_cancel_all() met since it began; null for others';
COMMENT ON COLUMN delay_wheel.progress.times IS 'how often this work was begun since the start of the server, or since the database was served';

GRANT SELECT ON delay_wheel.progress TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel.get_progress() TO PUBLIC;

/*---- For programs that watch ----*/

CREATE FUNCTION delay_wheel.get_waiting(
	OUT database name, OUT state text, OUT lanes bigint, OUT tasks bigint, OUT first_due timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_waiting' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_waiting() IS
'due tasks in memory, and what they wait for, of this database, or of each one that is served, see delay_wheel.waiting';
CREATE VIEW delay_wheel.waiting AS SELECT * FROM delay_wheel.get_waiting();
COMMENT ON VIEW delay_wheel.waiting IS
'due tasks in memory by what they wait for: a row for each state, of this database; for pg_read_all_stats and superusers of each one that is served. See delay_wheel.lanes for whose they are. Tasks that are in the table only, since memory is short, or since there is no timer, are not counted';
COMMENT ON COLUMN delay_wheel.waiting.database IS 'name of the database';
COMMENT ON COLUMN delay_wheel.waiting.state IS
'of the lanes that the tasks are in, as in delay_wheel.lanes: ready: all executors are busy; running: executors are on the lane; limited: by what the queue allows; blocked: no executor can be had; paused. And suspected: tasks that are suspected to have crashed the server, which are counted whether due or not, and stand in delay_wheel.failed, with SQLSTATE DW004, after the third crash';
COMMENT ON COLUMN delay_wheel.waiting.lanes IS 'lanes in this state that have due tasks; null for suspected';
COMMENT ON COLUMN delay_wheel.waiting.tasks IS 'due tasks in these lanes; those that are being run do not count';
COMMENT ON COLUMN delay_wheel.waiting.first_due IS
'due time of the task that has waited longest among those that are first in line in their lanes; null if there is none';

CREATE FUNCTION delay_wheel.get_lateness(OUT database name, OUT below double precision, OUT tasks bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_lateness' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_lateness() IS
'how late tasks of this database, or of each one that is served, began, see delay_wheel.lateness';
CREATE VIEW delay_wheel.lateness AS SELECT * FROM delay_wheel.get_lateness();
COMMENT ON VIEW delay_wheel.lateness IS
'how many tasks began less than so long after they were due, since the start of the server: a cumulative histogram of 33 rows, whose bounds are powers of two; of this database, for pg_read_all_stats and superusers of each one that is served. Two looks at it tell how late tasks were in between';
COMMENT ON COLUMN delay_wheel.lateness.database IS 'name of the database';
COMMENT ON COLUMN delay_wheel.lateness.below IS 'seconds: 0.000064, doubled from row to row up to 137438.953472, then Infinity';
COMMENT ON COLUMN delay_wheel.lateness.tasks IS
'attempts that began less than that after their due time, as in delay_wheel.status; waiting for limits, and pauses, are part of it';

GRANT SELECT ON delay_wheel.waiting, delay_wheel.lateness TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel.get_waiting(), delay_wheel.get_lateness() TO PUBLIC;

/*---- The web page ----*/

/*
 * The one definition of "failed", from here on, and of "newest_failed".  Both
 * are security barriers: no statistics of others' tasks for whoever has an
 * operator that tells what it is given.  This one is none, so that an order and
 * a limit get to the index of the table; hence nobody may read it.
 */
CREATE VIEW delay_wheel.failed_rows AS
SELECT f.id, f.failed_at, f.due, f.owner, COALESCE(q.name, CASE f.queue WHEN 0 THEN 'default' END) AS queue, f.priority, f.key, f.tag, f.sql, f.args,
	   f.attempts, f.sqlstate, f.message, f.detail, f.hint, f.context, COALESCE(f.crashes, 0::smallint) AS crashes
FROM delay_wheel.failed_task f
	 LEFT JOIN delay_wheel.queue q ON q.id = f.queue
WHERE (pg_catalog.pg_has_role(f.owner, 'USAGE')
	   OR pg_catalog.pg_has_role('pg_read_all_data', 'USAGE'))
	-- begun in mode at_most_once, and not ended yet
	AND NOT (f.sqlstate = 'DW003' AND delay_wheel.is_running(f.id));
COMMENT ON VIEW delay_wheel.failed_rows IS
'what the views delay_wheel.failed and delay_wheel.newest_failed show; read these';

CREATE OR REPLACE VIEW delay_wheel.failed WITH (security_barrier) AS SELECT * FROM delay_wheel.failed_rows;

CREATE VIEW delay_wheel.newest_failed WITH (security_barrier) AS
SELECT * FROM delay_wheel.failed_rows ORDER BY failed_at DESC, id DESC LIMIT 1000;
COMMENT ON VIEW delay_wheel.newest_failed IS
'the 1,000 rows of delay_wheel.failed that failed last, the newest first. It reads an index from its end, so that it takes the same time for a million of failed tasks as for a thousand, if they are one''s own; all of them for pg_read_all_data and superusers. Columns as in delay_wheel.failed';

-- the same words for the same columns
DO $$
DECLARE c record;
BEGIN
	FOR c IN SELECT v AS view, a.attname, pg_catalog.col_description(a.attrelid, a.attnum) AS words
			 FROM pg_catalog.pg_attribute a, pg_catalog.unnest('{failed_rows,newest_failed}'::text[]) v
			 WHERE a.attrelid = 'delay_wheel.failed'::regclass::oid AND a.attnum > 0
			 ORDER BY v, a.attnum
	LOOP
		EXECUTE pg_catalog.format('COMMENT ON COLUMN delay_wheel.%I.%I IS %L', c.view, c.attname, c.words);
	END LOOP;
END
$$;

CREATE FUNCTION delay_wheel.page_data(max_rows integer DEFAULT 50, texts boolean DEFAULT true) RETURNS json
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
SELECT json_strip_nulls(json_build_object(
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
))
$$;
COMMENT ON FUNCTION delay_wheel.page_data(integer, boolean) IS
'all that web/delay_wheel.html shows, as one JSON document: what the views of delay_wheel show to the caller, in a form that stays small. Of each list the first max_rows entries (default 50, at most 1000; null is the default), those in trouble first, and how many there are; failed tasks are counted up to 10,001; the ring in at most 360 parts. texts => false leaves out SQL and the texts of errors, which can contain values of one''s tables. Values of arguments are never in it. It reads and changes nothing, also in a read-only transaction and on a standby. SQLSTATE 55000 if delay_wheel is not in shared_preload_libraries';

GRANT SELECT ON delay_wheel.newest_failed TO PUBLIC;

/*---- The end ----*/

SELECT delay_wheel.revoke_defaults();
DROP FUNCTION delay_wheel.revoke_defaults();

-- GRANTs to certain roles go below
