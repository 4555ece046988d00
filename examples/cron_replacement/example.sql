--
-- The hourly scan beside the trigger: orders that nobody has rated 48 hours after
-- they were finished get five stars, in three ways at once: by a job that scans the
-- table each hour, by the same job with the best index for it, and by delay_wheel.
-- An hour lasts 100 ms (2 s in the large size), so the 48 hours are 4.8 seconds.
--
-- Run it by "examples/run cron_replacement", or as a superuser in a database of its
-- own, on a server with delay_wheel in shared_preload_libraries:
--     psql -X -f example.sql
-- It makes the role "rides".
--
\set ON_ERROR_STOP on
\ir ../common.sql

\if :large
	\set history 2000000
	\set orders 50000
	\set hour '2 s'
\else
	\set history 50000
	\set orders 1000
	\set hour '100 ms'
\endif
SELECT 100 * :'hour'::interval + interval '60 s' AS time_limit \gset

CREATE ROLE rides LOGIN;
SELECT delay_wheel.allow('rides') \g /dev/null
GRANT CREATE ON DATABASE :"DBNAME" TO rides;
-- a row for each task that has run, with its duration
ALTER DATABASE :"DBNAME" SET delay_wheel.history = 'all';

\echo
\echo '--- 1. Three tables of orders, each with' :history 'old ones, long since rated'
\echo

SET SESSION AUTHORIZATION rides;
\set way scan
\ir orders.sql
\set way indexed
\ir orders.sql
CREATE INDEX ON indexed.t_order (rate_at) WHERE status = 0;
\set way wheel
\ir orders.sql
CREATE TRIGGER rate_later AFTER INSERT ON wheel.t_order FOR EACH ROW EXECUTE FUNCTION
	delay_schedule_trigger('rate_at', 'UPDATE wheel.t_order SET stars = 5, status = 1, rated_at = clock_timestamp() WHERE oid = $1 AND status = 0', 'oid');
RESET SESSION AUTHORIZATION;
VACUUM ANALYZE scan.t_order, indexed.t_order, wheel.t_order;

-- What has been read and written so far does not count.
SELECT pg_stat_force_next_flush() \g /dev/null
CREATE VIEW example.statistics AS
SELECT CASE s.schemaname WHEN 'delay_wheel' THEN 'wheel' ELSE s.schemaname END AS way,
	sum(COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0)) FILTER (WHERE s.relname = 't_order') AS rows_read,
	sum(n_tup_upd) FILTER (WHERE s.relname = 't_order') AS updated,
	sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read) AS pages
FROM pg_stat_all_tables s JOIN pg_statio_all_tables USING (relid)
WHERE s.relname = 't_order' OR s.relid = 'delay_wheel_data.task'::regclass
GROUP BY 1;
CREATE TABLE example.before AS SELECT * FROM example.statistics;

\echo 'scan:    each hour, UPDATE ... WHERE status = 0 and 48 hours have passed'
\echo 'indexed: the same, with an index of just those whose status is 0'
\echo 'wheel:   a trigger schedules the rating of each order'
\echo
\echo '--- 2. A day of' :orders 'orders, half of them rated by the passengers'
\echo

-- They were finished in the last 24 hours, so their time is up from in 24 hours to
-- in 48 hours.
CREATE TABLE example.plan AS
SELECT :history + n AS oid, now() + (24 + 24.0 * n / :orders) * interval :'hour' AS rate_at, n % 2 = 0 AS by_hand
FROM generate_series(1, :orders) n;
GRANT SELECT ON example.plan TO PUBLIC;

SET SESSION AUTHORIZATION rides;
SELECT format('INSERT INTO %I.t_order (oid, finish_time, rate_at, stars, status) '
		'SELECT oid, rate_at - 48 * interval %L, rate_at, CASE WHEN by_hand THEN 4 END, by_hand::int FROM example.plan ORDER BY oid',
	way, :'hour')
FROM unnest('{scan,indexed,wheel}'::text[]) way
\gexec
SELECT count(delay_every(way, interval :'hour',
	format('UPDATE %I.t_order SET stars = 5, status = 1, rated_at = clock_timestamp() WHERE status = 0 AND rate_at <= now()', way)))
FROM unnest('{scan,indexed}'::text[]) way \g /dev/null
RESET SESSION AUTHORIZATION;

\echo '--- 3. Two days later ("hour":' :hour ')'
\echo

-- delay_wheel's tables are asked afterwards only: their pages are counted
CALL example.wait_until(format('SELECT clock_timestamp() > max(rate_at) + 2 * interval %L FROM example.plan', :'hour'),
	'all times are up', :'time_limit');
