--
-- ARGS
-- Arguments arrive as they were passed, whatever settings the two sessions
-- have: the one that schedules, and the one that runs the task.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

CREATE SCHEMA args_shadow;
CREATE TYPE args_enum AS ENUM ('a', 'it''s', 'with "quotes", comma');
CREATE TYPE args_row AS (ts timestamptz, f float8, i interval, t text, e args_enum);
CREATE DOMAIN args_domain AS numeric(6,2) CHECK (VALUE > 0);
CREATE DOMAIN args_ints AS int[];
CREATE TYPE args_range AS RANGE (subtype = timestamptz);
CREATE TABLE args_effect (label text, same boolean, type text);
CREATE FUNCTION args_f(int) RETURNS int LANGUAGE sql AS 'SELECT $1';
-- Objects that would be found instead of the real ones.
CREATE TYPE args_shadow.args_enum AS ENUM ('x');
CREATE FUNCTION args_shadow.args_f(int) RETURNS int LANGUAGE sql AS 'SELECT 0';
CREATE FUNCTION args_shadow.record_send(record) RETURNS bytea LANGUAGE sql AS $$SELECT ''::bytea$$;
GRANT USAGE ON SCHEMA args_shadow TO PUBLIC;
GRANT ALL ON args_effect TO PUBLIC;

-- The side that runs: a role with settings of its own.
CREATE ROLE regress_dw_args LOGIN;
SELECT delay_wheel.allow('regress_dw_args');
ALTER ROLE regress_dw_args SET DateStyle = 'German, DMY';
ALTER ROLE regress_dw_args SET IntervalStyle = 'iso_8601';
ALTER ROLE regress_dw_args SET TimeZone = 'Asia/Kathmandu';
ALTER ROLE regress_dw_args SET extra_float_digits = -15;
ALTER ROLE regress_dw_args SET bytea_output = 'escape';
ALTER ROLE regress_dw_args SET xmloption = 'document';
ALTER ROLE regress_dw_args SET array_nulls = off;
-- from 19 on, backslashes always stand for themselves
SELECT current_setting('server_version_num')::int < 190000 AS backslashes \gset
\if :backslashes
ALTER ROLE regress_dw_args SET standard_conforming_strings = off;
\endif
ALTER ROLE regress_dw_args SET backslash_quote = off;
ALTER ROLE regress_dw_args SET search_path = 'args_shadow, public, pg_catalog';

-- Sends a value on its way, with its binary image, which no setting changes,
-- to compare with.
CREATE FUNCTION pg_temp.send(label text, value anyelement) RETURNS void
LANGUAGE sql AS $$
SELECT public.delay_schedule('0',
	'INSERT INTO public.args_effect
	 SELECT $1, pg_catalog.record_send(ROW($2)) = $3, pg_catalog.format_type(pg_catalog.pg_typeof($2), NULL)',
	label, value, pg_catalog.record_send(ROW(value)))
$$;

SET SESSION AUTHORIZATION regress_dw_args;
-- The side that schedules.
SET DateStyle = 'SQL, MDY';
SET IntervalStyle = 'sql_standard';
SET TimeZone = 'America/St_Johns';
SET extra_float_digits = -10;
SET bytea_output = 'hex';

DO $do$
DECLARE
	hostile text := E'it''s "quoted", \\ backslash, $1 $$ {}(),;\n\r\ttab -- no comment /*';
