/* delay_wheel--1.0--1.1.sql: what came with 1.1: pictures, forecast, progress, for those who watch */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION delay_wheel UPDATE TO '1.1'" to load this file. \quit

/*---- The web page ----*/

/*
 * The limit stands within, on the table itself: on the view "failed", which
 * nothing is pushed into, it would come after a sort of all rows.
 */
CREATE VIEW delay_wheel.newest_failed AS
SELECT f.id, f.failed_at, f.due, f.owner, COALESCE(q.name, CASE f.queue WHEN 0 THEN 'default' END) AS queue, f.priority, f.key, f.tag, f.sql, f.args,
	   f.attempts, f.sqlstate, f.message, f.detail, f.hint, f.context, COALESCE(f.crashes, 0::smallint) AS crashes
FROM delay_wheel.failed_task f
	 LEFT JOIN delay_wheel.queue q ON q.id = f.queue
WHERE (pg_catalog.pg_has_role(f.owner, 'USAGE')
	   OR pg_catalog.pg_has_role('pg_read_all_data', 'USAGE'))
	AND NOT (f.sqlstate = 'DW003' AND delay_wheel.is_running(f.id))
ORDER BY f.failed_at DESC, f.id DESC
LIMIT 1000;
COMMENT ON VIEW delay_wheel.newest_failed IS
'the 1,000 rows of delay_wheel.failed that failed last, the newest first. It reads an index from its end, so that it takes the same time for a million of failed tasks as for a thousand, if they are one''s own; all of them for pg_read_all_data and superusers. Columns as in delay_wheel.failed';
COMMENT ON COLUMN delay_wheel.newest_failed.crashes IS 'how often the process that ran it had crashed; no attempts are counted for these';

CREATE FUNCTION delay_wheel.page_data(max_rows integer DEFAULT 50, texts boolean DEFAULT true) RETURNS json
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
WITH params AS (
	SELECT LEAST(GREATEST(COALESCE(max_rows, 50), 0), 1000) AS n,
		   current_setting('delay_wheel.slots')::integer AS slots,
		   (current_setting('delay_wheel.slots')::integer + 359) / 360 AS per_part
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
	'max_executors', current_setting('delay_wheel.max_executors')::integer,
	'status', (SELECT to_json(s) FROM delay_wheel.status s WHERE s.database = current_database()),
	'databases', (SELECT COALESCE(json_agg(s ORDER BY s.database), '[]')
				  FROM (SELECT database, state, near, ready, running, executors, done, failed, lateness_p99, last_problem, last_problem_at
						FROM delay_wheel.status LIMIT (SELECT n FROM params)) s),
	'ring', (SELECT json_build_object('slots', max(p.slots), 'per_part', max(p.per_part),
									  'tick_s', EXTRACT(epoch FROM current_setting('delay_wheel.tick')::interval),
									  'tasks', COALESCE(json_agg(r.tasks ORDER BY r.part) FILTER (WHERE r.part IS NOT NULL), '[]'),
									  'cycles', COALESCE(json_agg(r.cycle ORDER BY r.part) FILTER (WHERE r.part IS NOT NULL), '[]'))
			 FROM params p LEFT JOIN ring r ON true),
	'lateness', (SELECT COALESCE(json_agg(json_build_array(from_ms, until_ms, attempts) ORDER BY from_ms), '[]') FROM delay_wheel.get_lateness()),
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
'all that web/delay_wheel.html shows, as one JSON document: what the views of delay_wheel show to the caller, in a form that stays small. Of each list the first max_rows entries (default 50, at most 1000; null is the default), those in trouble first, and how many there are; failed tasks are counted up to 10,001; the ring in at most 360 parts. texts => false leaves out SQL and the texts of errors, which can contain values of one''s tables. Values of arguments are never in it. It reads and changes nothing, also in a read-only transaction and on a standby. An error if delay_wheel is not in shared_preload_libraries';

GRANT SELECT ON delay_wheel.newest_failed TO PUBLIC;
