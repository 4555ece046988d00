--
-- Five stars after 48 hours: the main example of delay_wheel, on a server that
-- has it in shared_preload_libraries.  Here the 48 hours are 5 seconds.
--
-- Run it as a superuser in a database of its own ("make demo" does all that):
--     psql -X -f demo.sql
-- It makes the role "shop" with the tables t_order and t_order_log, and the schema
-- "example".  It stops with an error if anything is not as it must be.
--
\set ON_ERROR_STOP on

\echo
\echo '--- 1. The extension, and the tables of a ride-hailing firm'
\echo

-- This is CREATE EXTENSION delay_wheel, and what the examples wait and check with.
\ir ../common.sql

-- The firm's role owns its tables and has no other rights.  Its tasks run with
-- exactly the rights it has.
CREATE ROLE shop LOGIN;
SELECT delay_wheel.allow('shop') \g /dev/null
CREATE SCHEMA shop AUTHORIZATION shop;
ALTER ROLE shop SET search_path = shop, public;
\connect - shop
\set QUIET on
SET client_min_messages = warning;

CREATE TABLE t_order (
	oid bigint PRIMARY KEY,
	finish_time timestamptz,
	stars int,
	status int NOT NULL DEFAULT 0		-- 0 = not rated, 1 = rated
);

-- When an order is finished, its rating is scheduled, in the same transaction:
-- no order without its task, no task without its order.
CREATE FUNCTION rate_later() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM delay_schedule(
		interval '5 seconds',			-- '48 hours' in life
		'update t_order set stars=5, status=1 where oid=$1 and status=0',
		new.oid);

	-- The same with the value in the text instead of bound to $1:
	--
	-- PERFORM delay_schedule(
	--     interval '5 seconds',
	--     format('update t_order set stars=5, status=1 where oid=%s and status=0',
	--            new.oid));
	RETURN NULL;
END $$;

CREATE TRIGGER rate_later AFTER INSERT ON t_order
	FOR EACH ROW EXECUTE FUNCTION rate_later();

-- For this demonstration only: a record of each update, of when it happened
-- and of who did it.
CREATE TABLE t_order_log (
	oid bigint, stars int, at timestamptz, by_whom text, as_role text
);
CREATE FUNCTION log_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t_order_log
	SELECT new.oid, new.stars, clock_timestamp(), backend_type, current_user
	FROM pg_stat_activity WHERE pid = pg_backend_pid();
	RETURN NULL;
END $$;
CREATE TRIGGER log_update AFTER UPDATE ON t_order
	FOR EACH ROW EXECUTE FUNCTION log_update();

\echo 'An insert into t_order schedules, by a trigger:'
\echo '    delay_schedule(interval ''5 seconds'','
\echo '        ''update t_order set stars=5, status=1 where oid=$1 and status=0'', new.oid)'
\echo
\echo '--- 2. Twenty passengers arrive, one every 50 ms'
\echo

SELECT format('INSERT INTO t_order (oid, finish_time) VALUES (%s, now())', n),
	'DO $$ BEGIN PERFORM pg_sleep(0.05); END $$'
FROM generate_series(1, 20) n
\gexec

\echo 'What is pending now (the first 5 of 20): one task for each order.'
SELECT id, to_char(due, 'HH24:MI:SS.MS') AS due, owner, slot, cycle_num, left(sql, 46) || ' ...' AS sql
FROM delay_wheel.tasks ORDER BY due, id LIMIT 5;

\echo 'The ring has one slot for each second of an hour; these are in use. The current'
\echo 'index (is_current) moves on by one slot a second. A task that is not the next one'
\echo 'due does not wake the timer: it may be in its inbox still, and not be counted yet.'
CALL example.wait_until('SELECT sum(tasks) > 0 FROM delay_wheel.ring', 'the ring holds tasks', '4 seconds');
SELECT slot, tasks, min_cycle, max_cycle, is_current
FROM delay_wheel.ring WHERE tasks > 0 OR is_current ORDER BY slot;

\echo '--- 3. Five of them rate their ride by hand, before their time is up'
\echo

UPDATE t_order SET stars = 1 + oid % 4, status = 1
WHERE oid IN (4, 7, 11, 14, 18) AND status = 0
RETURNING oid, stars, status;

SELECT example.make_sure('five orders were rated by hand in time',
	(SELECT count(*) = 5 FROM t_order_log WHERE by_whom = 'client backend')) AS checked \gset
\echo '--- 4. The others get their five stars, each at its own moment'
\echo

