--
-- ALTERED
-- What others do to the task table: indexes of their own are filled, added
-- columns do no harm, a table that is not ours any more is told, and nobody
-- gets a task of another role into it by plain SQL.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE altered_effect (label text);

-- indexes of others: plain, on an expression, partial, unique
CREATE INDEX altered_due_idx ON delay_wheel_data.task (due);
CREATE INDEX altered_sql_idx ON delay_wheel_data.task (upper(sql)) WHERE due > '2000-01-01';
CREATE UNIQUE INDEX altered_tag_idx ON delay_wheel_data.task ((id + 0));
SELECT count(delay_schedule('1 hour', 'SELECT ''altered''')) FROM generate_series(1, 100);
SELECT delay_schedule('1 hour', 'SELECT ''altered''') AS id \gset
SELECT delay_reschedule(:id, '2 hours');
BEGIN;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT FROM delay_wheel_data.task WHERE due > now() + interval '30 minutes';
SELECT count(*) FROM delay_wheel_data.task WHERE due > now() + interval '30 minutes';
SELECT count(*) FROM delay_wheel_data.task WHERE upper(sql) = 'SELECT ''ALTERED''' AND due > '2000-01-01';
SELECT count(*) FROM delay_wheel_data.task WHERE id + 0 = :id;
COMMIT;
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks WHERE sql ~ 'altered';
DROP INDEX delay_wheel_data.altered_due_idx, delay_wheel_data.altered_sql_idx, delay_wheel_data.altered_tag_idx;

-- changed by the very transaction that schedules: each index has all rows
CREATE FUNCTION pg_temp.rows_by_index(OUT pkey bigint, OUT lanes bigint, OUT keys bigint, OUT due bigint)
LANGUAGE sql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
	SELECT (SELECT count(*) FROM delay_wheel_data.task WHERE id > 0),
		(SELECT count(*) FROM delay_wheel_data.task WHERE owner = current_user::regrole AND queue = 0),
		(SELECT count(*) FROM delay_wheel_data.task WHERE owner = current_user::regrole AND key > 'altered'),
		(SELECT count(*) FROM delay_wheel_data.task t WHERE t.due > '2000-01-01')
$$;
CREATE PROCEDURE altered_schedule() LANGUAGE sql AS $$
	SELECT delay_schedule('1 hour', 'SELECT ''altered''');
	SELECT delay_schedule_task('SELECT ''altered''', delay => '1 hour', key => 'altered' || (SELECT max(id) FROM delay_wheel_data.task));
$$;
BEGIN;
CALL altered_schedule();
CREATE INDEX altered_due_idx ON delay_wheel_data.task (due);
CALL altered_schedule();
REINDEX TABLE delay_wheel_data.task;
CALL altered_schedule();
CLUSTER delay_wheel_data.task USING task_pkey;
CALL altered_schedule();
SAVEPOINT changed;
DROP INDEX delay_wheel_data.altered_due_idx;
ALTER TABLE delay_wheel_data.task ADD COLUMN note text;
CREATE INDEX altered_note_idx ON delay_wheel_data.task (note);
CALL altered_schedule();
ROLLBACK TO changed;
CALL altered_schedule();
SAVEPOINT truncated;
TRUNCATE delay_wheel_data.task;
CALL altered_schedule();
SELECT * FROM pg_temp.rows_by_index();
ROLLBACK TO truncated;
CALL altered_schedule();
SELECT * FROM pg_temp.rows_by_index();
COMMIT;
SELECT * FROM pg_temp.rows_by_index();
VACUUM FULL delay_wheel_data.task;
CALL altered_schedule();
SELECT * FROM pg_temp.rows_by_index();
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks WHERE sql ~ 'altered';
DROP INDEX delay_wheel_data.altered_due_idx;

-- locks that a subtransaction took go with it, and are taken again
CREATE FUNCTION pg_temp.locked() RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(l.relation::regclass::text, ', ' ORDER BY l.relation) FROM pg_locks l
	WHERE l.pid = pg_backend_pid() AND l.mode = 'RowExclusiveLock' AND l.relation IN
		('delay_wheel_data.task'::regclass, 'delay_wheel_data.task_pkey'::regclass, 'delay_wheel_data.task_lane_due_idx'::regclass)
