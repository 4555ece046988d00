--
-- PARAMETERS
-- Calls by clients of all kinds: parameters without types, texts, arrays, names; and what
-- the views give them.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set VERBOSITY terse
SET client_min_messages = warning;
DELETE FROM delay_wheel_data.task;
CREATE TABLE parameters_t (id bigint PRIMARY KEY, n int, note text, at timestamptz, tags text[]);
INSERT INTO parameters_t SELECT generate_series(1, 20);

--
-- Parameters whose types the client leaves to the server.  PREPARE finds types as the
-- extended protocol does.
--
PREPARE plain AS SELECT delay_schedule($1, $2) > 0 AS ok;
PREPARE one AS SELECT delay_schedule($1, $2, $3) > 0 AS ok;
PREPARE mixed AS SELECT delay_schedule($1, $2, $3, $4, $5::bigint, 7) > 0 AS ok;
PREPARE at AS SELECT delay_schedule_at($1, $2, $3, $4) > 0 AS ok;
PREPARE named AS SELECT delay_schedule_task($1, named => $2, delay => $3, key => $4, max_attempts => $5) > 0 AS ok;
PREPARE args AS SELECT delay_schedule_task($1, args => $2, due => $3) > 0 AS ok;
PREPARE many AS SELECT count(delay_schedule($1, $2, $3, i)) FROM generate_series(1, 3) i;
PREPARE move AS SELECT delay_reschedule($1, $2);
PREPARE cte AS WITH o AS (INSERT INTO parameters_t (id) VALUES ($1) RETURNING id) SELECT delay_schedule('0', $2, $1) > 0 AS ok FROM o;
PREPARE sub AS SELECT (SELECT delay_schedule('1 h', 'SELECT $1', $1) > 0) AS ok WHERE EXISTS (SELECT delay_schedule('1 h', 'SELECT $1', $2));
SELECT name, parameter_types FROM pg_prepared_statements ORDER BY name;
EXECUTE plain('0', 'UPDATE parameters_t SET n = 1 WHERE id = 1');
EXECUTE one('0', 'UPDATE parameters_t SET n = 2 WHERE id = $1', 2);
EXECUTE one('0', 'UPDATE parameters_t SET n = 3 WHERE id = $1', '3');
EXECUTE mixed('0', 'UPDATE parameters_t SET n = $4, note = $1, at = $2 WHERE id = $3', 'it''s', NULL, 4);
EXECUTE mixed('0', 'UPDATE parameters_t SET n = $4, note = $1, at = $2 WHERE id = $3', NULL, '2001-02-03 00:00+00', 5);
EXECUTE at(now(), 'UPDATE parameters_t SET n = 6, tags = $1 WHERE id = $2', '{a,b}', 6);
EXECUTE named('UPDATE parameters_t SET n = 7, note = :note WHERE id = :id', '{"id": 7, "note": "x"}', '0', 'seven', 2);
EXECUTE args('UPDATE parameters_t SET n = 8 WHERE id = $1 AND $2::text IS NULL', '{8,NULL}', now());
EXECUTE many('0', 'UPDATE parameters_t SET n = 9, note = $1 WHERE id = 8 + $2', 'many');
EXECUTE cte(100, 'UPDATE parameters_t SET n = 100 WHERE id = $1');
SELECT pg_temp.wait_until_done();
SELECT id, n, note, at AT TIME ZONE 'UTC' AS at, tags FROM parameters_t WHERE n IS NOT NULL ORDER BY id;
SELECT count(*) FROM delay_wheel.failed;
EXECUTE sub('a', 'b');
SELECT delay_schedule('1 day', 'SELECT 1') AS id \gset
EXECUTE move(:id, '2 days');
SELECT round(extract(epoch FROM due - now()) / 86400) AS days FROM delay_wheel.tasks WHERE id = :id;
-- errors are those of a literal
EXECUTE one('1 hrz', 'SELECT $1', 'x');
EXECUTE one(NULL, 'SELECT $1', 'x');
EXECUTE one('1 h', 'SELECT 1', 'x');
-- of functions of others nothing is changed
PREPARE other AS SELECT format('%s', $1);
PREPARE other AS SELECT jsonb_build_array($1);
-- nor of a parameter that one of them has, too
PREPARE other AS SELECT delay_schedule('1 h', 'SELECT $1', $1), format('%s', $1);
-- a value that the statement uses elsewhere: before the call it has the type of that place, after it takes a cast
PREPARE later AS SELECT delay_schedule('1 h', 'SELECT $1', $1) FROM parameters_t WHERE id = $1;
PREPARE later AS SELECT delay_schedule('1 h', 'SELECT $1', $1::int) > 0 AS ok FROM parameters_t WHERE id = $1;
-- types that the client has named stay, also after a change of the catalogs, from when on
-- PostgreSQL knows the types of all parameters
PREPARE types(text, varchar, int) AS SELECT delay_schedule('1 h', 'SELECT $1, $2, $3, $4, $5, $6', $1, $2, $3, $4, $5::text, $6::char(2)) > 0 AS ok;
EXECUTE types('types', 'b', 7, 'd', 'e', 'fgh');
CREATE SCHEMA parameters_s;
EXECUTE types('types', 'b', 7, 'd', 'e', 'fgh');
EXECUTE one('0', 'UPDATE parameters_t SET n = 10 WHERE id = $1', 12);
SET search_path = parameters_s, public;
EXECUTE one('0', 'UPDATE parameters_t SET n = 10 WHERE id = $1', 13);
EXECUTE later(14);
RESET search_path;
DROP SCHEMA parameters_s;
SELECT pg_temp.wait_until_done();
SELECT id, n FROM parameters_t WHERE id IN (12, 13) ORDER BY id;
SELECT args, arg_types FROM delay_wheel.tasks WHERE args[1] IN ('types', '14') ORDER BY id;
-- variables of PL/pgSQL have their types
CREATE FUNCTION parameters_f(code char(3)) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
	id bigint;
