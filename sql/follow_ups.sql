--
-- FOLLOW_UPS
-- on_success and on_failure: SQL that is a task of its own when a task is done,
-- or given up.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE TABLE follow_effect (n serial, label text, args text);
CREATE SEQUENCE follow_tries;
CREATE FUNCTION follow_failing() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'attempt % failed', nextval('follow_tries') USING ERRCODE = 'DW042';
END $$;
CREATE FUNCTION follow_all(label text) RETURNS text LANGUAGE sql AS $$
	SELECT format('INSERT INTO follow_effect (label, args) SELECT %L, concat_ws('','', $1, $2)', label)
$$;

-- What is refused: as in the task's own SQL, but it need not use all arguments.
SELECT sql, code, message FROM unnest('{"", "SELEC 1", VACUUM, "COMMIT", "SELECT $3", "SELECT $0", "CREATE VIEW v AS SELECT $1"}'::text[]) WITH ORDINALITY s (sql, n),
	pg_temp.error_of(format('SELECT delay_schedule_task(''SELECT 1'', options => jsonb_build_object(''on_success'', %L))', sql)) f ORDER BY n;
SELECT sql, code, message FROM unnest('{"SELECT $4", "SELECT 1; SELEC $1"}'::text[]) sql,
	pg_temp.error_of(format('SELECT delay_schedule_task(''SELECT 1'', options => jsonb_build_object(''on_failure'', %L))', sql)) f;
SELECT delay_schedule_task('SELECT 1', options => '{"on_success": "SELECT $3"}');
-- more than a row has room for when the task is tried again
SELECT code, message FROM pg_temp.error_of('SELECT delay_schedule_task(''SELECT 1'', options => jsonb_build_object(''on_success'', ''SELECT 1 --'' || repeat(''x'', 70000000), ''on_failure'', ''SELECT 1 --'' || repeat(''x'', 70000000)))');
SELECT code, message FROM pg_temp.error_of('SELECT delay_every(''long'', ''1 day'', ''SELECT 1'', options => jsonb_build_object(''on_failure'', ''SELECT 1 --'' || repeat(''x'', 140000000)))');

-- on_success: the id, and the rows of the last statement
SELECT delay_schedule_task('SELECT 1; INSERT INTO follow_effect (label) SELECT ''main'' FROM generate_series(1, 3)',
	options => jsonb_build_object('on_success', follow_all('success'), 'on_failure', follow_all('NEVER'))) AS id \gset
SELECT pg_temp.wait_for('EXISTS (SELECT FROM follow_effect WHERE label = ''success'')');
SELECT label, regexp_replace(args, '^' || :'id' || '\M', 'ID') AS args FROM follow_effect ORDER BY n;
TRUNCATE follow_effect;

-- on_failure: the id, SQLSTATE and message of the last attempt; once
SELECT setval('follow_tries', 1, false);
SELECT delay_schedule_task('SELECT follow_failing()', max_attempts => 3, options => jsonb_build_object('retry_delay', '1 ms', 'on_success', follow_all('NEVER'), 'on_failure', 'INSERT INTO follow_effect (label, args) VALUES ($2, $1 || '': '' || $3)')) AS id \gset
SELECT pg_temp.wait_for('EXISTS (SELECT FROM follow_effect)');
SELECT pg_temp.wait_until_done();
SELECT label, regexp_replace(args, '^' || :'id' || '\M', 'ID') AS args FROM follow_effect ORDER BY n;
-- put back by hand, it fails again, and is followed again
SELECT delay_retry(:id);
SELECT pg_temp.wait_for('count(*) = 2 FROM follow_effect');
SELECT label, regexp_replace(args, '^' || :'id' || '\M', 'ID') AS args FROM follow_effect ORDER BY n;
TRUNCATE follow_effect;

-- a long message is cut, a missing one is none the less
SELECT delay_schedule_task($$DO 'BEGIN RAISE EXCEPTION ''%'', repeat(''x'', 20000); END'$$,
	options => '{"on_failure": "INSERT INTO follow_effect (label, args) VALUES ($2, length($3))"}') IS NOT NULL AS ok;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM follow_effect)');
