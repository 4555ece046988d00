-- A live dashboard for a terminal: what delay_wheel does in this database.
--
--   psql -f scripts/dashboard.sql shop                  every 2 seconds, until Ctrl-C
--   psql -v interval=10 -f scripts/dashboard.sql shop   every 10 seconds
--   psql -v once=1 -f scripts/dashboard.sql shop        once, without clearing the screen
--
-- It shows what the caller may see: one's own tasks, or for members of
-- pg_monitor and pg_read_all_data those of all.  It reads views only, each
-- round about as much as a few queries by hand.

\set QUIET on
\pset pager off
\pset format unaligned
\pset footer off
\pset null ''
\if :{?interval}
\else
	\set interval 2
\endif
\if :{?once}
\else
	-- printed above each round: clears the screen
	\set clear `printf '\033[H\033[2J'`
	\pset title :clear
\endif

-- no function or operator of somebody else's, however well it matches
SET search_path = pg_catalog, pg_temp;

WITH status AS MATERIALIZED (
	SELECT * FROM delay_wheel.status WHERE database = current_database()
), forecast AS MATERIALIZED (
	SELECT *, row_number() OVER (PARTITION BY step ORDER BY due_from) AS n FROM delay_wheel.forecast
), next AS MATERIALIZED (
	SELECT delay_wheel_internal.next_due() AS due
), chart AS (
	SELECT *, max(tasks) OVER (PARTITION BY step) AS most
	FROM forecast
	WHERE (step = 'minute' AND n <= 10) OR (step = 'hour' AND n <= 12)
), line AS (
	SELECT 10 AS section, 1 AS n, format('database %s: %s%s', current_database(), upper(s.state),
		'   last problem' || coalesce(' at ' || s.last_problem_at::timestamptz(0), '') || ': ' || s.last_problem) AS text
		FROM status s
	UNION ALL
	SELECT 10, 2, format('in memory %s   due and waiting %s   running %s of %s executors   lanes %s (parked: %s)',
		s.near, s.ready, s.running, s.executors, s.lanes, s.parked)
		FROM status s
	UNION ALL
	SELECT 10, 3, format('done %s   failed %s   retried %s   skipped %s   since the start of the server',
		s.done, s.failed, s.retried, s.skipped)
		FROM status s
	UNION ALL
	SELECT 10, 4, format('late by (ms): 50%% %s   95%% %s   99%% %s   latest %s',
		round(s.lateness_p50::numeric, 1), round(s.lateness_p95::numeric, 1), round(s.lateness_p99::numeric, 1),
		round(s.lateness_max::numeric, 1))
		FROM status s WHERE s.lateness_p50 IS NOT NULL
	UNION ALL
	SELECT 10, 5, format('next due %s   overdue, or running: %s%s   due in more than 31 days: %s%s',
		coalesce((n.due - clock_timestamp())::interval(0)::text, '-'),
		CASE WHEN o.exact THEN '' ELSE 'about ' END, o.tasks, CASE WHEN l.exact THEN '' ELSE 'about ' END, l.tasks)
		FROM next n, forecast o, forecast l WHERE o.step = 'overdue' AND l.step = 'later'
	UNION ALL
	SELECT 10, 6, 'There are tasks that came with a copy of another database: see delay_wheel.arm().'
		FROM status s WHERE s.unarmed
	UNION ALL
	SELECT CASE step WHEN 'minute' THEN 20 ELSE 30 END, 0,
		CASE step WHEN 'minute' THEN 'DUE in the next 10 minutes' ELSE 'DUE in the next 12 hours' END
		FROM chart GROUP BY step
	UNION ALL
	SELECT CASE step WHEN 'minute' THEN 20 ELSE 30 END, n, format('%s %s%s %s',
		to_char(due_from, 'HH24:MI'), CASE WHEN exact THEN ' ' ELSE '~' END, lpad(tasks::text, 9),
		repeat('#', CASE WHEN tasks > 0 THEN greatest(1, round(50.0 * tasks / most)::int) ELSE 0 END))
		FROM chart
	UNION ALL
	SELECT 40, 0, 'LANES with something due, running, or held up (owner, queue, priority)'
		WHERE EXISTS (SELECT FROM delay_wheel.lanes WHERE state <> 'idle')
	UNION ALL
	SELECT 40, row_number() OVER (ORDER BY ready DESC, owner::text, queue, priority), format('%s %s %s  %s ready %s running %s  %s',
		rpad(owner::text, 20), rpad(queue, 20), lpad(priority::text, 2), rpad(state, 10), lpad(ready::text, 9), lpad(running::text, 3), reason)
		FROM (SELECT * FROM delay_wheel.lanes WHERE state <> 'idle' ORDER BY ready DESC, owner::text, queue, priority LIMIT 8) l
	UNION ALL
	SELECT 45, 0, 'MESSAGES of external queues' WHERE EXISTS (SELECT FROM delay_wheel.queues WHERE external)
	UNION ALL
	SELECT 45, row_number() OVER (ORDER BY ready DESC NULLS LAST, name), format('%s %s due, not taken%s   receivers waiting %s   leased %s   leases without a word %s%s',
		rpad(name, 20), lpad(ready::text, 9), ' for ' || (clock_timestamp() - first_due)::interval(0), awaiting, leased, lapsed, '  ' || reason)
		FROM (SELECT * FROM delay_wheel.queues WHERE external ORDER BY ready DESC NULLS LAST, name LIMIT 8) q
	UNION ALL
	SELECT 50, 0, 'RUNNING for longest' WHERE EXISTS (SELECT FROM delay_wheel.running)
	UNION ALL
	SELECT 50, row_number() OVER (ORDER BY r.since), format('task %s of %s for %s  pid %s  %s',
		r.task, r.owner, (clock_timestamp() - r.since)::interval(0), r.pid, left(regexp_replace(t.sql, '\s+', ' ', 'g'), 60))
		FROM (SELECT * FROM delay_wheel.running ORDER BY since LIMIT 8) r LEFT JOIN delay_wheel.tasks t ON t.id = r.task
	UNION ALL
	SELECT 60, 0, 'FAILED last' WHERE EXISTS (SELECT FROM delay_wheel_internal.newest_failed)
	UNION ALL
	SELECT 60, row_number() OVER (ORDER BY failed_at DESC, id DESC), format('%s task %s of %s: %s %s',
		failed_at::timestamptz(0), id, owner, sqlstate, left(regexp_replace(message, '\s+', ' ', 'g'), 70))
		FROM (SELECT * FROM delay_wheel_internal.newest_failed LIMIT 5) f
)
-- An empty line above each headline.  Others' SQL, names and messages must not speak to the terminal, nor turn its text around.
-- In a database of bytes (SQL_ASCII) one that is no text to the client would be an error of the whole.
SELECT CASE WHEN n = 0 THEN E'\n' ELSE '' END ||
	regexp_replace(CASE getdatabaseencoding() WHEN 'SQL_ASCII' THEN regexp_replace(text, '[\u0080-\u00ff]', '?', 'g') ELSE text END, '[\u0001-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]', ' ', 'g') AS "delay_wheel"
FROM line ORDER BY section, n
\if :{?once}
	\g
\else
	\watch :interval
\endif