BEGIN
	RETURN NEXT delay_schedule('1 h', 'SELECT $1', code);
	EXECUTE $e$SELECT delay_schedule('1 h', 'SELECT $1', $1)$e$ INTO id USING code;
	RETURN NEXT id;
END $$;
SELECT count(*) FROM parameters_f('x');
DROP FUNCTION parameters_f;
CREATE FUNCTION parameters_f(code bpchar) RETURNS bigint BEGIN ATOMIC SELECT delay_schedule('1 h', 'SELECT $1', code); END;
SELECT count(parameters_f('x'));
DROP FUNCTION parameters_f;
SELECT args, arg_types FROM delay_wheel.tasks WHERE args[1] = 'x' ORDER BY id;
-- in a savepoint, in a plan that is generic
SET plan_cache_mode = force_generic_plan;
BEGIN;
SAVEPOINT s;
EXECUTE one('1 h', 'SELECT $1', 'kept');
ROLLBACK TO s;
EXECUTE one('1 h', 'SELECT $1', 'kept again');
COMMIT;
ALTER TABLE parameters_t ADD COLUMN more int;
EXECUTE cte(101, 'UPDATE parameters_t SET n = 101 WHERE id = $1');
RESET plan_cache_mode;
SELECT args FROM delay_wheel.tasks WHERE args[1] LIKE 'kept%';
DEALLOCATE ALL;
-- EXPLAIN shows the plan, and schedules nothing
PREPARE one AS SELECT delay_schedule($1, $2, $3) > 0 AS ok;
EXPLAIN (COSTS OFF) EXECUTE one('1 h', 'SELECT $1', 'explained');
SELECT count(*) FROM delay_wheel.tasks WHERE args[1] = 'explained';
DEALLOCATE ALL;

