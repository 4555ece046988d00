--
-- OVERDUE
-- skip_after: a task that is too late is not run, and has not failed.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE overdue_effect (label text);
SELECT pg_backend_pid() AS me \gset
SELECT delay_wheel.create_queue('overdue', max_attempts => 2);
CREATE FUNCTION overdue_task(label text, late interval, skip_after interval DEFAULT NULL, expires interval DEFAULT NULL)
RETURNS bigint LANGUAGE sql AS $$
	SELECT delay_schedule_task('INSERT INTO overdue_effect VALUES ($1)', args => ARRAY[label], due => now() - late, queue => 'overdue', tag => label,
		options => jsonb_build_object('skip_after', skip_after, 'expires', expires))
$$;
CREATE VIEW overdue_counts AS
SELECT l.skipped AS lane, q.skipped AS queue, s.skipped AS database
FROM delay_wheel.lanes l, delay_wheel.queues q, delay_wheel.status s
WHERE l.queue = 'overdue' AND q.name = 'overdue' AND s.database = current_database();

-- what is refused
SELECT f.* FROM unnest('{0, -1 s, 178000000 years}'::interval[]) i,
	pg_temp.error_of(format('SELECT delay_schedule_task(''SELECT 1'', options => jsonb_build_object(''skip_after'', %L))', i)) f;

-- The shorter one of the two decides, expires if they are equal.
SELECT delay_wheel.pause_queue('overdue');
SELECT overdue_task('in time', '1 min', '1 hour') IS NOT NULL AS ok;
SELECT overdue_task('SKIPPED', '2 hours', '1 hour') IS NOT NULL AS ok;
SELECT overdue_task('SKIPPED, not expired yet', '2 hours', '1 hour', '1 day') IS NOT NULL AS ok;
SELECT overdue_task('SKIPPED, then expired', '3 days', '1 hour', '1 day') IS NOT NULL AS ok;
SELECT overdue_task('EXPIRED', '2 hours', '1 day', '1 hour') IS NOT NULL AS ok;
SELECT overdue_task('EXPIRED before it was to be skipped', '3 days', '1 day', '1 hour') IS NOT NULL AS ok;
SELECT overdue_task('EXPIRED, both are equal', '2 hours', '1 hour', '1 hour') IS NOT NULL AS ok;
SELECT overdue_task('in time for both', '1 min', '1 day', '1 hour') IS NOT NULL AS ok;
SELECT overdue_task('without a limit', '1 day') IS NOT NULL AS ok;
-- what plain SQL has written and is no number does not count
SELECT overdue_task('no number', '1 day') AS id \gset
UPDATE delay_wheel_data.task SET more = '{"skip_after": "1"}' WHERE id = :id;
SELECT overdue_task('an array', '1 day') AS id \gset
UPDATE delay_wheel_data.task SET more = '["skip_after"]' WHERE id = :id;
SELECT pg_temp.wait_for('ready = 11 FROM delay_wheel.queues WHERE name = ''overdue''');
SELECT database AS database_before FROM overdue_counts \gset
SELECT delay_wheel.resume_queue('overdue');
SELECT pg_temp.wait_until_done();
SELECT * FROM overdue_effect ORDER BY 1;
SELECT tag, sqlstate, message FROM delay_wheel.failed WHERE queue = 'overdue' ORDER BY tag;
SELECT pg_temp.wait_for('queue = 3 FROM overdue_counts');
SELECT lane, queue, database - :database_before AS database FROM overdue_counts;
TRUNCATE overdue_effect;
DELETE FROM delay_wheel_data.failed_task;

-- It counts from the due time that the task has now: moved, it has a new one.
SELECT delay_wheel.pause_queue('overdue');
SELECT overdue_task('moved to now', '1 day', '1 hour') AS id \gset
SELECT delay_reschedule(:id, '0');
SELECT overdue_task('MOVED to yesterday', '0', '1 hour') AS id \gset
SELECT delay_reschedule(:id, '-1 day');
SELECT delay_wheel.resume_queue('overdue');
SELECT pg_temp.wait_until_done();
SELECT * FROM overdue_effect ORDER BY 1;
-- so each attempt has its own, and one that is too late is skipped: it has not failed
SELECT delay_schedule_task('SELECT 1 / 0', queue => 'overdue', options => '{"retry_delay": "1 day", "skip_after": "1 hour"}') AS id \gset
SELECT pg_temp.wait_for(format('attempts = 1 FROM delay_wheel.tasks WHERE id = %s', :id));
SELECT delay_reschedule(:id, '-2 hours');
SELECT pg_temp.wait_until_done();
SELECT count(*) FROM delay_wheel.failed;
SELECT pg_temp.wait_for('queue = 5 FROM overdue_counts');
TRUNCATE overdue_effect;

-- who waits for it is told
CREATE FUNCTION overdue_resume(waiter int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 12000 LOOP
		EXIT WHEN EXISTS (SELECT FROM pg_stat_activity WHERE pid = waiter AND wait_event_type = 'Extension');
		PERFORM pg_sleep(0.01), pg_stat_clear_snapshot();
	END LOOP;
	PERFORM delay_wheel.resume_queue('overdue');
END $$;
SELECT delay_wheel.pause_queue('overdue');
SELECT overdue_task('WAITED FOR', '1 day', '1 hour') AS id \gset
SELECT delay_schedule('0', 'SELECT overdue_resume($1)', :me) IS NOT NULL AS ok;
SELECT delay_wait(:id, '2 min');
SELECT delay_wait(:id);

-- delay_run runs it all the same
SELECT delay_wheel.pause_queue('overdue');
SELECT overdue_task('run by delay_run', '1 day', '1 hour', '2 hours') AS id \gset
SELECT delay_run(:id);
SELECT * FROM overdue_effect;
TRUNCATE overdue_effect;

-- in batches, too
SELECT count(overdue_task(CASE WHEN g % 2 = 0 THEN 'SKIPPED' ELSE 'in time' END, '1 hour', CASE WHEN g % 2 = 0 THEN '1 min'::interval END))
	FROM generate_series(1, 200) g;
SELECT pg_temp.wait_for('ready >= 200 FROM delay_wheel.queues WHERE name = ''overdue''');
SELECT delay_wheel.resume_queue('overdue');
SELECT pg_temp.wait_until_done();
SELECT label, count(*) FROM overdue_effect GROUP BY 1;
SELECT pg_temp.wait_for('queue = 106 FROM overdue_counts');
SELECT count(*) FROM delay_wheel.failed;

DROP FUNCTION overdue_task(text, interval, interval, interval), overdue_resume(int);
DROP VIEW overdue_counts;
DROP TABLE overdue_effect;
SELECT delay_wheel.drop_queue('overdue');
