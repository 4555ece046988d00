--
-- HISTORY
-- What is recorded of the ends of tasks, and who sees it. How it is kept
-- within bounds is in t/430_history.pl.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set SHOW_CONTEXT never
ALTER FUNCTION pg_temp.wait_for(text) SECURITY DEFINER;
ALTER FUNCTION pg_temp.wait_until_done() SECURITY DEFINER;

CREATE ROLE regress_dw_h_all LOGIN;
CREATE ROLE regress_dw_h_errors LOGIN;
CREATE ROLE regress_dw_h_off LOGIN;
CREATE ROLE regress_dw_h_nologin;
CREATE ROLE regress_dw_h_dba;
GRANT regress_dw_h_nologin TO regress_dw_h_all;
SELECT delay_wheel.allow('regress_dw_h_all', 'regress_dw_h_errors', 'regress_dw_h_off', 'regress_dw_h_nologin');
ALTER ROLE regress_dw_h_all SET delay_wheel.history = 'all';
ALTER ROLE regress_dw_h_off SET delay_wheel.history = 'off';
ALTER ROLE regress_dw_h_nologin SET delay_wheel.history = 'all';
TRUNCATE delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2;
CREATE TABLE history_effect (n int, label text);
CREATE TABLE history_rule (n int);
CREATE RULE r AS ON INSERT TO history_rule DO INSTEAD DELETE FROM history_rule;
GRANT ALL ON history_effect, history_rule TO PUBLIC;
GRANT CREATE ON SCHEMA public TO regress_dw_h_all;
CREATE VIEW history_seen AS
	SELECT outcome, command_tag, rows, sqlstate, message, queue, key, tag, owner, attempt,
		lateness >= 0 AND lateness < 3600000 AND started >= due AS lateness_ok,
		duration >= 0 AND duration < 3600000 AND ended >= started AS duration_ok, sql
	FROM delay_wheel.history;
GRANT SELECT ON history_seen TO PUBLIC;

