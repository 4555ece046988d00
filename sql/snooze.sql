--
-- SNOOZE
-- delay_snooze: the task that calls it is run again later.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set SHOW_CONTEXT never

CREATE TABLE snooze_run (n serial, label text, task text DEFAULT current_setting('delay_wheel.task_id'));
-- Notes a run of the label; true from the n-th one on.
CREATE FUNCTION snooze_note(text, n int) RETURNS bool LANGUAGE sql AS
	'INSERT INTO snooze_run (label) VALUES ($1); SELECT count(*) >= $2 FROM snooze_run WHERE label = $1';
CREATE VIEW snooze_runs AS SELECT label, count(*) AS runs, count(DISTINCT task) AS tasks FROM snooze_run GROUP BY 1 ORDER BY 1;
-- Waits until no task of that tag is pending, and none runs: one at most once has no row while it runs.
CREATE FUNCTION pg_temp.wait_for_end(label text) RETURNS text LANGUAGE sql AS
	$$SELECT pg_temp.wait_for(format('NOT EXISTS (SELECT FROM delay_wheel_data.task WHERE tag = %L) AND NOT EXISTS (SELECT FROM delay_wheel.running)', label))$$;

--
-- Who may call it
--
SELECT delay_snooze('1 minute');
SELECT delay_snooze(NULL);
SELECT delay_snooze('0');
SELECT delay_snooze('-1 hour');
SELECT delay_snooze('400 days');
-- a setting of the session is none of a task
SET delay_wheel.snoozed_until = '1';

--
-- A task is run until it says no more "not yet"; what its runs do stays
--
SELECT delay_wheel.create_queue('regress_dw_snooze', options => '{"groups": true, "group_order": "hold", "history": "all"}');
SELECT delay_schedule_task($$SELECT delay_snooze('20 ms') WHERE NOT snooze_note('thrice', 3)$$, tag => 'thrice', queue => 'regress_dw_snooze') AS id \gset
SELECT pg_temp.wait_for_end('thrice');
SELECT * FROM snooze_runs;
SELECT state FROM delay_status(:id);
-- it has had one attempt, and one end
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.history WHERE task = %s)', :id));
SELECT outcome, attempt FROM delay_wheel.history WHERE task = :id;
-- what is left of a run that fails after its call is nothing
TRUNCATE snooze_run;
SELECT delay_schedule_task($$DO $d$BEGIN PERFORM delay_snooze('1 hour'); RAISE 'after it'; END$d$ $$, tag => 'fails') AS id \gset
SELECT pg_temp.wait_for_end('fails');
SELECT message FROM delay_wheel.failed WHERE id = :id;
SELECT delay_discard(:id);
-- one that has failed before keeps its attempts
SELECT delay_schedule_task($$DO $d$BEGIN
	CASE nextval('snooze_run_n_seq') - 1000 WHEN 0 THEN RAISE 'first'; WHEN 1 THEN PERFORM delay_snooze('1 hour'); ELSE END CASE; END$d$ $$,
	tag => 'second', max_attempts => 3, options => '{"retry_delay": "0"}') AS id, setval('snooze_run_n_seq', 1000, false) \gset
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel_data.task WHERE id = %s AND due > now() + ''50 minutes'')', :id));
SELECT attempts, snoozes, last_error, due BETWEEN now() + '50 minutes' AND now() + '61 minutes' AS in_an_hour FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_reschedule(:id, '0');
SELECT pg_temp.wait_for_end('second');
SELECT count(*) FROM delay_wheel.failed WHERE tag = 'second';

--
-- Savepoints, and more than one call
--
CREATE FUNCTION snooze_twice() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM delay_snooze('1 hour');
	PERFORM delay_snooze('2 hours');
	BEGIN
		PERFORM delay_snooze('3 hours');
		RAISE 'undone';
	EXCEPTION WHEN raise_exception THEN
	END;
END $$;
SELECT delay_schedule_task('SELECT snooze_twice()', tag => 'twice') AS id \gset
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel_data.task WHERE id = %s AND due > now() + ''50 minutes'')', :id));
SELECT date_trunc('hour', due - now() + '1 minute') AS after FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_cancel(:id);
CREATE FUNCTION snooze_undone() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM snooze_note('undone', 1);
	BEGIN
		PERFORM delay_snooze('3 hours');
		RAISE 'undone';
	EXCEPTION WHEN raise_exception THEN
	END;
END $$;
SELECT delay_schedule_task('SELECT snooze_undone()', tag => 'undone') AS id \gset
SELECT pg_temp.wait_for_end('undone');
SELECT label, runs FROM snooze_runs;
-- a function with settings of its own
CREATE FUNCTION snooze_with_set() RETURNS void LANGUAGE sql SET work_mem = '1MB' AS $$SELECT delay_snooze('1 hour')$$;
SELECT delay_schedule_task('SELECT snooze_with_set()', tag => 'set') AS id \gset
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel_data.task WHERE id = %s AND due > now() + ''50 minutes'')', :id));
SELECT delay_cancel(:id);