SELECT label, args FROM follow_effect;
TRUNCATE follow_effect;

-- It may use none of them, be several statements, or one without parameters;
-- and schedule others.
SELECT delay_schedule_task('SELECT 1', options => '{"on_success": "CREATE TABLE follow_created (i int)"}') IS NOT NULL AS ok;
SELECT delay_schedule_task('SELECT 1', options => jsonb_build_object('on_success', $$INSERT INTO follow_effect (label) VALUES ('first'); INSERT INTO follow_effect (label, args) VALUES ('second', $2)$$)) IS NOT NULL AS ok;
SELECT delay_schedule_task('SELECT 1', options => jsonb_build_object('on_success', $$SELECT delay_schedule_task('SELECT 1', options => jsonb_build_object('on_success', 'INSERT INTO follow_effect (label) VALUES (''chain'')'))$$)) IS NOT NULL AS ok;
SELECT pg_temp.wait_for('to_regclass(''follow_created'') IS NOT NULL AND count(*) = 3 FROM follow_effect');
SELECT label, args FROM follow_effect ORDER BY label;
DROP TABLE follow_created;
TRUNCATE follow_effect;

-- one that fails is a failed task like others, and has none to follow
SELECT delay_schedule_task('SELECT 1', tag => 'follow', max_attempts => 5, options => '{"on_success": "SELECT 1 / ($2 - 1)"}') IS NOT NULL AS ok;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM delay_wheel.failed WHERE tag = ''follow'')');
SELECT sql, args[2] AS rows, attempts, sqlstate FROM delay_wheel.failed WHERE tag = 'follow';

-- An error at the commit: it has failed.
CREATE TABLE follow_parent (i int PRIMARY KEY);
CREATE TABLE follow_child (i int REFERENCES follow_parent DEFERRABLE INITIALLY DEFERRED);
SELECT delay_schedule_task('INSERT INTO follow_child VALUES (1)', options => jsonb_build_object('on_success', follow_all('NEVER'), 'on_failure', follow_all('failed at the commit'))) IS NOT NULL AS ok;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM follow_effect)');
SELECT pg_temp.wait_until_done();
SELECT label, split_part(args, ',', 2) AS sqlstate FROM follow_effect;
TRUNCATE follow_effect;

-- Given up without having been run, it has failed, too; skipped or cancelled it has not.
SELECT delay_wheel.create_queue('follow', priority => 1);
SELECT delay_wheel.pause_queue('follow');
SELECT delay_schedule_task('SELECT 1', due => now() - interval '1 day', queue => 'follow', options => jsonb_build_object('expires', '1 hour', 'on_failure', follow_all('expired'))) IS NOT NULL AS ok;
SELECT delay_schedule_task('SELECT 1', due => now() - interval '1 day', queue => 'follow', options => jsonb_build_object('skip_after', '1 hour', 'on_success', follow_all('NEVER'), 'on_failure', follow_all('NEVER'))) IS NOT NULL AS ok;
SELECT delay_cancel(delay_schedule_task('SELECT 1', queue => 'follow', options => jsonb_build_object('on_success', follow_all('NEVER'), 'on_failure', follow_all('NEVER'))));
SELECT delay_schedule_task('SELECT 1', queue => 'follow', key => 'k', options => jsonb_build_object('on_failure', follow_all('NEVER'))) IS NOT NULL AS ok;
SELECT delay_schedule_task('SELECT 1', queue => 'follow', key => 'k', if_exists => 'replace', tag => 'all', options => jsonb_build_object('on_failure', follow_all('NEVER'))) IS NOT NULL AS ok;
SELECT delay_cancel_all(tag => 'all') IS NOT NULL AS ok;
SELECT delay_wheel.resume_queue('follow');
SELECT pg_temp.wait_for('EXISTS (SELECT FROM follow_effect)');
SELECT pg_temp.wait_until_done();
SELECT label, split_part(args, ',', 2) AS sqlstate FROM follow_effect;
TRUNCATE follow_effect;

