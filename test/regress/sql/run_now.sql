--
-- RUN_NOW
-- delay_run: a pending task runs at once, in the caller's transaction; what
-- its owner wrote comes to no rights that are not the owner's, now or later.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/helpers.sql'
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
-- Those of others
--
SET SESSION AUTHORIZATION regress_dw_owner;
SELECT delay_schedule('1 day', $$INSERT INTO run_now_effect (label) VALUES ('1')$$) AS id1 \gset
SELECT delay_schedule('1 day', $$INSERT INTO run_now_effect (label) VALUES ('2')$$) AS id2 \gset
SELECT delay_schedule('1 day', $$INSERT INTO run_now_effect (label) VALUES ('3')$$) AS id3 \gset
SET SESSION AUTHORIZATION regress_dw_stranger;
\set VERBOSITY sqlstate
SELECT delay_run(:id1);
\set VERBOSITY default
SET SESSION AUTHORIZATION regress_dw_member;
SELECT delay_run(:id1);
SET SESSION AUTHORIZATION regress_dw_owner;
SELECT delay_run(:id2);
RESET SESSION AUTHORIZATION;
SELECT delay_run(:id3);
SELECT label, who, session = current_user AS session_is_callers FROM run_now_effect ORDER BY label;
DELETE FROM run_now_effect;
SELECT current_user = session_user AS same_user;

