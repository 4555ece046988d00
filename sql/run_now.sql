--
-- RUN_NOW
-- delay_run: a pending task runs at once, in the caller's transaction, in a
-- session of its owner.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set SHOW_CONTEXT never

CREATE ROLE regress_dw_owner LOGIN;
CREATE ROLE regress_dw_member LOGIN IN ROLE regress_dw_owner;
CREATE ROLE regress_dw_stranger LOGIN;
SELECT delay_wheel.allow('regress_dw_owner', 'regress_dw_member', 'regress_dw_stranger');
CREATE TABLE run_now_effect (n serial, label text, who text DEFAULT current_user, session text DEFAULT session_user,
	task text DEFAULT current_setting('delay_wheel.task_id'));
GRANT ALL ON run_now_effect, run_now_effect_n_seq TO PUBLIC;
CREATE VIEW run_now_pending AS SELECT count(*) AS pending FROM delay_wheel_data.task;
CREATE SCHEMA run_now AUTHORIZATION regress_dw_owner;
GRANT USAGE ON SCHEMA run_now TO PUBLIC;

--
-- One's own
--
SELECT delay_schedule('1 day', 'INSERT INTO run_now_effect (label) VALUES ($1), ($2)', 'typed'::text, 'literal') AS id \gset
SELECT delay_run(:id);
SELECT label, task = :'id' AS has_id FROM run_now_effect ORDER BY n;
SELECT current_setting('delay_wheel.task_id') = '' AS no_task;
SELECT delay_run(:id), delay_cancel(:id);
SELECT * FROM run_now_pending;
SELECT delay_run(NULL);
SELECT delay_run(-1), delay_run(0), delay_cancel(0);
-- expired and out of attempts: it is run all the same
SELECT delay_schedule('1 day', 'SELECT 1') AS id \gset
UPDATE delay_wheel_data.task SET due = now() + '1 day', expires = '-2 days', attempts = 3, max_attempts = 3, timeout = 1, sql = 'SELECT pg_sleep(0.1)' WHERE id = :id;
SELECT delay_run(:id);
-- the whole takes effect, or nothing
SELECT delay_schedule('1 day', 'INSERT INTO run_now_effect (label) VALUES (''NEVER''); SELECT 1 / 0') AS id \gset
SELECT delay_run(:id);
SELECT * FROM run_now_pending;
SELECT delay_schedule('1 day', 'INSERT INTO run_now_effect (label) VALUES (''twice, but once'')') AS id2 \gset
BEGIN;
SELECT delay_run(:id2);
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT delay_run(:id2);
ROLLBACK TO s;
SELECT delay_run(:id2);
SELECT delay_run(:id2);
COMMIT;
SELECT count(*) FROM run_now_effect WHERE label = 'twice, but once';
SELECT delay_cancel(:id);
-- errors of its own, those that SPI does not raise
CREATE TEMP TABLE run_now_error AS SELECT i, sql, delay_schedule('1 day', 'SELECT 1') AS id FROM unnest(ARRAY['COMMIT', 'DO $d$BEGIN COMMIT; END$d$',
	'DO $d$BEGIN EXECUTE ''COMMIT''; END$d$', 'COPY run_now_effect TO STDOUT', 'SELECT no_such_column', 'DO $d$BEGIN EXECUTE ''VACUUM''; END$d$']) WITH ORDINALITY u(sql, i);
UPDATE delay_wheel_data.task t SET sql = e.sql FROM run_now_error e WHERE t.id = e.id;
SELECT r.sql, e.code, e.message FROM run_now_error r, pg_temp.error_of(format('SELECT delay_run(%s)', r.id)) e ORDER BY i;
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks;
-- where it may write only
SELECT delay_schedule('1 day', 'SELECT 1') AS id \gset
BEGIN READ ONLY;
SELECT delay_run(:id);
ROLLBACK;
SELECT delay_cancel(:id);
-- tasks of tasks: of another one, and of itself
SELECT delay_schedule('1 day', $$INSERT INTO run_now_effect (label) VALUES ('inner')$$) AS id \gset
SELECT delay_schedule('1 day', format($$INSERT INTO run_now_effect (label) VALUES ('before'); SELECT delay_run(%s); INSERT INTO run_now_effect (label) VALUES ('after')$$, :id)) AS outer \gset
SELECT delay_run(:outer);
SELECT label, CASE task WHEN :'id' THEN 'inner' WHEN :'outer' THEN 'outer' END AS task FROM run_now_effect
	WHERE label IN ('before', 'inner', 'after') ORDER BY n;
DELETE FROM run_now_effect;
SELECT delay_schedule('1 day', $$INSERT INTO run_now_effect (label) SELECT delay_run(i)::text || ' ' || delay_cancel(i)
	FROM CAST(current_setting('delay_wheel.task_id') AS bigint) i$$) AS id \gset
