--
-- LOCAL_TIMES
-- delay_schedule_local: tasks that are due at a local time.  How they follow a change of a
-- zone's rules is in t/415_local_times.pl.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
SET TimeZone = 'America/New_York';

-- As AT TIME ZONE has it; also when clocks are set forward, and back.
CREATE TABLE local_given (id bigint, at timestamp, zone text);
BEGIN;
SELECT delay_pause_all();
INSERT INTO local_given SELECT delay_schedule_local(at, zone, 'SELECT 1'), at, zone FROM (VALUES
	('2027-03-27 09:00'::timestamp, 'Europe/Berlin'), ('2027-03-28 09:00', 'Europe/Berlin'),
	('2027-03-28 02:30', 'Europe/Berlin'), ('2027-10-31 02:30', 'Europe/Berlin'), ('2027-10-31 02:59:59.999999', 'Europe/Berlin'),
	('2027-03-14 02:30', 'America/New_York'), ('2027-11-07 01:30', 'america/new_york'), ('2011-12-30 12:00', 'Pacific/Apia'),
	('2027-06-01 12:00', 'UTC'), ('2027-06-01 12:00', 'UTC+3'), ('2027-06-01 12:00', 'CET-1CEST,M3.5.0,M10.5.0/3'),
	('1000-01-01 00:00 BC', 'Asia/Kolkata'), ('294276-12-30 00:00:00.123456', 'Asia/Kolkata')) v (at, zone);
SELECT at, zone, due AT TIME ZONE 'UTC' AS utc, due = at AT TIME ZONE zone AS same, local_time = at::text AS kept, timezone = zone AS kept
FROM local_given JOIN delay_wheel.tasks USING (id) ORDER BY id;
ROLLBACK;
DROP TABLE local_given;

-- All options of delay_schedule_task() but delay and due, each in its place.
SELECT array_agg(p ORDER BY i) AS more_than_task
FROM pg_proc f CROSS JOIN LATERAL unnest(f.proargnames) WITH ORDINALITY a (p, i)
WHERE f.proname = 'delay_schedule_local' AND p NOT IN (SELECT unnest(proargnames) FROM pg_proc WHERE proname = 'delay_schedule_task');
SELECT array_agg(p ORDER BY i) AS less_than_task
FROM pg_proc f CROSS JOIN LATERAL unnest(f.proargnames) WITH ORDINALITY a (p, i)
WHERE f.proname = 'delay_schedule_task' AND p NOT IN (SELECT unnest(proargnames) FROM pg_proc WHERE proname = 'delay_schedule_local');
SELECT delay_wheel.create_queue('local', options => '{"spread": "1 hour"}');
SELECT delay_schedule_local('2097-06-01 12:00', 'Europe/Berlin', 'SELECT $1', args => ARRAY[7], key => 'k', queue => 'local', tag => 't', priority => 3,
	max_attempts => 2, options => '{"retry_delay": "3 s", "timeout": "4 s", "expires": "2 hours", "skip_after": "3 hours", "notify": "n", "on_success": "SELECT 1", "on_failure": "SELECT 2", "mode": "at_least_once", "retry_backoff": "fixed", "retry_max_delay": "5 s", "retry_on": ["40001"], "give_up_on": ["23505"], "keep_settings": ["TimeZone"], "unique_for": "1 hour"}') AS id \gset
SELECT sql, args, arg_types, key, queue, tag, priority, max_attempts, retry_delay, timeout, expires, skip_after, notify, on_success, on_failure,
	mode, retry_backoff, retry_max_delay, retry_on, give_up_on, settings, local_time, timezone,
	due - '2097-06-01 12:00 Europe/Berlin' BETWEEN '0' AND '1 hour' AS spread FROM delay_wheel.tasks WHERE id = :id \gx
SELECT delay_cancel(:id);
SELECT delay_schedule_local('2097-06-01 12:00', 'Europe/Berlin', 'SELECT :n', named => '{"n": 7}') AS id \gset
SELECT sql, args FROM delay_wheel.tasks WHERE id = :id;

-- The index has it, though C code has written the row.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM delay_wheel_data.task WHERE more ? 'local';
RESET enable_seqscan;
RESET enable_bitmapscan;

-- What keeps the local time, and what does not.
SELECT delay_update(:id, priority => 1);
SELECT priority, due AT TIME ZONE 'UTC' AS utc, local_time, timezone FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_reschedule(:id, '2097-06-02 12:00 UTC');
SELECT due AT TIME ZONE 'UTC' AS utc, local_time, timezone FROM delay_wheel.tasks WHERE id = :id;
SELECT more FROM delay_wheel_data.task WHERE id = :id;
SELECT delay_cancel(:id);
CREATE FUNCTION local_put(at timestamp, if_exists text) RETURNS TABLE (utc timestamp, local_time text, timezone text) LANGUAGE sql AS $$
	SELECT delay_schedule_local(at, 'Europe/Berlin', 'SELECT 1', key => 'k', if_exists => if_exists);
	SELECT due AT TIME ZONE 'UTC', local_time, timezone FROM delay_wheel.tasks WHERE key = 'k';
