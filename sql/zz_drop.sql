--
-- DROP
-- After DROP EXTENSION nothing of delay_wheel stays connected, so that the
-- database can be dropped. The last test: that of the next run begins with
-- DROP DATABASE.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

-- an executor that is idle, tasks in memory, and, when it is dropped, others in
-- the middle of a backlog
CREATE TABLE drop_effect (label text);
SELECT count(delay_schedule('1 hour', 'SELECT 1')) FROM generate_series(1, 100);
SELECT delay_schedule('0', $$INSERT INTO drop_effect VALUES ('done')$$) > 0 AS ok;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM drop_effect)');
SELECT count(*) AS timers FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = current_database();
SELECT count(delay_schedule('0', 'SELECT 1')) FROM generate_series(1, 20000);
DROP EXTENSION delay_wheel;
SELECT pg_temp.wait_for($$NOT EXISTS (SELECT FROM pg_stat_activity
	WHERE backend_type LIKE 'delay_wheel%' AND datname = current_database())$$);
SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'delay_wheel launcher';
SELECT nspname FROM pg_namespace WHERE nspname LIKE 'delay%';
DROP TABLE drop_effect;
