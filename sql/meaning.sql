--
-- MEANING
-- A task's text and its values mean what they meant in the session that scheduled it,
-- whatever settings the executor has: by each way in which they come, and each in which
-- the task is run. What means the same costs nothing.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE ROLE regress_dw_means LOGIN;
SELECT delay_wheel.allow('regress_dw_means');
CREATE TABLE meaning (label text, d date, ts timestamptz, i interval, ds date[], zone text DEFAULT current_setting('TimeZone'));
CREATE DOMAIN meaning_day AS date CHECK (VALUE > '2000-12-31');
GRANT ALL ON meaning TO PUBLIC;
-- what was written, as no setting changes it
CREATE FUNCTION meaning_written() RETURNS TABLE (label text, d text, ts text, i text, ds text, zone text, n bigint)
LANGUAGE sql SET datestyle = 'ISO, YMD' SET timezone = 'UTC' SET intervalstyle = 'postgres' AS
$$SELECT label, d::text, ts::text, i::text, ds::text, zone, count(*) FROM public.meaning GROUP BY label, d, ts, i, ds, zone ORDER BY label, d, ts$$;
-- what the last task keeps
CREATE FUNCTION meaning_kept() RETURNS text LANGUAGE sql AS
$$SELECT COALESCE(settings::text, 'nothing') FROM delay_wheel.tasks ORDER BY id DESC LIMIT 1$$;
SELECT delay_wheel.create_queue('meaning', users => '{public}', options => '{"keep_settings": ["work_mem"]}');

