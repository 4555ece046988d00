--
-- LANES
-- What the views lanes and queues say of pauses and limits: what waits, for
-- what, and since when it was counted.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE ROLE regress_dw_alice LOGIN;
CREATE ROLE regress_dw_bob LOGIN;
CREATE ROLE regress_dw_watcher LOGIN;
GRANT pg_monitor TO regress_dw_watcher;
SELECT delay_wheel.allow('regress_dw_alice', 'regress_dw_bob');
CREATE FUNCTION pg_temp.put(queue text, n int, sql text, priority int DEFAULT 0) RETURNS bigint LANGUAGE sql AS $$
SELECT count(delay_schedule_task(sql, delay => '0', queue => put.queue, priority => put.priority)) FROM generate_series(1, n)
$$;
SELECT delay_wheel.create_queue('lanes_narrow', max_running => 1, users => '{regress_dw_alice}');
SELECT delay_wheel.create_queue('lanes_slow', rate => 1);
SELECT delay_wheel.create_queue('lanes_open', options => '{"batch": false}');

-- nothing was in them yet
SELECT pg_temp.wait_for('count(state) = 3 FROM delay_wheel.queues WHERE name LIKE ''lanes%''');
SELECT name, max_running, rate, paused, state, reason, running, near, ready, lanes, done, failed, retried, cancelled
	FROM delay_wheel.queues WHERE name LIKE 'lanes%' ORDER BY name;
SELECT queue, state FROM delay_wheel.lanes WHERE queue LIKE 'lanes%';

-- max_running: one runs, the others wait
SELECT pg_advisory_lock(4712);
SET ROLE regress_dw_alice;
SELECT pg_temp.put('lanes_narrow', 1, 'SELECT pg_advisory_lock_shared(4712)');
RESET ROLE;
SELECT pg_temp.wait_for('running = 1 FROM delay_wheel.queues WHERE name = ''lanes_narrow''');
SELECT queue, priority, state, reason, ready, running FROM delay_wheel.lanes WHERE queue = 'lanes_narrow';
SELECT state, reason, running, ready, lanes FROM delay_wheel.queues WHERE name = 'lanes_narrow';
SET ROLE regress_dw_alice;
SELECT pg_temp.put('lanes_narrow', 2, 'SELECT 1'), pg_temp.put('lanes_narrow', 1, 'SELECT 1 / 0', 1);
RESET ROLE;
SELECT pg_temp.wait_for('ready = 3 FROM delay_wheel.queues WHERE name = ''lanes_narrow''');
SELECT queue, priority, state, reason, ready, running FROM delay_wheel.lanes WHERE queue = 'lanes_narrow' ORDER BY priority;
SELECT state, reason, running, ready, lanes FROM delay_wheel.queues WHERE name = 'lanes_narrow';

-- who sees it: who may use the queue; lanes, only of one's own
SET ROLE regress_dw_alice;
SELECT name, state, running FROM delay_wheel.queues WHERE name LIKE 'lanes%';
SELECT count(*) FROM delay_wheel_internal.get_queues();
SELECT DISTINCT owner, queue FROM delay_wheel.lanes WHERE queue LIKE 'lanes%';
SET ROLE regress_dw_bob;
SELECT name, state, running FROM delay_wheel.queues WHERE name LIKE 'lanes%';
SELECT count(*) FROM delay_wheel_internal.get_queues();
SELECT DISTINCT owner, queue FROM delay_wheel.lanes WHERE queue LIKE 'lanes%';
SET ROLE regress_dw_watcher;
SELECT name, state, running FROM delay_wheel.queues WHERE name LIKE 'lanes%' ORDER BY name;
SELECT DISTINCT owner, queue FROM delay_wheel.lanes WHERE queue LIKE 'lanes%';
RESET ROLE;

-- paused, and resumed
SELECT delay_wheel.pause_queue('lanes_narrow');
SELECT pg_temp.wait_for('state = ''paused'' FROM delay_wheel.queues WHERE name = ''lanes_narrow''');
SELECT queue, priority, state, reason, ready, running FROM delay_wheel.lanes WHERE queue = 'lanes_narrow' ORDER BY priority;
SELECT state, reason, running, ready, lanes FROM delay_wheel.queues WHERE name = 'lanes_narrow';
SELECT pg_advisory_unlock(4712);
SELECT pg_temp.wait_for('running = 0 FROM delay_wheel.queues WHERE name = ''lanes_narrow''');
SELECT delay_wheel.resume_queue('lanes_narrow');
SELECT pg_temp.wait_until_done();

-- what was counted
SELECT pg_temp.wait_for('done + failed = 4 AND running = 0 FROM delay_wheel.queues WHERE name = ''lanes_narrow''');
SELECT state, reason, running, near, ready, done, failed, retried, cancelled FROM delay_wheel.queues WHERE name = 'lanes_narrow';
SELECT priority, state, done, failed, retried, cancelled, lateness_p50 > 0 AND lateness_p50 <= lateness_p95 AND lateness_p95 <= lateness_p99 AND lateness_p99 <= lateness_max AS lateness
	FROM delay_wheel.lanes WHERE queue = 'lanes_narrow' ORDER BY priority;

-- rate: one a second, and one in advance
SELECT pg_temp.put('lanes_slow', 10, 'SELECT 1');
SELECT pg_temp.wait_for('done >= 1 AND state = ''limited'' FROM delay_wheel.queues WHERE name = ''lanes_slow''');
SELECT state, reason FROM delay_wheel.lanes WHERE queue = 'lanes_slow';
SELECT state, reason, done <= 8 AS limited FROM delay_wheel.queues WHERE name = 'lanes_slow';
-- without it they run at once
SELECT delay_wheel.create_queue('lanes_slow', rate => 0);
SELECT pg_temp.wait_for('done = 10 FROM delay_wheel.queues WHERE name = ''lanes_slow''');

-- a limit that comes while a task runs counts it
SELECT pg_advisory_lock(4712);
SELECT pg_temp.put('lanes_open', 2, 'SELECT pg_advisory_lock_shared(4712)');
SELECT pg_temp.wait_for('running = 2 FROM delay_wheel.queues WHERE name = ''lanes_open''');
SELECT delay_wheel.create_queue('lanes_open', max_running => 1);
SELECT pg_temp.put('lanes_open', 1, 'SELECT 1');
SELECT pg_temp.wait_for('state = ''limited'' FROM delay_wheel.queues WHERE name = ''lanes_open''');
SELECT running, ready, reason FROM delay_wheel.queues WHERE name = 'lanes_open';
SELECT pg_advisory_unlock(4712);
SELECT pg_temp.wait_for('done = 3 AND running = 0 FROM delay_wheel.queues WHERE name = ''lanes_open''');

SELECT delay_wheel.drop_queue('lanes_narrow'), delay_wheel.drop_queue('lanes_slow'), delay_wheel.drop_queue('lanes_open');
SELECT pg_temp.wait_for('count(*) = 0 FROM delay_wheel_internal.get_queues()');
SELECT delay_wheel.disallow('regress_dw_alice', 'regress_dw_bob');
DELETE FROM delay_wheel_data.failed_task;
DROP ROLE regress_dw_alice, regress_dw_bob, regress_dw_watcher;