\set wait_until_all 'SELECT count(*) = 20 FROM t_order WHERE status = 1'
\set wait_until_done 'SELECT count(*) = 0 FROM delay_wheel.tasks'

CALL example.wait_until('SELECT count(*) > 0 FROM t_order WHERE stars = 5', 'the first order has its five stars');
\echo 'The first has come:'
SELECT count(*) FILTER (WHERE status = 0) AS not_rated,
	count(*) FILTER (WHERE stars = 5) AS five_stars,
	count(*) FILTER (WHERE stars < 5) AS by_hand
FROM t_order;

CALL example.wait_until(:'wait_until_all', 'each order is rated');
CALL example.wait_until(:'wait_until_done', 'no task is pending');
\echo 'All have come:'
SELECT count(*) FILTER (WHERE status = 0) AS not_rated,
	count(*) FILTER (WHERE stars = 5) AS five_stars,
	count(*) FILTER (WHERE stars < 5) AS by_hand
FROM t_order;

SELECT o.oid, o.stars, to_char(o.finish_time, 'HH24:MI:SS.MS') AS finished,
	to_char(l.at, 'HH24:MI:SS.MS') AS rated, l.by_whom, l.as_role
FROM t_order o JOIN t_order_log l USING (oid) ORDER BY oid;

\echo 'How late the stars came, in milliseconds after finish_time + 5 seconds (it'
\echo 'includes the update itself, and the start of a process for the first):'
SELECT round(min(ms)::numeric, 3) AS min,
	round((percentile_cont(0.5) WITHIN GROUP (ORDER BY ms))::numeric, 3) AS median,
	round(max(ms)::numeric, 3) AS max
FROM (SELECT extract(epoch FROM l.at - o.finish_time - interval '5 seconds') * 1000 AS ms
	FROM t_order o JOIN t_order_log l USING (oid) WHERE l.stars = 5) lateness;

\echo '--- 5. A turn of the ring is an hour: what is due later has a cycle number'
\echo

SELECT delay_schedule(interval '3610 seconds', 'select 1') AS id \gset
\echo 'A task due in 3610 seconds lies 10 slots ahead, and one turn of the ring:'
SELECT to_char(due, 'HH24:MI:SS') AS due, slot, cycle_num,
	(SELECT slot FROM delay_wheel.ring WHERE is_current) AS current_slot, sql
FROM delay_wheel.tasks WHERE id = :id;
SELECT cycle_num = 1 AS one_turn, slot AS far_slot FROM delay_wheel.tasks WHERE id = :id \gset

\echo 'How the extension sees itself (delay_wheel.status):'
\x on
SELECT * FROM delay_wheel.status;
\x off

\echo '--- 6. Was all as it must be?'
\echo

\pset tuples_only on
\pset format unaligned
SELECT example.make_sure('15 orders have five stars, each by exactly one update, of an executor',
	(SELECT count(*) = 15 AND count(DISTINCT oid) = 15 AND bool_and(by_whom = 'delay_wheel executor')
	 FROM t_order_log WHERE stars = 5)
	AND (SELECT count(*) = 15 FROM t_order WHERE stars = 5 AND status = 1));
SELECT example.make_sure('the 5 that were rated by hand were left alone',
	(SELECT count(*) = 5 FROM t_order WHERE oid IN (4, 7, 11, 14, 18) AND stars = 1 + oid % 4 AND status = 1)
	AND (SELECT count(*) = 5 FROM t_order_log WHERE oid IN (4, 7, 11, 14, 18)));
SELECT example.make_sure('no order was rated before its time was up',
	(SELECT count(*) = 0 FROM t_order o JOIN t_order_log l USING (oid)
	 WHERE l.stars = 5 AND l.at < o.finish_time + interval '5 seconds'));
SELECT example.make_sure('each ran as the role that scheduled it',
	(SELECT bool_and(as_role = 'shop') FROM t_order_log));
SELECT example.make_sure('nothing is pending but the task of the next hour, and nothing failed',
	(SELECT count(*) = 1 AND min(id) = :id FROM delay_wheel.tasks)
	AND (SELECT count(*) = 0 FROM delay_wheel.failed));
SELECT example.make_sure('a task due in 3610 seconds has cycle number 1', :'one_turn'::boolean);
SELECT example.make_sure('its slot is its due second modulo 3600',
	(SELECT floor(extract(epoch FROM due))::bigint % 3600 = slot FROM delay_wheel.tasks WHERE id = :id));
\echo
