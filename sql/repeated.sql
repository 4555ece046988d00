--
-- REPEATED
-- A text that differs from the last one in nothing but its numbers is not
-- parsed again; one in which the numbers matter is.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

-- what the parser has to say of a text shows whether it was asked
BEGIN;
SELECT delay_schedule('1 hour', 'SELECT 1 AS ' || repeat('long', 16) || 'er') > 0 AS parsed;
SELECT delay_schedule('1 hour', 'SELECT 1 AS ' || repeat('long', 16) || 'er') > 0 AS the_same;
SELECT delay_schedule('1 hour', 'SELECT 234567890 AS ' || repeat('long', 16) || 'er') > 0 AS another_number;
SELECT delay_schedule('1 hour', 'SELECT 0 AS ' || repeat('long', 16) || 'er', VARIADIC '{}'::int[]) > 0 AS no_arguments;
SELECT delay_schedule_task('SELECT 0 AS ' || repeat('long', 16) || 'er', delay => '1 hour') > 0 AS by_the_other_function;
SELECT delay_schedule('1 hour', 'SELECT 1234567890 AS ' || repeat('long', 16) || 'er') > 0 AS many_digits;
SELECT delay_schedule('1 hour', 'SELECT 1  AS ' || repeat('long', 16) || 'er') > 0 AS a_space_more;
SELECT delay_schedule('1 hour', 'SELECT 1  AS ' || repeat('long', 16) || 'est') > 0 AS another_name;
SELECT delay_schedule('1 hour', 'SELECT 1  AS ' || repeat('long', 16)) > 0 AS cut_off;
SELECT delay_schedule('1 hour', 'SELECT 1  AS ' || repeat('long', 16)) > 0 AS too_short_to_tell;
-- each task has its own text
SELECT sql FROM delay_wheel.tasks ORDER BY id;
ROLLBACK;

-- numbers wherever they may stand
CREATE FUNCTION pg_temp.schedule_both(first text, second text, OUT first_code text, OUT second_code text, OUT second_message text)
LANGUAGE plpgsql AS $$
BEGIN
	first_code := coalesce((SELECT code FROM pg_temp.error_of(format('SELECT delay_schedule(%L, %L)', '1 hour', first))), 'ok');
	SELECT code, message INTO second_code, second_message
		FROM pg_temp.error_of(format('SELECT delay_schedule(%L, %L)', '1 hour', second));
	second_code := coalesce(second_code, 'ok');
END
$$;
BEGIN;
SELECT second, e.*
FROM (VALUES
	('SELECT 1', 'SELECT 22'),
	('SELECT 22', 'SELECT 1'),
	('SELECT 12, 3', 'SELECT 1, 23'),
	('SELECT 1.5, .5, -1, 1e+5, ''1''', 'SELECT 22.75, .125, -33, 1e+44, ''2026-11-21'''),
	('SELECT a[1] FROM f(2)', 'SELECT a[11] FROM f(22)'),
	('SELECT ''2026-11-21'', "1", 2 /* 3 */ -- 4', 'SELECT ''1999-01-02'', "2", 3 /* 44 */ -- 5'),
	('INSERT INTO t VALUES (1, 2); DELETE FROM t WHERE i = 3', 'INSERT INTO t VALUES (4, 55); DELETE FROM t WHERE i = 6'),
	-- not the same statement any more
	('SELECT 1', 'SELECT 1,'),
	('SELECT 1', 'SELECT '),
	('SELECT 1 + 1', 'SELECT 1 + '),
	('SELECT 1', 'SELECT 1a'),
	('SELECT 10', 'SELECT 1a'),
	('SELECT 10 a', 'SELECT 10a'),
	('SELECT 1 WHERE true', 'SELECT 1 WHERE 1 true'),
	-- numbers that are something else
	('SELECT $a1$ x $a1$', 'SELECT $a1$ x $a2$'),
	('SELECT $a1$ x $a1$', 'SELECT $a2$ x $a1$'),
	('SELECT $_1$ x $_1$', 'SELECT $_1$ x $_2$'),
	('SELECT U&''d!0061'' UESCAPE ''!''', 'SELECT U&''d!0000'' UESCAPE ''!'''),
	('SELECT U&"d!0061" UESCAPE ''!''', 'SELECT U&"d!0000" UESCAPE ''!'''),
	('SELECT E''\061''', 'SELECT E''\000'''),
	('SELECT 1::float(10)', 'SELECT 1::float(60)'),
	('SELECT 1::FLOAT (10)', 'SELECT 1::FLOAT (0)'),
	('SELECT ''a''::char(9)', 'SELECT ''a''::char(99999999999)'),
	('REINDEX (CONCURRENTLY 0) TABLE t', 'REINDEX (CONCURRENTLY 1) TABLE t'),
	('SELECT 1; REINDEX (CONCURRENTLY 0) TABLE t', 'SELECT 1; REINDEX (CONCURRENTLY 1) TABLE t'),
	('CREATE SUBSCRIPTION s CONNECTION ''x'' PUBLICATION p WITH (create_slot = 0)',
		'CREATE SUBSCRIPTION s CONNECTION ''x'' PUBLICATION p WITH (create_slot = 1)')
	) v (first, second), pg_temp.schedule_both(first, second) e;
