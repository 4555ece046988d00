/*---- What web/delay_wheel.html shows ----*/

CREATE FUNCTION delay_wheel_internal.readable(document json) RETURNS json
AS 'MODULE_PATHNAME', 'dw_readable' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.readable(json) IS
'Replaces bytes that cannot be sent to the client with question marks. delay_wheel.page_data() calls this function.';
GRANT EXECUTE ON FUNCTION delay_wheel_internal.readable(json) TO PUBLIC;

CREATE FUNCTION delay_wheel.page_data(max_rows integer DEFAULT 50, texts boolean DEFAULT true) RETURNS json
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET row_security = on
AS $$
WITH params AS (
	SELECT LEAST(GREATEST(COALESCE(max_rows, 50), 0), 1000) AS n,
		   -- null without the library, since the views would raise an error
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
), pending AS (
	SELECT t.id, t.due, t.owner, t.queue, t.key, t.tag, CASE WHEN texts THEN "left"(t.sql, 500) END AS sql,
		   row_number() OVER (ORDER BY t.due, t.id) AS pos
	FROM delay_wheel_internal.next_tasks((SELECT n FROM params) + (SELECT count(*) FROM running)::integer) next
		 JOIN LATERAL (SELECT * FROM delay_wheel.tasks t WHERE t.id = next.id LIMIT 1) t ON true
	WHERE NOT EXISTS (SELECT FROM running r WHERE r.id = t.id)
), newest_failed AS MATERIALIZED (
	SELECT *, row_number() OVER (ORDER BY failed_at DESC, id DESC) AS pos FROM delay_wheel_internal.newest_failed
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
	SELECT name, owner, state, reason, paused, max_running, rate, extract(epoch FROM per::interval)::bigint AS per, running, near, ready, done, failed, retried, skipped,
		   external, receivers, first_due, awaiting, leased, lapsed,
		   count(*) OVER () AS total,
		   row_number() OVER (ORDER BY COALESCE(ready, 0) DESC, COALESCE(running, 0) DESC, COALESCE(near, 0) DESC, name) AS pos
	FROM delay_wheel.queues
), lanes AS (
	SELECT owner, queue, priority, state, reason, retry_at, near, ready, running, done, failed, retried, skipped,
		   lateness_p50, lateness_p95, lateness_max,
		   count(*) OVER () AS total,
		   row_number() OVER (ORDER BY state = 'blocked' DESC, ready DESC, running DESC, state = 'paused' DESC, near DESC, done DESC, owner, queue, priority) AS pos
	FROM delay_wheel.lanes
), groups AS (
	SELECT queue, group_key, group_hash, owner, priority, state, ready, more, running, first_due, waits_until,
		   count(*) OVER () AS total,
		   row_number() OVER (ORDER BY first_due, queue, group_hash) AS pos
	FROM delay_wheel.groups WHERE state <> 'running'
), recurring AS (
	SELECT name, owner, state, schedule, timezone, EXTRACT(epoch FROM every::interval) AS every_s, next_due, last_due, last_ended, last_outcome,
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
SELECT delay_wheel_internal.readable(json_strip_nulls(json_build_object(
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
	'background', (SELECT COALESCE(json_agg(a ORDER BY a.since), '[]')
				   FROM (SELECT backend_type AS process, query AS work, query_start AS since FROM pg_stat_activity
						 WHERE backend_type IN ('delay_wheel timer', 'delay_wheel sweeper') AND state = 'active' AND datname = current_database()) a),
	'lateness', (SELECT COALESCE(json_agg(json_build_array(from_ms, until_ms, attempts) ORDER BY from_ms), '[]') FROM lateness WHERE attempts > 0),
	'forecast', (SELECT json_build_object('next_due', delay_wheel_internal.next_due(),
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
	'pending', (SELECT json_build_object('rows', COALESCE(json_agg(p ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
				FROM params LEFT JOIN pending p ON true),
	-- exact numbers beyond this are of no use to a reader
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
	'groups', (SELECT json_build_object('total', COALESCE(max(g.total), 0), 'rows', COALESCE(json_agg(g ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
			   FROM params LEFT JOIN groups g ON true),
	'recurring', (SELECT json_build_object('total', COALESCE(max(r.total), 0), 'failing', count(*) FILTER (WHERE r.last_outcome = 'failed'),
										   'rows', COALESCE(json_agg(r ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
				  FROM params LEFT JOIN recurring r ON true),
	'cancellations', (SELECT json_build_object('total', COALESCE(max(c.total), 0), 'rows', COALESCE(json_agg(c ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
					  FROM params LEFT JOIN cancellations c ON true)
)))
$$;
COMMENT ON FUNCTION delay_wheel.page_data(integer, boolean) IS
'Returns the data of the web page as one JSON document, from the rows that the views of delay_wheel show to the caller.';
GRANT EXECUTE ON FUNCTION delay_wheel.page_data(integer, boolean) TO PUBLIC;
