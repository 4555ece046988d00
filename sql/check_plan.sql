--
-- CHECK_PLAN
-- check_sql => 'plan': names, types and rights are looked at when a task is scheduled.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
SET client_min_messages = warning;
CREATE ROLE regress_dw_check LOGIN;
SELECT delay_wheel.allow('regress_dw_check');
CREATE SCHEMA check_schema;
GRANT ALL ON SCHEMA check_schema TO regress_dw_check;
CREATE TABLE check_own (n int, label varchar(3), day date);
GRANT INSERT, UPDATE (label), SELECT (n) ON check_own TO regress_dw_check;
CREATE TABLE check_secret (n int);
CREATE VIEW check_view AS SELECT n FROM check_secret;
GRANT SELECT ON check_view TO regress_dw_check;
CREATE FUNCTION check_allowed(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''executed''; END';
CREATE FUNCTION check_refused(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE PROCEDURE check_procedure(int) LANGUAGE sql AS 'SELECT 1';
REVOKE EXECUTE ON FUNCTION check_refused(int) FROM PUBLIC;
REVOKE EXECUTE ON PROCEDURE check_procedure(int) FROM PUBLIC;
CREATE TABLE check_said (n serial, said text);

-- the default is as ever
SHOW delay_wheel.check_sql;
BEGIN;
SELECT delay_schedule('1 hour', 'SELECT * FROM check_nowhere') > 0 AS ok;
ROLLBACK;
SET delay_wheel.check_sql = 'none';
SET delay_wheel.check_sql = true;
SHOW delay_wheel.check_sql;
SET delay_wheel.check_sql = 0;
SELECT delay_schedule_task('SELECT', options => '{"check_sql": "none"}');
-- the option, and the setting
SELECT delay_schedule_task('SELECT 1; SELECT * FROM check_nowhere', options => '{"check_sql": "plan"}');
SELECT delay_schedule_task('SELEC', options => '{"check_sql": "on"}');
RESET delay_wheel.check_sql;
BEGIN;
SELECT delay_schedule_task('SELEC', options => '{"check_sql": "off"}') > 0 AS ok;
ROLLBACK;
SET delay_wheel.check_sql = 'plan';
SELECT delay_schedule('1 hour', 'INSERT INTO check_own (nn) VALUES (1)');
-- from 19 on PostgreSQL's hint is another one
\set VERBOSITY terse
SELECT delay_schedule_at('2099-01-01', 'SELECT check_nothing($1)', 1);
\set VERBOSITY default
SELECT delay_every('check', '1 hour', 'SELECT nothing FROM check_own');
SELECT delay_scheduled(delay_schedule_task('SELECT 1 + ''a'' || now()'));
BEGIN;
SELECT delay_schedule_task('SELECT * FROM check_nowhere', options => '{"check_sql": "on"}') > 0 AS ok;
SELECT delay_every('check', '1 hour', 'SELECT nothing FROM check_own', options => '{"check_sql": "on"}') > 0 AS ok;
SELECT delay_cron('check', '0 1 * * *', 'SELECT nothing FROM check_own', options => '{"check_sql": "off"}') > 0 AS ok;
ROLLBACK;

-- Runs a call as the role, undone; says what became of it.
CREATE FUNCTION pg_temp.say(call text) RETURNS TABLE (code text, message text, at text) LANGUAGE plpgsql AS $$
DECLARE
	context text;
BEGIN
	BEGIN
		EXECUTE call;
		RAISE EXCEPTION USING ERRCODE = 'ZZ000', MESSAGE = 'ok';
	EXCEPTION WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, context = PG_EXCEPTION_CONTEXT;
		at := CASE WHEN context LIKE '%SQL text of a delayed task%' THEN 'task' END;
	END;
	RETURN NEXT;
END $$;
INSERT INTO check_said (said)
SELECT format('SELECT delay_schedule(''1 hour'', %L%s)', sql, args) FROM (VALUES
	-- rights: of the role, not of who reads the plan
	('INSERT INTO check_own VALUES (1)', ''), ('UPDATE check_own SET label = ''a''', ''), ('UPDATE check_own SET n = 1', ''),
	('UPDATE check_own SET label = ''a'' WHERE n = 1', ''), ('DELETE FROM check_own', ''), ('SELECT * FROM check_own', ''), ('SELECT n FROM check_own', ''),
	('SELECT * FROM check_secret', ''), ('SELECT * FROM check_view', ''), ('SELECT 1 WHERE EXISTS (SELECT FROM check_secret)', ''),
	('WITH w AS (SELECT * FROM check_secret) INSERT INTO check_own SELECT * FROM w', ''),
	('SELECT check_allowed(1)', ''), ('SELECT check_refused(1)', ''), ('SELECT n FROM check_own WHERE n IN (SELECT check_refused(n))', ''),
	('INSERT INTO check_own SELECT check_refused(1)', ''), ('CALL check_procedure(1)', ''), ('CALL check_nowhere(1)', ''),
	-- types: of arguments with a type, and of those that take it from the statement
	('SELECT check_allowed($1)', ', 1'), ('SELECT check_allowed($1)', ', now()'), ('SELECT check_allowed($1)', ', ''7'''), ('SELECT check_allowed($1)', ', ''seven'''),
	('INSERT INTO check_own VALUES ($1, $2, $3)', ', 1, ''a'', ''2027-01-01'''), ('INSERT INTO check_own VALUES ($1, $2, $3)', ', 1, ''a'', ''no day'''),
	('INSERT INTO check_own VALUES ($1, $2, $3)', ', 1::bigint, 1, now()'), ('INSERT INTO check_own (n) VALUES ($1)', ', ''{1}''::int[]'),
	-- utility statements, and what they contain
	('EXPLAIN SELECT * FROM check_secret', ''), ('CREATE TABLE check_schema.t AS SELECT * FROM check_secret', ''), ('CREATE TABLE check_schema.t AS SELECT nothing FROM check_own', ''),
	('DECLARE c CURSOR FOR SELECT check_refused(1)', ''), ('SELECT check_refused(1) AS n INTO check_schema.t', ''),
	('DROP TABLE check_nowhere', ''), ('GRANT SELECT ON check_nowhere TO PUBLIC', ''), ('DO ''BEGIN nonsense; END''', ''),
	-- several statements: up to the first that may create something
	('SELECT 1; SELECT check_refused(1)', ''), ('CREATE TABLE check_schema.t (n int); INSERT INTO check_schema.t VALUES (1)', ''),
	('DELETE FROM check_nowhere; CREATE TABLE check_schema.t (n int)', ''), ('SELECT 1 AS n INTO check_schema.t; SELECT * FROM check_schema.t', '')
) v(sql, args);
GRANT SELECT ON check_said TO PUBLIC;
SET SESSION AUTHORIZATION regress_dw_check;
SELECT substr(said, 32) AS task, code, message, at FROM check_said CROSS JOIN LATERAL pg_temp.say(said) ORDER BY n;
-- with a mode
SELECT delay_schedule_task('DELETE FROM check_secret', options => '{"mode": "at_least_once"}');
RESET SESSION AUTHORIZATION;

-- the rights of the one who is the owner then
CREATE FUNCTION check_definer(sql text) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS 'SELECT delay_schedule(''1 hour'', sql) > 0';
BEGIN;
SET LOCAL SESSION AUTHORIZATION regress_dw_check;
SELECT check_definer('SELECT * FROM check_secret');
ROLLBACK;
-- the search_path of the task
CREATE TABLE check_schema.elsewhere (n int);
SELECT delay_schedule('1 hour', 'TABLE elsewhere');
BEGIN;
SET LOCAL search_path = check_schema, public;
SELECT delay_schedule('1 hour', 'TABLE elsewhere') > 0 AS ok;
ROLLBACK;
-- what this transaction has made is there; what is temporary is not
BEGIN;
CREATE TABLE check_new (n int);
SELECT delay_schedule('1 hour', 'TABLE check_new') > 0 AS ok;
ROLLBACK;
CREATE TEMP TABLE check_temp (n int);
SELECT delay_schedule('1 hour', 'TABLE check_temp');
DROP TABLE check_temp;

-- nothing is left: no lock, no row, no change of what a function did; errors leave the transaction as it was
BEGIN;
SELECT delay_schedule('1 hour', 'INSERT INTO check_own VALUES (1)') > 0 AS ok;
SELECT count(*) FROM pg_locks WHERE relation = 'check_own'::regclass AND pid = pg_backend_pid();
SAVEPOINT s;
SELECT delay_schedule('1 hour', 'SELECT nothing');
ROLLBACK TO s;
DO $$ BEGIN PERFORM delay_schedule('1 hour', 'SELECT nothing'); EXCEPTION WHEN undefined_column THEN RAISE WARNING 'caught'; END $$;
SELECT count(*) FROM delay_wheel.tasks;
ROLLBACK;
-- planning evaluates immutable functions, and what they do to settings is undone
CREATE FUNCTION check_folded() RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('check.folded', 'yes', false); RAISE WARNING 'planned'; RETURN 1; END $$;
BEGIN;
SELECT delay_schedule('1 hour', 'SELECT check_folded()') > 0 AS ok;
SELECT current_setting('check.folded', true) = 'yes' AS left;
ROLLBACK;

-- change of what is pending: a new text of one's own task
SELECT delay_schedule('1 hour', 'SELECT $1', 1) AS id \gset
SELECT delay_update(:id, sql_text => 'SELECT nothing', args => '{}');
-- of another text the search_path is not that of this session
SET search_path = check_schema, public;
SELECT delay_schedule('1 hour', 'SELECT $1 FROM elsewhere', 1) AS other \gset
RESET search_path;
SELECT delay_update(:other, args => ARRAY[2]), delay_cancel(:other);
SELECT delay_update(:id, args => ARRAY[2]), delay_update(:id, sql_text => 'SELECT $1, 2');
SELECT delay_cancel(:id);
-- triggers
CREATE TABLE check_fired (n int, at timestamptz);
CREATE TRIGGER t AFTER INSERT ON check_fired FOR EACH ROW EXECUTE FUNCTION delay_schedule_trigger('at', 'SELECT $1::check_nothing', 'n');
INSERT INTO check_fired VALUES (1, now() + interval '1 hour');
DROP TABLE check_fired;
-- it runs in the end
SELECT delay_schedule('0', 'INSERT INTO check_own VALUES ($1, $2, $3)', 1, 'abc', '2027-01-01') > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT to_jsonb(c) FROM check_own c;
-- from a task
SELECT delay_schedule('0', 'SELECT delay_schedule(''1 hour'', ''SELECT nothing''), set_config(''delay_wheel.check_sql'', ''plan'', true)') > 0 AS ok;
SELECT delay_schedule('0', 'SELECT delay_schedule_task(''SELECT nothing'', options => ''{"check_sql": "plan"}'')') AS id \gset
SELECT pg_temp.wait_until_done();
SELECT sqlstate, message FROM delay_wheel.failed WHERE id = :id;
SELECT count(delay_cancel(id)) FROM delay_wheel.tasks;
DELETE FROM delay_wheel_data.failed_task;

RESET delay_wheel.check_sql;
SELECT delay_wheel.disallow('regress_dw_check');
DROP FUNCTION check_definer, check_folded, check_allowed, check_refused;
DROP PROCEDURE check_procedure;
DROP VIEW check_view;
DROP TABLE check_own, check_secret, check_said;
DROP SCHEMA check_schema CASCADE;
DROP ROLE regress_dw_check;