--
-- Statements of all kinds, each a task of its own; with assertions PostgreSQL cannot FETCH right after DECLARE by SPI
--
SET SESSION AUTHORIZATION regress_dw_h_all;
SET client_min_messages = warning;
CREATE PROCEDURE history_one_by_one(statements text[], in_mode text DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
	s text;
	id bigint;
BEGIN
	FOREACH s IN ARRAY statements LOOP
		id := delay_schedule_task(s, options => jsonb_build_object('mode', in_mode));
		COMMIT;
		PERFORM delay_wait(id, '120 s');
		COMMIT;
	END LOOP;
END $$;
CALL history_one_by_one(ARRAY[
	'INSERT INTO history_effect SELECT i, ''x'' FROM generate_series(1, 5) i',
	'UPDATE history_effect SET label = ''y'' WHERE n > 2', 'UPDATE history_effect SET n = n RETURNING n',
	'SELECT n FROM history_effect', 'SELECT n FROM history_effect WHERE false', 'VALUES (1), (2)', 'TABLE history_effect',
	'WITH w AS (INSERT INTO history_effect VALUES (0, ''w'') RETURNING *) SELECT * FROM w',
	'INSERT INTO history_effect VALUES (6, ''z''), (7, ''z'') RETURNING n',
	'MERGE INTO history_effect e USING (VALUES (6)) v(n) ON e.n = v.n WHEN MATCHED THEN UPDATE SET label = ''m''',
	'INSERT INTO history_rule VALUES (1)',
	'SELECT 1 AS a INTO TEMP history_into', 'CREATE TEMP TABLE history_as AS SELECT 1 AS a UNION SELECT 2', 'CREATE TABLE history_table (n int)',
	'DO $d$ BEGIN PERFORM 1; END $d$', 'DO $d$ BEGIN LOCK TABLE history_table; END $d$; SELECT 1, 2', 'SET search_path = public',
	'LOCK TABLE history_effect', 'NOTIFY history',
	'PREPARE p AS INSERT INTO history_effect VALUES (8, ''p''), (9, ''p''); EXECUTE p', 'PREPARE p AS DELETE FROM history_effect WHERE label = ''p''; EXECUTE p',
	'DECLARE c CURSOR FOR VALUES (1), (2); SELECT 1; FETCH ALL c', 'PREPARE p AS SELECT 1; DEALLOCATE p',
	'UPDATE history_effect SET n = n WHERE false; SELECT 1; ; DELETE FROM history_effect WHERE n = 7; ',
	'DELETE FROM history_effect WHERE n = 6; CREATE INDEX ON history_table (n)',
	'  /* a comment */ SELECT 1;', 'SHOW search_path', 'EXPLAIN SELECT 1', 'DROP TABLE history_table']);
SELECT sql, command_tag, rows FROM history_seen ORDER BY sql COLLATE "C", rows;
SELECT DISTINCT outcome, sqlstate, message, queue, key, tag, owner, attempt, lateness_ok, duration_ok FROM history_seen;
-- and with a mode
RESET SESSION AUTHORIZATION;
TRUNCATE delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2;
SET SESSION AUTHORIZATION regress_dw_h_all;
SELECT ARRAY['VACUUM history_mode', 'REINDEX TABLE CONCURRENTLY history_mode', 'DO $d$ BEGIN COMMIT; END $d$', 'SELECT n FROM history_mode',
	'INSERT INTO history_mode VALUES (1), (2) RETURNING n', 'UPDATE history_mode SET n = n', 'CREATE TABLE history_as AS VALUES (1), (2)', 'DROP TABLE history_as',
	'SELECT 1 AS a INTO TEMP history_into', 'CALL history_out(1)', 'INSERT INTO history_rule VALUES (1)', 'SELECT 1 / 0'] AS statements \gset
CREATE TABLE history_mode (n int);
CREATE PROCEDURE history_out(INOUT n int) LANGUAGE plpgsql AS $$ BEGIN COMMIT; n := n + 1; END $$;
CALL history_one_by_one(:'statements', 'at_most_once');
SELECT sql, command_tag, rows, sqlstate FROM history_seen WHERE sql = ANY (:'statements') ORDER BY sql COLLATE "C";
CREATE TABLE history_once AS SELECT sql, outcome, command_tag, rows, sqlstate, message, attempt FROM history_seen WHERE sql = ANY (:'statements');
RESET SESSION AUTHORIZATION;
TRUNCATE delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2;
SET SESSION AUTHORIZATION regress_dw_h_all;
DELETE FROM history_mode;
CALL history_one_by_one(:'statements', 'at_least_once');
SELECT sql, outcome, command_tag, rows, sqlstate, message, attempt FROM history_seen WHERE sql = ANY (:'statements')
	EXCEPT TABLE history_once;
DROP TABLE history_mode, history_once;
DROP PROCEDURE history_out;
RESET SESSION AUTHORIZATION;
TRUNCATE delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2;
RESET client_min_messages;

--
-- Outcomes, and what a role's setting leaves of them
--
SELECT delay_wheel.create_queue('history_q', users => '{public}'), delay_wheel.create_queue('history_all', users => '{public}', options => '{"history": "all"}'),
	delay_wheel.create_queue('history_off', users => '{public}', options => '{"history": "off"}'), delay_wheel.create_queue('history_errors', users => '{public}', options => '{"history": "errors"}');
CREATE PROCEDURE history_schedule() LANGUAGE plpgsql AS $$
DECLARE
	q text;
BEGIN
	FOREACH q IN ARRAY '{default,history_q,history_all,history_off,history_errors}'::text[] LOOP
		PERFORM delay_schedule_task('SELECT 1 AS done', queue => q, key => 'key of ' || q, tag => 'tag');
		PERFORM delay_schedule_task('SELECT 1 / 0 AS failed', queue => q);
		PERFORM delay_schedule_task('SELECT 1 / 0 AS retried', queue => q, max_attempts => 2, options => '{"retry_delay": "1 ms"}');
		PERFORM delay_schedule_task('SELECT 1 AS skipped', queue => q, due => now() - interval '1 hour', options => '{"skip_after": "1 minute"}');
		PERFORM delay_schedule_task('SELECT 1 AS expired', queue => q, due => now() - interval '1 hour', options => '{"expires": "1 minute"}');
		PERFORM delay_cancel(delay_schedule_task('SELECT 1 AS cancelled', queue => q, delay => '1 hour'));
	END LOOP;
	COMMIT;
END $$;
SET SESSION AUTHORIZATION regress_dw_h_all;
CALL history_schedule();
SET SESSION AUTHORIZATION regress_dw_h_errors;
CALL history_schedule();
SET SESSION AUTHORIZATION regress_dw_h_off;
CALL history_schedule();
RESET SESSION AUTHORIZATION;
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel_data.task WHERE owner::text LIKE ''regress_dw_h%'')');
SELECT owner, queue, string_agg(split_part(sql, ' AS ', 2) || ': ' || outcome || COALESCE(' ' || attempt, ''), ', ' ORDER BY sql, attempt) AS recorded
	FROM delay_wheel.history GROUP BY owner, queue ORDER BY owner::text, queue;
