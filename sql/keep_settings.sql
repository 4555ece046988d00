--
-- KEEP_SETTINGS
-- Settings of the caller are kept with a task, and set while it runs: alone, in
-- a batch, outside of a transaction, by delay_run(), in each attempt, in what
-- follows; and nowhere else. Only what the owner may set, then and now. (What decides how
-- a text is read, as TimeZone, is kept without being named: meaning.sql.)
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE ROLE regress_dw_keeper LOGIN;
CREATE ROLE regress_dw_strong LOGIN SUPERUSER;
SELECT delay_wheel.allow('regress_dw_keeper');
CREATE TABLE keep_document (tenant text, words text);
INSERT INTO keep_document VALUES ('7', 'of seven'), ('8', 'of eight');
ALTER TABLE keep_document ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON keep_document USING (tenant = current_setting('keep.tenant', true));
GRANT ALL ON keep_document TO regress_dw_keeper;
CREATE TABLE keep_effect (label text, value text);
GRANT ALL ON keep_effect TO PUBLIC;
SELECT delay_wheel.create_queue('keep', users => '{public}', options => '{"keep_settings": ["keep.tenant", "DateStyle"]}');
SELECT delay_wheel.create_queue('keep_nothing', users => '{public}');
SELECT name, keep_settings FROM delay_wheel.queues WHERE name LIKE 'keep%' ORDER BY name;
-- the settings that the tests look at
CREATE FUNCTION keep_seen() RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(', ', COALESCE(NULLIF(current_setting('keep.tenant', true), ''), '-'), CASE current_setting('TimeZone') WHEN 'Asia/Tokyo' THEN 'Tokyo' ELSE '-' END,
		CASE current_setting('DateStyle') WHEN 'SQL, DMY' THEN 'SQL' ELSE '-' END, current_setting('work_mem')) $$;
-- a setting that does not exist in the session is empty for the task, also if its executor does not know the setting
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''unknown'', ''<'' || current_setting(''keep.unknown'') || ''>''', options => '{"keep_settings": ["keep.unknown"]}') > 0 AS ok;
SELECT pg_temp.wait_until_done();
DELETE FROM keep_effect RETURNING *;

--
-- What the caller had, although the caller has something else by then
--
SET SESSION AUTHORIZATION regress_dw_keeper;
SET keep.tenant = '7';
SET TimeZone = 'Asia/Tokyo';
SET DateStyle = 'SQL, DMY';
SET work_mem = '5MB';
BEGIN;
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''rows'', words FROM keep_document', options => '{"keep_settings": ["keep.tenant"]}') AS id \gset
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''all'', keep_seen()', options => '{"keep_settings": ["keep.tenant", "timezone", "DATESTYLE", "work_mem", "Work_Mem"]}') AS id2 \gset
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''some'', keep_seen()', options => '{"keep_settings": ["work_mem"]}') > 0 AS ok;
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''none'', keep_seen()', options => '{"keep_settings": []}') > 0 AS ok;
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''null'', keep_seen()') > 0 AS ok;
SELECT id = :id AS first, settings FROM delay_wheel.tasks WHERE id IN (:id, :id2) ORDER BY id;
COMMIT;
SET keep.tenant = '8';
RESET TimeZone;
RESET DateStyle;
RESET work_mem;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT * FROM keep_effect ORDER BY label, value;
TRUNCATE keep_effect;

-- Many in batches, of the same texts: each has its own settings, also where constants are
-- read under them, which plans that are kept would not notice; and it leaves none
SET SESSION AUTHORIZATION regress_dw_keeper;
DO $$
BEGIN
	FOR i IN 1 .. 60 LOOP
		PERFORM set_config('datestyle', 'ISO, MDY', true);
		PERFORM delay_schedule_task('INSERT INTO keep_effect SELECT ''left: '' || COALESCE(current_setting(''keep.tenant'', true), ''''), date ''01/02/2003''');
		PERFORM set_config('keep.tenant', (7 + i % 2)::text, true), set_config('datestyle', CASE i % 3 WHEN 0 THEN 'ISO, DMY' ELSE 'ISO, MDY' END, true);
		PERFORM delay_schedule_task('INSERT INTO keep_effect SELECT words, date ''01/02/2003'' FROM keep_document', options => '{"keep_settings": ["keep.tenant", "DateStyle"]}');
		PERFORM delay_schedule_task('INSERT INTO keep_effect SELECT ''by tenant'', words FROM keep_document', options => '{"keep_settings": ["keep.tenant"]}');
	END LOOP;