CALL example.wait_until($$SELECT sum(done) >= $$ || :orders || $$ + (SELECT sum(runs) FROM delay_wheel.recurring) FROM delay_wheel.lanes$$,
	'all tasks have run', :'time_limit');
-- runs that began after the last time have ended, and made the next ones
CALL example.wait_until(format('SELECT min(next_due) > (SELECT max(rate_at) FROM example.plan) + interval %L FROM delay_wheel.recurring',
	:'hour'), 'the jobs have looked once more', :'time_limit');
SET SESSION AUTHORIZATION rides;
SELECT delay_unschedule('scan'), delay_unschedule('indexed') \g /dev/null
RESET SESSION AUTHORIZATION;
SELECT count(*) AS not_by_hand FROM example.plan WHERE NOT by_hand \gset
CALL example.wait_until(format('SELECT bool_and(s.updated - b.updated >= %s) FROM example.statistics s JOIN example.before b USING (way)',
	:not_by_hand), 'all is in the statistics', :'time_limit');

CREATE TABLE example.figures AS
SELECT way, runs, s.rows_read - b.rows_read AS rows_read, s.pages - b.pages AS pages, work_ms, late_p50_ms, late_max_ms
FROM example.statistics s
	JOIN example.before b USING (way)
	JOIN (SELECT CASE WHEN sql LIKE 'UPDATE scan.%' THEN 'scan' WHEN sql LIKE 'UPDATE indexed.%' THEN 'indexed' ELSE 'wheel' END AS way,
			count(*) AS runs, round(sum(duration)::numeric, 1) AS work_ms
		FROM delay_wheel.history WHERE outcome = 'done' GROUP BY 1) h USING (way)
	JOIN (SELECT way, example.ms(percentile_cont(0.5) WITHIN GROUP (ORDER BY rated_at - rate_at)) AS late_p50_ms,
			example.ms(max(rated_at - rate_at)) AS late_max_ms
		FROM (SELECT 'scan' AS way, * FROM scan.t_order
			UNION ALL SELECT 'indexed', * FROM indexed.t_order
			UNION ALL SELECT 'wheel', * FROM wheel.t_order) o
		WHERE rated_at IS NOT NULL GROUP BY way) l USING (way);

\echo 'rows_read: of the table of orders. pages: of it and its indexes, from memory or'
\echo 'disk, inserting included; with those of delay_wheel_data.task. work_ms: what the'
\echo 'statements took, all together. late: from when the 48 hours were over.'
SELECT * FROM example.figures ORDER BY rows_read DESC;

\echo '--- 4. Was all as it must be?'
\echo

\pset tuples_only on
\pset format unaligned
SELECT example.make_sure(way || ': each order that was not rated by hand got five stars, the others were left alone',
	count(*) = :orders AND bool_and(o.status = 1)
	AND bool_and(CASE WHEN by_hand THEN stars = 4 AND rated_at IS NULL ELSE stars = 5 AND rated_at IS NOT NULL END))
FROM (SELECT 'scan' AS way, * FROM scan.t_order
	UNION ALL SELECT 'indexed', * FROM indexed.t_order
	UNION ALL SELECT 'wheel', * FROM wheel.t_order) o
	JOIN example.plan USING (oid)
GROUP BY way;
SELECT example.make_sure('none was rated before its time',
	NOT EXISTS (SELECT FROM scan.t_order WHERE rated_at < rate_at)
	AND NOT EXISTS (SELECT FROM indexed.t_order WHERE rated_at < rate_at)
	AND NOT EXISTS (SELECT FROM wheel.t_order WHERE rated_at < rate_at));
SELECT example.make_sure('wheel: each order has had one task, which has run once',
	(SELECT runs = :orders FROM example.figures WHERE way = 'wheel')
	AND NOT EXISTS (SELECT FROM delay_wheel.tasks) AND NOT EXISTS (SELECT FROM delay_wheel.failed));
SELECT example.make_sure('scan: the whole table was read each time',
	(SELECT rows_read >= runs * :history FROM example.figures WHERE way = 'scan'));
SELECT example.make_sure('wheel: a row was read for each order, and no other',
	(SELECT rows_read BETWEEN :orders AND 2 * :orders FROM example.figures WHERE way = 'wheel'));
SELECT example.make_sure('wheel: it was less late than both jobs',
	(SELECT late_p50_ms FROM example.figures WHERE way = 'wheel') < ALL (SELECT late_p50_ms FROM example.figures WHERE way <> 'wheel'));
\echo