$$;
SELECT * FROM local_put('2097-06-01 12:00', 'error');
SELECT * FROM local_put('2097-06-02 12:00', 'keep');
SELECT * FROM local_put('2097-06-02 12:00', 'replace');
SELECT * FROM local_put('2097-06-03 12:00', 'replace_keep_due');
SELECT * FROM local_put('2097-06-04 12:00', 'replace');
SELECT * FROM local_put('2097-06-03 12:00', 'later');
SELECT * FROM local_put('2097-06-03 12:00', 'earlier');
SELECT delay_cancel(key => 'k');
BEGIN;
SELECT delay_schedule_local('2097-06-01 12:00', 'Europe/Berlin', 'SELECT 1 / 0', max_attempts => 2, options => '{"retry_delay": "1 day"}') AS id \gset
SELECT delay_run_due('2097-06-01 12:00 Europe/Berlin', true);
SELECT attempts, due > '2097-06-02', local_time, timezone FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_run_due('2097-06-04', true);
SELECT delay_retry(:id);
SELECT attempts, local_time, timezone FROM delay_wheel.tasks WHERE id = :id;
ROLLBACK;

-- Run at once, if it has passed, and after a rollback not at all.
CREATE TABLE local_effect (label text);
SELECT delay_schedule_local('2020-01-01 12:00', 'Europe/Berlin', 'INSERT INTO local_effect VALUES ($1)', args => '{past}') IS NOT NULL AS ok;
BEGIN;
SELECT delay_schedule_local('2020-01-01 12:00', 'Europe/Berlin', 'INSERT INTO local_effect VALUES ($1)', args => '{ROLLED BACK}') IS NOT NULL AS ok;
ROLLBACK;
SELECT pg_temp.wait_until_done();
SELECT * FROM local_effect;

-- Errors.
SELECT code, message, hint FROM pg_temp.error_of($$SELECT delay_schedule_local('2097-06-01 12:00', 'Europe/Berln', 'SELECT 1')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_local('2097-06-01 12:00', 'CEST', 'SELECT 1')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_local('2097-06-01 12:00', '', 'SELECT 1')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_local('2097-06-01 12:00', '../../etc/passwd', 'SELECT 1')$$);
SELECT code FROM pg_temp.error_of(format($$SELECT delay_schedule_local('2097-06-01 12:00', %L, 'SELECT 1')$$, repeat('x', 100000)));
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_local('infinity', 'UTC', 'SELECT 1')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_local('294276-12-31 23:59', 'America/New_York', 'SELECT 1')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_local(NULL, 'UTC', 'SELECT 1')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_local('2097-06-01 12:00', NULL, 'SELECT 1')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_local('2097-06-01 12:00', 'UTC', NULL)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_local('294276-12-30 12:00', 'UTC', 'SELECT 1', options => '{"expires": "10 days"}')$$);
BEGIN READ ONLY;
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_local('2097-06-01 12:00', 'UTC', 'SELECT 1')$$);
ROLLBACK;
CREATE ROLE regress_dw_local LOGIN;
SET SESSION AUTHORIZATION regress_dw_local;
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_local('2097-06-01 12:00', 'UTC', 'SELECT 1')$$);
RESET SESSION AUTHORIZATION;
DROP ROLE regress_dw_local;

-- Whatever plain SQL writes, the view shows something.
BEGIN;
SELECT delay_schedule('1 day', 'SELECT 1') AS id \gset
UPDATE delay_wheel_data.task SET more = '{"local": 7}' WHERE id = :id;
SELECT local_time, timezone FROM delay_wheel.tasks WHERE id = :id;
UPDATE delay_wheel_data.task SET more = '{"local": {"time": "x", "zone": []}}' WHERE id = :id;
SELECT local_time, timezone FROM delay_wheel.tasks WHERE id = :id;
UPDATE delay_wheel_data.task SET more = '{"local": {"time": 1e100, "instant": 1}}' WHERE id = :id;
SELECT local_time, timezone FROM delay_wheel.tasks WHERE id = :id;
UPDATE delay_wheel_data.task SET more = '{"local": {"time": -1e100, "instant": 1}}' WHERE id = :id;
SELECT local_time, timezone FROM delay_wheel.tasks WHERE id = :id;
ROLLBACK;

SELECT delay_cancel_all(due_from => '-infinity') IS NOT NULL AS ok;
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel_data.task)');
SELECT delay_wheel.drop_queue('local');
DROP FUNCTION local_put;
DROP TABLE local_effect;