END $$;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
SELECT label, value, count(*) FROM keep_effect GROUP BY 1, 2 ORDER BY 1, 2;
TRUNCATE keep_effect;

--
-- Each attempt, what follows, delay_retry()
--
CREATE SEQUENCE keep_seq;
GRANT ALL ON keep_seq TO PUBLIC;
SET SESSION AUTHORIZATION regress_dw_keeper;
SET keep.tenant = '7';
SELECT delay_schedule_task($$INSERT INTO keep_effect SELECT 'third attempt', keep_seen() WHERE 1 / (nextval('keep_seq') / 3) > 0$$,
	max_attempts => 3, options => jsonb_build_object('retry_delay', '0', 'keep_settings', '{keep.tenant}'::text[], 'on_success', $$INSERT INTO keep_effect SELECT 'followed ' || $2, keep_seen()$$)) > 0 AS ok;
SELECT delay_schedule_task('SELECT 1 / 0', options => jsonb_build_object('keep_settings', '{keep.tenant}'::text[], 'on_failure', $$INSERT INTO keep_effect SELECT 'followed ' || $2, keep_seen()$$)) AS id \gset
SELECT pg_temp.wait_for('count(*) = 3 FROM keep_effect');
SELECT * FROM keep_effect ORDER BY label, value;
SET keep.tenant = '8';
BEGIN;
SELECT delay_retry(:id);
SELECT settings FROM delay_wheel.tasks WHERE id = :id;
ROLLBACK;
RESET SESSION AUTHORIZATION;
TRUNCATE keep_effect;

--
-- Outside of a transaction
--
CREATE PROCEDURE keep_twice() LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO keep_effect SELECT 'before', keep_seen();
	COMMIT;
	INSERT INTO keep_effect SELECT 'then', keep_seen();
	ROLLBACK;
	INSERT INTO keep_effect SELECT 'after', keep_seen();
END $$;
SET SESSION AUTHORIZATION regress_dw_keeper;
SET keep.tenant = '7';
SET TimeZone = 'Asia/Tokyo';
SELECT delay_schedule_task('CALL keep_twice()', options => '{"mode": "at_least_once", "keep_settings": ["keep.tenant", "TimeZone"]}') > 0 AS ok;
SELECT pg_temp.wait_for('count(*) = 2 FROM keep_effect');
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''left'', keep_seen()', options => '{"mode": "at_most_once"}') > 0 AS ok;
SELECT pg_temp.wait_for('count(*) = 3 FROM keep_effect');
SELECT * FROM keep_effect ORDER BY label, value;
RESET TimeZone;
RESET SESSION AUTHORIZATION;
TRUNCATE keep_effect;

--
-- Run at once, in sessions of the owner; what was not set is empty
--
SET keep.tenant = '7';
SET TimeZone = 'Asia/Tokyo';
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''own'', keep_seen() || '' '' || COALESCE(current_setting(''keep.unset'', true), ''?'')', delay => '1 hour',
	options => '{"keep_settings": ["keep.tenant", "TimeZone", "keep.unset"]}') AS id \gset
SELECT settings FROM delay_wheel.tasks WHERE id = :id;
SET SESSION AUTHORIZATION regress_dw_keeper;
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''of another'', keep_seen() || '' '' || COALESCE(current_setting(''keep.unset'', true), ''?'')', delay => '1 hour',
	options => '{"keep_settings": ["keep.tenant", "TimeZone", "keep.unset"]}') AS id2 \gset
RESET SESSION AUTHORIZATION;
SET keep.tenant = '8';
SET keep.unset = 'a secret';
RESET TimeZone;
SELECT delay_run(:id);
SELECT keep_seen(), current_setting('keep.unset');
BEGIN;
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''due '' || $1, keep_seen()', args => '{1}', options => '{"keep_settings": ["keep.tenant"]}') > 0 AS ok;
SET LOCAL keep.tenant = '9';
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''due '' || $1, keep_seen()', args => '{2}', options => '{"keep_settings": ["keep.tenant"]}') > 0 AS ok;
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''due '' || $1, keep_seen()', args => '{3}') > 0 AS ok;
SELECT delay_run_due();
SELECT keep_seen();
COMMIT;
\set boss :USER
\c - regress_dw_keeper
SET keep.unset = 'a secret';
SELECT delay_run(:id2);
SELECT keep_seen(), current_setting('keep.unset');
\c - :boss
\set ECHO none
\i :helpers
\set ECHO all
SELECT * FROM keep_effect ORDER BY label, value;
TRUNCATE keep_effect;

