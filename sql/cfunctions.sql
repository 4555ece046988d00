--
-- CFUNCTIONS
-- Each C function, called with NULL for all arguments: errors, and the server goes on.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
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
	WHERE e.extname = 'delay_wheel' AND d.classid = 'pg_proc'::regclass AND p.probin IS NOT NULL AND p.prokind = 'f'
		-- that one is for the planner
		AND p.prorettype <> 'internal'::regtype;

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
		array_agg(outcome) FILTER (WHERE outcome !~ '^(ok|22004: (.* must not be null|neither a task id nor a key is given)|55000: it is not known which task this transaction has scheduled last|42804: .* return type (trigger|fdw_handler)|55000: .* has no Citus)$') AS other
	FROM cfunctions, pg_temp.outcome(format('SELECT * FROM %s(%s)', oid::regproc,
		(SELECT string_agg(CASE t WHEN '"any"'::regtype THEN 'NULL::text' WHEN 'anycompatiblearray'::regtype THEN 'NULL::int[]' ELSE
			CASE WHEN provariadic <> 0 AND provariadic <> '"any"'::regtype THEN 'VARIADIC ' ELSE '' END || format('NULL::%s', t::regtype) END, ', ')
		FROM unnest(proargtypes) t))) outcome;
-- some of them have paused tasks
SELECT delay_resume_all(), delay_wheel.resume_database();
-- one NULL after the other
SELECT call, pg_temp.outcome('SELECT ' || call) FROM unnest(ARRAY[
	'delay_schedule(NULL, ''SELECT 1'', 1)', 'delay_schedule(''1 h'', NULL, 1)', 'delay_schedule(''1 h'', ''SELECT $1'', VARIADIC NULL::int[])',
	'delay_cancel(NULL)', 'delay_reschedule(NULL, ''1 h'')', 'delay_reschedule(1, NULL)',
	'delay_reschedule(NULL, now())', 'delay_reschedule(1, NULL)']) call;
CREATE FUNCTION pg_temp.place(due timestamptz, OUT slot int, OUT cycle_num bigint) STRICT LANGUAGE sql
	AS 'SELECT delay_wheel_internal.slot(due), delay_wheel_internal.cycle_num(due)';
-- the ends of time (by UTC: what a zone was 6,000 years ago depends on its rules' age)
SELECT due AT TIME ZONE 'UTC' AS due, slot BETWEEN 0 AND current_setting('delay_wheel.slots')::int - 1 AS slot, sign(cycle_num)
	FROM unnest('{-infinity, infinity, 4714-11-24 00:00:00+00 BC, 294276-12-31 23:59:59+00}'::timestamptz[]) due, pg_temp.place(due);

SELECT pg_postmaster_start_time() = :'started' AS same_server, pid = :timer AS same_timer FROM pg_stat_activity
	WHERE backend_type = 'delay_wheel timer' AND datname = current_database();
DROP VIEW cfunctions;
