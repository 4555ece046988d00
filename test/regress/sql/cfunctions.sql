--
-- CFUNCTIONS
-- Each C function, called with NULL for all arguments, and declared in wrong
-- ways by a superuser: errors, and the server goes on.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

SELECT delay_schedule('0', 'SELECT 1') > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT pg_postmaster_start_time() AS started, pid AS timer FROM pg_stat_activity
	WHERE backend_type = 'delay_wheel timer' AND datname = current_database() \gset
CREATE VIEW cfunctions AS
	SELECT p.*, p.oid::regprocedure AS function
	FROM pg_extension e JOIN pg_depend d ON d.refobjid = e.oid AND d.deptype = 'e' JOIN pg_proc p ON p.oid = d.objid
	WHERE e.extname = 'delay_wheel' AND d.classid = 'pg_proc'::regclass AND p.probin IS NOT NULL;

-- NULL everywhere
CREATE FUNCTION pg_temp.outcome(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE command;
	GET DIAGNOSTICS n = ROW_COUNT;
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
SELECT count(*) > 10 AS several, count(*) FILTER (WHERE outcome = 'ok') > 0 AS some_ok,
		array_agg(outcome) FILTER (WHERE outcome !~ '^(ok|22004: .* must not be null|42804: .* return type (trigger|fdw_handler))$') AS other
	FROM cfunctions, pg_temp.outcome(format('SELECT * FROM %s(%s)', oid::regproc,
		(SELECT string_agg(CASE WHEN t = '"any"'::regtype THEN 'NULL::text' ELSE
			CASE WHEN provariadic <> 0 AND provariadic <> '"any"'::regtype THEN 'VARIADIC ' ELSE '' END || format('NULL::%s', t::regtype) END, ', ')
		FROM unnest(proargtypes) t))) outcome;
-- some of them have paused tasks
SELECT delay_resume(), delay_resume_database();
-- one NULL after the other
SELECT call, pg_temp.outcome('SELECT ' || call) FROM unnest(ARRAY[
	'delay_schedule(NULL, ''SELECT 1'', 1)', 'delay_schedule(''1 h'', NULL, 1)', 'delay_schedule(''1 h'', ''SELECT $1'', VARIADIC NULL::int[])',
	'delay_cancel(NULL)', 'delay_reschedule(NULL, ''1 h'')', 'delay_reschedule(1, NULL)',
	'delay_reschedule_at(NULL, now())', 'delay_reschedule_at(1, NULL)']) call;
-- the ends of time (by UTC: what a zone was 6,000 years ago depends on its rules' age)
SELECT due AT TIME ZONE 'UTC' AS due, slot BETWEEN 0 AND current_setting('delay_wheel.slots')::int - 1 AS slot, sign(cycle_num)
	FROM unnest('{-infinity, infinity, 4714-11-24 00:00:00+00 BC, 294276-12-31 23:59:59+00}'::timestamptz[]) due, delay_wheel_internal.place(due);

-- Declared otherwise: with other types, fewer and more of them, as a trigger,
-- as a set.  The last ones are called with what a set of any columns is.
BEGIN;
CREATE SCHEMA cfunctions_wrong;
CREATE TABLE cfunctions_wrong.t (i int);
CREATE FUNCTION pg_temp.try(symbol text, arguments text, result text, call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE FUNCTION cfunctions_wrong.f(%s) RETURNS %s AS ''delay_wheel'', %L LANGUAGE C', arguments, result, symbol);
	EXECUTE call;
	RAISE EXCEPTION USING ERRCODE = 'DW000', MESSAGE = 'no error';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
CREATE FUNCTION pg_temp.try_trigger(symbol text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE FUNCTION cfunctions_wrong.f() RETURNS trigger AS ''delay_wheel'', %L LANGUAGE C', symbol);
	CREATE TRIGGER f BEFORE INSERT ON cfunctions_wrong.t FOR EACH ROW EXECUTE FUNCTION cfunctions_wrong.f();
	INSERT INTO cfunctions_wrong.t VALUES (1);
	RAISE EXCEPTION USING ERRCODE = 'DW000', MESSAGE = 'no error';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
CREATE TABLE cfunctions_wrong.results AS
	SELECT prosrc, arguments, result, pg_temp.try(prosrc, arguments, result, call) AS outcome
	FROM (SELECT DISTINCT prosrc FROM cfunctions) f,
		(VALUES ('', 'int', 'SELECT cfunctions_wrong.f()'),
			('', 'text', 'SELECT length(cfunctions_wrong.f())'),
			('int', 'text', 'SELECT length(cfunctions_wrong.f(1))'),
			('int, int', 'bigint', 'SELECT cfunctions_wrong.f(1, 2)'),
			('text, text', 'text', 'SELECT length(cfunctions_wrong.f(''a'', ''b''))'),
			('bigint, bigint, bigint, bigint', 'name', 'SELECT cfunctions_wrong.f(1, 2, 3, 4)'),
			('interval', 'bigint', 'SELECT cfunctions_wrong.f(''1 h'')'),
			('text', 'record', 'SELECT cfunctions_wrong.f(''x'')'),
			('timestamptz', 'record', 'SELECT * FROM cfunctions_wrong.f(now()) AS t(a text, b text, c text)'),
			('timestamptz', 'record', 'SELECT * FROM cfunctions_wrong.f(now()) AS t(a text, b text)'),
			('', 'SETOF text', 'SELECT * FROM cfunctions_wrong.f()'),
			('', 'SETOF record', 'SELECT * FROM cfunctions_wrong.f() AS t(a text)'),
			('', 'SETOF record', 'SELECT * FROM cfunctions_wrong.f() AS t(' || (SELECT string_agg('c' || i || ' text', ', ') FROM generate_series(1, 30) i) || ')'),
			('', 'SETOF record', 'SELECT cfunctions_wrong.f()')) v(arguments, result, call);
SELECT count(*) > 100 AS many, count(DISTINCT prosrc) = (SELECT count(DISTINCT prosrc) FROM cfunctions) AS all_functions FROM cfunctions_wrong.results;
-- (an argument more than is looked at does no harm)
SELECT * FROM cfunctions_wrong.results WHERE outcome !~ '^(42P13|39P01|0A000: set-valued|XX000: return type must be a row type)' ORDER BY 1, 2, 3;
SELECT prosrc, outcome FROM (SELECT DISTINCT prosrc FROM cfunctions) f, pg_temp.try_trigger(prosrc) outcome
	WHERE outcome !~ '^(42P13|39P01|0A000: set-valued)' ORDER BY prosrc COLLATE "C";
ROLLBACK;
SELECT pg_postmaster_start_time() = :'started' AS same_server, pid = :timer AS same_timer FROM pg_stat_activity
	WHERE backend_type = 'delay_wheel timer' AND datname = current_database();
DROP VIEW cfunctions;