--
-- By the queue: tasks, a trigger, a recurring task; a task says it otherwise
--
CREATE TABLE keep_row (i int);
GRANT ALL ON keep_row TO PUBLIC;
CREATE TRIGGER keep AFTER INSERT ON keep_row FOR EACH ROW EXECUTE FUNCTION
	delay_schedule_trigger('0', 'INSERT INTO keep_effect SELECT ''trigger '' || $1, keep_seen()', 'i', 'queue=keep');
SET SESSION AUTHORIZATION regress_dw_keeper;
SET keep.tenant = '7';
SET DateStyle = 'SQL, DMY';
SET TimeZone = 'Asia/Tokyo';
INSERT INTO keep_row VALUES (1);
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''queue'', keep_seen()', queue => 'keep') > 0 AS ok;
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''otherwise'', keep_seen()', queue => 'keep', options => '{"keep_settings": ["TimeZone"]}') > 0 AS ok;
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''none'', keep_seen()', queue => 'keep', options => '{"keep_settings": []}') > 0 AS ok;
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''other queue'', keep_seen()', queue => 'keep_nothing') > 0 AS ok;
SELECT delay_every('keep', '1 day', 'INSERT INTO keep_effect SELECT ''recurring'', keep_seen()', starts => '2020-01-01', queue => 'keep', options => '{"catch_up": "all", "max_runs": 2}') > 0 AS ok;
SELECT settings FROM delay_wheel.recurring;
SELECT pg_temp.wait_for('runs = 2 FROM delay_wheel.recurring');
SELECT pg_temp.wait_for('count(*) = 7 FROM keep_effect');
SELECT * FROM keep_effect ORDER BY label, value;
SELECT delay_cron('keep', '0 0 1 1 *', 'SELECT 1', options => '{"keep_settings": ["keep.tenant"]}') > 0 AS ok;
SELECT settings FROM delay_wheel.recurring;
SELECT delay_unschedule('keep');
RESET SESSION AUTHORIZATION;
-- a queue that is changed
SELECT delay_wheel.create_queue('keep', options => '{"keep_settings": []}');
SELECT keep_settings FROM delay_wheel.queues WHERE name = 'keep';
INSERT INTO keep_row VALUES (2);
SELECT pg_temp.wait_until_done();
SELECT * FROM keep_effect WHERE label = 'trigger 2';
RESET DateStyle;
RESET TimeZone;
TRUNCATE keep_effect;

--
-- Rights: those of the owner, when it is kept and when it runs
--
SET SESSION AUTHORIZATION regress_dw_strong;
SET log_min_duration_statement = 77777;
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''superuser'', current_setting(''log_min_duration_statement'')', options => '{"keep_settings": ["log_min_duration_statement"]}') > 0 AS ok;
SELECT delay_schedule_task('INSERT INTO keep_effect SELECT ''granted'', current_setting(''log_min_duration_statement'')', delay => '1 hour', options => '{"keep_settings": ["log_min_duration_statement"]}') AS id \gset
RESET log_min_duration_statement;
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_until_done();
ALTER ROLE regress_dw_strong NOSUPERUSER;
GRANT ALL ON keep_effect TO regress_dw_strong;
SELECT delay_wheel.allow('regress_dw_strong');
\c - regress_dw_strong
SELECT delay_run(:id);
\c - :boss
\set ECHO none
\i :helpers
\set ECHO all
SELECT delay_reschedule(:id, '0');
SELECT pg_temp.wait_for(format('EXISTS (SELECT FROM delay_wheel.failed WHERE id = %s)', :id));
SELECT sqlstate, message FROM delay_wheel.failed WHERE id = :id;
-- granted, it may
GRANT SET ON PARAMETER log_min_duration_statement TO regress_dw_strong;
SELECT delay_retry(:id);
SELECT pg_temp.wait_until_done();
SELECT * FROM keep_effect ORDER BY label, value;
REVOKE SET ON PARAMETER log_min_duration_statement FROM regress_dw_strong;
-- what nobody may, or must not
SET SESSION AUTHORIZATION regress_dw_keeper;
-- before 16 the words of the third one are others
SELECT s AS name, code, regexp_replace(message, '^must be superuser or .* to examine', 'permission denied to examine') AS message, hint FROM unnest(ARRAY['log_min_duration_statement', 'session_replication_role', 'data_directory', 'block_size', 'max_connections', 'no_such_setting', 'no.such_setting',
	'ROLE', 'session_authorization', 'search_path', 'statement_timeout', 'transaction_isolation', 'default_transaction_read_only',
	'delay_wheel.task_id', 'Delay_Wheel.any', '']) s, pg_temp.error_of(format('SELECT delay_schedule_task(''SELECT 1'', delay => ''1 hour'', options => jsonb_build_object(''keep_settings'', ARRAY[%L]))', s)) e;
