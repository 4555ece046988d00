--
-- AUTONOMOUS
-- Statements that cannot run in a transaction block run as tasks with a mode.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE auto_log (n serial, what text, value text, xid xid8 DEFAULT pg_current_xact_id());
CREATE TABLE auto_table AS SELECT i FROM generate_series(1, 100) i;
CREATE INDEX auto_index ON auto_table (i);
CREATE PROCEDURE auto_steps(what text, n int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..n LOOP
		INSERT INTO auto_log (what, value) VALUES (what, i);
		COMMIT;
	END LOOP;
END
$$;

-- arguments
SELECT delay_schedule_task('VACUUM auto_table', options => '{"mode": "exactly_once"}');
SELECT delay_schedule_task('VACUUM auto_table', options => '{"mode": ""}');
SELECT delay_schedule_task('VACUUM auto_table; SELECT 1', options => '{"mode": "at_most_once"}');
SELECT delay_schedule_task('BEGIN', options => '{"mode": "at_most_once"}');
SELECT delay_schedule_task('COPY auto_table TO STDOUT', options => '{"mode": "at_least_once"}');
SELECT delay_schedule_task('LISTEN x', options => '{"mode": "at_least_once"}');
SELECT delay_schedule_task('SET TRANSACTION ISOLATION LEVEL SERIALIZABLE', options => '{"mode": "at_least_once"}');
SELECT delay_schedule_task('REINDEX (CONCURRENTLY $1) TABLE auto_table', args => '{1}', options => '{"mode": "at_least_once"}');
SELECT delay_schedule_task('CALL auto_steps($1, $2)', args => '{a}', options => '{"mode": "at_least_once"}');
-- without a mode the hint names it
SELECT delay_schedule('0', 'REINDEX TABLE CONCURRENTLY auto_table');
-- and that a text passed with a mode is not remembered for tasks without one
SELECT delay_schedule_task('VACUUM auto_table', delay => '1 hour', options => '{"mode": "at_most_once"}') AS id \gset
SELECT delay_schedule('0', 'VACUUM auto_table');
SELECT sql, mode FROM delay_wheel.tasks WHERE id = :id;
-- not in a transaction of others
SELECT replace(message, :'id', 'id') AS message, detail, hint FROM pg_temp.error_of('SELECT delay_run(' || :id || ')');
SELECT delay_cancel(:id);

-- Until nothing is due, nor running.  CREATE INDEX CONCURRENTLY waits for all
-- snapshots, so this must not keep one.
CREATE PROCEDURE pg_temp.wait_all() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..6000 LOOP
		IF NOT EXISTS (SELECT FROM delay_wheel_data.task WHERE due <= clock_timestamp() + interval '1 minute') AND
			NOT EXISTS (SELECT FROM delay_wheel.running) THEN
			RETURN;
		END IF;
		COMMIT;
		PERFORM pg_sleep(0.02);
		COMMIT;
	END LOOP;
	RAISE EXCEPTION 'waited in vain';
END
$$;
-- both modes, whatever the statement, one after the other
CREATE PROCEDURE pg_temp.run_both(sql text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM delay_schedule_task(sql, tag => 'auto', options => '{"mode": "at_most_once"}');
	COMMIT;
	CALL pg_temp.wait_all();
	PERFORM delay_schedule_task(sql, tag => 'auto', options => '{"mode": "at_least_once"}');
	COMMIT;
	CALL pg_temp.wait_all();
END
$$;

CALL pg_temp.run_both('VACUUM auto_table');
CALL pg_temp.run_both('VACUUM (ANALYZE) auto_table');
CALL pg_temp.run_both('VACUUM FULL auto_table');
CALL pg_temp.run_both('REINDEX TABLE CONCURRENTLY auto_table');
CALL pg_temp.run_both('CREATE INDEX CONCURRENTLY IF NOT EXISTS auto_index2 ON auto_table ((i + 1))');
CALL pg_temp.run_both('CALL auto_steps(''call'', 3)');
CALL pg_temp.run_both('DO $d$ BEGIN
		INSERT INTO auto_log (what, value) VALUES (''do'', 1); COMMIT;
		INSERT INTO auto_log (what, value) VALUES (''do'', 2); ROLLBACK;
		INSERT INTO auto_log (what, value) VALUES (''do'', 3);
	END $d$');
CALL pg_temp.run_both('INSERT INTO auto_log (what, value) VALUES (''plain'', 1), (''plain'', 2)');
CALL pg_temp.run_both('SELECT auto_steps FROM nowhere');
CALL pg_temp.run_both('EXPLAIN SELECT 1');
CALL pg_temp.wait_all();
SELECT what, value, count(*), count(DISTINCT xid) AS transactions FROM auto_log GROUP BY what, value ORDER BY what, value;
SELECT sql, sqlstate, message, attempts, count(*) FROM delay_wheel.failed WHERE tag = 'auto' GROUP BY 1, 2, 3, 4 ORDER BY 1, 2;
SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
	WHERE indrelid = 'auto_table'::regclass ORDER BY 1;
DELETE FROM delay_wheel_data.failed_task;

-- arguments, typed and untyped; output parameters
CREATE PROCEDURE auto_args(a int, b text, INOUT c timestamptz DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO auto_log (what, value) VALUES ('args', a || b);
	COMMIT;
	INSERT INTO auto_log (what, value) VALUES ('args', a || b);
END
$$;
SELECT delay_schedule_task('CALL auto_args($1, $2)', args => '{1,typed}', options => '{"arg_types": ["int", "text"], "mode": "at_most_once"}') > 0 AS ok;
SELECT delay_schedule_task('CALL auto_args($1, $2)', args => '{2,untyped}', options => '{"mode": "at_least_once"}') > 0 AS ok;
SELECT delay_schedule_task('CALL auto_args($1, $2)', args => ARRAY['3', repeat('long ', 20000)], options => '{"mode": "at_most_once"}') > 0 AS ok;
CALL pg_temp.wait_all();
SELECT left(value, 10) AS value, length(value), count(*), count(DISTINCT xid) FROM auto_log WHERE what = 'args' GROUP BY value ORDER BY 1;
SELECT count(*) FROM delay_wheel.failed;

-- what was committed before an error stays; attempts, also in mode at_most_once
CREATE PROCEDURE auto_fails(what text) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO auto_log (what, value) VALUES (what, 'kept');
	COMMIT;
	INSERT INTO auto_log (what, value) VALUES (what, 'undone');
	RAISE EXCEPTION 'on purpose' USING ERRCODE = 'ZZ001', HINT = 'none';
END
$$;
SELECT delay_schedule_task('CALL auto_fails(''once'')', key => 'auto once', options => '{"mode": "at_most_once"}') > 0 AS ok;
SELECT delay_schedule_task('CALL auto_fails(''twice'')', key => 'auto twice', max_attempts => 2, options => '{"mode": "at_most_once", "retry_delay": "1 ms"}') > 0 AS ok;
SELECT delay_schedule_task('CALL auto_fails(''thrice'')', key => 'auto thrice', max_attempts => 3, options => '{"mode": "at_least_once", "retry_delay": "1 ms"}') > 0 AS ok;
CALL pg_temp.wait_all();
SELECT what, value, count(*) FROM auto_log WHERE what IN ('once', 'twice', 'thrice') GROUP BY 1, 2 ORDER BY 3;
SELECT key, sqlstate, message, hint, attempts, context FROM delay_wheel.failed ORDER BY attempts;
-- nothing is left of what stands there while they run
SELECT count(*) FROM delay_wheel_data.failed_task;
DELETE FROM delay_wheel_data.failed_task;

-- a procedure that commits has no mode: the error says which
SELECT delay_schedule('0', 'CALL auto_steps(''none'', 1)') > 0 AS ok;
CALL pg_temp.wait_all();
SELECT sqlstate, message, hint FROM delay_wheel.failed;
DELETE FROM delay_wheel_data.failed_task;

-- timeouts: it is the whole statement's, over its transactions
SELECT delay_schedule_task('DO $d$ BEGIN FOR i IN 1..1200 LOOP INSERT INTO auto_log (what) VALUES (''timeout''); COMMIT; PERFORM pg_sleep(0.1); END LOOP; END $d$',
	options => '{"mode": "at_most_once", "timeout": "500 ms"}') > 0 AS ok;
CALL pg_temp.wait_all();
SELECT sqlstate, message FROM delay_wheel.failed;
SELECT count(*) BETWEEN 1 AND 100 AS some FROM auto_log WHERE what = 'timeout';
DELETE FROM delay_wheel_data.failed_task;

-- the session: settings, roles, temporary tables, cursors and locks go
SELECT delay_schedule_task('DO $d$ BEGIN
		SET work_mem = ''99MB''; SET search_path = pg_catalog; SET default_transaction_read_only = on; SET lock_timeout = 1; COMMIT;
	END $d$', options => '{"mode": "at_most_once"}') > 0 AS ok;
SELECT delay_schedule_task('DO $d$ BEGIN
		CREATE TEMP TABLE auto_temp (a int); COMMIT;
		PERFORM pg_advisory_lock(4711); COMMIT;
		EXECUTE ''DECLARE c CURSOR WITH HOLD FOR SELECT 1''; COMMIT;
	END $d$', options => '{"mode": "at_least_once"}') > 0 AS ok;
CALL pg_temp.wait_all();
SELECT sqlstate, message FROM delay_wheel.failed;
SELECT delay_schedule_task('INSERT INTO auto_log (what, value) SELECT ''session'', concat_ws('' '', current_setting(''work_mem''), current_setting(''search_path''),
	current_setting(''default_transaction_read_only''), to_regclass(''pg_temp.auto_temp''), (SELECT count(*) FROM pg_cursors))',
	options => '{"mode": "at_least_once"}') > 0 AS ok;
CALL pg_temp.wait_all();
SELECT value FROM auto_log WHERE what = 'session';
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711;

-- the caller's search_path lasts over all transactions, also those rolled back
CREATE SCHEMA auto_schema;
CREATE TABLE auto_schema.auto_here (v text);
BEGIN;
SET LOCAL search_path = auto_schema, public;
SELECT public.delay_schedule_task('DO $d$ BEGIN
		INSERT INTO auto_here VALUES (1); ROLLBACK;
		INSERT INTO auto_here VALUES (2); COMMIT;
		INSERT INTO auto_here VALUES (current_setting(''search_path''));
	END $d$', options => '{"mode": "at_most_once"}') > 0 AS ok;
COMMIT;
CALL pg_temp.wait_all();
SELECT * FROM auto_schema.auto_here;

-- deferred constraints fail the last transaction
CREATE TABLE auto_parent (id int PRIMARY KEY);
CREATE TABLE auto_child (id int REFERENCES auto_parent DEFERRABLE INITIALLY DEFERRED);
SELECT delay_schedule_task('INSERT INTO auto_child VALUES (1)', options => '{"mode": "at_least_once"}') > 0 AS ok;
CALL pg_temp.wait_all();
SELECT sqlstate, attempts FROM delay_wheel.failed;
DELETE FROM delay_wheel_data.failed_task;

-- plain SQL can write anything: it is checked before it runs; a mode that is none means nothing
INSERT INTO delay_wheel_data.task (due, sql, more) VALUES
	(now(), 'BEGIN', '{"mode": "at_most_once"}'),
	(now(), 'INSERT INTO auto_log (what) VALUES (''two''); INSERT INTO auto_log (what) VALUES (''two'')', '{"mode": "at_least_once"}'),
	(now(), 'COPY auto_table TO STDOUT', '{"mode": "at_most_once"}'),
	(now(), 'INSERT INTO auto_log (what, value) VALUES (''any'', pg_current_xact_id())', '{"mode": 3}'),
	(now(), 'INSERT INTO auto_log (what, value) VALUES (''any'', pg_current_xact_id())', '["mode"]');
CALL pg_temp.wait_all();
SELECT sql, sqlstate, message FROM delay_wheel.failed ORDER BY id;
SELECT what, count(*) FROM auto_log WHERE what IN ('two', 'any') GROUP BY 1;
DELETE FROM delay_wheel_data.failed_task;

-- what it schedules and cancels itself; it knows which task it is
SELECT delay_schedule_task('DO $d$ BEGIN
		PERFORM delay_schedule(''1 hour'', ''SELECT 1''); ROLLBACK;
		PERFORM delay_schedule(''1 hour'', ''SELECT 2''); COMMIT;
		INSERT INTO auto_log (what, value) VALUES (''own'', delay_cancel(current_setting(''delay_wheel.task_id'')::bigint));
		INSERT INTO auto_log (what, value) VALUES (''own'', delay_reschedule(current_setting(''delay_wheel.task_id'')::bigint, ''1 h''));
	END $d$', options => jsonb_build_object('mode', mode)) > 0 AS ok FROM (VALUES ('at_most_once'), ('at_least_once')) m(mode);
CALL pg_temp.wait_all();
SELECT value, count(*) FROM auto_log WHERE what = 'own' GROUP BY 1 ORDER BY 1;
SELECT sql, delay_cancel(id) FROM delay_wheel.tasks;
SELECT count(*) FROM delay_wheel.failed;

DROP TABLE auto_log, auto_table, auto_parent, auto_child;
DROP SCHEMA auto_schema CASCADE;
DROP PROCEDURE auto_steps, auto_args, auto_fails;