SELECT outcome, sqlstate, message, key, tag, command_tag, rows, attempt, lateness IS NULL AS no_lateness, duration IS NULL AS no_duration, started IS NULL AS not_started, sql
	FROM delay_wheel.history WHERE owner = 'regress_dw_h_all' AND queue = 'history_q' ORDER BY sql, attempt;

--
-- The queue's option
--
SELECT name, history FROM delay_wheel.queues WHERE name LIKE 'history%' ORDER BY name;
SELECT delay_wheel.create_queue('history_all', rate => 0), delay_wheel.create_queue('history_off', options => '{"history": "default"}');
SELECT name, history FROM delay_wheel.queues WHERE name LIKE 'history%' ORDER BY name;
SELECT delay_wheel.create_queue('history_all', options => '{"history": "some"}');
SELECT delay_wheel.create_queue('history_all', options => '{"history": ""}');
-- it acts at once, on what is pending, too
SELECT delay_wheel.create_queue('history_q', options => '{"history": "off"}');
SELECT delay_schedule_task('SELECT 1 / 0 AS not_recorded', queue => 'history_q') > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT delay_wheel.create_queue('history_q', options => '{"history": "all"}');
SELECT delay_schedule_task('SELECT 1 AS recorded', queue => 'history_q') > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT outcome, sql FROM delay_wheel.history WHERE sql LIKE '%recorded%';
-- a queue that is gone
SELECT delay_wheel.drop_queue('history_q');
SELECT DISTINCT queue IS NULL AS unknown FROM delay_wheel.history WHERE sql LIKE '%AS recorded';

--
-- The setting of a role changes, while its executor is there; a role
-- without LOGIN has one, too
--
SET SESSION AUTHORIZATION regress_dw_h_errors;
SELECT delay_schedule('0', 'SELECT 1 AS before') > 0 AS ok;
SELECT pg_temp.wait_until_done();
RESET SESSION AUTHORIZATION;
ALTER ROLE regress_dw_h_errors SET delay_wheel.history = 'all';
SET SESSION AUTHORIZATION regress_dw_h_errors;
SELECT delay_schedule('0', 'SELECT 1 AS after') > 0 AS ok;
SELECT pg_temp.wait_until_done();
-- not by itself
SET delay_wheel.history = 'off';
SELECT delay_schedule('0', 'SET delay_wheel.history = off') > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT outcome, sqlstate, message, sql FROM delay_wheel.history WHERE sql LIKE '% after' OR sql LIKE '% before' OR sql LIKE 'SET %';
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_dw_h_all;
SET ROLE regress_dw_h_nologin;
SELECT delay_schedule('0', 'SELECT 1 AS without_login') > 0 AS ok;
RESET ROLE;
SELECT pg_temp.wait_until_done();
SELECT outcome, owner FROM delay_wheel.history WHERE sql = 'SELECT 1 AS without_login';
RESET SESSION AUTHORIZATION;