--
-- The ways in: 3 February, 10:00 in Kolkata, minus one day and two hours
--
SET SESSION AUTHORIZATION regress_dw_means;
SET datestyle = 'SQL, DMY';
SET timezone = 'Asia/Kolkata';
SET intervalstyle = 'sql_standard';
SELECT delay_schedule('0', $$INSERT INTO meaning VALUES ('literals', $1, $2, $3, $4)$$, '03/02/2026', '03/02/2026 10:00', '-1 2:00', '{03/02/2026}') > 0 AS ok;
SELECT delay_schedule_at(now(), $$INSERT INTO meaning VALUES ('literals at', $1, $2, $3, $4)$$, '03/02/2026', '03/02/2026 10:00', '-1 2:00', '{03/02/2026}') > 0 AS ok;
PREPARE untyped AS SELECT delay_schedule('0', $1, $2, $3, $4, $5) > 0 AS ok;
EXECUTE untyped($$INSERT INTO meaning VALUES ('parameters', $1, $2, $3, $4)$$, '03/02/2026', '03/02/2026 10:00', '-1 2:00', '{03/02/2026}');
PREPARE texts(text, text, varchar, text, text) AS SELECT delay_schedule('0', $1, $2, $3, $4, $5) > 0 AS ok;
EXECUTE texts($$INSERT INTO meaning VALUES ('texts', $1::date, $2::timestamptz, $3::interval, $4::date[])$$, '03/02/2026', '03/02/2026 10:00', '-1 2:00', '{03/02/2026}');
SELECT delay_schedule_task($$INSERT INTO meaning VALUES ('args', $1, $2, $3, $4)$$, args => '{03/02/2026,03/02/2026 10:00,-1 2:00,"{03/02/2026}"}') > 0 AS ok;
SELECT delay_schedule_task($$INSERT INTO meaning VALUES ('arg_types', $1, $2, $3, $4)$$, args => '{03/02/2026,03/02/2026 10:00,-1 2:00,"{03/02/2026}"}', options => '{"arg_types": ["date", "timestamptz", "-", "date[]"]}') > 0 AS ok;
SELECT delay_schedule_task($$INSERT INTO meaning VALUES ('named', :d, :ts, :i, :ds)$$, named => '{"d": "03/02/2026", "ts": "03/02/2026 10:00", "i": "-1 2:00", "ds": "{03/02/2026}"}') > 0 AS ok;
SELECT outcome FROM delay_scheduled(delay_schedule_task($$INSERT INTO meaning VALUES ('put', $1, $2, $3, $4)$$, args => '{03/02/2026,03/02/2026 10:00,-1 2:00,"{03/02/2026}"}', key => 'meaning'));
SELECT delay_schedule_local(now()::timestamp - '1 day'::interval, 'Asia/Kolkata', $$INSERT INTO meaning VALUES ('local', $1, $2, $3, $4)$$, args => '{03/02/2026,03/02/2026 10:00,-1 2:00,"{03/02/2026}"}') > 0 AS ok;
SELECT delay_schedule('0', $$INSERT INTO meaning VALUES ('text', '03/02/2026', '03/02/2026 10:00', '-1 2:00', '{03/02/2026}')$$) > 0 AS ok;
SELECT delay_schedule('0', $$INSERT INTO meaning (label, d) VALUES ('domain', $1::meaning_day)$$, '03/02/2026') > 0 AS ok;
SELECT delay_schedule('0', $$INSERT INTO meaning (label, d) SELECT 'now', current_date - (now() AT TIME ZONE 'Asia/Kolkata')::date + '2026-02-03'::date$$) > 0 AS ok;
SELECT delay_schedule_task('SELECT 1', options => jsonb_build_object('on_success', $$INSERT INTO meaning VALUES ('on_success', '03/02/2026', '03/02/2026 10:00', '-1 2:00', '{03/02/2026}')$$)) > 0 AS ok;
SELECT delay_schedule_task('SELECT 1/0', options => jsonb_build_object('on_failure', $$INSERT INTO meaning VALUES ('on_failure', '03/02/2026', '03/02/2026 10:00', '-1 2:00', '{03/02/2026}')$$)) > 0 AS ok;
SELECT delay_every('meaning', '1 hour', $$INSERT INTO meaning VALUES ('every', $1, $2, $3, $4)$$, args => '{03/02/2026,03/02/2026 10:00,-1 2:00,"{03/02/2026}"}', starts => '01/01/2020', options => '{"catch_up": "all", "max_runs": 2}') > 0 AS ok;
SELECT delay_cron('meaning cron', '* * * * *', $$INSERT INTO meaning VALUES ('cron', $1, $2, $3, '{03/02/2026}')$$, args => '{03/02/2026,03/02/2026 10:00,-1 2:00}', starts => '01/01/2020', options => '{"catch_up": "all", "max_runs": 2}') > 0 AS ok;
-- outside of a transaction; in a queue that keeps other settings
RESET SESSION AUTHORIZATION;
CREATE PROCEDURE meaning_write(label text, d date, ts timestamptz, i interval, ds date[]) LANGUAGE plpgsql AS $$
BEGIN
	COMMIT;
	INSERT INTO meaning VALUES (label, d, ts, i, ds);