-- It is a task of the same owner, queue, priority, tag and search_path; by
-- delay_run as well, in the caller's transaction.
CREATE ROLE regress_dw_follow LOGIN;
SELECT delay_wheel.allow('regress_dw_follow');
CREATE SCHEMA follow_schema AUTHORIZATION regress_dw_follow;
CREATE TABLE follow_schema.effect (who text DEFAULT current_user, args text);
GRANT ALL ON follow_schema.effect TO regress_dw_follow;
SELECT delay_wheel.create_queue('follow', users => '{regress_dw_follow}');
SELECT delay_wheel.pause_queue('follow');
SET SESSION AUTHORIZATION regress_dw_follow;
SET search_path = follow_schema;
SELECT public.delay_schedule_task('INSERT INTO effect (args) VALUES (''main'')', key => 'k', tag => 't', queue => 'follow', priority => -1,
	max_attempts => 7, options => '{"timeout": "1 hour", "skip_after": "1 day", "on_success": "INSERT INTO effect (args) VALUES ($2)"}') AS id \gset
RESET search_path;
RESET SESSION AUTHORIZATION;
\set boss :USER
\c - regress_dw_follow
BEGIN;
SELECT delay_run(:id);
SELECT owner, due = now() AS at_once, queue, priority, key, tag, sql, args[1] = :'id' AS id, args[2] AS rows FROM delay_wheel.tasks;
ROLLBACK;
SELECT sql FROM delay_wheel.tasks;
SELECT delay_run(:id);
\c - :boss
\set ECHO none
\i :helpers
\set ECHO all
SELECT arg_types, max_attempts, timeout, search_path, more FROM delay_wheel_data.task;
SELECT delay_wheel.resume_queue('follow');
SELECT pg_temp.wait_for('count(*) = 2 FROM follow_schema.effect');
SELECT * FROM follow_schema.effect;

-- what plain SQL has written and is no text does not count
SELECT delay_schedule('1 day', 'INSERT INTO follow_effect (label) VALUES (''plain'')') AS id \gset
UPDATE delay_wheel_data.task SET more = '{"on_success": 1, "on_failure": null, "notify": ""}' WHERE id = :id;
UPDATE delay_wheel_data.task SET due = now() WHERE id = :id;
SELECT pg_temp.wait_for('EXISTS (SELECT FROM follow_effect)');
SELECT pg_temp.wait_until_done();
SELECT label FROM follow_effect;
TRUNCATE follow_effect;

-- In batches each has its own.
SELECT delay_pause_all();
DELETE FROM delay_wheel_data.failed_task;
SELECT count(delay_schedule_task('SELECT 1 / $1::int', args => ARRAY[(g % 50)::text],
	options => jsonb_build_object('on_success', 'INSERT INTO follow_effect (label, args) VALUES (''success'', $1)', 'on_failure', 'INSERT INTO follow_effect (label, args) VALUES (''failure'', $1)'))) FROM generate_series(1, 300) g;
SELECT pg_temp.wait_for('sum(ready) >= 300 FROM delay_wheel.lanes');
SELECT delay_resume_all();
SELECT pg_temp.wait_for('count(*) = 300 FROM follow_effect');
SELECT pg_temp.wait_until_done();
SELECT label, count(*), count(DISTINCT args) FROM follow_effect GROUP BY label ORDER BY label;
SELECT count(*) AS failed, count(*) FILTER (WHERE e.args IS NULL) AS not_followed FROM delay_wheel.failed f
	LEFT JOIN follow_effect e ON e.label = 'failure' AND e.args = f.id::text;

DELETE FROM delay_wheel_data.failed_task;
DROP TABLE follow_child, follow_parent, follow_effect;
DROP FUNCTION follow_failing(), follow_all(text);
DROP SEQUENCE follow_tries;
DROP SCHEMA follow_schema CASCADE;
SELECT delay_wheel.drop_queue('follow');
SELECT delay_wheel.disallow('regress_dw_follow');
DROP ROLE regress_dw_follow;