BEGIN
	PERFORM pg_temp.send('bool', true), pg_temp.send('bool f', false);
	PERFORM pg_temp.send('int2', '-32768'::int2), pg_temp.send('int4', '-2147483648'::int4),
		pg_temp.send('int8', '-9223372036854775808'::int8), pg_temp.send('oid', 4294967295::oid);
	PERFORM pg_temp.send('float8 ' || f, f)
		FROM unnest('{0, -0, 0.1, 1e308, 4.9e-324, 0.30000000000000004, 123456789012345.678, Infinity, -Infinity, NaN}'::float8[]) f;
	PERFORM pg_temp.send('float4 ' || f, f)
		FROM unnest('{-0, 0.1, 3.4e38, 1.4e-45, 16777217, Infinity, -Infinity, NaN}'::float4[]) f;
	PERFORM pg_temp.send('numeric ' || n, n)
		FROM unnest('{0, 0.000, -1.10, 1e-100, 12345678901234567890.123456789, NaN, Infinity, -Infinity}'::numeric[]) n;
	PERFORM pg_temp.send('money', '-1234567.89'::numeric::money);
	PERFORM pg_temp.send('text', hostile), pg_temp.send('text empty', ''::text),
		pg_temp.send('text null', 'NULL'::text), pg_temp.send('varchar', hostile::varchar),
		pg_temp.send('bpchar', 'ab  '::char(10)), pg_temp.send('name', hostile::name),
		pg_temp.send('"char"', '\'::"char"), pg_temp.send('long text', repeat(hostile, 30000));
	PERFORM pg_temp.send('bytea', decode(string_agg(lpad(to_hex(b), 2, '0'), '' ORDER BY b), 'hex'))
		FROM generate_series(0, 255) b;
	PERFORM pg_temp.send('bytea empty', ''::bytea);
	PERFORM pg_temp.send('date ' || d, d)
		FROM unnest('{2026-02-01, 2001-12-11, 0001-01-01 BC, 4713-01-01 BC, 5874897-12-31, infinity, -infinity}'::date[]) d;
	PERFORM pg_temp.send('timestamp ' || t, t)
		FROM unnest('{2026-02-01 03:04:05.678901, 0044-03-15 12:00 BC, 294276-12-31 23:59:59.999999, infinity, -infinity}'::timestamp[]) t;
	PERFORM pg_temp.send('timestamptz ' || t, t)
		FROM unnest('{2026-02-01 03:04:05.678901+00, 1883-11-18 12:03:58+00, 0044-03-15 12:00+00 BC, 294276-12-31 23:59:59.999999+00, infinity, -infinity}'::timestamptz[]) t;
	PERFORM pg_temp.send('time ' || t, t) FROM unnest('{00:00, 23:59:59.999999, 24:00}'::time[]) t;
	PERFORM pg_temp.send('timetz ' || t, t) FROM unnest('{00:00+15:59, 23:59:59.999999-03:30:17, 24:00-12}'::timetz[]) t;
	PERFORM pg_temp.send('interval ' || i, i)
		FROM unnest('{0, 1 mon -2 days 03:04:05.678901, -1 year -2 mons +3 days -04:05:06, 100000 years, -00:00:00.000001}'::interval[]) i;
	PERFORM pg_temp.send('bit', B'1011'), pg_temp.send('varbit', B''::varbit),
		pg_temp.send('uuid', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid),
		pg_temp.send('inet', '192.168.100.128/25'::inet), pg_temp.send('cidr', '2001:db8::/32'::cidr),
		pg_temp.send('macaddr', '08:00:2b:01:02:03'::macaddr), pg_temp.send('point', '(0.1,0.30000000000000004)'::point),
		pg_temp.send('polygon', '((0,0),(0,1e-300),(1,0.1))'::polygon);
	PERFORM pg_temp.send('json', json_build_object(hostile, hostile)),
		pg_temp.send('jsonb', jsonb_build_object(hostile, hostile, 'n', 1.10)),
		pg_temp.send('jsonpath', '$.a[*] ? (@ > 1)'::jsonpath),
		pg_temp.send('tsvector', to_tsvector('simple', hostile)), pg_temp.send('tsquery', 'a & !b:*'::tsquery);
	PERFORM pg_temp.send('int array', '{{1,NULL},{3,4}}'::int[]), pg_temp.send('array with bounds', '[5:6]={1,2}'::int[]),
		pg_temp.send('empty array', '{}'::date[]), pg_temp.send('text array', ARRAY[hostile, 'NULL', NULL, '']),
		pg_temp.send('timestamptz array', '{2026-02-01 03:04:05+00, NULL}'::timestamptz[]),
		pg_temp.send('interval array', '{1 mon -1 day}'::interval[]),
		pg_temp.send('float8 array', '{0.30000000000000004, NaN}'::float8[]), pg_temp.send('bytea array', ARRAY['\x00ff5c27'::bytea]);
	PERFORM pg_temp.send('enum', e) FROM unnest(enum_range(NULL::args_enum)) e;
	PERFORM pg_temp.send('domain', 1234.56::args_domain), pg_temp.send('domain over array', '{1,2}'::args_ints),
		pg_temp.send('row', ROW('2026-02-01 03:04:05.6+00', 0.30000000000000004, '1 mon -1 day', hostile, 'it''s')::args_row),
		pg_temp.send('row of nulls', ROW(NULL, NULL, NULL, NULL, NULL)::args_row),
		pg_temp.send('row array', ARRAY[ROW('2026-02-01 03:04:05.6+00', 'NaN', '-1 day', hostile, 'a')::args_row, NULL]),
		pg_temp.send('range', args_range('2026-02-01 03:04:05+00', '2026-02-02 00:00+00', '(]')),
		pg_temp.send('daterange', daterange('2026-02-01', NULL)),
		pg_temp.send('multirange', '{[2026-02-01,2026-02-02), [2026-12-11,)}'::datemultirange);
	-- names of objects: with their schemas, for each side finds others
	PERFORM pg_temp.send('regclass', 'args_effect'::regclass), pg_temp.send('regtype', 'args_enum'::regtype),
		pg_temp.send('regprocedure', 'args_f(int)'::regprocedure), pg_temp.send('regproc', 'args_f'::regproc),
		pg_temp.send('regrole', 'regress_dw_args'::regrole);
END
$do$;
RESET SESSION AUTHORIZATION;
RESET ALL;
SELECT pg_temp.wait_until_done();
SELECT count(*) >= 100 AS many, count(*) FILTER (WHERE same) = count(*) AS all_same FROM args_effect;
SELECT label, type FROM args_effect WHERE same IS NOT true ORDER BY 1;
SELECT id, sql, message FROM delay_wheel.failed WHERE owner = 'regress_dw_args' ORDER BY id;
SELECT type, count(*) FROM args_effect GROUP BY type ORDER BY type COLLATE "C";
TRUNCATE args_effect;

--
-- NULLs, several arguments, the same one twice
--
CREATE TABLE args_null (label text, is_null boolean[], types regtype[]);
SELECT delay_schedule('0', $$INSERT INTO args_null VALUES ('nulls', ARRAY[$1 IS NULL, $2 IS NULL, $3 IS NULL, $1 IS NULL], ARRAY[pg_typeof($1), pg_typeof($2), pg_typeof($3)])$$,
	NULL::int, NULL::text[], NULL::args_row) > 0 AS ok;
SELECT delay_schedule('0', $$INSERT INTO args_null VALUES ('untyped', $1, $2)$$, NULL, NULL) > 0 AS ok;
SELECT delay_schedule('0', $$INSERT INTO args_null VALUES ('domain', ARRAY[$1 IS NULL], ARRAY[pg_typeof($1)])$$, NULL::args_domain) > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT * FROM args_null ORDER BY 1;
DROP TABLE args_null;

--
-- An untyped literal means what it would mean in the text of the statement
--
CREATE TABLE args_untyped (n numeric, d date, e args_enum, a int[], t text, i interval);
SELECT delay_schedule('0', 'INSERT INTO args_untyped VALUES ($1, $2, $3, $4, $5, $6)',
	'1.50', '2026-02-01', 'it''s', '{1,2}', E'it''s \\ $1', '1 mon') > 0 AS ok;
SELECT delay_schedule('0', 'INSERT INTO args_untyped (t) SELECT $1 || $2 || pg_typeof($1) WHERE 7 > $3 AND $4 IN (''x'', $4)',
	'a', 'b', '6', 'y') > 0 AS ok;
SELECT pg_temp.wait_until_done();
SELECT n, to_char(d, 'YYYY-MM-DD') AS d, e, a, t, i FROM args_untyped ORDER BY n;
-- one that the statement cannot take is the task's error
SELECT delay_schedule('0', 'INSERT INTO args_untyped (n) VALUES ($1)', 'not a number') AS id \gset
SELECT pg_temp.wait_until_done();
SELECT sqlstate, message FROM delay_wheel.failed WHERE id = :id;
DELETE FROM delay_wheel_data.failed_task WHERE id = :id;
DROP TABLE args_untyped;

--
-- VARIADIC
--
SELECT delay_schedule('0', 'INSERT INTO args_effect SELECT $1, $2 IS NULL, $3', VARIADIC ARRAY['variadic', NULL, 'c']) > 0 AS ok;
SELECT delay_schedule('0', 'INSERT INTO args_effect SELECT ''ints'', $1 + $2 = 3, pg_typeof($1)', VARIADIC '{1,2}'::args_ints) > 0 AS ok;
SELECT delay_schedule('0', 'INSERT INTO args_effect VALUES (''none'')', VARIADIC '{}'::int[]) > 0 AS ok;
SELECT delay_schedule('0', 'INSERT INTO args_effect VALUES (''null'')', VARIADIC NULL::int[]) > 0 AS ok;
SELECT delay_schedule_at(now(), 'INSERT INTO args_effect SELECT ''at'', $1 = DATE ''2026-02-01''', VARIADIC '{2026-02-01}'::date[]) > 0 AS ok;
SELECT delay_schedule_at(now(), 'INSERT INTO args_effect SELECT ''at 2'', $2 = $1', DATE '2026-02-01', TIMESTAMP '2026-02-01') > 0 AS ok;
-- more than a function call could have
SELECT delay_schedule('0', 'INSERT INTO args_effect SELECT ''many'', sum(x) = 500500 FROM (VALUES ('
		|| string_agg('$' || i, '), (') || ')) v(x)', VARIADIC array_agg(i)) > 0 AS ok
	FROM generate_series(1, 1000) i;
SELECT pg_temp.wait_until_done();
SELECT * FROM args_effect ORDER BY label COLLATE "C";

--
-- Quotes, in all combinations, without format()
--
TRUNCATE args_effect;
SELECT count(delay_schedule('0', 'INSERT INTO args_effect (label) VALUES ($1)', repeat('''', a) || repeat('\', b) || repeat('"', c)))
	FROM generate_series(0, 3) a, generate_series(0, 3) b, generate_series(0, 3) c;
SELECT pg_temp.wait_until_done();
SELECT count(*), count(DISTINCT label), count(*) FILTER (WHERE label ~ '^''*\\*"*$') FROM args_effect;

--
-- Refused when scheduled: types without values that can be read back
--
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule('1 s', 'SELECT $1', ROW(1, 2))$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule('1 s', 'SELECT $1', ARRAY[ROW(1, 2)])$$);
SELECT * FROM pg_temp.error_of($$SELECT delay_schedule('1 s', 'SELECT $1', adbin) FROM pg_attrdef LIMIT 1$$);

--
-- What changed in between is the task's error
--
CREATE TYPE args_dropped AS ENUM ('a');
CREATE TYPE args_renamed AS ENUM ('a');
BEGIN;
SELECT delay_schedule('0', 'SELECT $1', 'a'::args_dropped) AS id1 \gset
SELECT delay_schedule('0', 'SELECT $1', 5::args_domain) AS id2 \gset
SELECT delay_schedule('0', 'SELECT $1', 'a'::args_enum) AS id3 \gset
SELECT delay_schedule('0', $$INSERT INTO args_effect (label, type) VALUES ('renamed', pg_typeof($1))$$, 'a'::args_renamed) AS id4 \gset
DROP TYPE args_dropped;
ALTER DOMAIN args_domain ADD CONSTRAINT large CHECK (VALUE > 100) NOT VALID;
ALTER TYPE args_enum RENAME VALUE 'a' TO 'z';
ALTER TYPE args_renamed RENAME TO args_other_name;
COMMIT;
SELECT pg_temp.wait_until_done();
SELECT sqlstate, regexp_replace(message, '\d+', 'N'), detail, context FROM delay_wheel.failed WHERE id BETWEEN :id1 AND :id4 ORDER BY id;
SELECT * FROM args_effect WHERE label = 'renamed';

DELETE FROM delay_wheel_data.failed_task WHERE id BETWEEN :id1 AND :id4;

--
-- An explicit cast to a domain cuts what is too long, as that of a literal does;
-- an assignment does not
--
CREATE DOMAIN args_varchar AS varchar(3);
CREATE DOMAIN args_char AS char(3);
CREATE DOMAIN args_bit AS bit(3);
CREATE DOMAIN args_varbit AS varbit(3);
CREATE DOMAIN args_numeric AS numeric(3, 1);
CREATE TABLE args_cut (n serial, label text, value text);
CREATE TABLE args_short (v args_varchar);
SELECT delay_schedule('0', $$INSERT INTO args_cut (label, value) VALUES
	('varchar', $1::args_varchar), ('as a function', args_varchar($1)), ('char', CAST($1 AS args_char)), ('bit', $2::args_bit),
	('varbit', $2::args_varbit), ('numeric', $3::args_numeric), ('not a domain', $1::varchar(3))$$, 'abcdef', '10111', '1.26') AS id1 \gset
SELECT delay_schedule('0', 'INSERT INTO args_short VALUES ($1)', 'abcdef') > 0 AS ok;
SELECT delay_schedule('0', 'INSERT INTO args_short VALUES ($1)', 'abc   ') > 0 AS ok;
-- texts that differ in their constants: from the second one on these are parameters
CREATE FUNCTION args_take(v args_varchar) RETURNS void LANGUAGE sql AS $$INSERT INTO args_cut (label, value) VALUES ('taken out', v)$$;
CREATE FUNCTION args_note(v args_varchar) RETURNS args_varchar LANGUAGE sql AS $$INSERT INTO args_cut (label, value) VALUES ('noted', v) RETURNING v$$;
CREATE DOMAIN args_checked AS varchar(3) CHECK (args_note(VALUE::args_varchar) <> 'abcd');
SELECT count(delay_schedule('0', format('SELECT args_checked(%L)', 'abc' || i))) FROM generate_series(1, 5) i;
SELECT count(delay_schedule('0', format('SELECT args_take(%L)', 'xyz' || i))) FROM generate_series(1, 5) i;
SELECT pg_temp.wait_until_done();
SELECT label, value, count(*) FROM args_cut GROUP BY 1, 2 ORDER BY label COLLATE "C";
SELECT v || '.' AS v FROM args_short;
SELECT message, count(*) FROM delay_wheel.failed WHERE id >= :id1 GROUP BY 1 ORDER BY 1;
DELETE FROM delay_wheel_data.failed_task WHERE id >= :id1;
DROP TABLE args_cut, args_short;
DROP FUNCTION args_take;
DROP DOMAIN args_checked;
DROP FUNCTION args_note;
DROP DOMAIN args_varchar, args_char, args_bit, args_varbit, args_numeric;

DROP TABLE args_effect;
DROP FUNCTION args_f;
DROP TYPE args_row, args_range, args_enum, args_other_name;
DROP DOMAIN args_domain, args_ints;
SET client_min_messages = warning;
DROP SCHEMA args_shadow CASCADE;
SELECT delay_wheel.disallow('regress_dw_args');
DROP ROLE regress_dw_args;
