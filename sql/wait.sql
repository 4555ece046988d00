--
-- WAIT
-- delay_wait tells how a task ended, whoever ended it; delay_cancel with true
-- stops one that runs.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE wait_effect (label text);
GRANT ALL ON wait_effect TO PUBLIC;
SELECT pg_backend_pid() AS me \gset
-- For tasks: this session is in delay_wait() now.
CREATE FUNCTION wait_for_waiter(waiter int) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
	deadline timestamptz := clock_timestamp() + interval '120 s';
BEGIN
	WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = waiter AND wait_event_type = 'Extension') LOOP
		IF clock_timestamp() > deadline THEN
			RAISE EXCEPTION 'nobody waits';
		END IF;
		PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
	END LOOP;
END $$;

-- done
SELECT delay_schedule('0', 'SELECT wait_for_waiter($1)', :me) AS id \gset
SELECT delay_wait(:id);
-- gone: it was done before, and never was
SELECT delay_wait(:id), delay_wait(-1), delay_wait(9223372036854775807, '1 hour');
-- how it had ended is known if the history has it: it goes by queues
SELECT delay_wheel.create_queue('wait all', options => '{"history": "all"}'), delay_wheel.create_queue('wait errors', options => '{"history": "errors"}');
CREATE ROLE regress_dw_wait_stranger;
SELECT delay_wheel.allow('regress_dw_wait_stranger');
CREATE TABLE wait_ended (what text, id bigint);
GRANT SELECT ON wait_ended TO PUBLIC;
INSERT INTO wait_ended VALUES
	('done', delay_schedule_task('SELECT 1', queue => 'wait all')),
	('done, not recorded', delay_schedule_task('SELECT 1', queue => 'wait errors')),
	('failed, discarded', delay_schedule_task('SELECT 1 / 0', queue => 'wait errors')),
	('failed, discarded, in both', delay_schedule_task('SELECT 1 / 0', queue => 'wait all')),
	('skipped', delay_schedule_task('SELECT 1', due => now() - interval '1 hour', queue => 'wait all', options => '{"skip_after": "1 s"}')),
	('first attempt, then cancelled', delay_schedule_task('SELECT 1 / 0', queue => 'wait all', max_attempts => 2, options => '{"retry_delay": "1 day"}')),
	('first attempt, then cancelled, not recorded', delay_schedule_task('SELECT 1 / 0', queue => 'wait errors', max_attempts => 2, options => '{"retry_delay": "1 day"}')),
	('failed, put back, done', delay_schedule_task('SELECT wait_mended()', queue => 'wait all')),
	('failed, put back, done, not recorded', delay_schedule_task('SELECT wait_mended()', queue => 'wait errors')),
	('failed, put back, cancelled', delay_schedule_task('SELECT 1 / 0', queue => 'wait all')),
	('failed, put back, failed', delay_schedule_task('SELECT 1 / 0', queue => 'wait errors'));
SELECT pg_temp.wait_until_done();
-- what is put back has another end; the old one, which the history has, is none
CREATE FUNCTION wait_mended() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT count(delay_retry(id)) FROM wait_ended WHERE what LIKE 'failed, put back, done%';
SELECT pg_temp.wait_until_done();
BEGIN;
SELECT delay_retry(id), delay_cancel(id) FROM wait_ended WHERE what = 'failed, put back, cancelled';
COMMIT;
SELECT delay_retry(id) FROM wait_ended WHERE what = 'failed, put back, failed';
SELECT pg_temp.wait_until_done();
SELECT what, string_agg(outcome, ', ' ORDER BY ended) AS recorded FROM wait_ended JOIN delay_wheel.history ON task = id
	WHERE what LIKE '%put back%' GROUP BY what ORDER BY min(id);
SELECT delay_cancel(id) FROM wait_ended WHERE what LIKE 'first attempt, then cancelled%';
SELECT count(delay_discard(id)) FROM wait_ended WHERE what LIKE 'failed, discarded%';
SELECT what, delay_wait(id, '0') FROM wait_ended ORDER BY id;
SET ROLE regress_dw_wait_stranger;
SELECT what, delay_wait(id, '0') FROM wait_ended ORDER BY id;
RESET ROLE;
DROP TABLE wait_ended;
DROP FUNCTION wait_mended;
DELETE FROM delay_wheel_data.failed_task;
-- among the newest, be there as many as there may; which of the tables is written does not matter
INSERT INTO delay_wheel_data.history_0 (task, due, started, ended, owner, queue, attempt, outcome, sql)
	SELECT -i, now(), now(), now(), CURRENT_USER::regrole, 0, 1, 'done', repeat('x', 1800) FROM generate_series(1, 1000) i;
