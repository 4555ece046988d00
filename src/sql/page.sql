/*---- What web/delay_wheel.html shows ----*/

CREATE FUNCTION delay_wheel_internal.readable(document json) RETURNS json
AS 'MODULE_PATHNAME', 'dw_readable' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION delay_wheel_internal.readable(json) IS
'Replaces bytes that cannot be sent to the client with question marks. delay_wheel.page_data() calls this function.';
GRANT EXECUTE ON FUNCTION delay_wheel_internal.readable(json) TO PUBLIC;

/*
 * Messages that a reader looks for: under a lease, due, waiting for another attempt, due next.  A scan of all messages
 * would take too long if there are many.  Leases have an index of their own.  The others are the first ones of each lane.
 *
 * security_barrier: otherwise conditions of a reader would be evaluated in scans below, also for names of others' queues.
 */
CREATE VIEW delay_wheel_internal.first_messages WITH (security_invoker, security_barrier) AS
WITH lane AS MATERIALIZED (
	SELECT l.owner, l.queue, l.priority, GREATEST(2000::bigint / pg_catalog.count(*) OVER (), 50::bigint) AS most
	FROM delay_wheel_internal.get_lanes() l
		 JOIN delay_wheel_data.readable_queue q ON q.id = l.queue AND q.external
	WHERE pg_catalog.pg_has_role('pg_read_all_data'::name, 'USAGE'::text) OR delay_wheel_internal.is_readable(l.owner)
	ORDER BY l.ready DESC, l.near DESC
	LIMIT 100
)
SELECT m.id, q.name AS queue, m.state, m.next_at, m.attempts, m.lapsed, m.leased_at, m.receiver
FROM (
	(SELECT t.id, t.queue, 'leased'::text AS state, t.due AS next_at, t.attempts, false AS lapsed, t.leased_at, t.more OPERATOR(pg_catalog.->>) 'receiver'::text AS receiver
	 FROM delay_wheel_data.readable_task t
	 WHERE t.token IS NOT NULL AND t.due > pg_catalog.statement_timestamp() AND t.origin = delay_wheel_internal.origin()
	 ORDER BY t.due
	 LIMIT 5000)
	UNION ALL
	SELECT f.id, l.queue, 'due'::text, f.due, f.attempts, f.lapsed, NULL::timestamptz, NULL::text
	FROM lane l
		 CROSS JOIN LATERAL (
			SELECT t.id, t.due, t.attempts, t.token IS NOT NULL AS lapsed
			FROM delay_wheel_data.readable_task t
			WHERE t.owner OPERATOR(pg_catalog.=) l.owner AND t.origin = delay_wheel_internal.origin() AND t.queue = l.queue AND t.priority = l.priority
				AND t.due <= pg_catalog.statement_timestamp()
			ORDER BY t.due, t.id
			LIMIT l.most) f
	UNION ALL
	SELECT f.id, l.queue, CASE WHEN f.attempts > 0::smallint THEN 'retry'::text ELSE 'pending'::text END, f.due, f.attempts, false, NULL::timestamptz, NULL::text
	FROM lane l
		 CROSS JOIN LATERAL (
			SELECT t.id, t.due, t.attempts
			FROM delay_wheel_data.readable_task t
			WHERE t.owner OPERATOR(pg_catalog.=) l.owner AND t.origin = delay_wheel_internal.origin() AND t.queue = l.queue AND t.priority = l.priority
				AND t.due > pg_catalog.statement_timestamp() AND t.token IS NULL
			ORDER BY t.due, t.id
			LIMIT l.most) f) m
	 LEFT JOIN delay_wheel_data.queue_name q ON q.id = m.queue;
COMMENT ON VIEW delay_wheel_internal.first_messages IS
'Messages that are leased, up to 5,000, and the first due, failed and pending messages of up to 100 lanes. delay_wheel.page_data() reads it.';
COMMENT ON COLUMN delay_wheel_internal.first_messages.id IS 'Id of the message';
COMMENT ON COLUMN delay_wheel_internal.first_messages.queue IS 'Name of the queue';
COMMENT ON COLUMN delay_wheel_internal.first_messages.state IS 'leased, due, retry (waits for another attempt) or pending';
COMMENT ON COLUMN delay_wheel_internal.first_messages.next_at IS 'Time when it was or will be due; for a leased message, the end of the lease';
COMMENT ON COLUMN delay_wheel_internal.first_messages.attempts IS 'Failed attempts and leases so far, the present one included';
COMMENT ON COLUMN delay_wheel_internal.first_messages.lapsed IS 'Whether its last lease ended without a report of the receiver';
COMMENT ON COLUMN delay_wheel_internal.first_messages.leased_at IS 'Start of the lease';
COMMENT ON COLUMN delay_wheel_internal.first_messages.receiver IS 'Name that the receiver gave to delay_lease()';
GRANT SELECT ON delay_wheel_internal.first_messages TO PUBLIC;