$$;
BEGIN;
SAVEPOINT one;
SELECT delay_schedule('1 hour', 'SELECT ''altered''') > 0 AS ok;
ROLLBACK TO one;
SELECT pg_temp.locked();
SELECT delay_schedule('1 hour', 'SELECT ''altered''') > 0 AS ok;
SELECT pg_temp.locked();
ROLLBACK;
BEGIN;
DO $$
BEGIN
	PERFORM delay_schedule('1 hour', 'SELECT ''altered''');
	RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
	NULL;
END
$$;
SELECT pg_temp.locked();
SELECT delay_schedule('1 hour', 'SELECT ''altered''') > 0 AS ok;
SELECT pg_temp.locked();
COMMIT;
BEGIN;
SELECT pg_temp.locked();
SELECT delay_schedule('1 hour', 'SELECT ''altered''') > 0 AS ok;
SELECT pg_temp.locked();
ROLLBACK;
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks WHERE sql ~ 'altered';
DROP PROCEDURE altered_schedule;

-- columns of others
ALTER TABLE delay_wheel_data.task ADD COLUMN note text, ADD COLUMN more_notes int NOT NULL DEFAULT 7;
ALTER TABLE delay_wheel_data.task DROP COLUMN more_notes;
ALTER TABLE delay_wheel_data.failed_task ADD COLUMN note text;
SELECT delay_schedule('1 hour', $$INSERT INTO altered_effect VALUES ('moved')$$) AS id \gset
SELECT delay_reschedule(:id, '0');
SELECT delay_schedule('0', 'SELECT 1 / 0') AS failing \gset
SELECT pg_temp.wait_until_done();
SELECT * FROM altered_effect;
SELECT sqlstate, message FROM delay_wheel.failed WHERE id = :failing;
DELETE FROM delay_wheel_data.failed_task WHERE id = :failing;
ALTER TABLE delay_wheel_data.task DROP COLUMN note;
ALTER TABLE delay_wheel_data.failed_task DROP COLUMN note;
SELECT delay_every('altered', '1 hour', 'SELECT 1') > 0 AS ok;
SELECT 'ALTER TABLE delay_wheel_data.recurring_task ' || string_agg('ADD COLUMN note' || n || ' text', ', ') FROM generate_series(1, 20) n \gexec
SELECT tasks > 0 AS seen FROM delay_wheel.recurring_status WHERE owner = current_user;
SELECT 'ALTER TABLE delay_wheel_data.recurring_task ' || string_agg('DROP COLUMN note' || n, ', ') FROM generate_series(1, 20) n \gexec
SELECT delay_unschedule('altered');

-- a column of ours that is not what it was
BEGIN;
ALTER TABLE delay_wheel_data.pause ALTER COLUMN since TYPE timestamp;
SELECT delay_schedule('0', 'SELECT 1');
ROLLBACK;
-- PostgreSQL lets nobody change one that is inherited
\set VERBOSITY sqlstate
ALTER TABLE delay_wheel_data.task ALTER COLUMN timeout TYPE bigint;
\set VERBOSITY default
SELECT delay_cancel(delay_schedule('1 hour', 'SELECT 1'));

-- who may write to all tables may not have others run SQL
CREATE ROLE regress_dw_writer;
GRANT pg_write_all_data, pg_read_all_data TO regress_dw_writer;
CREATE ROLE regress_dw_owner;
SELECT delay_wheel.allow('regress_dw_owner');
SET SESSION AUTHORIZATION regress_dw_owner;
SELECT delay_schedule('1 hour', 'SELECT 1') AS id \gset
SET SESSION AUTHORIZATION regress_dw_writer;
INSERT INTO delay_wheel_data.task (due, owner, sql) VALUES (now(), 'regress_dw_owner', 'SELECT 1');
UPDATE delay_wheel_data.task SET sql = 'SELECT 2' WHERE id = :id;
UPDATE delay_wheel_data.task SET owner = 'regress_dw_writer' WHERE id = :id;
INSERT INTO delay_wheel_data.failed_task (id, failed_at, due, origin, owner, queue, priority, attempts, sqlstate, message, sql)
	VALUES (1, now(), now(), 0, 'regress_dw_owner', 0, 0, 1, '00000', '', 'SELECT 1');
RESET SESSION AUTHORIZATION;
SELECT delay_cancel(:id);

DROP TABLE altered_effect;
SELECT delay_wheel.disallow('regress_dw_owner');
DROP ROLE regress_dw_writer, regress_dw_owner;