INSERT INTO delay_wheel_data.history_1 SELECT * FROM delay_wheel_data.history_0 WHERE task < 0;
INSERT INTO delay_wheel_data.history_2 SELECT * FROM delay_wheel_data.history_0 WHERE task < 0;
-- also of an executor that has written a row in the first page
SELECT delay_schedule_task('SELECT 1', queue => 'wait all') AS id \gset
SELECT pg_temp.wait_until_done();
SELECT delay_wait(:id), delay_wait(-1);
DELETE FROM delay_wheel_data.history_0 WHERE task < 0;
DELETE FROM delay_wheel_data.history_1 WHERE task < 0;
DELETE FROM delay_wheel_data.history_2 WHERE task < 0;
SELECT delay_wheel.drop_queue('wait all'), delay_wheel.drop_queue('wait errors');
SELECT delay_wheel.disallow('regress_dw_wait_stranger');
DROP ROLE regress_dw_wait_stranger;
-- failed, while it is waited for and before
SELECT delay_schedule('0', 'SELECT wait_for_waiter($1), 1 / 0', :me) AS id \gset
SELECT delay_wait(:id);
SELECT delay_wait(:id), delay_wait(:id, '0');
-- failed at the commit
CREATE TABLE wait_parent (i int PRIMARY KEY);
CREATE TABLE wait_child (i int REFERENCES wait_parent DEFERRABLE INITIALLY DEFERRED);
SELECT delay_schedule('0', 'SELECT wait_for_waiter($1); INSERT INTO wait_child VALUES (1)', :me) AS id \gset
SELECT delay_wait(:id);
-- expired
BEGIN;
SELECT delay_schedule('0.5 s', 'INSERT INTO wait_effect VALUES (''NEVER'')') AS id \gset
UPDATE delay_wheel_data.task SET expires = '-1 s' WHERE id = :id;
COMMIT;
SELECT delay_wait(:id);
-- the timeout: of what is pending, and of what runs
SELECT delay_schedule('1 hour', 'INSERT INTO wait_effect VALUES (''moved'')') AS far \gset
SELECT delay_wait(:far, t) FROM unnest('{0.1 s, 0, -1 s, -178000000 years}'::interval[]) t;
SELECT pg_advisory_lock(4711);
SELECT delay_schedule('0', 'SELECT pg_advisory_xact_lock_shared(4711)') AS id \gset
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.running WHERE task = %s)', :id));
SELECT delay_wait(:id, '0.1 s');
SELECT pg_advisory_unlock(4711);