--
-- Deferred triggers come too late
--
CREATE TABLE snooze_row (id int);
CREATE FUNCTION snooze_row() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM delay_snooze('1 hour'); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER snooze AFTER INSERT ON snooze_row DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION snooze_row();
SELECT delay_schedule_task('INSERT INTO snooze_row VALUES (1)', tag => 'deferred') AS id \gset
-- alone, since it has a timeout
SELECT delay_schedule_task('INSERT INTO snooze_row VALUES (2)', tag => 'deferred', options => '{"timeout": "2 ms"}') AS id2 \gset
SELECT pg_temp.wait_for_end('deferred');
SELECT sqlstate, message, detail, hint FROM delay_wheel.failed WHERE id = :id;
SELECT count(*) FROM snooze_row;
SELECT delay_discard(:id), delay_discard(:id2);

--
-- Many at once: they share transactions
--
TRUNCATE snooze_run;
SELECT count(delay_schedule_task($$SELECT delay_snooze('1 ms') WHERE NOT snooze_note($1, 3)$$, args => ARRAY['many' || i], tag => 'many')) FROM generate_series(1, 300) i;
SELECT pg_temp.wait_for_end('many');
SELECT runs, tasks, count(*) FROM snooze_runs GROUP BY 1, 2;

--
-- Keys: a newer task takes the place
--
TRUNCATE snooze_run;
CREATE FUNCTION snooze_newer() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM delay_snooze('1 hour');
	PERFORM snooze_note('older', 1);
	PERFORM delay_schedule_task($q$SELECT snooze_note('newer', 1)$q$, key => 'k', tag => 'newer');
END $$;
SELECT delay_schedule_task('SELECT snooze_newer()', key => 'k', tag => 'newer') AS id \gset
SELECT pg_temp.wait_for_end('newer');
SELECT label, runs FROM snooze_runs;
SELECT delay_schedule_task($$SELECT delay_snooze('1 hour')$$, key => 'k', tag => 'alone') AS id \gset
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel_data.task WHERE id = %s AND due > now() + ''50 minutes'')', :id));
SELECT outcome, due_at > now() + '50 minutes' AS as_it_was FROM delay_scheduled(delay_schedule_task('SELECT 1', key => 'k'));
SELECT delay_cancel(key => 'k');

--
-- Outside of a transaction: by any transaction of the statement
--
TRUNCATE snooze_run;
CREATE PROCEDURE snooze_commits(label text, n int) LANGUAGE plpgsql AS $$
DECLARE
	ready bool := snooze_note(label, n);
BEGIN
	IF NOT ready THEN
		PERFORM delay_snooze('20 ms');
	END IF;
	COMMIT;
	PERFORM 1;
	COMMIT;
END $$;
SELECT delay_schedule_task('CALL snooze_commits($1, 3)', args => ARRAY['once'], tag => 'modes', options => '{"mode": "at_most_once"}'),
	delay_schedule_task('CALL snooze_commits($1, 3)', args => ARRAY['least'], tag => 'modes', options => '{"mode": "at_least_once"}') \g /dev/null
SELECT pg_temp.wait_for_end('modes');
SELECT * FROM snooze_runs;
SELECT count(*) FROM delay_wheel.failed WHERE tag = 'modes';
-- one that has committed its call, and then fails, is failed; the next task is none that has called
CREATE PROCEDURE snooze_commits_and_fails() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM delay_snooze('1 hour');
	COMMIT;
	RAISE 'after the commit';
END $$;
SELECT delay_schedule_task('CALL snooze_commits_and_fails()', tag => 'modes', options => '{"mode": "at_most_once"}') AS id \gset
SELECT delay_schedule_task($$SELECT snooze_note('next', 1)$$, tag => 'modes'), delay_schedule_task('CALL snooze_commits($1, 1)', args => ARRAY['next'], tag => 'modes', options => '{"mode": "at_most_once"}') \g /dev/null
SELECT pg_temp.wait_for_end('modes');
SELECT message FROM delay_wheel.failed WHERE id = :id;
SELECT delay_discard(:id);
SELECT label, runs FROM snooze_runs WHERE label = 'next';

--
-- A group that keeps its order waits
--
TRUNCATE snooze_run;
BEGIN;
SELECT delay_schedule_task($$SELECT delay_snooze('50 ms') WHERE NOT snooze_note('a', 2)$$, queue => 'regress_dw_snooze', group_key => 'g', tag => 'group'),
	delay_schedule_task($$SELECT snooze_note('b', 1)$$, queue => 'regress_dw_snooze', group_key => 'g', tag => 'group') \g /dev/null
COMMIT;
SELECT pg_temp.wait_for_end('group');
SELECT label FROM snooze_run ORDER BY n;
SELECT delay_wheel.drop_queue('regress_dw_snooze');

