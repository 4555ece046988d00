--
-- RUN_DUE
-- delay_run_due: what is due by some time runs in the caller's transaction, as
-- tests of an application want it.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set SHOW_CONTEXT never

CREATE TABLE due_effect (n serial, label text, task text DEFAULT current_setting('delay_wheel.task_id'), at timestamptz DEFAULT now());
CREATE VIEW due_pending AS SELECT label FROM (SELECT args[1] AS label, due, id FROM delay_wheel.tasks) t ORDER BY due, id;
CREATE FUNCTION due_task(label text, delay interval, queue text DEFAULT NULL, priority int DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
	SELECT delay_schedule_task('INSERT INTO due_effect (label) VALUES ($1)', args => ARRAY[label], delay => delay, queue => queue, priority => priority)
$$;

-- An application: its trigger, and the test of it, which leaves nothing.
CREATE TABLE due_order (id int PRIMARY KEY, stars int);
CREATE FUNCTION due_order_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM delay_schedule('24 hours', 'UPDATE due_order SET stars = 5 WHERE id = $1 AND stars IS NULL', NEW.id);
	RETURN NULL;
END $$;
CREATE TRIGGER inserted AFTER INSERT ON due_order FOR EACH ROW EXECUTE FUNCTION due_order_inserted();
BEGIN;
INSERT INTO due_order VALUES (1), (2);
UPDATE due_order SET stars = 1 WHERE id = 2;
SELECT delay_run_due();
SELECT delay_run_due(now() + interval '23 hours');
SELECT * FROM due_order ORDER BY id;
SELECT delay_run_due(now() + interval '24 hours');
SELECT * FROM due_order ORDER BY id;
SELECT delay_run_due(now() + interval '48 hours');
ROLLBACK;
SELECT count(*) FROM due_order;
SELECT count(*) FROM delay_wheel_data.task;

-- In order of due and id, of all queues and priorities; paused, too.
SELECT delay_wheel.create_queue('due', max_running => 1), delay_wheel.create_queue('due_paused');
SELECT delay_wheel.pause_queue('due_paused');
BEGIN;
SELECT count(due_task(label, delay, queue, priority)) FROM (VALUES
	('4', '3 hours'::interval, 'due', 1), ('1', '0', NULL, -1), ('5', '3 hours', NULL, -1), ('6', '3 hours', 'due_paused', 0),
	('3', '2 hours', NULL, 0), ('7', '4 hours', 'due', 0), ('2', '1 hour', 'due_paused', -1), ('0', '-1 hour', 'due', 1),
	('LATER', '5 hours', 'due', 1), ('LATER', '5 hours', NULL, 1)) v (label, delay, queue, priority);
SELECT delay_run_due();
SELECT delay_run_due(NULL);
SELECT delay_run_due('-infinity');
SELECT delay_run_due(now() + interval '4 hours');
SELECT array_agg(label ORDER BY n) FROM due_effect;
-- each has its own id, and now() is as it was
SELECT count(DISTINCT task) AS tasks, bool_and(at = now()) AS now FROM due_effect;
SELECT * FROM due_pending;
SELECT delay_run_due('infinity');
SELECT * FROM due_pending;
ROLLBACK;

-- What tasks schedule has its turn: delays count from the task's own due time.
CREATE FUNCTION due_monthly(n int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO due_effect (label) VALUES (n);
	SELECT delay_schedule('1 month', 'SELECT due_monthly($1)', n + 1);
$$;
BEGIN;
SELECT due_monthly(0);
SELECT due_task('day 45', '45 days') IS NOT NULL AS ok;
SELECT delay_schedule('10 days', $$SELECT due_task('day 20', '10 days'), due_task('at once', '0'), due_task('before', '-11 days'), due_task('LATER', '1 year')$$) IS NOT NULL AS ok;
SELECT delay_schedule('10 days', $$SELECT delay_schedule_task('INSERT INTO due_effect (label) VALUES (''no delay'')')$$) IS NOT NULL AS ok;
SELECT delay_run_due(now() + interval '3 months 1 day');
SELECT array_agg(label ORDER BY n) FROM due_effect;
SELECT due - now() > '364 days' AS later, args FROM delay_wheel.tasks ORDER BY due;
SELECT args, due - (now() + '3 months') BETWEEN '27 days' AND '32 days' AS month FROM delay_wheel.tasks ORDER BY due LIMIT 1;
-- outside, they count from now() as ever
SELECT delay_schedule('1 hour', 'SELECT 1') AS id \gset
SELECT due - now() FROM delay_wheel.tasks WHERE id = :id;
ROLLBACK;

-- Tasks that cancel, move and replace others; keys; follow-ups.
BEGIN;
SELECT due_task('CANCELLED', '2 hours') AS cancelled, due_task('moved here', '1 day') AS moved, due_task('MOVED away', '2 hours') AS away \gset
SELECT delay_schedule('1 hour', format('SELECT delay_cancel(%s), delay_reschedule(%s, ''30 min''), delay_reschedule(%s, ''1 day'')', :cancelled, :moved, :away)) IS NOT NULL AS ok;
SELECT delay_schedule_task('INSERT INTO due_effect (label) VALUES (''REPLACED'')', delay => '3 hours', key => 'k') IS NOT NULL AS ok;
SELECT delay_schedule('2 hours', $$SELECT delay_schedule_task('INSERT INTO due_effect (label) VALUES (''replacement'')', delay => '2 hours', key => 'k', if_exists => 'replace')$$) IS NOT NULL AS ok;
SELECT delay_schedule_task('INSERT INTO due_effect (label) SELECT ''two rows'' FROM generate_series(1, 2)', delay => '5 hours',
	options => jsonb_build_object('on_success', 'INSERT INTO due_effect (label) VALUES (''after '' || $2)')) IS NOT NULL AS ok;
SELECT due_task('last', '5 hours 1 s') IS NOT NULL AS ok;
SELECT delay_run_due(now() + interval '6 hours');
SELECT array_agg(label ORDER BY n) FROM due_effect;
SELECT * FROM due_pending;
ROLLBACK;

-- A recurring task runs as often as it would.
BEGIN;
SELECT delay_every('due', '1 hour', 'INSERT INTO due_effect (label) VALUES (''hourly'')') IS NOT NULL AS ok;
SELECT due_task('in between', '150 min') IS NOT NULL AS ok;
SELECT delay_run_due(now() + interval '5 hours');
SELECT array_agg(label ORDER BY n) FROM due_effect;
SELECT due - now() AS next FROM delay_wheel.tasks;
ROLLBACK;

-- skip_after, expires and attempts are not asked; what is cancelled is gone.
BEGIN;
SELECT delay_schedule_task('INSERT INTO due_effect (label) VALUES (''too late'')', due => now() - interval '1 day', options => '{"skip_after": "1 s", "expires": "2 s"}') IS NOT NULL AS ok;
SELECT delay_schedule_task('INSERT INTO due_effect (label) VALUES (''CANCELLED'')', tag => 'due') IS NOT NULL AS ok;
SELECT delay_cancel_all(tag => 'due') IS NOT NULL AS ok;
SELECT delay_run_due();
SELECT array_agg(label ORDER BY n) FROM due_effect;
ROLLBACK;

-- An error is the caller's, and undoes all, or up to a savepoint.
BEGIN;
SELECT due_task('before the error', '1 hour') IS NOT NULL AS ok;
SELECT delay_schedule_task('SELECT 1 / 0', delay => '2 hours', max_attempts => 5, options => '{"on_failure": "SELECT 1"}') AS id \gset
SAVEPOINT s;
SELECT delay_run_due(now() + interval '1 day');
ROLLBACK TO s;
DO $$
DECLARE
	context text;
BEGIN
	PERFORM delay_run_due(now() + interval '1 day');
EXCEPTION WHEN division_by_zero THEN
	GET STACKED DIAGNOSTICS context = PG_EXCEPTION_CONTEXT;
	RAISE NOTICE '%', substring(context FROM 'task.*run by [^\n]*') ~ '^task \d+, run by delay_run_due\(\)$';
END $$;
SELECT count(*) FROM due_effect;
SELECT count(*) FROM delay_wheel.tasks;
-- the clock is as before
SELECT delay_schedule('1 hour', 'SELECT 1') AS id \gset
SELECT due - now() FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_run_due(now() + interval '1 hour');
SELECT array_agg(label ORDER BY n) FROM due_effect;
ROLLBACK;

-- Without end: for the same time, and for one that is past.
CREATE FUNCTION due_endless(delay interval) RETURNS void LANGUAGE sql AS $$
	SELECT delay_schedule(delay, 'SELECT due_endless($1)', delay)
$$;
BEGIN;
SELECT due_endless('0');
SAVEPOINT s;
SELECT code, message, hint FROM pg_temp.error_of('SELECT delay_run_due()');
SELECT code FROM pg_temp.error_of('SELECT delay_run_due(now() + interval ''1 hour'')');
ROLLBACK;
BEGIN;
SELECT due_endless('-1 hour');
SELECT code FROM pg_temp.error_of('SELECT delay_run_due()');
ROLLBACK;
-- many, of one time, have one
BEGIN;
SELECT count(delay_schedule('0', $$SELECT due_task('nested', '0')$$)) FROM generate_series(1, 1500);
SELECT delay_run_due();
ROLLBACK;

-- called by a task, itself and by an executor
BEGIN;
SELECT delay_schedule('1 hour', $$INSERT INTO due_effect (label) SELECT 'ran ' || delay_run_due(now() + interval '1 day')$$) IS NOT NULL AS ok;
SELECT due_task('inner', '2 hours') IS NOT NULL AS ok;
SELECT delay_run_due(now() + interval '1 hour');
SELECT array_agg(label ORDER BY n) FROM due_effect;
ROLLBACK;
SELECT due_task('committed', '2 hours') IS NOT NULL AS ok;
SELECT delay_schedule('0', $$INSERT INTO due_effect (label) SELECT 'an executor ran ' || delay_run_due(now() + interval '1 day')$$) IS NOT NULL AS ok;
SELECT pg_temp.wait_until_done();
SELECT label FROM due_effect ORDER BY n;
TRUNCATE due_effect;

-- What is left: tasks of others, of copies, those that run, those not for a transaction.
CREATE ROLE regress_dw_due LOGIN;
SELECT delay_wheel.allow('regress_dw_due');
SET SESSION AUTHORIZATION regress_dw_due;
SELECT delay_schedule('1 hour', 'SELECT ''ANOTHER OWNER''') IS NOT NULL AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_advisory_lock(4712);
SELECT delay_schedule('0', 'SELECT pg_advisory_xact_lock_shared(4712)') AS id \gset
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.running WHERE task = %s)', :id));
BEGIN;
SELECT due_task('run', '1 hour') IS NOT NULL AS ok;
SELECT due_task('COPIED', '1 hour') AS copied, due_task('MODE', '2 hours') AS mode1, due_task('MODE', '2 hours') AS mode2 \gset
UPDATE delay_wheel_data.task SET origin = 1 WHERE id = :copied;
UPDATE delay_wheel_data.task SET more = '{"mode": "at_most_once"}' WHERE id IN (:mode1, :mode2);
SELECT due_task('run, too', '3 hours') IS NOT NULL AS ok;
SELECT delay_run_due(now() + interval '1 day');
SELECT array_agg(label ORDER BY n) FROM due_effect;
ROLLBACK;
SELECT pg_advisory_unlock(4712);
SELECT pg_temp.wait_until_done();
-- only in a session of the role
SET ROLE regress_dw_due;
SELECT delay_run_due(now() + interval '1 day');
RESET ROLE;
\set boss :USER
\c - regress_dw_due
SELECT delay_run_due(now() + interval '30 min');
SELECT delay_run_due(now() + interval '1 day');
\c - :boss
\set ECHO none
\i :helpers
\set ECHO all
SELECT count(*) FROM delay_wheel.tasks;

-- As an executor: a failure is the task's, and undoes what it did; further attempts are run in their time.
CREATE VIEW due_failed AS SELECT args[1] AS label, attempts, sqlstate, message, detail FROM delay_wheel.failed ORDER BY id;
CREATE SEQUENCE due_tries;
CREATE FUNCTION due_fails_until(label text, tries int, code text DEFAULT 'P0001') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO due_effect (label) VALUES (label || ' ' || nextval('due_tries'));
	IF currval('due_tries') < tries THEN
		RAISE EXCEPTION 'try %', currval('due_tries') USING ERRCODE = code;
	END IF;
END $$;
CREATE FUNCTION due_fails(label text, tries int, code text DEFAULT 'P0001', after interval DEFAULT '0', attempts int DEFAULT 3, delay interval DEFAULT '1 hour', key text DEFAULT NULL,
	expires interval DEFAULT NULL, skip_after interval DEFAULT NULL, give_up_on text[] DEFAULT NULL, retry_on text[] DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
	SELECT delay_schedule_task('SELECT due_fails_until($1, $2, $3)', args => ARRAY[label, tries::text, code], delay => after, max_attempts => attempts,
		key => key, options => jsonb_build_object('retry_delay', delay, 'retry_backoff', 'fixed', 'expires', expires, 'skip_after', skip_after, 'give_up_on', give_up_on, 'retry_on', retry_on, 'on_success', 'INSERT INTO due_effect (label) VALUES (''succeeded'')', 'on_failure', 'INSERT INTO due_effect (label) VALUES ($2 || '' '' || $3)'))
$$;
BEGIN;
SELECT setval('due_tries', 1, false);
SELECT due_fails('third time', 3) AS id \gset
SELECT delay_run_due(as_executor => true);
SELECT attempts, last_error, due - now() BETWEEN '1 hour' AND '76 min' AS hour FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_run_due(now() + interval '59 min', true);
SELECT delay_run_due(now() + interval '4 hours', as_executor => true);
SELECT array_agg(label ORDER BY n) FROM due_effect;
SELECT count(*) FROM delay_wheel.tasks;
ROLLBACK;
-- all at once; the last attempt fails, and on_failure runs
BEGIN;
SELECT setval('due_tries', 1, false);
SELECT due_fails('never', 100, after => '1 hour') IS NOT NULL AS ok;
SELECT due_task('meanwhile', '90 min') IS NOT NULL AS ok;
SELECT delay_run_due(now() + interval '1 day', true);
SELECT array_agg(label ORDER BY n) FROM due_effect;
SELECT * FROM due_failed;
SELECT count(*) FROM delay_wheel.tasks;
ROLLBACK;
-- errors that are not tried again; 40001 and 40P01 are at once, ten times
BEGIN;
SELECT setval('due_tries', 1, false);
SELECT due_fails('given up', 100, code => '23505', give_up_on => '{23}') IS NOT NULL AS ok;
SELECT due_fails('not listed', 100, retry_on => '{08}') IS NOT NULL AS ok;
SELECT delay_run_due(as_executor => true);
SELECT * FROM due_failed;
SELECT setval('due_tries', 1, false);
SELECT due_fails('repeated', 11, code => '40001', attempts => 1) IS NOT NULL AS ok;
SELECT delay_run_due(as_executor => true);
SELECT setval('due_tries', 1, false);
SELECT due_fails('deadlocks', 12, code => '40P01', attempts => 1) IS NOT NULL AS ok;
SELECT delay_run_due(as_executor => true);
SELECT label, sqlstate, message FROM due_failed WHERE label = 'deadlocks';
SELECT array_agg(label ORDER BY n) FROM due_effect;
ROLLBACK;
-- what is late is skipped, or fails, as the clock says, or the time that was reached
BEGIN;
SELECT setval('due_tries', 1, false);
SELECT due_fails('SKIPPED', 0, after => '-2 hours', skip_after => '1 hour') IS NOT NULL AS ok;
SELECT due_fails('EXPIRED', 0, after => '-2 hours', expires => '1 hour') IS NOT NULL AS ok;
SELECT due_fails('in time', 0, after => '-2 hours', expires => '1 day') IS NOT NULL AS ok;
SELECT due_fails('in time', 0, after => '10 days', expires => '1 s', skip_after => '1 s') IS NOT NULL AS ok;
SELECT delay_schedule('20 days', $$SELECT due_fails('TOO LATE', 0, after => '-1 day', skip_after => '1 hour')$$) IS NOT NULL AS ok;
SELECT delay_run_due(now() + interval '1 month', true);
SELECT array_agg(label ORDER BY n) FROM due_effect;
SELECT * FROM due_failed;
SELECT count(*) FROM delay_wheel.tasks;
ROLLBACK;
-- runs of a recurring task that fail do not end it
BEGIN;
SELECT setval('due_tries', 1, false);
SELECT delay_every('due', '1 hour', $$SELECT due_fails_until('run', 3)$$) IS NOT NULL AS ok;
SELECT delay_run_due(now() + interval '210 min', true);
SELECT array_agg(label ORDER BY n) FROM due_effect;
SELECT runs, failures FROM delay_wheel.recurring WHERE name = 'due';
ROLLBACK;
-- what the attempt has scheduled is undone: no newer task of its key is in the way of the next one
BEGIN;
SELECT delay_schedule_task($$SELECT due_task('x', '1 day'), delay_schedule_task('SELECT 1', key => 'due', delay => '1 day', if_exists => 'replace'), 1 / 0$$, key => 'due', max_attempts => 3) IS NOT NULL AS ok;
SELECT delay_run_due(as_executor => true);
SELECT attempts, last_error FROM delay_wheel.tasks;
ROLLBACK;
-- within a savepoint, and by PL/pgSQL; settings and the caller's transaction are as before; so is the error of a cancel
BEGIN;
SET LOCAL due.setting = 'mine';
SELECT delay_schedule('0', $$SET LOCAL due.setting = 'the task''s'; SELECT 1 / 0$$) IS NOT NULL AS ok;
SELECT due_task('after it', '1 s') IS NOT NULL AS ok;
SAVEPOINT s;
SELECT delay_run_due(now() + interval '1 s', true);
SELECT current_setting('due.setting'), (SELECT count(*) FROM delay_wheel.failed) AS failed, (SELECT array_agg(label) FROM due_effect) AS done;
ROLLBACK TO s;
SELECT (SELECT count(*) FROM delay_wheel.failed) AS failed, (SELECT count(*) FROM delay_wheel.tasks) AS tasks;
SELECT delay_schedule('2 s', $$DO 'BEGIN RAISE query_canceled; END'$$) IS NOT NULL AS ok;
DO $$
BEGIN
	BEGIN
		PERFORM delay_run_due(now() + interval '2 s', true);
	EXCEPTION WHEN query_canceled THEN
		RAISE NOTICE 'cancelled';
	END;
	PERFORM delay_run_due(now() + interval '1 s', true);
	RAISE NOTICE '%', (SELECT array_agg(label) FROM due_effect);
END $$;
ROLLBACK;
-- null, and false, are as without
BEGIN;
SELECT delay_schedule('0', 'SELECT 1 / 0') IS NOT NULL AS ok;
SELECT code FROM pg_temp.error_of('SELECT delay_run_due(as_executor => NULL)');
SELECT code FROM pg_temp.error_of('SELECT delay_run_due(as_executor => false)');
ROLLBACK;
-- what is committed: failed for others, and put back for executors
SELECT setval('due_tries', 1, false);
SELECT delay_pause_all();
SELECT due_fails('committed', 2, attempts => 2, delay => '0') IS NOT NULL AS ok, due_fails('never', 100, attempts => 1) IS NOT NULL AS ok;
BEGIN;
SELECT delay_run_due(now() - interval '1 s', true);
SELECT due_fails('put back', 3, delay => '1 s', attempts => 2) AS back \gset
SELECT delay_run_due(as_executor => true);
COMMIT;
SELECT label, attempts, message FROM due_failed;
SELECT delay_resume_all();
SELECT pg_temp.wait_until_done();
SELECT array_agg(label ORDER BY label) FROM due_effect;
TRUNCATE due_effect;
SELECT delay_discard_all() IS NOT NULL AS ok;

-- The time that tasks see.
BEGIN;
SELECT delay_now() = now() AS now;
SELECT delay_schedule('2 days', 'INSERT INTO due_effect (label) VALUES (delay_now() - now())') IS NOT NULL AS ok;
SELECT delay_schedule('2 days', $$SELECT delay_schedule('-1 day', 'INSERT INTO due_effect (label) VALUES (delay_now() - now())')$$) IS NOT NULL AS ok;
SAVEPOINT s;
SELECT delay_run_due(now() + interval '2 days', true);
SELECT array_agg(label ORDER BY n), delay_now() = now() AS now FROM due_effect;
ROLLBACK TO s;
SELECT delay_run_due(now() + interval '2 days');
SELECT array_agg(label ORDER BY n), delay_now() = now() AS now FROM due_effect;
ROLLBACK;

-- Tasks of others are told of, to those who have their rights.
SET SESSION AUTHORIZATION regress_dw_due;
SELECT delay_schedule('1 hour', 'SELECT 1') AS id \gset
RESET SESSION AUTHORIZATION;
BEGIN;
SELECT delay_run_due(now() + interval '1 day', true);
SELECT delay_run_due(now() + interval '1 min', true);
SET LOCAL ROLE regress_dw_due;
SELECT due_task('of the role', '1 day') IS NOT NULL AS ok;
RESET ROLE;
SELECT delay_run_due(now() + interval '1 day', true);
SELECT delay_run_due(now() + interval '1 day');
ROLLBACK;
CREATE ROLE regress_dw_due_other LOGIN;
SELECT delay_wheel.allow('regress_dw_due_other');
\c - regress_dw_due_other
SELECT delay_run_due(now() + interval '1 day', true);
\c - :boss
\set ECHO none
\i :helpers
\set ECHO all
SELECT delay_cancel(:id);
SELECT delay_wheel.disallow('regress_dw_due_other');
DROP ROLE regress_dw_due_other;

-- wrong uses
BEGIN READ ONLY;
SELECT delay_run_due();
ROLLBACK;
SET SESSION AUTHORIZATION regress_dw_due;
SELECT has_table_privilege('delay_wheel.tasks', 'INSERT');
RESET SESSION AUTHORIZATION;
SELECT delay_wheel.disallow('regress_dw_due');
SELECT has_table_privilege('regress_dw_due', 'delay_wheel.tasks', 'INSERT');

DROP VIEW due_failed;
DROP SEQUENCE due_tries;
DROP TABLE due_order;
DROP VIEW due_pending;
DROP TABLE due_effect;
DROP FUNCTION due_order_inserted(), due_task(text, interval, text, int), due_monthly(int), due_endless(interval);
SELECT delay_wheel.drop_queue('due'), delay_wheel.drop_queue('due_paused');
DROP ROLE regress_dw_due;
DROP FUNCTION due_fails, due_fails_until;