--
-- Escapes.  Each one in a transaction that is committed, if the task did not
-- fail; run by a superuser, as itself and having changed to the owner.
--
CREATE TABLE run_now_loot (label text, who text DEFAULT current_user);
CREATE TABLE run_now_attack (n int, sql text);
GRANT SELECT ON run_now_attack TO PUBLIC;
SET SESSION AUTHORIZATION regress_dw_owner;
CREATE FUNCTION run_now.loot(label text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.run_now_loot VALUES (label);
	RETURN 'looted';
EXCEPTION WHEN insufficient_privilege THEN
	RETURN 'in vain';
END $$;
CREATE FUNCTION run_now.at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM run_now.loot('deferred trigger');
	RETURN NULL;
END $$;
CREATE TABLE run_now.deferred (i int);
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON run_now.deferred DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION run_now.at_commit();
RESET SESSION AUTHORIZATION;
-- there is a temporary schema, whose name anyone can find out
CREATE TEMP TABLE run_now_secret AS SELECT 'the secret'::text AS label;
SELECT quote_ident(nspname) AS temp FROM pg_namespace WHERE oid = pg_my_temp_schema() \gset
INSERT INTO run_now_attack VALUES
	(1, 'RESET ROLE'),
	(2, 'SET ROLE NONE'),
	(3, 'SET SESSION AUTHORIZATION DEFAULT'),
	(4, 'RESET SESSION AUTHORIZATION'),
	(5, 'SET LOCAL SESSION AUTHORIZATION regress_dw_stranger'),
	(6, $$SELECT set_config('role', 'none', false)$$),
	(7, $$SELECT set_config('session_authorization', 'regress_dw_stranger', false)$$),
	(8, 'RESET ALL; DISCARD ALL'),
	(9, 'COMMIT'),
	(10, 'DO $d$BEGIN COMMIT; END$d$'),
	(11, $$PREPARE TRANSACTION 'run_now'$$),
	(12, 'INSERT INTO run_now.deferred VALUES (1)'),
	(13, $$DECLARE run_now_hold CURSOR WITH HOLD FOR SELECT run_now.loot('held cursor')$$),
	(14, $$PREPARE run_now_statement AS SELECT run_now.loot('prepared')$$),
	(15, 'LISTEN run_now'),
	(16, 'CREATE TEMP TABLE run_now_temp (i int)'),
	(17, $$CREATE TEMP VIEW run_now_temp AS SELECT run_now.loot('temporary view')$$),
	(18, $$CREATE FUNCTION pg_temp.run_now_f() RETURNS text LANGUAGE sql AS 'SELECT run_now.loot(''temporary function'')'$$),
	(19, format($$CREATE FUNCTION %s.run_now_f() RETURNS text LANGUAGE sql AS 'SELECT run_now.loot(''temporary function'')'$$, :'temp')),
	(20, $$CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (run_now.loot('temporary domain') <> '')$$),
	(21, format($$CREATE DOMAIN %s.text AS pg_catalog.text CHECK (run_now.loot('temporary domain') <> '')$$, :'temp')),
	(22, format('CREATE TYPE %s.int4 AS ENUM (''1'')', :'temp')),
	(23, 'CREATE TEMP SEQUENCE run_now_temp'),
	(24, 'SELECT * FROM run_now_secret'),
	(25, 'SELECT * FROM pg_temp.run_now_secret'),
	(26, 'TABLE run_now_loot'),
	(27, 'ALTER ROLE regress_dw_owner SUPERUSER'),
	(28, $$COPY run_now_effect FROM PROGRAM 'echo 1'$$),
	(29, $$SET delay_wheel.enabled = off$$),
	(30, $$SELECT delay_schedule('0', 'SELECT 1')$$),
	(31, $$SET search_path = run_now; SET work_mem = '321kB'; SET LOCAL row_security = off; SELECT set_config('session_replication_role', 'replica', false)$$),
	(32, $$SET search_path = run_now; SET work_mem = '321kB'; SELECT set_config('datestyle', 'German', false)$$),
	(33, $$DECLARE run_now_open CURSOR FOR SELECT run_now.loot('open cursor')$$),
	(34, 'DO $d$DECLARE c refcursor := ''run_now_open''; BEGIN OPEN c FOR SELECT run_now.loot(''open cursor''); END$d$'),
	(35, 'CLOSE run_now_caller'),
	(36, 'CLOSE ALL'),
	(37, $$CLOSE run_now_caller; DECLARE run_now_caller CURSOR FOR SELECT run_now.loot('exchanged cursor')$$),
	(38, 'DO $d$DECLARE c refcursor := ''run_now_caller''; x text; BEGIN FETCH c INTO x; INSERT INTO run_now_effect (label) VALUES (''fetched: '' || x); END$d$'),
	(39, 'DO $d$DECLARE c refcursor := ''run_now_caller''; BEGIN MOVE c; END$d$'),
	(40, 'ROLLBACK TO SAVEPOINT run_now'),
	(41, $$LOAD 'plpgsql'; SELECT run_now.loot('plain')$$),
	(42, $$CREATE FUNCTION run_now.definer() RETURNS void LANGUAGE sql SECURITY DEFINER SET role = 'none' AS 'SELECT run_now.loot(''SET role'')'; SELECT run_now.definer()$$),
	(43, $$SELECT lo_import('/etc/passwd')$$),
	(44, $$DEALLOCATE ALL$$),
	(45, 'SET CONSTRAINTS ALL IMMEDIATE'),
	(46, 'SET CONSTRAINTS ALL DEFERRED'),
	(47, 'DO $d$BEGIN SET CONSTRAINTS ALL IMMEDIATE; EXCEPTION WHEN OTHERS THEN RAISE; END$d$'),
	(48, $$INSERT INTO run_now_effect (label) SELECT 'query of a cursor: ' || statement FROM pg_cursors WHERE statement LIKE '%secret%' AND statement NOT LIKE '%pg_cursors%'$$),
	(49, $$INSERT INTO run_now_effect (label) SELECT 'custom setting: ' || current_setting('regress_dw.api_key', true) WHERE current_setting('regress_dw.api_key', true) <> ''$$),
	(50, $$RESET regress_dw.api_key; INSERT INTO run_now_effect (label) SELECT 'custom setting: ' || current_setting('regress_dw.api_key', true) WHERE current_setting('regress_dw.api_key', true) <> ''$$),
	(51, $$SET regress_dw.api_key = 'exchanged'$$),
	(52, 'SELECT setseed(0.25)'),
	(53, 'SELECT setseed(0.25); SELECT 1/0');
-- tries each of them in turn, and what the caller does afterwards
CREATE PROCEDURE run_now_try(attacker text, caller text) LANGUAGE plpgsql AS $$
DECLARE
	attack record;
	c CONSTANT refcursor := 'run_now_caller';
	attempt bigint;
	outcome text;
	state text;
	fetched text;
	seeded float8;
BEGIN
	PERFORM setseed(0.25);
	seeded := random();
	FOR attack IN SELECT * FROM run_now_attack ORDER BY n LOOP
		EXECUTE 'SET LOCAL SESSION AUTHORIZATION ' || attacker;
		attempt := delay_schedule('1 day', 'SELECT 1');
		SET LOCAL SESSION AUTHORIZATION DEFAULT;
		-- what is refused when it is scheduled can be written afterwards
		UPDATE delay_wheel_data.task SET sql = attack.sql WHERE id = attempt;
		OPEN c FOR SELECT label FROM pg_temp.run_now_secret;
		EXECUTE 'SET LOCAL SESSION AUTHORIZATION ' || caller;
		BEGIN
			outcome := delay_run(attempt)::text;
		EXCEPTION
			-- newer versions refuse some of it in other words
			WHEN insufficient_privilege OR invalid_transaction_termination OR object_not_in_prerequisite_state THEN
				outcome := 'refused';
			WHEN OTHERS THEN
				outcome := SQLSTATE || ': ' || SQLERRM;
		END;
		SET LOCAL SESSION AUTHORIZATION DEFAULT;
		FETCH c INTO fetched;
		SELECT string_agg(name, ', ') INTO state FROM pg_cursors WHERE name LIKE 'run_now%' AND name <> 'run_now_caller';
		CLOSE c;
		IF fetched IS DISTINCT FROM 'the secret' OR state IS NOT NULL OR current_setting('search_path') <> '"$user", public'
			OR current_setting('work_mem') = '321kB' OR current_setting('datestyle') ~ 'German'
			OR current_setting('regress_dw.api_key') <> 'the secret key' OR random() = seeded
			OR EXISTS (SELECT FROM pg_prepared_statements WHERE name LIKE 'run_now%') THEN
			RAISE WARNING 'attack %: left %, % and %', attack.n, fetched, state, current_setting('search_path');
		END IF;
		RAISE NOTICE '%: %', attack.n, outcome;
		COMMIT;
	END LOOP;
END $$;
SET regress_dw.api_key = 'the secret key';
CALL run_now_try('regress_dw_owner', 'DEFAULT');
CREATE TABLE run_now_first AS SELECT * FROM run_now_effect;
DELETE FROM run_now_effect;
SELECT count(delay_cancel(id)) > 0 AS left FROM delay_wheel.tasks;
\set VERBOSITY terse
CALL run_now_try('regress_dw_owner', 'regress_dw_owner');
\set VERBOSITY default
SELECT count(delay_cancel(id)) > 0 AS left FROM delay_wheel.tasks;
SELECT * FROM run_now_loot;
SELECT label FROM run_now_first UNION ALL SELECT label FROM run_now_effect;
SELECT rolsuper FROM pg_roles WHERE rolname = 'regress_dw_owner';
SELECT 'x'::text, 1::int4;
SHOW search_path;

-- triggers that the caller has deferred are his, with his rights and search_path
CREATE TABLE run_now_limits (most int);
INSERT INTO run_now_limits VALUES (10);
CREATE TABLE run_now_checked (i int);
CREATE FUNCTION run_now_check() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.i > (SELECT most FROM run_now_limits) THEN
		RAISE EXCEPTION 'limit exceeded';
	END IF;
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER c AFTER INSERT ON run_now_checked DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION run_now_check();
SET SESSION AUTHORIZATION regress_dw_owner;
CREATE TABLE run_now.run_now_limits AS SELECT 1000 AS most;
SELECT delay_schedule('1 day', 'SET search_path = run_now; SET CONSTRAINTS ALL IMMEDIATE') AS id \gset
RESET SESSION AUTHORIZATION;
BEGIN;
INSERT INTO run_now_checked VALUES (100);
SAVEPOINT s;
SELECT delay_run(:id);
ROLLBACK TO s;
COMMIT;
SELECT count(*) FROM run_now_checked;
-- the owner's own session is another matter
SET SESSION AUTHORIZATION regress_dw_owner;
SELECT delay_cancel(:id);
RESET SESSION AUTHORIZATION;
SELECT delay_schedule('1 day', 'SET CONSTRAINTS ALL IMMEDIATE') AS id \gset
BEGIN;
INSERT INTO run_now_checked VALUES (100);
SELECT delay_run(:id);
ROLLBACK;
SELECT delay_cancel(:id);
DROP TABLE run_now_checked, run_now_limits;
DROP FUNCTION run_now_check;
RESET regress_dw.api_key;

-- a loop over a cursor may run tasks of others, and goes on
SET SESSION AUTHORIZATION regress_dw_owner;
SELECT count(delay_schedule('1 day', 'INSERT INTO run_now_effect (label) VALUES ($1)', 'in a loop ' || i)) FROM generate_series(1, 3) i;
RESET SESSION AUTHORIZATION;
DO $$
DECLARE
	task record;
BEGIN
	FOR task IN SELECT id FROM delay_wheel.tasks ORDER BY id LOOP
		PERFORM delay_run(task.id);
	END LOOP;
END $$;
SELECT label, who FROM run_now_effect ORDER BY n;
DELETE FROM run_now_effect;

--
-- Where names are looked up: as in a session of the owner
--
CREATE FUNCTION run_now_path() RETURNS text LANGUAGE sql AS $$SELECT current_setting('search_path')$$;
CREATE TEMP TABLE run_now_effect (label text);
GRANT ALL ON run_now_effect TO PUBLIC;
ALTER ROLE regress_dw_owner SET search_path = public, run_now;
SET SESSION AUTHORIZATION regress_dw_owner;
SELECT delay_schedule('1 day', $$INSERT INTO run_now_effect (label) VALUES (public.run_now_path())$$) AS id1 \gset
SET search_path = run_now, public;
SELECT delay_schedule('1 day', $$INSERT INTO run_now_effect (label) VALUES (public.run_now_path())$$) AS id2 \gset
RESET search_path;
RESET SESSION AUTHORIZATION;
UPDATE delay_wheel_data.task SET search_path = NULL WHERE id = :id1;
SET search_path = pg_catalog, public;
SELECT delay_run(:id1), delay_run(:id2);
SELECT delay_schedule('1 day', $$INSERT INTO public.run_now_effect (label) VALUES (public.run_now_path())$$) AS id \gset
RESET search_path;
SELECT delay_run(:id);
UPDATE delay_wheel_data.task SET search_path = NULL WHERE id = :id;
SELECT delay_schedule('1 day', $$INSERT INTO public.run_now_effect (label) VALUES (public.run_now_path())$$) AS id \gset
SET search_path = pg_catalog, public;
SELECT delay_run(:id);
RESET search_path;
DROP TABLE pg_temp.run_now_effect;
SELECT label, who = 'regress_dw_owner' AS owners FROM run_now_effect ORDER BY n;
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
DROP TABLE run_now_effect, run_now_loot, run_now_attack, run_now_first, run_now_deferred;
DROP PROCEDURE run_now_try;
DROP FUNCTION run_now_path;
DROP SCHEMA run_now CASCADE;
SELECT delay_wheel.disallow('regress_dw_owner', 'regress_dw_member', 'regress_dw_stranger');
DROP ROLE regress_dw_member, regress_dw_owner, regress_dw_stranger;
