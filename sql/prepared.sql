--
-- PREPARED
-- Two-phase commit decides on schedule, cancel and reschedule as commit and
-- rollback do, and the one who ends the transaction wakes the timer.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

-- prepared_1.out is for servers without prepared transactions
SELECT current_setting('max_prepared_transactions')::int < 4 AS skip \gset
\if :skip
\quit
\endif

CREATE TABLE prepared_effect (label text);

-- each task is due before its transaction is ended
BEGIN;
SELECT delay_schedule('0', $$INSERT INTO prepared_effect VALUES ('scheduled, committed')$$) > 0 AS ok;
SAVEPOINT a;
SELECT delay_schedule('0', $$INSERT INTO prepared_effect VALUES ('NEVER: scheduled in a savepoint')$$) > 0 AS ok;
ROLLBACK TO a;
SAVEPOINT b;
SELECT delay_schedule('0.3 s', $$INSERT INTO prepared_effect VALUES ('scheduled in a savepoint, committed')$$) > 0 AS ok;
RELEASE b;
PREPARE TRANSACTION 'regress_dw_schedule_commit';
BEGIN;
SELECT delay_schedule('0', $$INSERT INTO prepared_effect VALUES ('NEVER: scheduled')$$) > 0 AS ok;
PREPARE TRANSACTION 'regress_dw_schedule_rollback';
-- others go on meanwhile
SELECT delay_schedule('0', $$INSERT INTO prepared_effect VALUES ('other')$$) > 0 AS ok;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM prepared_effect)');
SELECT label FROM prepared_effect;
COMMIT PREPARED 'regress_dw_schedule_commit';
ROLLBACK PREPARED 'regress_dw_schedule_rollback';
SELECT pg_temp.wait_for('count(*) = 3 FROM prepared_effect');

-- a cancel, and a reschedule into the future and out of it, of tasks that fall
-- due while it is prepared
BEGIN;
SELECT delay_schedule('2 s', $$INSERT INTO prepared_effect VALUES ('NEVER: cancelled')$$) AS cancel_commit \gset
SELECT delay_schedule('2 s', $$INSERT INTO prepared_effect VALUES ('cancel rolled back')$$) AS cancel_rollback \gset
SELECT delay_schedule('2 s', $$INSERT INTO prepared_effect VALUES ('NEVER: moved away')$$) AS away_commit \gset
SELECT delay_schedule('2 s', $$INSERT INTO prepared_effect VALUES ('move away rolled back')$$) AS away_rollback \gset
SELECT delay_schedule('1 day', $$INSERT INTO prepared_effect VALUES ('moved near')$$) AS near_commit \gset
SELECT delay_schedule('1 day', $$INSERT INTO prepared_effect VALUES ('NEVER: move near rolled back')$$) AS near_rollback \gset
COMMIT;
BEGIN;
SELECT delay_cancel(:cancel_commit), delay_reschedule(:away_commit, '1 day'), delay_reschedule(:near_commit, '0');
PREPARE TRANSACTION 'regress_dw_commit';
BEGIN;
SELECT delay_cancel(:cancel_rollback), delay_reschedule(:away_rollback, '1 day'), delay_reschedule(:near_rollback, '0');
PREPARE TRANSACTION 'regress_dw_rollback';
-- the timer has handed them over, and the executors have met the locks
SELECT pg_temp.wait_for(format('clock_timestamp() > %L AND near = 0 AND ready = 0 AND running = 0 FROM delay_wheel.status WHERE database = current_database()',
	max(due))) FROM delay_wheel.tasks WHERE due < now() + interval '1 minute';
SELECT count(*) AS too_early FROM prepared_effect WHERE label LIKE '%rolled back' OR label LIKE 'moved%';
COMMIT PREPARED 'regress_dw_commit';
ROLLBACK PREPARED 'regress_dw_rollback';
SELECT pg_temp.wait_for('count(*) = 6 FROM prepared_effect');
SELECT label FROM prepared_effect ORDER BY label COLLATE "C";
SELECT id = :away_commit AS away, id = :near_rollback AS near FROM delay_wheel.tasks ORDER BY id;
SELECT delay_cancel(:away_commit), delay_cancel(:near_rollback);

-- more than is remembered one by one
TRUNCATE prepared_effect;
BEGIN;
SELECT count(delay_schedule('0', 'INSERT INTO prepared_effect VALUES ($1)', i::text)) FROM generate_series(1, 3000) i;
PREPARE TRANSACTION 'regress_dw_many';
COMMIT PREPARED 'regress_dw_many';
SELECT pg_temp.wait_for('count(*) = 3000 FROM prepared_effect');

-- rows that plain SQL wrote
TRUNCATE prepared_effect;
BEGIN;
INSERT INTO delay_wheel_data.task (due, sql) VALUES (now(), $$INSERT INTO prepared_effect VALUES ('plain SQL')$$);
PREPARE TRANSACTION 'regress_dw_plain';
COMMIT PREPARED 'regress_dw_plain';
SELECT pg_temp.wait_for('count(*) = 1 FROM prepared_effect');

-- tasks that came with a copy are armed by it, or not
TRUNCATE prepared_effect;
INSERT INTO delay_wheel_data.task (due, origin, sql) VALUES (now(), delay_wheel_internal.origin() # 1, $$INSERT INTO prepared_effect VALUES ('armed')$$);
BEGIN;
SELECT delay_wheel.arm();
PREPARE TRANSACTION 'regress_dw_arm';
ROLLBACK PREPARED 'regress_dw_arm';
SELECT armed FROM delay_wheel.tasks;
BEGIN;
SELECT delay_wheel.arm();
PREPARE TRANSACTION 'regress_dw_arm';
COMMIT PREPARED 'regress_dw_arm';
SELECT pg_temp.wait_for('count(*) = 1 FROM prepared_effect');

-- one that touched nothing of us, and names that do not exist
BEGIN;
CREATE TABLE prepared_other ();
PREPARE TRANSACTION 'regress_dw_other';
ROLLBACK PREPARED 'regress_dw_other';
ROLLBACK PREPARED 'regress_dw_other';
COMMIT PREPARED 'regress_dw_other';

-- a name can be used again
BEGIN;
SELECT delay_schedule('0', $$INSERT INTO prepared_effect VALUES ('NEVER')$$) > 0 AS ok;
PREPARE TRANSACTION 'regress_dw_plain';
ROLLBACK PREPARED 'regress_dw_plain';
BEGIN;
SELECT delay_schedule('0', $$INSERT INTO prepared_effect VALUES ('same name')$$) > 0 AS ok;
PREPARE TRANSACTION 'regress_dw_plain';
COMMIT PREPARED 'regress_dw_plain';
SELECT pg_temp.wait_for('count(*) = 2 FROM prepared_effect');

-- a batch without members, and a batch that is closed: no task is touched
BEGIN;
SELECT delay_batch('prepared') AS batch \gset
PREPARE TRANSACTION 'regress_dw_batch';
COMMIT PREPARED 'regress_dw_batch';
SELECT delay_wait(:batch, '1 min');
SELECT delay_batch('prepared', open => true) AS batch \gset
BEGIN;
SELECT delay_close_batch(:batch);
PREPARE TRANSACTION 'regress_dw_batch';
COMMIT PREPARED 'regress_dw_batch';
SELECT delay_wait(:batch, '1 min');
DELETE FROM delay_wheel_data.batch;

SELECT count(*) AS pending FROM delay_wheel.tasks;
DROP TABLE prepared_effect;