SELECT delay_run(:id);
SELECT delay_schedule('1 day', $$INSERT INTO run_now_effect (label) VALUES ('of an executor')$$) AS id \gset
SELECT delay_schedule('0', format($$SELECT delay_run(%s)$$, :id)) > 0 AS ok;
SELECT delay_schedule('0', $$INSERT INTO run_now_effect (label) SELECT 'itself ' || delay_run(current_setting('delay_wheel.task_id')::bigint)::text$$) > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT label, task = :'id' AS has_id FROM run_now_effect ORDER BY label COLLATE "C";
DELETE FROM run_now_effect;
-- in a session of the owner all is allowed; settings do not stay
CREATE TABLE run_now_deferred (i int UNIQUE DEFERRABLE INITIALLY DEFERRED);
SELECT delay_schedule('1 day', $$CREATE TEMP TABLE run_now_temp (i int); INSERT INTO run_now_deferred VALUES (1);
	DECLARE run_now_hold CURSOR WITH HOLD FOR SELECT 'held'; SELECT delay_schedule('1 day', 'SELECT 2'); SET work_mem = '123kB';
	SELECT set_config('search_path', 'none', false)$$) AS id \gset
SELECT delay_run(:id);
SHOW work_mem;
SHOW search_path;
FETCH run_now_hold;
CLOSE run_now_hold;
DROP TABLE run_now_temp;
SELECT delay_cancel(id) FROM delay_wheel.tasks;

--
-- Those of others: only a session that has logged in as the owner, and is it still
--
SET SESSION AUTHORIZATION regress_dw_owner;
SELECT delay_schedule('1 day', $$INSERT INTO run_now_effect (label) VALUES ('its own')$$) AS id \gset
SELECT delay_schedule('1 day', $$INSERT INTO run_now_effect (label) VALUES (public.run_now_path())$$) AS id1 \gset
CREATE FUNCTION run_now.run(id bigint) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT public.delay_run(id)';
CREATE FUNCTION run_now.run_due() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$SELECT public.delay_run_due('infinity')$$;
RESET SESSION AUTHORIZATION;
UPDATE delay_wheel_data.task SET search_path = NULL WHERE id = :id1;
CREATE FUNCTION pg_temp.try(role text, statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE role;
	EXECUTE statement;
	RETURN 'run';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || regexp_replace(SQLERRM, '\d+', 'N');
END $$;
SELECT role, statement, pg_temp.try(role, replace(statement, 'ID', :'id')) FROM
	unnest(ARRAY['SET SESSION AUTHORIZATION regress_dw_stranger', 'SET SESSION AUTHORIZATION regress_dw_member', 'SET SESSION AUTHORIZATION regress_dw_owner',
		'SET ROLE regress_dw_owner', 'RESET ROLE']) WITH ORDINALITY r(role, n),
	unnest(ARRAY['SELECT delay_run(ID)', 'SELECT run_now.run(ID)', 'SELECT run_now.run_due()']) statement
	ORDER BY n, statement;
\set SHOW_CONTEXT always
SELECT delay_run(:id);
\set SHOW_CONTEXT never
SELECT count(*) AS pending FROM delay_wheel.tasks WHERE id = :id;
SELECT count(*) FROM run_now_effect;

--
-- In the owner's session; names are looked up as in any session of the owner
--
CREATE FUNCTION run_now_path() RETURNS text LANGUAGE sql AS $$SELECT current_setting('search_path')$$;
ALTER ROLE regress_dw_owner SET search_path = public, run_now;
GRANT regress_dw_stranger TO regress_dw_owner;
\set boss :USER
\c - regress_dw_owner
SET search_path = run_now, public;
SELECT delay_schedule('1 day', $$INSERT INTO run_now_effect (label) VALUES (public.run_now_path())$$) AS id2 \gset
SET search_path = pg_catalog, public;
SET ROLE regress_dw_stranger;
\set VERBOSITY sqlstate
SELECT delay_run(:id);
\set VERBOSITY default
RESET ROLE;
SELECT delay_run(:id), delay_run(:id1), delay_run(:id2);
SHOW search_path;
\c - :boss
\set ECHO none
\i :helpers
\set ECHO all
SELECT label, who, session FROM run_now_effect ORDER BY n;
DELETE FROM run_now_effect;

--
-- No owner, and another origin
--
SELECT delay_schedule('1 day', 'SELECT 1') AS id \gset
UPDATE delay_wheel_data.task SET origin = 1 WHERE id = :id;
\set VERBOSITY sqlstate
SELECT delay_run(:id);
\set VERBOSITY default
UPDATE delay_wheel_data.task SET owner = '4294967000' WHERE id = :id;
SELECT delay_run(:id);
SELECT delay_cancel(:id);

SELECT * FROM run_now_pending;
DROP VIEW run_now_pending;
DROP TABLE run_now_effect, run_now_deferred;
DROP FUNCTION run_now_path;
DROP SCHEMA run_now CASCADE;
SELECT delay_wheel.disallow('regress_dw_owner', 'regress_dw_member', 'regress_dw_stranger');
DROP ROLE regress_dw_member, regress_dw_owner, regress_dw_stranger;