ROLLBACK;

-- arguments
BEGIN;
SELECT delay_schedule('1 hour', 'SELECT $1 + 1', 1) > 0 AS ok;
SELECT delay_schedule('1 hour', 'SELECT $1 + 2', 2) > 0 AS ok;
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT $1 + 3', 1, 2)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT $1 + 3')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT $2 + 3', 1)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT $12 + 3', 1)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT $1 + $1, 1', 1)$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT $1 + $2, 1', 1)$$);
ROLLBACK;

-- what was refused is refused again
SELECT code FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELEC 1')$$);
SELECT code FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELEC 1')$$);
SELECT code FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELEC 2')$$);
SELECT code FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'VACUUM')$$);
SELECT code FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'VACUUM')$$);

-- from 19 on, backslashes in ordinary strings always stand for themselves
SELECT current_setting('server_version_num')::int < 190000 AS backslashes \gset
-- settings that give a text another meaning
BEGIN;
SELECT delay_schedule('1 hour', 'SELECT ''1' || chr(92) || '''') > 0 AS ok;
SELECT delay_schedule('1 hour', 'SELECT E''1' || chr(92) || '''''') > 0 AS ok;
SET LOCAL backslash_quote = off;
SELECT code FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT E''1' || chr(92) || '''''')$$);
SELECT code FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT E''2' || chr(92) || '''''')$$);
SET LOCAL backslash_quote = DEFAULT;
\if :backslashes
SET LOCAL standard_conforming_strings = off;
SET LOCAL escape_string_warning = off;
SELECT code AS known FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT ''1' || chr(92) || '''')$$) \gset
SELECT code AS other FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELECT ''2' || chr(92) || '''')$$) \gset
\else
\set known 42601
\set other 42601
\endif
\echo :known :other
ROLLBACK;

-- long texts, and such as fill the memory for one
BEGIN;
SELECT n, delay_schedule('1 hour', rpad('SELECT 1 --', n, 'x')) > 0 AS ok,
	delay_schedule('1 hour', rpad('SELECT 2 --', n, 'x')) > 0 AS ok,
	(SELECT code FROM pg_temp.error_of(format('SELECT delay_schedule(%L, %L)', '1 hour', rpad('SELECT 1, --', n, 'x'))))
FROM unnest('{2047, 2048, 2049, 20000}'::int[]) n;
ROLLBACK;

-- a text that was not checked is not known
BEGIN;
SET LOCAL delay_wheel.check_sql = off;
SELECT delay_schedule('1 hour', 'SELEC 1') > 0 AS ok;
SET LOCAL delay_wheel.check_sql = on;
SELECT code FROM pg_temp.error_of($$SELECT delay_schedule('1 hour', 'SELEC 1')$$);
ROLLBACK;