CREATE FUNCTION delay_wheel.page_data(max_rows integer DEFAULT 50, texts boolean DEFAULT true) RETURNS json
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET row_security = on
-- it would compile for longer than the query takes
SET jit = off
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
), queues AS (
	SELECT name, owner, max_attempts, state, reason, paused, max_running, rate, extract(epoch FROM per::interval)::bigint AS per, running, near, ready, done, failed, retried, skipped,
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
), rated AS (
	SELECT *, CASE WHEN state = 'retry' OR state = 'due' AND attempts > 0 THEN 0 WHEN state = 'due' THEN 1 WHEN state = 'leased' THEN 2 ELSE 3 END AS class
	FROM delay_wheel_internal.first_messages
), messages AS MATERIALIZED (
	-- failed attempts first; of these the ones that come next
	SELECT *, row_number() OVER (PARTITION BY queue ORDER BY class, next_at, id) AS place, min(class) OVER (PARTITION BY queue) AS worst
	FROM rated
), chosen AS (
	-- each queue has its share
	SELECT *, row_number() OVER (ORDER BY place, class, next_at, id) AS turn FROM messages
), delivery AS (
	-- without those that are cancelled, or replaced by others of their key
	SELECT m.id, m.queue, m.state, m.next_at, m.lapsed, m.receiver, t.due, t.owner, t.group_key, t.key, t.tag, t.attempts, t.max_attempts, t.last_error, t.payload, m.worst, m.place,
		   row_number() OVER (ORDER BY m.turn) AS pos
	FROM chosen m
		 JOIN LATERAL (SELECT * FROM delay_wheel.tasks t WHERE t.id = m.id LIMIT 1) t ON true
	WHERE m.turn <= (SELECT n + 50 FROM params)
), calls AS MATERIALIZED (
	-- messages whose payload is an HTTP call; nothing else of a URL than its host
	SELECT p.list, p.pos, "left"(p.payload ->> 'method', 20) AS method,
		   CASE WHEN length(p.payload ->> 'url') <= 8000 THEN lower(substring(p.payload ->> 'url' FROM
				'(?i)^https?://(?:[^/?#]*@)?([^]/?#:@[ ]{1,253}|[[][0-9a-f:.]{1,99}[]])(?=[:/?#]|$)')) END AS host
	FROM (SELECT 'failed' AS list, pos, payload FROM newest_failed
		  UNION ALL
		  SELECT 'deliveries', pos, payload FROM delivery) p
	WHERE texts AND p.pos <= (SELECT n FROM params) AND pg_column_size(p.payload) <= 100000
		AND jsonb_typeof(p.payload -> 'method') = 'string' AND jsonb_typeof(p.payload -> 'url') = 'string'
), failed AS (
	SELECT id, failed_at, due, owner, queue, group_key, key, tag, attempts, sqlstate, crashes, CASE WHEN texts THEN "left"(message, 500) END AS message,
		   CASE WHEN texts THEN "left"(detail, 500) END AS detail, CASE WHEN texts THEN "left"(hint, 500) END AS hint,
		   CASE WHEN texts THEN "left"(context, 500) END AS context, CASE WHEN texts THEN "left"(sql, 500) END AS sql, f.pos,
		   payload IS NOT NULL AS is_message, call.method, call.host,
		   CASE WHEN call.method IS NOT NULL THEN substring(message FROM '^HTTP ([1-5][0-9][0-9])($|[^0-9])')::integer END AS status
	FROM newest_failed f
		 LEFT JOIN calls call ON call.list = 'failed' AND call.pos = f.pos
), deliveries AS (
	SELECT d.id, d.queue, d.state, d.next_at, d.lapsed, d.receiver, d.due, d.owner, d.group_key, d.key, d.tag, d.attempts, COALESCE(d.max_attempts, q.max_attempts) AS max_attempts,
		   CASE WHEN texts THEN "left"(d.last_error, 500) END AS error, d.pos, d.worst, d.place, call.method, call.host,
		   CASE WHEN call.method IS NOT NULL THEN substring(d.last_error FROM '^[^:]*: HTTP ([1-5][0-9][0-9])($|[^0-9])')::integer END AS status
	FROM delivery d
		 LEFT JOIN queues q ON q.name = d.queue
		 LEFT JOIN calls call ON call.list = 'deliveries' AND call.pos = d.pos
), leases AS (
	SELECT queue, receiver, count(*) AS messages, min(leased_at) AS oldest, min(next_at) AS next_end,
		   count(*) OVER () AS total, row_number() OVER (ORDER BY count(*) DESC, queue, receiver) AS pos
	FROM messages WHERE state = 'leased' GROUP BY queue, receiver
), awaiting AS (
	SELECT pid, usename AS role, application_name AS application, host(client_addr) AS address, query_start AS since, CASE WHEN texts THEN "left"(query, 200) END AS query,
		   count(*) OVER () AS total, row_number() OVER (ORDER BY query_start, pid) AS pos
	FROM pg_stat_activity
	-- before PostgreSQL 17 the wait event has no name of its own
	WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Extension'
		AND (wait_event = 'DelayWheelAwait' OR wait_event = 'Extension' AND query ~* 'delay_await')
), recurring AS (
	SELECT name, owner, state, schedule, timezone, EXTRACT(epoch FROM every::interval) AS every_s, next_due, last_due, last_ended, last_outcome,
		   CASE WHEN texts THEN "left"(last_error, 500) END AS last_error, runs, failures, skipped, queue,
		   count(*) OVER () AS total,
		   row_number() OVER (ORDER BY COALESCE(last_outcome = 'failed', false) DESC, next_due NULLS LAST, name, owner) AS pos
	FROM delay_wheel.recurring
), newest_batches AS (
	SELECT id, row_number() OVER (ORDER BY ended_at DESC, id DESC) AS pos FROM delay_wheel_internal.newest_batches
), batches AS (
	SELECT b.id, b.name, b.owner, b.state, b.total, b.pending, b.done, b.failed, b.cancelled, b.skipped, b.rate, b.made_at, b.ended_at, n.pos
	FROM newest_batches n
		 JOIN LATERAL (SELECT * FROM delay_wheel.batches b WHERE b.id = n.id LIMIT 1) b ON true
	WHERE n.pos <= (SELECT n FROM params)
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
	'deliveries', (SELECT json_build_object('retrying', (SELECT count(*) FROM messages WHERE state = 'retry'),
											'rows', COALESCE(json_agg(d ORDER BY worst, queue, place) FILTER (WHERE pos <= n), '[]'))
				   FROM params LEFT JOIN deliveries d ON true),
	'leases', (SELECT json_build_object('total', COALESCE(max(l.total), 0), 'more', COALESCE(sum(l.messages), 0) >= 5000,
										'rows', COALESCE(json_agg(l ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
			   FROM params LEFT JOIN leases l ON true),
	'awaiting', (SELECT json_build_object('total', COALESCE(max(a.total), 0), 'rows', COALESCE(json_agg(a ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
				 FROM params LEFT JOIN awaiting a ON true),
	'queues', (SELECT json_build_object('total', COALESCE(max(q.total), 0), 'rows', COALESCE(json_agg(q ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
			   FROM params LEFT JOIN queues q ON true),
	'lanes', (SELECT json_build_object('total', COALESCE(max(l.total), 0), 'rows', COALESCE(json_agg(l ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
			  FROM params LEFT JOIN lanes l ON true),
	'groups', (SELECT json_build_object('total', COALESCE(max(g.total), 0), 'rows', COALESCE(json_agg(g ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
			   FROM params LEFT JOIN groups g ON true),
	'recurring', (SELECT json_build_object('total', COALESCE(max(r.total), 0), 'failing', count(*) FILTER (WHERE r.last_outcome = 'failed'),
										   'rows', COALESCE(json_agg(r ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
				  FROM params LEFT JOIN recurring r ON true),
	-- of many batches only 1,000 are counted
	'batches', (SELECT json_build_object('total', (SELECT count(*) FROM newest_batches),
										 'rows', COALESCE(json_agg(b ORDER BY pos), '[]')) FROM batches b),
	'cancellations', (SELECT json_build_object('total', COALESCE(max(c.total), 0), 'rows', COALESCE(json_agg(c ORDER BY pos) FILTER (WHERE pos <= n), '[]'))
					  FROM params LEFT JOIN cancellations c ON true)
)))
$$;
COMMENT ON FUNCTION delay_wheel.page_data(integer, boolean) IS
'Returns the data of the web page as one JSON document, from the rows that the views of delay_wheel show to the caller.';
GRANT EXECUTE ON FUNCTION delay_wheel.page_data(integer, boolean) TO PUBLIC;