--
-- Texts as delays
--
SELECT delay_schedule('1 hour'::varchar, 'SELECT 1'::varchar) > 0 AS ok;
SELECT delay_schedule('1 hour'::text, 'SELECT $1', 1) > 0 AS ok;
SELECT delay_reschedule(:id, '1 mon'::text);
-- the settings of a literal hold, also if they change
SET intervalstyle = sql_standard;
SELECT delay_schedule('-1 1:00:00', 'SELECT ''sql''') > 0 AS ok;
SET intervalstyle = postgres;
SELECT delay_schedule('-1 1:00:00', 'SELECT ''postgres''') > 0 AS ok;
RESET intervalstyle;
SELECT delay_schedule(repeat(' ', 40) || '1 hour', 'SELECT 1') > 0 AS ok;
SELECT delay_schedule('', 'SELECT 1');
SELECT delay_schedule('1 hour ago and more', 'SELECT 1');
SELECT delay_schedule(NULL::text, 'SELECT 1');
SELECT delay_schedule(30, 'SELECT 1');

--
-- Arrays of other types as arguments
--
SELECT delay_schedule_task('SELECT $1, $2', args => ARRAY[7, 8], delay => '1 h') AS id \gset
SELECT args, arg_types FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_schedule_task('SELECT $1, $2', args => ARRAY['2001-02-03'::date, NULL], delay => '1 h') AS id \gset
SELECT args, arg_types FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_schedule_task('SELECT $1::int', args => ARRAY['7'::varchar], delay => '1 h') AS id \gset
SELECT args, arg_types FROM delay_wheel.tasks WHERE id = :id;
SELECT delay_schedule_task('SELECT $1', args => ARRAY['x'], delay => '1 h') > 0 AS ok;
SELECT delay_schedule_task('SELECT 1', args => '{}'::int[], delay => '1 h') > 0 AS ok;
SELECT delay_schedule_task('SELECT 1', args => NULL::int[], delay => '1 h') > 0 AS ok;
SELECT delay_every('parameters', '1 h', 'SELECT $1', args => ARRAY[1.5]) > 0 AS ok;
SELECT args, arg_types FROM delay_wheel.recurring WHERE name = 'parameters';
SELECT delay_unschedule('parameters');
SELECT delay_schedule_task('SELECT $1, $2', args => ARRAY[[1, 2]]);
SELECT delay_schedule_task('SELECT $1', args => ARRAY[1], options => '{"arg_types": ["int"]}');
SELECT delay_schedule_task('SELECT $1', args => ARRAY[ROW(1)]);
SELECT delay_schedule_task('SELECT $1', args => 7);

--
-- Names
--
CREATE FUNCTION pg_temp.named(sql text, named jsonb) RETURNS TABLE (stored text, args text[], types text[]) LANGUAGE plpgsql AS $$
DECLARE
	i bigint := delay_schedule_task(sql, named => named, delay => '1 h');
BEGIN
	RETURN QUERY SELECT t.sql, t.args, t.arg_types FROM delay_wheel.tasks t WHERE t.id = i;
END $$;
SELECT * FROM pg_temp.named('UPDATE parameters_t SET note = :note, n = :n WHERE id = :id AND note <> :note', '{"id": 7, "n": null, "note": "a \"b\" $1 :id"}');
-- what is none: in strings, comments, casts, and beside a space
SELECT * FROM pg_temp.named($$SELECT ':a', E'\':a', $q$:a$q$, U&'\003a', ":a", 1::int, /* :a */ (ARRAY[1, 2])[1: 2], :a -- :b
	FROM (SELECT 1) AS x(":a")$$, '{"a": 1}');
