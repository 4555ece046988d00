--
-- KEYS: UNIQUE FOR A PERIOD
-- unique_for: no second task of the key for a time, also when the first one is done; what
-- ends the period, and the view that shows it.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set VERBOSITY terse

CREATE ROLE regress_dw_unique LOGIN;
SELECT delay_wheel.allow('regress_dw_unique');
CREATE TABLE unique_effect (label text);
GRANT ALL ON unique_effect TO PUBLIC;
CREATE FUNCTION pg_temp.put(sql_text text DEFAULT 'SELECT 1', if_exists text DEFAULT 'keep', delay interval DEFAULT '0', unique_for interval DEFAULT '1 h', key text DEFAULT 'k',
	OUT outcome text, OUT id bigint) LANGUAGE sql AS $$
	SELECT p.outcome, p.id FROM delay_scheduled(delay_schedule_task(sql_text, key => put.key, if_exists => put.if_exists, delay => put.delay, options => jsonb_build_object('unique_for', put.unique_for))) p $$;

-- while it is pending, if_exists decides alone
SELECT * FROM pg_temp.put('INSERT INTO unique_effect VALUES (''first'')', delay => '1 day') \gset
SELECT :'outcome' AS outcome;
SELECT owner = current_user AS owner, queue, key, id = :id AS same, until BETWEEN now() + interval '59 min' AND now() + interval '1 h' AS until FROM delay_wheel.unique_keys;
SELECT outcome, id = :id AS same FROM pg_temp.put();
SELECT code, replace(message, 'task ' || :'id', 'task N') AS message FROM pg_temp.error_of($$SELECT pg_temp.put(if_exists => 'error')$$);
BEGIN;
SELECT outcome, id > :id AS new_id FROM pg_temp.put(if_exists => 'replace', delay => '2 days', unique_for => '2 h');
SELECT id > :id AS new_id, until BETWEEN now() + interval '119 min' AND now() + interval '2 h' AS anew FROM delay_wheel.unique_keys;
ROLLBACK;
SELECT outcome, id = :id AS same FROM pg_temp.put(if_exists => 'earlier', unique_for => '1 s');
SELECT pg_temp.wait_until_done();
SELECT * FROM unique_effect;
-- done: whatever if_exists says
SELECT if_exists, outcome, p.id = :id AS same FROM unnest('{keep,replace,replace_keep_due,earlier,later}'::text[]) if_exists, pg_temp.put(if_exists => if_exists) p;
SELECT outcome, id = :id AS same, due_at FROM delay_scheduled(delay_schedule_task('SELECT 1', key => 'k', options => '{"unique_for": "1 us"}'));
SELECT delay_schedule_task('SELECT 1', key => 'k', options => '{"unique_for": "1 us"}') = :id AS same;
SELECT code, message, replace(regexp_replace(detail, 'at .*', 'at then'), :'id', 'N') AS detail, hint FROM pg_temp.error_of($$SELECT pg_temp.put(if_exists => 'error')$$);
SELECT count(*) FROM delay_wheel_data.task;
-- others are not concerned: another key, queue, role, and calls without unique_for
SELECT delay_wheel.create_queue('regress_unique');
BEGIN;
SELECT outcome FROM pg_temp.put(key => 'K');
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 1', key => 'k', queue => 'regress_unique', options => '{"unique_for": "1 h"}'));
SET LOCAL ROLE regress_dw_unique;
SELECT outcome FROM delay_scheduled(delay_schedule_task('SELECT 1', key => 'k', options => '{"unique_for": "1 h"}'));
SELECT owner, queue, key FROM delay_wheel.unique_keys;
RESET ROLE;
SELECT owner = current_user AS own, queue, key FROM delay_wheel.unique_keys ORDER BY id;
SELECT outcome FROM pg_temp.put(unique_for => NULL, delay => '1 day');
SELECT count(*) FILTER (WHERE locktype = 'advisory') AS locks FROM pg_locks WHERE pid = pg_backend_pid();
ROLLBACK;
-- nobody reads the table itself
SET ROLE regress_dw_unique;
SELECT count(*) FROM delay_wheel.unique_keys;
SELECT count(*) FROM delay_wheel_data.unique_key;
RESET ROLE;

-- the period is over
BEGIN;
UPDATE delay_wheel_data.unique_key SET until = now();
SELECT count(*) FROM delay_wheel.unique_keys;
SELECT outcome, id > :id AS new_id FROM pg_temp.put();
SELECT outcome FROM pg_temp.put(if_exists => 'replace');
SELECT count(*) FROM delay_wheel.unique_keys;
ROLLBACK;

-- it runs just now
SELECT pg_advisory_lock(1);
SELECT * FROM pg_temp.put('SELECT pg_advisory_xact_lock_shared(1); SELECT 1', key => 'r') \gset
SELECT pg_temp.wait_for('EXISTS (SELECT FROM pg_locks l JOIN delay_wheel.running r USING (pid) WHERE l.locktype = ''advisory'' AND NOT l.granted)');
SELECT outcome, id = :id AS same FROM pg_temp.put(key => 'r');
SELECT outcome, id > :id AS new_id FROM pg_temp.put(key => 'r', unique_for => NULL, delay => '1 day');
SELECT outcome, id > :id AS new_id FROM pg_temp.put(key => 'r');
SELECT delay_cancel(key => 'r');
SELECT outcome, id = :id AS same FROM pg_temp.put(key => 'r');
SELECT pg_advisory_unlock(1);
SELECT pg_temp.wait_until_done();