-- It goes on waiting for a task that is moved, whose cancellation is rolled
-- back, and that is tried again.
CREATE FUNCTION wait_move(far bigint, waiter int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM wait_for_waiter(waiter);
	BEGIN
		PERFORM delay_cancel(far);
		RAISE EXCEPTION 'undo';
	EXCEPTION WHEN raise_exception THEN
		PERFORM delay_reschedule(far, '2 hours'), delay_reschedule(far, '0');
	END;
END $$;
SELECT delay_schedule('0', 'SELECT wait_move($1, $2)', :far::bigint, :me) > 0 AS ok;
SELECT delay_wait(:far, '2 min');
CREATE SEQUENCE wait_seq;
BEGIN;
SELECT delay_schedule('0', 'SELECT wait_for_waiter($1), 1 / (nextval(''wait_seq'') - 1)', :me) AS id \gset
UPDATE delay_wheel_data.task SET max_attempts = 2, retry_delay = '0.1 s' WHERE id = :id;
COMMIT;
SELECT delay_wait(:id, '2 min');
SELECT last_value FROM wait_seq;

-- cancelled meanwhile: by a session; by one that cancels many; by plain SQL,
-- which is noticed when there is a reason to look
CREATE FUNCTION wait_cancel(waiter int, VARIADIC ids bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM wait_for_waiter(waiter);
	PERFORM delay_cancel(id) FROM unnest(ids) id;
END $$;
SELECT delay_schedule('1 hour', 'SELECT 1') AS far \gset
SELECT delay_schedule('0', 'SELECT wait_cancel($1, $2)', :me, :far::bigint) > 0 AS ok;
SELECT delay_wait(:far);
SELECT delay_wait(:far);
SELECT array_agg(delay_schedule('1 hour', 'SELECT 1')) AS many FROM generate_series(1, 1100) \gset
SELECT delay_schedule('0', 'SELECT wait_cancel($1, VARIADIC $2)', :me, :'many'::bigint[]) AS id \gset
SELECT delay_wait((:'many'::bigint[])[1100]);
SELECT count(*) FROM delay_wheel.tasks;
SELECT delay_schedule('1 hour', 'SELECT 1') AS far \gset
SELECT delay_schedule('0', format($$SELECT wait_for_waiter(%s); DELETE FROM delay_wheel_data.task WHERE id = %s; UPDATE delay_wheel_data.task SET id = id WHERE false$$, :me, :far)) > 0 AS ok;
SELECT delay_wait(:far);

-- It would wait for ever: for what this transaction wrote, moved or locked;
-- for oneself
BEGIN;
SELECT delay_schedule('0', 'INSERT INTO wait_effect VALUES (''written'')') AS id \gset
SELECT code, replace(message, :'id', 'N') AS message, detail, hint FROM pg_temp.error_of(format('SELECT delay_wait(%s)', :id));
SAVEPOINT s;
SELECT code FROM pg_temp.error_of(format('SELECT delay_wait(%s, ''0'')', :id));
COMMIT;
SELECT delay_schedule('1 hour', 'INSERT INTO wait_effect VALUES (''locked'')') AS id \gset
BEGIN;
SAVEPOINT s;
SELECT delay_reschedule(:id, '0');
SELECT code FROM pg_temp.error_of(format('SELECT delay_wait(%s)', :id));
ROLLBACK TO s;
SELECT delay_wait(:id, '0');
SELECT count(*) FROM (SELECT FROM delay_wheel_data.task WHERE id = :id FOR UPDATE) t;
SELECT code FROM pg_temp.error_of(format('SELECT delay_wait(%s)', :id));
ROLLBACK TO s;
SELECT count(*) FROM (SELECT FROM delay_wheel_data.task WHERE id = :id FOR KEY SHARE) t;
SAVEPOINT s2;
SELECT count(*) FROM (SELECT FROM delay_wheel_data.task WHERE id = :id FOR SHARE) t;
SELECT code FROM pg_temp.error_of(format('SELECT delay_wait(%s)', :id));
-- cancelled: for this transaction it is gone
SELECT delay_cancel(:id), delay_wait(:id);
ROLLBACK;
SELECT delay_cancel(:id);
SELECT delay_schedule('0', 'SELECT delay_wait(current_setting(''delay_wheel.task_id'')::bigint)') AS id \gset
SELECT pg_temp.wait_until_done();
SELECT sqlstate, replace(message, :'id', 'N') AS message FROM delay_wheel.failed WHERE id = :id;
SELECT delay_wait(NULL);
SELECT delay_wait(NULL, '1 s');
SELECT delay_wait(-1, NULL);

--
-- Rights: what became of a task is told to members of its owner
--
CREATE ROLE regress_dw_owner LOGIN;
CREATE ROLE regress_dw_member LOGIN IN ROLE regress_dw_owner;
CREATE ROLE regress_dw_other LOGIN;
SELECT delay_wheel.allow('regress_dw_owner', 'regress_dw_member', 'regress_dw_other');
SET SESSION AUTHORIZATION regress_dw_owner;
SELECT delay_schedule('1 hour', 'SELECT 1') AS pending \gset
SELECT delay_schedule('0', 'SELECT wait_for_waiter($1), 1 / 0', :me) AS id \gset
SELECT delay_wait(:id);
SET SESSION AUTHORIZATION regress_dw_other;
SELECT delay_wait(:id);
SELECT code, replace(message, :'pending', 'N') AS message, detail FROM pg_temp.error_of(format('SELECT delay_wait(%s)', :pending));
SET SESSION AUTHORIZATION regress_dw_member;
SELECT delay_wait(:id), delay_wait(:pending, '0');
RESET SESSION AUTHORIZATION;
SELECT delay_wait(:id), delay_wait(:pending, '0'), delay_cancel(:pending);

--
-- Stopping
--
-- one that runs; who did it is said
SET SESSION AUTHORIZATION regress_dw_owner;
SELECT delay_schedule('0', 'INSERT INTO wait_effect VALUES (''NEVER''); SELECT pg_sleep(600)') AS id \gset
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = ''delay_wheel executor'' AND wait_event = ''PgSleep'')');
SET SESSION AUTHORIZATION regress_dw_other;
SELECT code, replace(message, :'id', 'N') AS message FROM pg_temp.error_of(format('SELECT delay_cancel(%s, true)', :id));
SET SESSION AUTHORIZATION regress_dw_member;
SELECT delay_cancel(:id), delay_cancel(:id, false), delay_cancel(:id, NULL);
BEGIN;
SELECT delay_cancel(:id, stop_running => true);
ROLLBACK;
SELECT delay_wait(:id, '2 min');
RESET SESSION AUTHORIZATION;
SELECT attempts, sqlstate, message, detail FROM delay_wheel.failed WHERE id = :id;
SELECT delay_cancel(:id, true), delay_cancel(-1, true);
-- a pending one is cancelled, by the end of the transaction
SELECT delay_schedule('1 hour', 'SELECT 1') AS id \gset
BEGIN;
SELECT delay_cancel(:id, true);
ROLLBACK;
SELECT delay_cancel(:id, true), delay_cancel(:id, true);

-- A block with EXCEPTION WHEN OTHERS does not catch it.  One that asks for it
-- does, but what it does then is undone at its end.
CREATE FUNCTION wait_others() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM nextval('wait_seq'), pg_sleep(600);
EXCEPTION
	WHEN OTHERS THEN
		INSERT INTO wait_effect VALUES ('NEVER: others');
END $$;
CREATE FUNCTION wait_asks() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM nextval('wait_seq'), pg_sleep(600);
EXCEPTION
	WHEN query_canceled THEN
		INSERT INTO wait_effect VALUES ('NEVER: query_canceled');
END $$;
CREATE FUNCTION wait_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM nextval('wait_seq'), pg_sleep(600);
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER wait_trigger AFTER INSERT ON wait_parent DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION wait_trigger();
-- Begins a task; stops it when it sleeps.  Of two statements it runs alone: in a batch, which
-- gives up on what is slow, it would be pending again, and cancelled.
CREATE FUNCTION pg_temp.begin(command text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	new bigint;
BEGIN
	PERFORM setval('wait_seq', 1, false);
	new := delay_schedule('0', command || '; SELECT 1');
	UPDATE delay_wheel_data.task SET max_attempts = 3, retry_delay = '0' WHERE id = new;
	RETURN new;
END $$;
CREATE FUNCTION pg_temp.stop(task bigint, OUT begun text, OUT answer text, OUT outcome text,
	OUT attempts int, OUT code text, OUT said text, OUT more text) LANGUAGE plpgsql AS $$
BEGIN
	begun := pg_temp.wait_for('is_called FROM wait_seq');
	answer := delay_cancel(task, true);
	outcome := delay_wait(task, '2 min');
	SELECT f.attempts, f.sqlstate, replace(f.message, current_user, 'me'), f.detail INTO attempts, code, said, more FROM delay_wheel.failed f WHERE id = task;
END $$;
SELECT pg_temp.begin('SELECT wait_others()') AS id \gset
SELECT * FROM pg_temp.stop(:id);
SELECT pg_temp.begin('SELECT wait_asks()') AS id \gset
SELECT * FROM pg_temp.stop(:id);
-- at the commit
SELECT pg_temp.begin('INSERT INTO wait_parent VALUES (1)') AS id \gset
SELECT * FROM pg_temp.stop(:id);
-- by itself; what it had failed with already is told
SELECT delay_schedule('0', 'SELECT delay_cancel(current_setting(''delay_wheel.task_id'')::bigint, true), pg_sleep(600)') AS id \gset
SELECT pg_temp.wait_until_done();
SELECT sqlstate, replace(message, current_user, 'me') FROM delay_wheel.failed WHERE id = :id;
SELECT delay_schedule('0', $$DO 'BEGIN PERFORM delay_cancel(current_setting(''delay_wheel.task_id'')::bigint, true); EXCEPTION WHEN query_canceled THEN PERFORM 1 / 0; END'$$) AS id \gset
SELECT pg_temp.wait_until_done();
SELECT sqlstate, replace(message, current_user, 'me'), detail FROM delay_wheel.failed WHERE id = :id;
-- nobody else is hit
SELECT delay_schedule('0', 'INSERT INTO wait_effect VALUES (''afterwards'')') > 0 AS ok;
SELECT pg_temp.wait_until_done();

-- who has waited finds no lock of the task, and sees what it has done to the catalogs
CREATE PROCEDURE wait_rounds() LANGUAGE plpgsql AS $$
DECLARE
	task bigint;
BEGIN
	FOR i IN 1..300 LOOP
		task := delay_schedule('0', 'LOCK TABLE wait_effect; DROP SCHEMA IF EXISTS wait_schema');
		COMMIT;
		-- it had ended before, perhaps just so
		CONTINUE WHEN delay_wait(task, '2 min') = 'gone';
		COMMIT;
		LOCK TABLE wait_effect NOWAIT;
		CREATE SCHEMA wait_schema;
		COMMIT;
	END LOOP;
END $$;
CALL wait_rounds();
SET client_min_messages = warning;
DROP SCHEMA IF EXISTS wait_schema;
RESET client_min_messages;

SELECT count(*) AS pending FROM delay_wheel.tasks;
SELECT label, count(*) FROM wait_effect GROUP BY label ORDER BY label COLLATE "C";
DELETE FROM delay_wheel_data.failed_task;
DROP TABLE wait_effect, wait_child, wait_parent;
DROP FUNCTION wait_for_waiter, wait_move, wait_cancel, wait_others, wait_asks, wait_trigger;
DROP SEQUENCE wait_seq;
DROP PROCEDURE wait_rounds;
SELECT delay_wheel.disallow('regress_dw_owner', 'regress_dw_member', 'regress_dw_other');
DROP ROLE regress_dw_owner, regress_dw_member, regress_dw_other;