SELECT e.* FROM unnest(ARRAY[
	$$SELECT delay_schedule_task('SELECT 1', options => jsonb_build_object('keep_settings', '{NULL}'::text[]))$$,
	$$SELECT delay_schedule_task('SELECT 1', options => jsonb_build_object('keep_settings', array_fill('keep.tenant'::text, '{101}')))$$,
	$$SELECT delay_schedule_task('SELECT 1', options => '{"keep_settings": ["keep.long"]}') FROM set_config('keep.long', repeat('x', 70000), true)$$,
	$$SELECT delay_every('keep', '1 day', 'SELECT 1', options => '{"keep_settings": ["role"]}')$$]) c, pg_temp.error_of(c) e;
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks;
RESET SESSION AUTHORIZATION;
SELECT code, message FROM unnest(ARRAY['role', 'block_size', 'nothing']) s, pg_temp.error_of(format('SELECT delay_wheel.create_queue(''keep'', options => jsonb_build_object(''keep_settings'', ARRAY[%L]))', s));
-- a queue whose owner may what its users may not
SELECT delay_wheel.create_queue('keep', options => '{"keep_settings": ["log_min_duration_statement"]}');
SET SESSION AUTHORIZATION regress_dw_keeper;
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule_task('SELECT 1', queue => 'keep')$$);
RESET SESSION AUTHORIZATION;

-- whatever plain SQL has written
TRUNCATE keep_effect;
BEGIN;
SELECT delay_schedule_task('INSERT INTO keep_effect VALUES (''nonsense 1'')') AS id1, delay_schedule_task('INSERT INTO keep_effect VALUES (''nonsense 2'')') AS id2,
	delay_schedule_task('INSERT INTO keep_effect VALUES (''nonsense 3'')') AS id3, delay_schedule_task('INSERT INTO keep_effect VALUES (''NEVER'')') AS id4,
	delay_schedule_task('INSERT INTO keep_effect VALUES (''NEVER'')') AS id5, delay_schedule_task('INSERT INTO keep_effect VALUES (''nonsense 4'')') AS id6 \gset
UPDATE delay_wheel_data.task SET more = '{"settings": 7}' WHERE id = :id1;
UPDATE delay_wheel_data.task SET more = '{"settings": ["work_mem", "5MB"]}' WHERE id = :id2;
UPDATE delay_wheel_data.task SET more = '{"settings": {"work_mem": {"a": "b"}, "no.such": null, "keep.more": [1, "2"]}}' WHERE id = :id3;
UPDATE delay_wheel_data.task SET more = '{"settings": {"role": "regress_dw_keeper"}}' WHERE id = :id4;
UPDATE delay_wheel_data.task SET more = '{"settings": {"TimeZone": "Nowhere"}}' WHERE id = :id5;
UPDATE delay_wheel_data.task SET more = '{"settings": {}}' WHERE id = :id6;
COMMIT;
SELECT pg_temp.wait_until_done();
SELECT * FROM keep_effect ORDER BY label;
SELECT sqlstate, message FROM delay_wheel.failed WHERE id IN (:id1, :id2, :id3, :id4, :id5, :id6) ORDER BY id;

SELECT count(*) AS pending FROM delay_wheel.tasks;
SELECT delay_wheel.drop_queue('keep'), delay_wheel.drop_queue('keep_nothing');
DELETE FROM delay_wheel_data.failed_task;
DROP TABLE keep_document, keep_effect, keep_row;
DROP FUNCTION keep_seen;
DROP PROCEDURE keep_twice;
DROP SEQUENCE keep_seq;
SELECT delay_wheel.disallow('regress_dw_keeper', 'regress_dw_strong');
DROP ROLE regress_dw_keeper, regress_dw_strong;
RESET keep.tenant;
RESET TimeZone;