--
-- A recurring task: the same run
--
TRUNCATE snooze_run;
SELECT delay_every('snooze', '1 hour', $$SELECT delay_snooze('20 ms') WHERE NOT snooze_note('every', 2)$$, starts => now() - interval '1 minute', options => '{"catch_up": "all"}') AS id \gset
SELECT pg_temp.wait_for('EXISTS (SELECT FROM delay_wheel.recurring WHERE name = ''snooze'' AND runs = 1)');
SELECT * FROM snooze_runs;
SELECT runs, failures, last_outcome, task <> :id AS next FROM delay_wheel.recurring;
SELECT delay_unschedule('snooze');

--
-- Told to end with this run
--
TRUNCATE snooze_run;
SELECT pg_advisory_lock(4731);
SELECT delay_schedule_task($$DO $d$BEGIN PERFORM delay_snooze('1 hour'); PERFORM snooze_note('last', 1);
	PERFORM pg_advisory_xact_lock(4731); END$d$ $$, tag => 'last') AS id \gset
SELECT pg_temp.wait_for('EXISTS (SELECT FROM pg_locks WHERE locktype = ''advisory'' AND NOT granted)');
SELECT delay_cancel(:id, no_retry => true);
SELECT pg_advisory_unlock(4731);
SELECT pg_temp.wait_for_end('last');
SELECT label, runs FROM snooze_runs;
SELECT count(*) FROM delay_wheel.failed WHERE tag = 'last';

--
-- Tasks that sessions run
--
TRUNCATE snooze_run;
SELECT delay_schedule('1 day', $$SELECT delay_snooze('1 hour') WHERE NOT snooze_note('session', 2)$$) AS id \gset
SELECT delay_run(:id);
SELECT due BETWEEN now() + '50 minutes' AND now() + '61 minutes' AS in_an_hour, snoozes FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_snooze('1 minute');
SELECT delay_run(:id);
SELECT * FROM snooze_runs;
SELECT delay_run(:id);
-- as in real life, three hours later
BEGIN;
TRUNCATE snooze_run;
SELECT count(delay_schedule('1 hour', $$SELECT delay_snooze('1 hour') WHERE NOT snooze_note('due', 3)$$));
SELECT delay_run_due(now() + interval '2 hours 1 minute'), (SELECT due - now() FROM delay_wheel.tasks);
SELECT delay_run_due(now() + interval '3 hours 1 minute', as_executor => true);
SELECT * FROM snooze_runs;
ROLLBACK;
-- a task that runs another one: to each its own
CREATE FUNCTION snooze_runs_other(other bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM delay_snooze('1 hour');
	RETURN delay_run(other);
END $$;
SELECT delay_schedule('1 day', 'SELECT 1') AS plain, delay_schedule('1 day', $$SELECT delay_snooze('3 hours')$$) AS sleepy \gset
SELECT delay_schedule('1 day', 'SELECT snooze_runs_other($1)', :plain) AS id, delay_schedule('1 day', 'SELECT snooze_runs_other($1)', :sleepy) AS id2 \gset
SELECT delay_run(:id), delay_run(:id2);
SELECT count(*), count(*) FILTER (WHERE due BETWEEN now() + '50 minutes' AND now() + '61 minutes') AS in_one, count(*) FILTER (WHERE due BETWEEN now() + '170 minutes' AND now() + '181 minutes') AS in_three
	FROM delay_wheel.tasks WHERE id IN (:plain, :sleepy, :id, :id2);
SELECT delay_cancel(:id), delay_cancel(:id2), delay_cancel(:sleepy);
SELECT count(*) FROM delay_wheel.tasks;

---
-- A role that is not allowed any more: its pending tasks run nevertheless
---
CREATE ROLE regress_dw_snooze LOGIN;
SELECT delay_wheel.allow('regress_dw_snooze');
GRANT ALL ON snooze_run, snooze_run_n_seq TO regress_dw_snooze;
SET SESSION AUTHORIZATION regress_dw_snooze;
SELECT delay_schedule_task($$SELECT delay_snooze('20 ms') WHERE NOT snooze_note('disallowed', 2)$$, delay => '1 hour', tag => 'disallowed') AS id \gset
RESET SESSION AUTHORIZATION;
SELECT delay_wheel.disallow('regress_dw_snooze');
SELECT delay_reschedule(:id, '0');
SELECT pg_temp.wait_for_end('disallowed');
SELECT label, runs FROM snooze_runs WHERE label = 'disallowed';
SELECT sqlstate, message FROM delay_wheel.failed WHERE tag = 'disallowed';

DROP TABLE snooze_run, snooze_row CASCADE;
DROP FUNCTION snooze_note, snooze_twice, snooze_undone, snooze_with_set, snooze_row, snooze_newer, snooze_runs_other;
DROP PROCEDURE snooze_commits, snooze_commits_and_fails;
DROP ROLE regress_dw_snooze;