-- cancelled, in each way: the period is over
SELECT id FROM pg_temp.put(key => 'c', delay => '1 day') \gset
BEGIN;
SELECT delay_cancel(:id);
SELECT outcome FROM pg_temp.put(key => 'c', delay => '1 day');
SELECT delay_cancel(key => 'c');
SAVEPOINT s;
SELECT outcome FROM pg_temp.put(key => 'c', delay => '1 day');
ROLLBACK TO s;
SELECT count(*) FROM delay_wheel.unique_keys WHERE key = 'c';
ROLLBACK;
SELECT outcome, id = :id AS same FROM pg_temp.put(key => 'c');
BEGIN;
SELECT delay_cancel_all(tag => NULL, due_from => '-infinity') > 0 AS ok;
SELECT outcome, id > :id AS new_id FROM pg_temp.put(key => 'c', delay => '1 day');
COMMIT;
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.cancellations)');
SELECT count(*), min(id) > :id AS new_id FROM delay_wheel.unique_keys WHERE key = 'c';
SELECT delay_cancel(key => 'c');
SELECT count(*) FROM delay_wheel.unique_keys WHERE key = 'c';

-- given up: over; a failed attempt that is tried again: not
SELECT id FROM pg_temp.put('SELECT 1 / 0', key => 'f') \gset
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.failed WHERE id = %s)', :id));
SELECT count(*) FROM delay_wheel.unique_keys WHERE key = 'f';
SELECT delay_discard(:id);
SELECT id FROM delay_scheduled(delay_schedule_task('SELECT 1 / 0', key => 'f', max_attempts => 2, options => '{"unique_for": "1 h", "retry_delay": "1 day"}')) \gset
SELECT pg_temp.wait_for(format('attempts = 1 FROM delay_wheel.tasks WHERE id = %s', :id));
SELECT count(*), min(id) = :id AS same FROM delay_wheel.unique_keys WHERE key = 'f';
SELECT delay_cancel(key => 'f');
-- skipped: over
SELECT id FROM delay_scheduled(delay_schedule_task('SELECT 1', key => 's', due => now() - interval '1 day', options => '{"skip_after": "1 s", "unique_for": "1 h"}')) \gset
SELECT pg_temp.wait_until_done();
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.unique_keys WHERE key = ''s'')');
-- run at once, by the session: done
SELECT id FROM pg_temp.put(key => 'n', delay => '1 day') \gset
SELECT delay_run(:id);
SELECT outcome, id = :id AS same FROM pg_temp.put(key => 'n');

-- a message
SELECT delay_wheel.create_queue('regress_unique_messages', external => true);
SELECT outcome FROM delay_scheduled(delay_send('regress_unique_messages', '1', key => 'm', options => '{"unique_for": "1 h"}'));
CALL delay_await('regress_unique_messages', '1 min');
SELECT payload FROM delay_receive('regress_unique_messages', autocommit => true);
SELECT outcome FROM delay_scheduled(delay_send('regress_unique_messages', '2', key => 'm', options => '{"unique_for": "1 h"}'));
SELECT delay_send('regress_unique_messages', '2', key => 'm', if_exists => 'error', options => '{"unique_for": "1 h"}');
SELECT queue, key FROM delay_wheel.unique_keys WHERE key = 'm';
SELECT delay_wheel.drop_queue('regress_unique_messages');
SELECT queue, key FROM delay_wheel.unique_keys WHERE key = 'm';

-- moved to another queue: the period goes along
SELECT id FROM pg_temp.put(key => 'q', delay => '1 day') \gset
SELECT delay_update(:id, options => '{"to_queue": "regress_unique"}');
SELECT outcome, id > :id AS new_id FROM pg_temp.put(key => 'q', delay => '1 day');
SELECT queue, key, id = :id AS same FROM delay_wheel.unique_keys WHERE key = 'q' ORDER BY id;
SELECT delay_run(:id);
SELECT outcome, id = :id AS same FROM delay_scheduled(delay_schedule_task('SELECT 1', key => 'q', queue => 'regress_unique', options => '{"unique_for": "1 h"}'));
SELECT delay_cancel(key => 'q');

-- done, and another task of the key is pending, scheduled without unique_for: refused all the same
SELECT * FROM pg_temp.put(key => 'p') \gset
SELECT pg_temp.wait_until_done();
SELECT outcome FROM pg_temp.put(key => 'p', unique_for => NULL, delay => '1 day');
SELECT if_exists, outcome, p.id = :id AS same FROM unnest('{keep,replace,earlier}'::text[]) if_exists, pg_temp.put(key => 'p', if_exists => if_exists) p;
SELECT message FROM pg_temp.error_of($$SELECT pg_temp.put(key => 'p', if_exists => 'error')$$);
SELECT outcome FROM pg_temp.put(key => 'p', unique_for => NULL, if_exists => 'replace', delay => '1 day');
SELECT count(*) FROM delay_wheel.unique_keys WHERE key = 'p';
SELECT delay_cancel(key => 'p');

-- refused
SELECT * FROM unnest(ARRAY[$$unique_for => '1 h'$$, $$unique_for => '0', key => 'k'$$, $$unique_for => '-1 s', key => 'k'$$, $$unique_for => '367 days', key => 'k'$$]) args,
	pg_temp.error_of('SELECT ' || pg_temp.call_of('delay_schedule_task', '''SELECT 1'', ' || args));

DELETE FROM delay_wheel_data.unique_key;
SELECT count(*) FROM delay_wheel_data.task;
SELECT delay_wheel.drop_queue('regress_unique');
SELECT delay_wheel.disallow('regress_dw_unique');
DROP TABLE unique_effect;
DROP ROLE regress_dw_unique;
