--
-- FAILING
-- A task that fails goes to delay_wheel.failed with all that is known of the
-- error, undone as a whole, and takes nobody with it.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE failing_effect (label text);
SELECT nextval('delay_wheel_data.task_id_seq') AS before \gset

-- every field of an error
CREATE FUNCTION failing_raise() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'the message' USING ERRCODE = 'DW042', DETAIL = 'the detail', HINT = 'the hint';
END
$$;
SELECT delay_schedule_at('2001-01-01 00:00+00', 'INSERT INTO failing_effect VALUES (''NEVER: 1''); SELECT failing_raise()') AS id \gset
SELECT delay_schedule('0', $$INSERT INTO failing_effect VALUES ('unharmed')$$) > 0 AS ok;
SELECT pg_temp.wait_until_done();
\x on
SELECT sqlstate, message, detail, hint, context, sql, args, attempts, queue, priority, key, tag,
	   due AT TIME ZONE 'UTC' AS due, failed_at BETWEEN now() - interval '1 hour' AND clock_timestamp() AS failed_just_now,
	   owner = current_user AS owner_is_me
	FROM delay_wheel.failed WHERE id = :id;
\x off

-- errors of many kinds
CREATE TABLE failing_unique (i int PRIMARY KEY);
INSERT INTO failing_unique VALUES (1);
CREATE PROCEDURE failing_commit() LANGUAGE plpgsql AS $$BEGIN INSERT INTO failing_effect VALUES ('NEVER: procedure'); COMMIT; END$$;
SELECT delay_schedule('0', sql) > 0 AS ok FROM unnest(ARRAY[
	'SELECT 1 / 0',
	'SELECT no_such_column FROM failing_effect',
	'INSERT INTO no_such_table VALUES (1)',
	'INSERT INTO failing_unique VALUES (1)',
	'INSERT INTO failing_effect VALUES (''NEVER: 2''); INSERT INTO failing_effect VALUES (''NEVER: 3''); SELECT 1 / 0',
	'DO $d$BEGIN INSERT INTO failing_effect VALUES (''NEVER: 4''); COMMIT; END$d$',
	'DO $d$BEGIN INSERT INTO failing_effect VALUES (''NEVER: 5''); ROLLBACK; END$d$',
	'CALL failing_commit()',
	'DO $d$BEGIN EXECUTE ''COMMIT''; END$d$',
	'DO $d$BEGIN EXECUTE ''VACUUM''; END$d$',
	'SET LOCAL transaction_isolation = serializable',
	'SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)',
	'VALUES (repeat(''x'', 2000000000))',
	'DO $d$BEGIN RAISE EXCEPTION ''%'', repeat(''long message '', 100000); END$d$',
	'DO $d$BEGIN RAISE EXCEPTION USING ERRCODE = ''57014''; END$d$',
	'WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r) SELECT failing_raise() FROM r'
	]) sql;
SELECT pg_temp.wait_until_done();
SELECT left(sql, 50) AS sql, sqlstate, left(message, 60) AS message, length(message) > 60 AS long, left(context, 60) AS context
	FROM delay_wheel.failed WHERE id > :before ORDER BY id;

-- errors at the commit: the task's effects are undone with it
CREATE TABLE failing_deferred (i int UNIQUE DEFERRABLE INITIALLY DEFERRED, p int REFERENCES failing_unique DEFERRABLE INITIALLY DEFERRED);
INSERT INTO failing_deferred VALUES (1, 1);
CREATE FUNCTION failing_trigger() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM failing_raise(); RETURN NULL; END$$;
CREATE CONSTRAINT TRIGGER failing_trigger AFTER UPDATE ON failing_deferred DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION failing_trigger();
SELECT nextval('delay_wheel_data.task_id_seq') AS before \gset
SELECT delay_schedule('0', 'INSERT INTO failing_effect VALUES (''NEVER: commit 1''); INSERT INTO failing_deferred VALUES (1, 1)') > 0 AS ok;
SELECT delay_schedule('0', 'INSERT INTO failing_effect VALUES (''NEVER: commit 2''); INSERT INTO failing_deferred VALUES (2, $1)', 7) > 0 AS ok;
SELECT delay_schedule('0', 'INSERT INTO failing_effect VALUES (''NEVER: commit 3''); UPDATE failing_deferred SET i = i') > 0 AS ok;
SELECT delay_schedule('0', $$INSERT INTO failing_effect VALUES ('unharmed 2')$$) > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT sql, args, sqlstate, message, detail, hint, context, attempts FROM delay_wheel.failed WHERE id > :before ORDER BY id;

-- the role's statement timeout is in force, for the commit as well
CREATE ROLE regress_dw_timeout LOGIN;
SELECT delay_wheel.allow('regress_dw_timeout');
ALTER ROLE regress_dw_timeout SET statement_timeout = '100 ms';
GRANT ALL ON failing_effect TO PUBLIC;
CREATE TABLE failing_slow (i int);
GRANT ALL ON failing_slow TO PUBLIC;
CREATE FUNCTION failing_slow() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(100); RETURN NULL; END$$;
CREATE CONSTRAINT TRIGGER failing_slow AFTER INSERT ON failing_slow DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION failing_slow();
SELECT nextval('delay_wheel_data.task_id_seq') AS before \gset
SET SESSION AUTHORIZATION regress_dw_timeout;
SELECT delay_schedule('0', 'INSERT INTO failing_effect VALUES (''NEVER: timeout''); SELECT pg_sleep(100)') > 0 AS ok;
SELECT delay_schedule('0', 'INSERT INTO failing_effect VALUES (''NEVER: timeout at the commit''); INSERT INTO failing_slow VALUES (1)') > 0 AS ok;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT owner, sqlstate, message FROM delay_wheel.failed WHERE id > :before ORDER BY id;
DROP TABLE failing_slow;
DROP FUNCTION failing_slow;

-- texts of any length come over into failed, and are those of the task
SELECT nextval('delay_wheel_data.task_id_seq') AS before \gset
SELECT string_agg(md5(i::text), '') AS noise FROM generate_series(1, 10000) i \gset
SELECT delay_schedule('0', format('SELECT 1 / 0, %L, $1', :'noise'), :'noise'::text || 'x') > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT sql = format('SELECT 1 / 0, %L, $1', :'noise') AS same_sql, args = ARRAY[:'noise' || 'x'] AS same_args, message
	FROM delay_wheel.failed WHERE id > :before;

-- a failed task is not pending any more
SELECT delay_cancel(:id), delay_reschedule(:id, '0');

-- what a task wrote, what failed and what was done are counted
SELECT failed >= 23 AS counts_failed, done > 0 AS counts_done FROM delay_wheel.status WHERE database = current_database();
SELECT label FROM failing_effect ORDER BY label COLLATE "C";

DELETE FROM delay_wheel_data.failed_task;
DROP TABLE failing_effect, failing_deferred, failing_unique;
DROP FUNCTION failing_raise, failing_trigger;
DROP PROCEDURE failing_commit;
SELECT delay_wheel.disallow('regress_dw_timeout');
DROP ROLE regress_dw_timeout;