--
-- Who sees what, and who writes
--
SET SESSION AUTHORIZATION regress_dw_h_all;
SELECT DISTINCT owner FROM delay_wheel.history ORDER BY owner;
SET SESSION AUTHORIZATION regress_dw_h_errors;
SELECT DISTINCT owner FROM delay_wheel.history;
SET SESSION AUTHORIZATION regress_dw_h_off;
SELECT count(*) FROM delay_wheel.history WHERE owner::text <> 'regress_dw_h_off';
-- what is of others does not leak through a cheap function
CREATE FUNCTION pg_temp.leak(owner text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$
BEGIN
	IF owner::text <> current_user THEN
		RAISE NOTICE 'a row of %', owner;
	END IF;
	RETURN true;
END $$;
SELECT count(*) FROM delay_wheel.history WHERE pg_temp.leak(owner) AND queue <> 'history_all';
SELECT count(*) FROM delay_wheel_data.history_0;
RESET SESSION AUTHORIZATION;
GRANT pg_read_all_data TO regress_dw_h_dba;
SET ROLE regress_dw_h_dba;
SELECT count(DISTINCT owner) >= 3 AS all_of_them FROM delay_wheel.history;
RESET ROLE;
GRANT pg_write_all_data TO regress_dw_h_dba;
SET ROLE regress_dw_h_dba;
INSERT INTO delay_wheel_data.history_1 (task, due, ended, owner, queue, outcome, sql) VALUES (1, now(), now(), 'regress_dw_h_dba', 0, 'done', 'SELECT');
UPDATE delay_wheel_data.history_0 SET message = 'x';
DELETE FROM delay_wheel_data.history_0;
RESET ROLE;

--
-- Long texts, arguments, keys
--
TRUNCATE delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2;
SET SESSION AUTHORIZATION regress_dw_h_all;
SELECT delay_schedule_task('SELECT $1, ''' || repeat('ä', 200) || '''', args => '{secret}', key => repeat('k', 1000), tag => repeat('€', 333)) > 0 AS ok;
SELECT delay_schedule('0', 'SELECT ''' || string_agg(md5(i::text), '') || ''' AS long') > 0 AS ok FROM generate_series(1, 1000) i;
SELECT delay_schedule('0', 'DO $d$ BEGIN RAISE EXCEPTION USING MESSAGE = repeat(''€'', 1000); END $d$') > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT outcome, octet_length(sql) AS sql, left(sql, 11) AS begins, octet_length(key) AS key, octet_length(tag) AS tag, octet_length(message) AS message
	FROM delay_wheel.history ORDER BY sql COLLATE "C";
RESET SESSION AUTHORIZATION;
-- nothing is out of line
SELECT sum(pg_relation_size(reltoastrelid)) AS toast FROM pg_class WHERE oid IN ('delay_wheel_data.history_0'::regclass, 'delay_wheel_data.history_1'::regclass, 'delay_wheel_data.history_2'::regclass);

--
-- A batch: of one transaction, each its row; indexes that were added are filled
--
CREATE INDEX history_i0 ON delay_wheel_data.history_0 (task); CREATE INDEX history_i1 ON delay_wheel_data.history_1 (task); CREATE INDEX history_i2 ON delay_wheel_data.history_2 (task);
CREATE INDEX history_e0 ON delay_wheel_data.history_0 (length(sql)) WHERE outcome = 'done';
CREATE INDEX history_e1 ON delay_wheel_data.history_1 (length(sql)) WHERE outcome = 'done';
CREATE INDEX history_e2 ON delay_wheel_data.history_2 (length(sql)) WHERE outcome = 'done';
ALTER TABLE delay_wheel_data.history_0 ADD COLUMN extra text DEFAULT 'not for us';
ALTER TABLE delay_wheel_data.history_1 ADD COLUMN extra text DEFAULT 'not for us';
ALTER TABLE delay_wheel_data.history_2 ADD COLUMN extra text DEFAULT 'not for us';
TRUNCATE history_effect, delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2;
SELECT delay_wheel.allow('regress_dw_h_all');
SET SESSION AUTHORIZATION regress_dw_h_all;
SELECT count(delay_schedule('0', CASE WHEN i % 100 = 0 THEN 'SELECT 1 / 0, $1' ELSE 'INSERT INTO history_effect VALUES ($1)' END, i)) FROM generate_series(1, 2000) i;
SELECT pg_temp.wait_until_done();
SELECT count(*), count(DISTINCT task) AS tasks, bool_and(ended >= started AND started >= due) AS in_order FROM delay_wheel.history;
SELECT outcome, command_tag, rows, sqlstate, count(*) FROM delay_wheel.history GROUP BY 1, 2, 3, 4 ORDER BY outcome;
RESET SESSION AUTHORIZATION;
SELECT (SELECT count(*) FROM history_effect) AS effects, count(*) AS done FROM delay_wheel.history WHERE outcome = 'done';
SET enable_seqscan = off;
SELECT count(*) FROM delay_wheel.history WHERE task > 0;
SELECT count(*) FROM delay_wheel_data.history_0 WHERE length(sql) = 38 AND outcome = 'done';
RESET enable_seqscan;
ALTER TABLE delay_wheel_data.history_0 DROP COLUMN extra;
ALTER TABLE delay_wheel_data.history_1 DROP COLUMN extra;
ALTER TABLE delay_wheel_data.history_2 DROP COLUMN extra;
DROP INDEX delay_wheel_data.history_i0, delay_wheel_data.history_i1, delay_wheel_data.history_i2, delay_wheel_data.history_e0, delay_wheel_data.history_e1, delay_wheel_data.history_e2;

--
-- What delay_run() does, also within a task, and what of it is undone
--
TRUNCATE history_effect, delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2;
SET delay_wheel.history = 'all';
SELECT delay_schedule('1 hour', 'SELECT 1 AS by_delay_run') AS id \gset
BEGIN;
SELECT delay_run(:id);
SELECT outcome, command_tag, lateness < 0 AS early, sql FROM delay_wheel.history;
ROLLBACK;
SELECT count(*) FROM delay_wheel.history;
SELECT delay_run(:id);
SELECT outcome, command_tag, lateness < 0 AS early, sql FROM delay_wheel.history;
RESET delay_wheel.history;
CREATE FUNCTION history_run(id bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM delay_run(id);
		RAISE EXCEPTION 'undone';
	EXCEPTION WHEN OTHERS THEN
		RETURN delay_run(id);
	END;
END $$;
SET SESSION AUTHORIZATION regress_dw_h_all;
SELECT count(delay_schedule('0', 'SELECT history_run($1)', delay_schedule('1 hour', 'INSERT INTO history_effect VALUES (1, ''inner'')'))) FROM generate_series(1, 50);
SELECT pg_temp.wait_until_done();
RESET SESSION AUTHORIZATION;
SELECT sql, count(*), count(DISTINCT task) FROM delay_wheel.history WHERE sql NOT LIKE '%by_delay_run' GROUP BY 1 ORDER BY 1;

-- times that the view could not subtract are refused, also from a superuser
SELECT n, times, code, message FROM generate_series(0, 2) n,
	(VALUES ('''infinity'', now(), now()'), ('now(), ''-infinity'', now()'), ('now(), now(), ''infinity''')) v(times),
	pg_temp.error_of(format('INSERT INTO delay_wheel_data.history_%s (due, started, ended, task, owner, queue, outcome, sql)
		VALUES (%s, 1, ''10'', 0, ''done'', ''infinite'')', n, times));
-- ... and those of a lease, of which they would be made
SELECT times, code, message FROM (VALUES ('''infinity'', now()'), ('now(), ''-infinity''')) v(times),
	pg_temp.error_of(format('INSERT INTO delay_wheel_data.task (due, payload, token, first_due, leased_at) VALUES (now(), ''1'', 1, %s)', times));
SELECT count(lateness), count(duration) FROM delay_wheel.history WHERE sql = 'infinite';

-- milliseconds, and microseconds in three digits, not in sixteen
INSERT INTO delay_wheel_data.history_0 (task, due, started, ended, owner, queue, attempt, outcome, sql)
	SELECT -i, t, t + i * interval '1 us', t + 4 * i * interval '1 us', CURRENT_USER::regrole, 0, 1, 'done', 'rounded'
	FROM (SELECT timestamptz '2026-01-01') s(t), generate_series(1, 2000) i;
SELECT count(*), count(*) FILTER (WHERE lateness::text <> (-task / 1000.0)::float8::text) AS lateness, count(*) FILTER (WHERE duration::text <> (-task * 3 / 1000.0)::float8::text) AS duration
	FROM delay_wheel.history WHERE sql = 'rounded';
DELETE FROM delay_wheel_data.history_0 WHERE sql = 'rounded';

--
-- A sample: all that has failed, and a share of the others, each drawn by itself; from executors, in batches
--
SELECT delay_wheel.create_queue('history_q', options => '{"history": "sample"}');
CREATE VIEW history_sample AS
	SELECT outcome, count(*) AS n, min(sample) AS sample, sum(1 / COALESCE(sample, 1)) AS about FROM delay_wheel.history
	WHERE tag = 'sampled' OR key LIKE 'sampled%' GROUP BY outcome;
CREATE PROCEDURE history_sample(good text) LANGUAGE plpgsql AS $$
DECLARE
	ids bigint[];
BEGIN
	TRUNCATE delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2;
	EXECUTE format('ALTER ROLE CURRENT_USER SET delay_wheel.history_sample = %s', good);
	COMMIT;
	PERFORM delay_schedule_task('SELECT ' || i, queue => 'history_q', tag => 'sampled') FROM generate_series(1, 2000) i;
	PERFORM delay_schedule_task('SELECT 1 / 0', queue => 'history_q', tag => 'sampled') FROM generate_series(1, 20);
	COMMIT;
	PERFORM pg_temp.wait_until_done();
	COMMIT;
	EXECUTE format('SET delay_wheel.history_sample = %s', good);
	SELECT array_agg(delay_schedule_task('SELECT 1', queue => 'history_q', delay => '1 hour', tag => 'sampled')) INTO ids FROM generate_series(1, 2000);
	PERFORM delay_cancel(id) FROM unnest(ids) id;
	COMMIT;
END $$;
CALL history_sample('0');
SELECT * FROM history_sample ORDER BY outcome;
CALL history_sample('1');
SELECT * FROM history_sample ORDER BY outcome;
CALL history_sample('0.25');
-- within five times the standard deviation
SELECT outcome, CASE WHEN sample IS NULL THEN n::text ELSE (n BETWEEN 400 AND 600)::text END AS n, sample, CASE WHEN sample IS NULL THEN about::text ELSE (about = n * 4)::text END AS about
	FROM history_sample ORDER BY outcome;
SELECT error FROM (VALUES ('-0.1'), ('1.1'), ('NaN')) v(share), pg_temp.error_of('SET delay_wheel.history_sample = ' || quote_literal(share)) e(error);
-- what is received is drawn once, too
SELECT delay_wheel.create_queue('history_mail', external => true, options => '{"history": "sample"}');
TRUNCATE delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2;
SELECT count(delay_send('history_mail', to_jsonb(i), key => 'sampled ' || i)) FROM generate_series(1, 2000) i;
DO $$
DECLARE
	n int := 0;
	got int;
BEGIN
	WHILE n < 2000 LOOP
		SELECT count(*) INTO got FROM delay_receive('history_mail', 500);
		COMMIT;
		n := n + got;
	END LOOP;
END $$;
SELECT outcome, n BETWEEN 400 AND 600 AS n, sample FROM history_sample;
SELECT delay_wheel.drop_queue('history_mail');
RESET delay_wheel.history_sample;
ALTER ROLE CURRENT_USER RESET delay_wheel.history_sample;
DROP VIEW history_sample;
DROP PROCEDURE history_sample;

--
-- The first row that a task returns, where that is wanted
--
SELECT delay_wheel.create_queue('history_q', users => '{public}', options => '{"history": "all"}'), delay_wheel.create_queue('history_mail', external => true, options => '{"history": "all"}');
CREATE PROCEDURE history_result(size text, statements text[], in_mode text DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('ALTER ROLE CURRENT_USER SET delay_wheel.history_result = %L', size);
	TRUNCATE delay_wheel_data.history_0, delay_wheel_data.history_1, delay_wheel_data.history_2;
	COMMIT;
	PERFORM delay_schedule_task(s, queue => 'history_q', options => jsonb_build_object('mode', in_mode)) FROM unnest(statements) s;
	COMMIT;
	PERFORM pg_temp.wait_for(format('(SELECT count(*) FROM delay_wheel.history WHERE queue = ''history_q'') = %s', cardinality(statements)));
END $$;
CREATE TABLE history_rows (n int, label text);
INSERT INTO history_rows VALUES (0, 'zero');
CREATE TYPE history_bad;
-- (its notices show a position from PostgreSQL 18 on)
SET client_min_messages = warning;
CREATE FUNCTION history_bad_in(cstring) RETURNS history_bad LANGUAGE internal STRICT IMMUTABLE AS 'textin';
CREATE FUNCTION history_bad_out(history_bad) RETURNS cstring LANGUAGE internal STRICT IMMUTABLE AS 'textout';
CREATE TYPE history_bad (INPUT = history_bad_in, OUTPUT = history_bad_out, LIKE = text);
RESET client_min_messages;
CREATE FUNCTION history_bad_json(history_bad) RETURNS json LANGUAGE plpgsql AS $$ BEGIN INSERT INTO history_rows VALUES (-1, 'undone'); RAISE EXCEPTION 'no json'; END $$;
CREATE CAST (history_bad AS json) WITH FUNCTION history_bad_json;
CREATE PROCEDURE history_out(INOUT n int) LANGUAGE plpgsql AS $$ BEGIN n := n + 1; END $$;
CREATE PROCEDURE history_silent() LANGUAGE plpgsql AS $$ BEGIN PERFORM 1; END $$;
CREATE FUNCTION history_inner() RETURNS int LANGUAGE plpgsql AS $$ DECLARE t text; BEGIN EXECUTE 'SHOW work_mem' INTO t; RETURN 5; END $$;
SELECT ARRAY['SELECT 1 AS a, NULL::int AS b, ''x'' AS c', 'SELECT i FROM generate_series(3, 1000) i', 'INSERT INTO history_rows VALUES (1, ''one''), (2, ''two'') RETURNING n, label',
	'UPDATE history_rows SET label = ''new'' WHERE n = 0', 'DELETE FROM history_rows WHERE n = 7 RETURNING n', 'SELECT 1 WHERE false', 'SELECT history_inner()',
	'SELECT repeat(''x'', 90) AS long', 'SELECT repeat(''x'', 60) AS short', 'SELECT repeat(''x'', 1000000) AS huge', 'SELECT ARRAY[1, 2, NULL] AS a, ROW(1, ''r'') AS r',
	'SELECT ''b''::history_bad AS bad', 'SELECT ''"\u0000"''::json AS no_jsonb', 'CALL history_out(7)', 'SHOW standard_conforming_strings'] AS statements \gset
CALL history_result('100', :'statements');
SELECT sql, outcome, command_tag, rows, result FROM delay_wheel.history WHERE queue = 'history_q' ORDER BY sql COLLATE "C";
SELECT count(*) FROM history_rows WHERE label = 'undone';
CREATE TABLE history_in AS SELECT sql, outcome, command_tag, rows, result FROM delay_wheel.history;
-- with a mode, the same
CALL history_result('100', :'statements', 'at_most_once');
SELECT sql, outcome, command_tag, rows, result FROM delay_wheel.history EXCEPT TABLE history_in;
-- the last statement counts, also if it has none
CALL history_result('100', ARRAY['SELECT 1 AS a; SELECT 2 AS b', 'SELECT 1 AS a; UPDATE history_rows SET n = n', 'SELECT 1 AS a; SET work_mem = 4096', 'SELECT 1 AS a; CALL history_silent()',
	'SELECT 1 AS a; SELECT 2 AS b WHERE false', 'SHOW standard_conforming_strings; CREATE TEMP TABLE history_temp ()']);
SELECT sql, outcome, command_tag, result FROM delay_wheel.history WHERE queue = 'history_q' ORDER BY sql COLLATE "C";
-- a kept plan; none is kept without the setting, and a larger one takes the longer row
CALL history_result('4kB', array_fill('SELECT repeat(''x'', 90) AS long'::text, ARRAY[5]));
SELECT count(*), length(result ->> 'long') FROM delay_wheel.history GROUP BY 2;
CALL history_result('0', :'statements');
SELECT count(*), count(result) FROM delay_wheel.history;
\set VERBOSITY sqlstate
SET delay_wheel.history_result = '5kB';
\set VERBOSITY default
-- of a task of another role: a cast has no other rights
ALTER ROLE regress_dw_h_all SET delay_wheel.history_result = '100B';
GRANT SELECT, INSERT ON history_rows TO PUBLIC;
ALTER FUNCTION history_bad_json(history_bad) RENAME TO history_bad_unused;
DROP CAST (history_bad AS json);
CREATE FUNCTION history_whose_json(history_bad) RETURNS json LANGUAGE sql AS $$ SELECT to_json(CURRENT_USER) $$;
CREATE CAST (history_bad AS json) WITH FUNCTION history_whose_json;
SET ROLE regress_dw_h_all;
SELECT delay_schedule_task('SELECT ''b''::history_bad AS whose', delay => '1 hour', queue => 'history_q') AS id \gset
RESET ROLE;
\set boss :USER
\c - regress_dw_h_all
SELECT delay_run(:id);
\c - :boss
\set ECHO none
\i :helpers
\set ECHO all
SELECT owner, result FROM delay_wheel.history WHERE task = :id;
SET ROLE regress_dw_h_off;
SELECT count(*) FROM delay_wheel.history WHERE result IS NOT NULL;
RESET ROLE;
-- a cast to json of another role is not called: reading its table calls no function of it either
SET delay_wheel.history_result = '100B';
CREATE SCHEMA history_other AUTHORIZATION regress_dw_h_all;
SET ROLE regress_dw_h_all;
CREATE TYPE history_other.mood AS ENUM ('good');
CREATE DOMAIN history_other.state AS history_other.mood;
CREATE TYPE history_other.pair AS (n int, mood history_other.mood);
CREATE FUNCTION history_other.mood_json(history_other.mood) RETURNS json LANGUAGE sql AS $$ SELECT to_json(CURRENT_USER) $$;
CREATE CAST (history_other.mood AS json) WITH FUNCTION history_other.mood_json;
CREATE TABLE history_other.moods AS SELECT 'good'::history_other.mood AS mood, 'good'::history_other.state AS state, ROW(1, 'good')::history_other.pair AS pair;
SELECT delay_schedule_task('SELECT mood, pair FROM history_other.moods', delay => '1 hour', queue => 'history_q') AS id \gset
RESET ROLE;
CALL history_result('100', ARRAY['SELECT mood FROM history_other.moods', 'SELECT state FROM history_other.moods', 'SELECT pair FROM history_other.moods', 'SELECT m FROM history_other.moods m',
	'SELECT ARRAY[mood] FROM history_other.moods', 'SELECT ARRAY[pair] FROM history_other.moods', 'SELECT ROW(ROW(mood)) FROM history_other.moods', 'SELECT ARRAY[ROW(mood)] FROM history_other.moods',
	'SELECT mood::text FROM history_other.moods', 'SELECT NULL::history_other.mood AS mood, ARRAY[ROW(1)] AS rows']);
SELECT sql, outcome, result FROM delay_wheel.history WHERE queue = 'history_q' ORDER BY sql COLLATE "C";
\c - regress_dw_h_all
SELECT delay_run(:id);
\c - :boss
\set ECHO none
\i :helpers
\set ECHO all
SELECT owner, result FROM delay_wheel.history WHERE task = :id;
SET client_min_messages = warning;
DROP SCHEMA history_other CASCADE;
RESET client_min_messages;
-- of a message, what its receiver says
SELECT count(delay_send('history_mail', to_jsonb(i))) FROM generate_series(1, 3) i;
SELECT pg_temp.wait_for('(SELECT ready FROM delay_wheel.queues WHERE name = ''history_mail'') = 3');
SELECT payload, delay_done(id, token, CASE payload::int WHEN 1 THEN '{"a": 1}'::jsonb WHEN 2 THEN to_jsonb(repeat('x', 100)) END) FROM delay_lease('history_mail', 3) ORDER BY payload;
SELECT outcome, result FROM delay_wheel.history WHERE queue = 'history_mail' ORDER BY task;
SET delay_wheel.history_result = 0;
SELECT count(delay_send('history_mail', '4'));
SELECT pg_temp.wait_for('(SELECT ready FROM delay_wheel.queues WHERE name = ''history_mail'') = 1');
SELECT delay_done(id, token, '{"a": 1}') FROM delay_lease('history_mail');
SELECT count(*), count(result) FROM delay_wheel.history WHERE queue = 'history_mail';
RESET delay_wheel.history_result;
ALTER ROLE CURRENT_USER RESET delay_wheel.history_result;
DROP TABLE history_rows, history_in;
DROP TYPE history_bad CASCADE;
DROP PROCEDURE history_result, history_out, history_silent;
DROP FUNCTION history_inner;

--
-- The extension is dropped by a task
--
SELECT delay_wheel.drop_queue(name) FROM delay_wheel.queues WHERE name LIKE 'history%';
ALTER ROLE CURRENT_USER SET delay_wheel.history = 'all';
DROP VIEW history_seen;
SELECT delay_schedule('0', 'DROP EXTENSION delay_wheel') > 0 AS ok;
-- its locks go last, when others have been told to forget what is dropped
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM pg_extension WHERE extname = ''delay_wheel'')
	AND NOT EXISTS (SELECT FROM pg_locks WHERE mode = ''AccessExclusiveLock'' AND pid <> pg_backend_pid())');
CREATE EXTENSION delay_wheel;
SELECT count(*) FROM delay_wheel.history;
-- or dropped and created: its own number is that of another task then
SELECT delay_schedule_task('DO $d$ BEGIN DROP EXTENSION delay_wheel; CREATE EXTENSION delay_wheel;
	PERFORM delay_schedule(''1 hour'', ''SELECT $1'', current_setting(''delay_wheel.task_id'')); END $d$', options => '{"mode": "at_least_once"}');
SELECT pg_temp.wait_for('EXISTS (SELECT FROM pg_class WHERE oid = to_regclass(''delay_wheel.tasks'') AND oid <> ' || 'delay_wheel.tasks'::regclass::oid || ')');
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel.running)');
SELECT id, sql, args FROM delay_wheel.tasks;
SELECT delay_cancel(id) FROM delay_wheel.tasks;
ALTER ROLE CURRENT_USER RESET delay_wheel.history;

DROP TABLE history_effect, history_rule;
DROP PROCEDURE history_schedule, history_one_by_one;
DROP FUNCTION history_run;
DROP OWNED BY regress_dw_h_all, regress_dw_h_errors, regress_dw_h_off, regress_dw_h_nologin, regress_dw_h_dba;
DROP ROLE regress_dw_h_all, regress_dw_h_errors, regress_dw_h_off, regress_dw_h_nologin, regress_dw_h_dba;