SELECT * FROM pg_temp.named('SELECT :a::int[], :b::jsonb, :c::jsonb, :d::bool, :e::numeric', '{"a": "{1,2}", "b": [1, {"x": null}], "c": {}, "d": true, "e": 1e3}');
SELECT * FROM pg_temp.named('SELECT :order, :Order, :ä, :_1', '{"order": 1, "Order": 2, "ä": 3, "_1": 4}');
SELECT * FROM pg_temp.named('SELECT :a1+:a', '{"a": "", "a1": "x"}');
-- a number does not run into the word before it, nor do other quotes begin
SELECT * FROM pg_temp.named('SELECT:a WHERE:b LIMIT:a', '{"a": 1, "b": true}');
SELECT * FROM pg_temp.named('SELECT :a$x$ , :a', '{"a": 1, "a$x$": 2}');
SELECT * FROM pg_temp.named($$SELECT :e'\' || :a'$$, '{"e": 1}');
SELECT * FROM pg_temp.named('SELECT :"f"', '{}');
SELECT * FROM pg_temp.named('SELECT 1', '{}');
SELECT * FROM pg_temp.named('SELECT :a', '{"a": 1, "b": 2}');
SELECT * FROM pg_temp.named('SELECT :b', '{"a": 1}');
SELECT * FROM pg_temp.named('SELECT (ARRAY[1, 2])[1:n]', '{}');
SELECT * FROM pg_temp.named('SELECT :a, $1', '{"a": 1}');
SELECT * FROM pg_temp.named('SELECT :a', '[1]');
SELECT * FROM pg_temp.named('SELECT :a', '"a"');
SELECT * FROM pg_temp.named('SELECT :a '' ', '{"a": 1}');
SELECT delay_schedule_task('SELECT :a', args => '{1}', named => '{"a": 1}');
SELECT delay_schedule_task('SELECT :a', named => '{"a": 1}', options => '{"arg_types": ["int"]}');
SELECT delay_schedule_task('SELECT :a');
\set VERBOSITY default
SELECT delay_schedule_task('SELECT 1 + :b', named => '{"a": 1}');
\set VERBOSITY terse
-- many, each once; too many
SELECT cardinality(n.args), n.args[100], n.stored LIKE 'SELECT $1::int + $2::int + %$100::int + $1' AS in_order FROM (SELECT 1) x,
	pg_temp.named((SELECT 'SELECT ' || string_agg(':p' || i || '::int', ' + ') || ' + :p1' FROM generate_series(1, 100) i), (SELECT jsonb_object_agg('p' || i, i) FROM generate_series(1, 100) i)) n;
SELECT count(*) FROM pg_temp.named((SELECT 'SELECT ' || string_agg(':p' || i, ', ') FROM generate_series(1, 65536) i), (SELECT jsonb_object_agg('p' || i, i) FROM generate_series(1, 65536) i)) n;

--
-- All columns of the views have types that every driver reads
--
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
	WHERE c.relnamespace = 'delay_wheel'::regnamespace AND c.relkind = 'v' AND a.attnum > 0
	AND a.atttypid <> ALL ('{bigint,integer,smallint,text,boolean,double precision,timestamptz,jsonb,text[],integer[]}'::regtype[])
	ORDER BY 1, 2;
SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
	JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'delay_wheel'
	WHERE p.pronamespace <> 'delay_wheel_internal'::regnamespace AND p.prorettype NOT IN ('bigint'::regtype, 'text'::regtype, 'boolean'::regtype, 'trigger'::regtype, 'bigint[]'::regtype)
	ORDER BY p.oid::regprocedure::text COLLATE "C";
CREATE ROLE "regress_dw Odd ""Name" LOGIN;
SELECT delay_wheel.allow('regress_dw Odd "Name');
SELECT delay_wheel.create_queue('parameters', users => '{public,"regress_dw Odd \"Name"}');
SET SESSION AUTHORIZATION "regress_dw Odd ""Name";
SELECT delay_schedule_task('SELECT 1', delay => '1 h', queue => 'parameters', options => '{"timeout": "90 s"}') AS id \gset
SELECT owner, owner = current_user AS mine, timeout FROM delay_wheel.tasks WHERE owner = 'regress_dw Odd "Name';
SELECT delay_cancel(:id);
RESET SESSION AUTHORIZATION;
SELECT name, users, receivers, retry_delay FROM delay_wheel.queues WHERE name = 'parameters';
-- of a role that was dropped
BEGIN;
INSERT INTO delay_wheel_data.task (due, owner, sql) VALUES (now() + '1 day', 4294967294, 'SELECT 1');
SELECT owner FROM delay_wheel.tasks WHERE owner = 'unknown (OID=4294967294)';
ROLLBACK;
SELECT count(*) FROM delay_wheel.tasks WHERE owner = 'no such role';

DELETE FROM delay_wheel_data.task;
SELECT delay_wheel.drop_queue('parameters');
SELECT delay_wheel.disallow('regress_dw Odd "Name');
DROP ROLE "regress_dw Odd ""Name";
DROP TABLE parameters_t;