END $$;
CREATE FUNCTION meaning_fails_once(label text, d date, ts timestamptz, i interval, ds date[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF nextval('meaning_seq') = 1 THEN
		RAISE 'once';
	END IF;
	INSERT INTO meaning VALUES (label, d, ts, i, ds);
END $$;
CREATE FUNCTION meaning_set(d date, ts timestamptz) RETURNS void LANGUAGE sql AS $$INSERT INTO meaning (label, d, ts) VALUES ('constants', d, ts)$$;
CREATE SEQUENCE meaning_seq;
GRANT ALL ON meaning_seq TO PUBLIC;
CREATE TABLE meaning_row (d date);
GRANT ALL ON meaning_row TO PUBLIC;
CREATE TRIGGER means AFTER INSERT ON meaning_row FOR EACH ROW EXECUTE FUNCTION
	delay_schedule_trigger('0', $$INSERT INTO meaning VALUES ('trigger', $1, '03/02/2026 10:00', '-1 2:00', '{03/02/2026}')$$, 'd');
SET SESSION AUTHORIZATION regress_dw_means;
SELECT delay_schedule_task($$CALL meaning_write('procedure', $1, $2, $3, $4)$$, args => '{03/02/2026,03/02/2026 10:00,-1 2:00,"{03/02/2026}"}', options => '{"mode": "at_most_once"}') > 0 AS ok;
SELECT delay_schedule_task($$CALL meaning_write('again', '03/02/2026', '03/02/2026 10:00', '-1 2:00', '{03/02/2026}')$$, options => '{"mode": "at_least_once"}') > 0 AS ok;
SELECT delay_schedule_task($$SELECT meaning_fails_once('attempts', $1, $2, $3, $4)$$, args => '{03/02/2026,03/02/2026 10:00,-1 2:00,"{03/02/2026}"}', max_attempts => 2, queue => 'meaning', options => '{"retry_delay": "0"}') > 0 AS ok;
INSERT INTO meaning_row VALUES ('03/02/2026');
RESET SESSION AUTHORIZATION;
RESET datestyle;
RESET timezone;
RESET intervalstyle;
SELECT pg_temp.wait_for('count(*) = 22 FROM meaning');
SELECT pg_temp.wait_until_done();
SELECT * FROM meaning_written();
TRUNCATE meaning;
SELECT delay_discard(id) FROM delay_wheel.failed;
SET ROLE regress_dw_means;
SELECT delay_unschedule('meaning'), delay_unschedule('meaning cron');
RESET ROLE;

--
-- In batches, of the same texts, beside tasks that were scheduled otherwise: by kept plans,
-- and with constants taken out
--
SELECT delay_pause_all();
DO $$
BEGIN
	FOR i IN 1 .. 60 LOOP
		PERFORM set_config('datestyle', CASE i % 3 WHEN 0 THEN 'ISO, DMY' ELSE 'ISO, MDY' END, true),
			set_config('timezone', CASE i % 2 WHEN 0 THEN 'Asia/Kolkata' ELSE 'America/Los_Angeles' END, true),
			set_config('array_nulls', CASE i % 5 WHEN 0 THEN 'off' ELSE 'on' END, true);
		PERFORM delay_schedule('0', 'INSERT INTO meaning (label, d, ts) VALUES (''argument'', $1, ''2026-02-03 10:00'')', '03/02/2026');
		PERFORM delay_schedule('0', 'SELECT meaning_set(''03/02/2026'', ''2026-02-03 10:00'')');
		PERFORM delay_schedule('0', 'INSERT INTO meaning (label) SELECT ''array: '' || COALESCE((''{NULL}''::text[])[1], ''null'')');
	END LOOP;
END $$;
SELECT delay_resume_all();
SELECT pg_temp.wait_until_done();
SELECT * FROM meaning_written();
TRUNCATE meaning;

--
-- At once, in a session that reads otherwise: as in the one that scheduled it, or as in a
-- new one of the owner
--
ALTER ROLE regress_dw_means SET datestyle = 'DMY';
SET SESSION AUTHORIZATION regress_dw_means;
SET datestyle = 'ISO, YMD';
SET timezone = 'Asia/Kolkata';
SELECT delay_schedule('1 hour', $$INSERT INTO meaning (label, d, ts) VALUES ('of a session', $1, '2026-02-03 10:00')$$, '26/02/03') AS id \gset
SELECT meaning_kept();
SET datestyle = 'ISO, DMY';
RESET timezone;
SELECT delay_schedule('1 hour', $$INSERT INTO meaning (label, d, ts) VALUES ('of a new one', $1, '2026-02-03 10:00')$$, '03/02/2026') AS id2 \gset
SELECT meaning_kept();
RESET SESSION AUTHORIZATION;
\set boss :USER
\c - regress_dw_means
SET datestyle = 'ISO, MDY';
SET timezone = 'Asia/Tokyo';
SELECT delay_run(:id), delay_run(:id2);
SELECT current_setting('datestyle'), current_setting('timezone');
\c - :boss
\set ECHO none
\i :helpers
\set ECHO all
SELECT * FROM meaning_written();
TRUNCATE meaning;
RESET datestyle;
RESET timezone;
ALTER ROLE regress_dw_means RESET ALL;
SELECT delay_pause_all();
SET timezone = 'Asia/Tokyo';
SELECT delay_schedule('-1 s', $$INSERT INTO meaning (label, ts) VALUES ('due', '2026-02-03 10:00')$$) > 0 AS ok;
RESET timezone;
SELECT delay_schedule('-1 s', $$INSERT INTO meaning (label, ts) VALUES ('due', '2026-02-03 10:00')$$) > 0 AS ok;
SET timezone = 'UTC';
SELECT delay_run_due();
RESET timezone;
SELECT delay_resume_all();
SELECT * FROM meaning_written();
TRUNCATE meaning;

--
-- What is kept: what means something else than in a new session of the owner
--
CREATE FUNCTION pg_temp.keeps(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	kept text;
BEGIN
	EXECUTE command;
	PERFORM public.delay_schedule('1 hour', 'SELECT 1');
	kept := meaning_kept();
	RAISE SQLSTATE 'DWXXX';
EXCEPTION WHEN SQLSTATE 'DWXXX' THEN
	RETURN kept;
END $$;
SELECT c AS command, pg_temp.keeps(c) FROM unnest(ARRAY[
	'SELECT 1',
	-- what drivers and frameworks set
	'SET datestyle = ISO', 'SET intervalstyle = iso_8601', 'SET standard_conforming_strings = on', 'SET extra_float_digits = 3', 'SET bytea_output = escape',
	'SET client_min_messages = warning', 'SET statement_timeout = 1000000',
	'SET datestyle = ''SQL, MDY''', 'SET intervalstyle = postgres_verbose', 'SET timezone = ''America/Los_Angeles''', 'SET LOCAL timezone = ''america/los_angeles''',
	-- what makes a difference
	'SET datestyle = ''DMY''', 'SET datestyle = ''YMD''', 'SET intervalstyle = sql_standard', 'SET timezone = ''UTC''', 'SET TIME ZONE -3.5',
	'SET timezone_abbreviations = ''India''', 'SET lc_monetary = ''POSIX''', 'SET xmloption = document', 'SET array_nulls = off', 'SET transform_null_equals = on'
	]) c;
-- zones that have the same time always
ALTER ROLE regress_dw_means SET timezone = 'Etc/UTC';
SET ROLE regress_dw_means;
SELECT zone, pg_temp.keeps(format('SET timezone = %L', zone)) FROM unnest('{UTC,GMT,Europe/London,Etc/GMT+1}'::text[]) zone;
RESET ROLE;
ALTER ROLE regress_dw_means RESET ALL;
-- text that is read otherwise, whatever its types are
SELECT current_setting('server_version_num')::int < 190000 AS has_escapes \gset
SET timezone_abbreviations = 'India';
SET array_nulls = off;
SET transform_null_equals = on;
CREATE TABLE meaning_other (label text, t text);
\if :has_escapes
SET standard_conforming_strings = off;
SET escape_string_warning = off;
\endif
SELECT delay_schedule('0', format($$INSERT INTO meaning_other VALUES ('escape', %s)$$, CASE WHEN :'has_escapes' THEN $$'a\\b\''$$ ELSE $$E'a\\b\''$$ END)) > 0 AS ok;
SELECT delay_schedule('0', $$INSERT INTO meaning_other VALUES ('nulls', ($1::text[])[1])$$, '{NULL}') > 0 AS ok;
SELECT delay_schedule('0', $$INSERT INTO meaning_other VALUES ('zone', extract(epoch FROM timestamptz '2026-02-03 05:30 IST' - '2026-02-03 00:00+00'))$$) > 0 AS ok;
SELECT delay_schedule('0', $$INSERT INTO meaning_other SELECT 'is null', count(*) FROM (VALUES ('a'), (null)) v (n) WHERE n = NULL$$) > 0 AS ok;
RESET timezone_abbreviations;
RESET array_nulls;
RESET transform_null_equals;
\if :has_escapes
RESET standard_conforming_strings;
RESET escape_string_warning;
\endif
SELECT pg_temp.wait_until_done();
SELECT * FROM meaning_other ORDER BY label;
SELECT message FROM delay_wheel.failed;

--
-- What a new session has: by the role, the database, the server; as it is now
--
SELECT current_database() AS db \gset
SET timezone = 'Asia/Tokyo';
SELECT pg_temp.keeps('SELECT 1');
ALTER ROLE CURRENT_USER SET timezone = 'Asia/Tokyo';
SELECT pg_temp.keeps('SELECT 1');
SELECT pg_temp.keeps('RESET timezone');
SELECT pg_temp.keeps('ALTER ROLE CURRENT_USER RESET timezone');
SELECT pg_temp.keeps('SELECT 1');
BEGIN;
SAVEPOINT s;
ALTER ROLE CURRENT_USER RESET timezone;
SELECT pg_temp.keeps('SELECT 1');
ROLLBACK TO s;
SELECT pg_temp.keeps('SELECT 1');
COMMIT;
ALTER DATABASE :"db" SET timezone = 'Asia/Kolkata';
SELECT pg_temp.keeps('SELECT 1');
ALTER ROLE CURRENT_USER IN DATABASE :"db" SET timezone = 'Asia/Kolkata';
SELECT pg_temp.keeps('SELECT 1');
ALTER ROLE CURRENT_USER RESET timezone;
SELECT pg_temp.keeps('SET timezone = ''Asia/Kolkata''');
ALTER ROLE CURRENT_USER IN DATABASE :"db" RESET timezone;
SELECT pg_temp.keeps('SET timezone = ''Asia/Kolkata''');
-- another role
ALTER ROLE regress_dw_means SET timezone = 'Asia/Tokyo';
SELECT pg_temp.keeps('SET ROLE regress_dw_means'), pg_temp.keeps('SELECT 1');
ALTER DATABASE :"db" RESET timezone;
ALTER ROLE ALL SET timezone = 'Asia/Tokyo';
SELECT pg_temp.keeps('SELECT 1');
ALTER ROLE ALL RESET timezone;
-- a part of DateStyle
ALTER ROLE regress_dw_means SET datestyle = 'YMD';
ALTER ROLE CURRENT_USER SET datestyle = 'German';
SELECT pg_temp.keeps('SET timezone = DEFAULT'), pg_temp.keeps('SET ROLE regress_dw_means'), pg_temp.keeps('SET LOCAL datestyle = YMD; SET ROLE regress_dw_means');
ALTER ROLE CURRENT_USER RESET datestyle;
ALTER ROLE regress_dw_means RESET ALL;
RESET timezone;
-- the functions of others: their owner, their SET clause
CREATE FUNCTION meaning_of_role() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$SELECT delay_schedule('1 hour', 'SELECT 1')$$;
CREATE FUNCTION meaning_with_set() RETURNS bigint LANGUAGE sql SET timezone = 'Asia/Kolkata' SET search_path = pg_catalog, public AS $$SELECT delay_schedule('1 hour', 'SELECT 1')$$;
ALTER FUNCTION meaning_of_role OWNER TO regress_dw_means;
ALTER ROLE regress_dw_means SET timezone = 'Asia/Kolkata';
BEGIN;
SELECT meaning_of_role() > 0 AS ok;
SELECT owner, search_path, more FROM delay_wheel_data.task ORDER BY id DESC LIMIT 1;
SET LOCAL timezone = 'Asia/Kolkata';
SELECT meaning_of_role() > 0 AS ok;
SELECT owner, search_path, more FROM delay_wheel_data.task ORDER BY id DESC LIMIT 1;
SAVEPOINT s;
SET LOCAL timezone = 'Asia/Tokyo';
ROLLBACK TO s;
SELECT meaning_of_role() > 0 AS ok;
SELECT owner, search_path, more FROM delay_wheel_data.task ORDER BY id DESC LIMIT 1;
SET LOCAL timezone = DEFAULT;
SELECT meaning_with_set() > 0 AS ok;
SELECT search_path, more FROM delay_wheel_data.task ORDER BY id DESC LIMIT 1;
ROLLBACK;
ALTER ROLE regress_dw_means RESET ALL;
-- tasks of tasks: what its session has been given, a task gives on
SET timezone = 'Asia/Tokyo';
SELECT delay_schedule('0', $$SELECT delay_schedule('0', 'INSERT INTO meaning (label, ts) VALUES (''of a task'', $1)', '2026-02-03 10:00')$$) > 0 AS ok;
-- written by plain SQL: as in a new session
INSERT INTO delay_wheel_data.task (due, sql, args, arg_types) VALUES (now(), 'INSERT INTO meaning (label, ts) VALUES (''plain SQL'', $1)', '{2026-02-03 10:00}', '{-}');
RESET timezone;
SELECT pg_temp.wait_for('count(*) = 2 FROM meaning');
SELECT * FROM meaning_written();
TRUNCATE meaning;
-- messages have no text; their follow-ups have
SELECT delay_wheel.create_queue('meaning_messages', external => true);
SET datestyle = 'DMY';
SELECT delay_send('meaning_messages', '1') > 0 AS ok;
SELECT meaning_kept();
SELECT delay_send('meaning_messages', '2', options => jsonb_build_object('on_success', $$INSERT INTO meaning (label, d) VALUES ('after a message', '03/02/2026')$$)) > 0 AS ok;
SELECT meaning_kept();
RESET datestyle;
SELECT pg_temp.wait_for('sum(ready) = 2 FROM delay_wheel.queues WHERE name = ''meaning_messages''');
BEGIN;
SELECT payload FROM delay_receive('meaning_messages', 2) ORDER BY 1;
COMMIT;
SELECT pg_temp.wait_for('count(*) = 1 FROM meaning');
SELECT * FROM meaning_written();
TRUNCATE meaning;
SELECT delay_wheel.drop_queue('meaning_messages');

--
-- Changing a task
--
SET timezone = 'Asia/Kolkata';
SELECT delay_schedule_task('SELECT $1, $2', args => '{2026-02-03 10:00,7}', delay => '1 hour', options => '{"arg_types": ["-", "int"], "keep_settings": ["work_mem"]}') AS id \gset
SELECT meaning_kept();
SET timezone = 'Asia/Tokyo';
SET datestyle = 'DMY';
-- the text is read in Kolkata, still
SELECT code, message, regexp_replace(detail, '\d+', 'N') AS detail, hint FROM pg_temp.error_of(format($$SELECT delay_update(%s, args => '{2026-02-03 11:00,7}')$$, :id));
SELECT delay_update(:id, args => '{03/02/2026 11:00,8}', options => '{"arg_types": ["timestamptz", "int"]}');
SELECT args, arg_types, settings FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_update(:id, args => '{03/02/2026 12:00,9}');
SELECT args, arg_types, settings FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_update(:id, args => '{NULL,9}', options => '{"arg_types": ["-", "int"]}');
SELECT delay_update(:id, priority => 1, tag => 'x');
SELECT meaning_kept();
SELECT delay_update(:id, sql_text => 'SELECT $1, $2, now()', args => '{03/02/2026 11:00,8}');
SELECT args, arg_types, settings FROM delay_wheel.tasks WHERE id = :id;
RESET datestyle;
RESET timezone;
SELECT code, regexp_replace(detail, '\d+', 'N') AS detail FROM pg_temp.error_of(format($$SELECT delay_update(%s, args => '{2026-02-03 11:00,8}')$$, :id));
SET timezone = 'Asia/Tokyo';
SET datestyle = 'DMY';
SELECT delay_update(:id, args => '{2026-02-03 11:00,8}');
RESET datestyle;
RESET timezone;
SELECT delay_update(:id, sql_text => 'SELECT $1, $2');
SELECT meaning_kept();
SELECT delay_cancel(:id);

--
-- Keeping others always
--
SET delay_wheel.keep_settings = 'TimeZone, "work_mem"';
SELECT pg_temp.keeps('SELECT 1');
SET delay_wheel.keep_settings = TimeZone, datestyle;
SELECT pg_temp.keeps('SET datestyle = ''SQL, DMY''');
BEGIN;
SELECT delay_schedule_task('SELECT 1', delay => '1 hour', options => '{"keep_settings": []}') > 0 AS ok;
SELECT meaning_kept();
SELECT delay_schedule_task('SELECT 1', delay => '1 hour', options => '{"keep_settings": ["work_mem"]}') > 0 AS ok;
SELECT meaning_kept();
SELECT delay_schedule_task('SELECT 1', delay => '1 hour', queue => 'meaning') > 0 AS ok;
SELECT meaning_kept();
SELECT delay_every('meaning', '1 hour', 'SELECT 1') AS id \gset
SELECT settings FROM delay_wheel.recurring WHERE name = 'meaning';
SET LOCAL delay_wheel.keep_settings = 'work_mem';
SELECT delay_update(:id, sql_text => 'SELECT 2');
SELECT meaning_kept();
-- a message keeps nothing
SELECT delay_wheel.create_queue('meaning_messages', external => true);
SELECT delay_send('meaning_messages', '1') > 0 AS ok;
SELECT meaning_kept();
ROLLBACK;
RESET delay_wheel.keep_settings;
-- pinned: a default that changes makes no difference
SET ROLE regress_dw_means;
SELECT delay_pause_all();
SET delay_wheel.keep_settings = 'TimeZone';
SELECT delay_schedule('0', $$INSERT INTO meaning (label, ts) VALUES ('pinned', '2026-02-03 10:00')$$) > 0 AS ok;
RESET delay_wheel.keep_settings;
SELECT delay_schedule('0', $$INSERT INTO meaning (label, ts) VALUES ('not pinned', '2026-02-03 10:00')$$) > 0 AS ok;
RESET ROLE;
ALTER ROLE regress_dw_means SET timezone = 'Asia/Tokyo';
SET ROLE regress_dw_means;
SELECT delay_resume_all();
RESET ROLE;
SELECT pg_temp.wait_until_done();
SELECT * FROM meaning_written();
-- what is no list; names that are none; what the user may not set
SET delay_wheel.keep_settings = 'a,,b';
SELECT code, message, detail FROM pg_temp.error_of($$SET delay_wheel.keep_settings = '"a'$$);
SET delay_wheel.keep_settings = 'no_such_setting';
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT 1')$$);
SET delay_wheel.keep_settings = 'TimeZone, role';
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT 1')$$);
SET delay_wheel.keep_settings = 'log_min_duration_statement';
SELECT pg_temp.keeps('SELECT 1');
SET ROLE regress_dw_means;
SELECT code FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT 1')$$);
RESET ROLE;
RESET delay_wheel.keep_settings;

SELECT count(*) AS pending FROM delay_wheel.tasks;
SELECT delay_wheel.drop_queue('meaning');
DELETE FROM delay_wheel_data.failed_task;
DROP TABLE meaning, meaning_other, meaning_row;
DROP FUNCTION meaning_of_role, meaning_with_set, meaning_fails_once, meaning_set, meaning_written, meaning_kept;
DROP PROCEDURE meaning_write;
DROP DOMAIN meaning_day;
DROP SEQUENCE meaning_seq;
SELECT delay_wheel.disallow('regress_dw_means');
DROP ROLE regress_dw_means;
