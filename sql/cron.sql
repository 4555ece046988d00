--
-- CRON
-- Cron schedules: their syntax, what is wrong with others, changes of the
-- clock, and the same answers as croniter (see test/cron/generate.py).
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all

SET TimeZone = 'UTC';
SET DateStyle = 'ISO';

-- What a schedule means: its first times of 2024, a leap year that begins on a Monday.
CREATE FUNCTION pg_temp.times(schedule text, n int DEFAULT 5) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(to_char(t, 'Dy MM-DD HH24:MI:SS'), ', ' ORDER BY t)
	FROM delay_wheel.cron_times(schedule, 'UTC', '2023-12-31 23:59:59', n) t
$$;
SELECT schedule, pg_temp.times(schedule, 4) FROM unnest(ARRAY[
	'* * * * *', '*/25 * * * *', '10-50/20 * * * *', '50/3 * * * *', '5,7-8,*/30 * * * *', '0 8-18/5 * * *',
	'0 0 29 * *', '0 0 31 */2 *', '0 0 L * *', '0 0 15,L * *', '0 0 l feb *', '0 0 29 2 *', '0 0 1 jul-sep *', '0 0 1 Jan,DEC *',
	'0 0 * * sun', '0 0 * * 0', '0 0 * * 7', '0 0 * * 5-7', '0 0 * * Fri-Sun', '0 0 * * 1/3', '0 0 * * */7',
	'0 0 * * friL', '0 0 * * 5L', '0 0 * * 7L,monl', '0 0 * * fri#1', '0 0 * * 5#5', '0 0 * * tue,fri#1,sunL',
	'* * * * * *', '*/20 59 23 * * *', '5,30-31 0 12 1 * *',
	'@hourly', '@daily', '@midnight', '@weekly', '@monthly', '@yearly', '@Annually', E' \t0   0\n1 1 * ', '@daily ', '00 007 1 1 *']) schedule;
-- a range that ends before it begins goes on from the lowest value
SELECT schedule, pg_temp.times(schedule, 6) FROM unnest(ARRAY[
	'58-1 0 1 * *', '0 22-2 * * *', '0 21-3/3 * * *', '0 0 30-2 * *', '0 0 1 nov-feb *', '0 0 * * fri-mon', '0 0 * * 6-1', '0 0 * * 7-1']) schedule;
-- day of month and day of week: either, unless one of the fields begins with *
SELECT schedule, pg_temp.times(schedule, 6) FROM unnest(ARRAY[
	'0 0 13 * fri', '0 0 13 * *', '0 0 * * fri', '0 0 */2 * fri', '0 0 13 * */5', '0 0 L * fri', '0 0 13 * friL', '0 0 1-31 * fri', '0 0 *,13 * fri']) schedule;
-- which never come, or only after 40 years: 2100 has no 29 February
SELECT schedule, pg_temp.times(schedule) FROM unnest('{0 0 31 2 *, 0 0 30 feb *, 0 0 31 4\,6\,9\,11 *, 0 * 30 2 *, * * * 30 2 *, 0 0 */31 2 mon#2}'::text[]) schedule;
SELECT * FROM delay_wheel.cron_times('0 0 29 2 *', 'UTC', '2091-01-01', 4);
SELECT * FROM delay_wheel.cron_times('0 0 29 2 */7', 'UTC', '2060-01-01', 4);
SELECT * FROM delay_wheel.cron_times('0 0 29 2 *', 'UTC', '4714-11-24 BC', 2);
SELECT * FROM delay_wheel.cron_times('0 0 1 * *', 'Asia/Tokyo', '294276-10-15', 4);
SELECT * FROM delay_wheel.cron_times('0 * 31 12 *', 'America/New_York', '294276-12-31 22:30', 4);

-- What is wrong with a text.
CREATE FUNCTION pg_temp.error(schedule text, zone text DEFAULT 'UTC') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
	hint text;
BEGIN
	PERFORM delay_wheel.cron_times(schedule, zone);
	RETURN NULL;
EXCEPTION WHEN invalid_parameter_value THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' ', nullif(detail, ''), '/ ' || hint);
END $$;
\pset format unaligned
SELECT left(schedule, 30) AS schedule, pg_temp.error(schedule) FROM unnest(ARRAY[
	'', '  ', '*', '* * * *', '* * * * * * *', '30 seconds', '0 0 1 1 * @daily', '@reboot', '@every', '@', '@dail', '@daily_',
	'60 * * * *', '* 24 * * *', '* * 0 * *', '* * 32 * *', '* * * 0 *', '* * * 13 *', '* * * * 8', '60 * * * * *', '5-60 * * * *', '99999999999999999999 * * * *',
	'1,,2 * * * *', ', * * * *', '1, * * * *', '5- * * * *', '-5 * * * *', '1-2-3 * * * *', '*-5 * * * *', '*5 * * * *', '1.5 * * * *', '+5 * * * *',
	'*/0 * * * *', '*/61 * * * *', '*/90 * * * *', '* */25 * * *', '* * */32 * *', '*/ * * * *', '*/-5 * * * *', '*/5/5 * * * *', '/5 * * * *', '*/x * * * *',
	'mon * * * *', '* * * fri *', '* * * january *', '* * * * monday', '* * * * mo', '* * ? * *', '* * 15W * *', '* * L-3 * *', '* * LW * *', '* * 5L * *', '* * L/2 * *',
	'* L * * *', '* * * * L', '* * * * 1-5L', '* * * * 5L/2', '* * * * 8L', '* * * * fri#0', '* * * * fri#6', '* * * * fri#', '* * * * fri#1-2', '* * * * fri#x', '* * * * *#1',
	'H * * * *', 'é * * * *', repeat('x', 80) || ' * * * *', repeat('1,', 499) || '1 * * * *']) schedule;
SELECT left(zone, 30) AS zone, pg_temp.error('* * * * *', zone) FROM unnest(ARRAY['', 'Foo/Bar', '../../etc/passwd', 'Europe/Berlin ', repeat('x', 300)]) zone;
\pset format aligned
SELECT delay_wheel.cron_times('0 25 * * *');
SELECT delay_wheel.cron_times('0 5 * * *', 'Europe/Atlantis');
SELECT delay_wheel.cron_times('@daily', n => 0);
SELECT delay_wheel.cron_times('@daily', n => 10001);
SELECT delay_wheel.cron_times('@daily', after => 'infinity');
SELECT delay_wheel.cron_times('@daily', after => '-infinity');
SELECT delay_wheel.cron_times(NULL);
SELECT delay_wheel.cron_times('@daily', after => NULL);
SELECT delay_wheel.cron_times('@daily', n => NULL);

-- The function.
SELECT provolatile, proparallel, proisstrict, has_function_privilege('public', oid, 'execute') AS public
	FROM pg_proc WHERE oid = 'delay_wheel.cron_times'::regproc;
BEGIN;
SELECT count(*), min(t) > now() AS later, max(t) <= now() + interval '1 minute' AS soon FROM delay_wheel.cron_times('* * * * *') t;
COMMIT;
-- later than after, by a microsecond; at its very time not
SELECT to_char(t, 'HH24:MI:SS.US') FROM unnest('{2024-05-01 11:59:59.999999, 2024-05-01 12:00:00, 2024-05-01 12:00:00.000001, 1999-05-01 11:59:59.999999, 1999-05-01 12:00:00.000001}'::timestamptz[]) after,
	delay_wheel.cron_times('0 12,13 * * *', 'UTC', after) t;
-- without a zone, that of the session
SET TimeZone = 'Asia/Kolkata';
SELECT t FROM delay_wheel.cron_times('0 12 * * *', after => '2024-05-01') t;
SELECT t FROM delay_wheel.cron_times('0 12 * * *', NULL, '2024-05-01') t;
SET TimeZone = 3.5;
SELECT t FROM delay_wheel.cron_times('0 12 * * *', after => '2024-05-01') t;
SET TimeZone = 'UTC';
-- names of zones in any case, and as POSIX has them
SELECT zone, t FROM unnest('{europe/berlin, EUROPE/ROME, CET-1CEST\,M3.5.0\,M10.5.0/3, XXX-167, XXX167}'::text[]) zone, delay_wheel.cron_times('0 12 * * *', zone, '2024-05-01') t;
SELECT count(*), max(t) FROM delay_wheel.cron_times('* * * * * *', 'UTC', '2024-02-28 23:59:59.5', 10000) t;
SELECT delay_wheel.cron_times('@yearly', 'UTC', '2024-05-01', 2), 1 AS one;

-- Changes of the clock, by hand.  First the changes themselves: the second
-- before, and the first one after.
CREATE TEMP TABLE changes (zone text, at timestamptz, before interval, after interval);
INSERT INTO changes VALUES
	('Europe/Berlin', '2024-03-31 01:00Z', '1 h', '2 h'),
	('Europe/Berlin', '2024-10-27 01:00Z', '2 h', '1 h'),
	('America/New_York', '2024-03-10 07:00Z', '-5 h', '-4 h'),
	('America/New_York', '2024-11-03 06:00Z', '-4 h', '-5 h'),
	('Australia/Lord_Howe', '2024-10-05 15:30Z', '10:30', '11:00'),
	('Australia/Lord_Howe', '2024-04-06 15:00Z', '11:00', '10:30'),
	('America/Sao_Paulo', '2018-11-04 03:00Z', '-3 h', '-2 h'),
	('America/Sao_Paulo', '2018-02-18 02:00Z', '-2 h', '-3 h'),
	('Pacific/Apia', '2011-12-30 10:00Z', '-10 h', '14 h'),
	('Africa/Cairo', '2010-04-29 22:00Z', '2 h', '3 h'),
	('Africa/Cairo', '2010-08-10 21:00Z', '3 h', '2 h'),
	('Asia/Beirut', '2022-03-26 22:00Z', '2 h', '3 h'),
	('Europe/Moscow', '2014-10-25 22:00Z', '4 h', '3 h'),
	('Africa/Monrovia', '1972-01-07 00:44:30Z', '-00:44:30', '0');
SELECT zone, (at - interval '1 s') AT TIME ZONE zone AS last, at AT TIME ZONE zone AS first FROM changes
	WHERE (at - interval '1 s') AT TIME ZONE zone <> (at - interval '1 s') AT TIME ZONE 'UTC' + before OR at AT TIME ZONE zone <> at AT TIME ZONE 'UTC' + after;
CREATE TEMP TABLE by_hand (zone text, schedule text, after timestamptz, expected timestamptz[]);
INSERT INTO by_hand VALUES
	-- 02:00 to 03:00 does not exist
	('Europe/Berlin', '30 2 * * *', '2024-03-30 00:00+01', '{2024-03-30 02:30+01, 2024-03-31 03:00+02, 2024-04-01 02:30+02}'),
	('Europe/Berlin', '*/10 2 * * *', '2024-03-30 02:45+01', '{2024-03-30 02:50+01, 2024-03-31 03:00+02, 2024-04-01 02:00+02, 2024-04-01 02:10+02}'),
	('Europe/Berlin', '0 2,3 * * *', '2024-03-30 12:00+01', '{2024-03-31 03:00+02, 2024-04-01 02:00+02}'),
	('Europe/Berlin', '30 1-3 * * *', '2024-03-31 00:00+01', '{2024-03-31 01:30+01, 2024-03-31 03:00+02, 2024-03-31 03:30+02, 2024-04-01 01:30+02}'),
	('Europe/Berlin', '30 2 31 3 *', '2023-06-01 00:00+02', '{2024-03-31 03:00+02, 2025-03-31 02:30+02}'),
	('Europe/Berlin', '*/20 59 1,2 * * *', '2024-03-31 01:59:10+01', '{2024-03-31 01:59:20+01, 2024-03-31 01:59:40+01, 2024-03-31 03:00:00+02, 2024-04-01 01:59:00+02}'),
	('Europe/Berlin', '30 2 * * *', '2024-03-31 01:59:59.999999+01', '{2024-03-31 03:00+02}'),
	('Europe/Berlin', '30 2 * * *', '2024-03-31 03:00+02', '{2024-04-01 02:30+02}'),
	('Europe/Berlin', '30 2 * * *', '2024-03-31 03:10+02', '{2024-04-01 02:30+02}'),
	-- ... but an hour of * goes on
	('Europe/Berlin', '*/15 * * * *', '2024-03-31 01:20+01', '{2024-03-31 01:30+01, 2024-03-31 01:45+01, 2024-03-31 03:00+02, 2024-03-31 03:15+02}'),
	('Europe/Berlin', '30 */2 * * *', '2024-03-30 23:00+01', '{2024-03-31 00:30+01, 2024-03-31 04:30+02, 2024-03-31 06:30+02}'),
	-- 02:00 to 03:00 comes twice
	('Europe/Berlin', '30 2 * * *', '2024-10-26 12:00+02', '{2024-10-27 02:30+02, 2024-10-28 02:30+01}'),
	('Europe/Berlin', '*/30 2 * * *', '2024-10-27 01:00+02', '{2024-10-27 02:00+02, 2024-10-27 02:30+02, 2024-10-28 02:00+01}'),
	('Europe/Berlin', '15 2,3 * * *', '2024-10-27 02:20+02', '{2024-10-27 03:15+01, 2024-10-28 02:15+01}'),
	('Europe/Berlin', '30 2 * * *', '2024-10-27 02:15+01', '{2024-10-28 02:30+01}'),
	('Europe/Berlin', '0 3 * * *', '2024-10-27 02:59:59+02', '{2024-10-27 03:00+01, 2024-10-28 03:00+01}'),
	('Europe/Berlin', '0 0-23 * * *', '2024-10-27 01:30+02', '{2024-10-27 02:00+02, 2024-10-27 03:00+01}'),
	('Europe/Berlin', '0 * * * *', '2024-10-27 01:30+02', '{2024-10-27 02:00+02, 2024-10-27 02:00+01, 2024-10-27 03:00+01}'),
	('Europe/Berlin', '@hourly', '2024-10-27 01:30+02', '{2024-10-27 02:00+02, 2024-10-27 02:00+01, 2024-10-27 03:00+01}'),
	('Europe/Berlin', '*/30 * * * *', '2024-10-27 01:45+02', '{2024-10-27 02:00+02, 2024-10-27 02:30+02, 2024-10-27 02:00+01, 2024-10-27 02:30+01, 2024-10-27 03:00+01}'),
	-- as long as there are rules
	('CET-1CEST,M3.5.0,M10.5.0/3', '30 2 * * *', '2450-03-26 12:00+01', '{2450-03-27 03:00+02, 2450-03-28 02:30+02}'),
	('CET-1CEST,M3.5.0,M10.5.0/3', '30 2 * * *', '2450-10-29 12:00+02', '{2450-10-30 02:30+02, 2450-10-31 02:30+01}'),
	('America/New_York', '15 2 * * *', '2024-03-09 12:00-05', '{2024-03-10 03:00-04, 2024-03-11 02:15-04}'),
	('America/New_York', '*/20 * * * *', '2024-03-10 01:30-05', '{2024-03-10 01:40-05, 2024-03-10 03:00-04, 2024-03-10 03:20-04}'),
	('America/New_York', '30 1 * * *', '2024-11-02 12:00-04', '{2024-11-03 01:30-04, 2024-11-04 01:30-05}'),
	('America/New_York', '0 */1 * * *', '2024-11-03 00:30-04', '{2024-11-03 01:00-04, 2024-11-03 01:00-05, 2024-11-03 02:00-05}'),
	-- half an hour
	('Australia/Lord_Howe', '15 2 * * *', '2024-10-05 12:00+10:30', '{2024-10-06 02:30+11, 2024-10-07 02:15+11}'),
	('Australia/Lord_Howe', '*/15 2 * * *', '2024-10-06 00:00+10:30', '{2024-10-06 02:30+11, 2024-10-06 02:45+11, 2024-10-07 02:00+11}'),
	('Australia/Lord_Howe', '0 * * * *', '2024-10-06 00:30+10:30', '{2024-10-06 01:00+10:30, 2024-10-06 03:00+11}'),
	('Australia/Lord_Howe', '45 1 * * *', '2024-04-06 12:00+11', '{2024-04-07 01:45+11, 2024-04-08 01:45+10:30}'),
	('Australia/Lord_Howe', '*/15 * * * *', '2024-04-07 01:20+11', '{2024-04-07 01:30+11, 2024-04-07 01:45+11, 2024-04-07 01:30+10:30, 2024-04-07 01:45+10:30, 2024-04-07 02:00+10:30}'),
	-- at midnight
	('America/Sao_Paulo', '0 0 * * *', '2018-11-03 12:00-03', '{2018-11-04 01:00-02, 2018-11-05 00:00-02}'),
	('America/Sao_Paulo', '@weekly', '2018-11-01 00:00-03', '{2018-11-04 01:00-02, 2018-11-11 00:00-02}'),
	('America/Sao_Paulo', '30 0 4 11 *', '2018-11-01 00:00-03', '{2018-11-04 01:00-02, 2019-11-04 00:30-03}'),
	('America/Sao_Paulo', '30 23 * * *', '2018-02-17 12:00-02', '{2018-02-17 23:30-02, 2018-02-18 23:30-03}'),
	('America/Sao_Paulo', '@daily', '2018-02-17 12:00-02', '{2018-02-18 00:00-03, 2018-02-19 00:00-03}'),
	('Africa/Cairo', '@daily', '2010-04-29 12:00+02', '{2010-04-30 01:00+03, 2010-05-01 00:00+03}'),
	('Africa/Cairo', '30 23 * * *', '2010-08-10 12:00+03', '{2010-08-10 23:30+03, 2010-08-11 23:30+02}'),
	('Africa/Cairo', '*/30 * * * *', '2010-08-10 23:15+03', '{2010-08-10 23:30+03, 2010-08-10 23:00+02, 2010-08-10 23:30+02, 2010-08-11 00:00+02}'),
	('Asia/Beirut', '15 0 * * *', '2022-03-26 12:00+02', '{2022-03-27 01:00+03, 2022-03-28 00:15+03}'),
	-- without summer time
	('Europe/Moscow', '30 1 * * *', '2014-10-25 12:00+04', '{2014-10-26 01:30+04, 2014-10-27 01:30+03}'),
	-- by 44 and a half minutes
	('Africa/Monrovia', '30 0 * * *', '1972-01-06 12:00Z', '{1972-01-07 00:44:30Z, 1972-01-08 00:30Z}'),
	('Africa/Monrovia', '*/30 * * * *', '1972-01-06 23:44:30Z', '{1972-01-07 00:14:30Z, 1972-01-07 01:00Z}'),
	-- 30 December, a Friday, does not exist
	('Pacific/Apia', '0 12 * * *', '2011-12-29 00:00-10', '{2011-12-29 12:00-10, 2011-12-31 00:00+14, 2011-12-31 12:00+14}'),
	('Pacific/Apia', '0 6,12,18 30 12 *', '2011-01-01 00:00-10', '{2011-12-31 00:00+14, 2012-12-30 06:00+14}'),
	('Pacific/Apia', '0 0 * * fri', '2011-12-24 00:00-10', '{2011-12-31 00:00+14, 2012-01-06 00:00+14}'),
	('Pacific/Apia', '0 * 30 12 *', '2011-06-01 00:00-11', '{2012-12-30 00:00+14}'),
	('Pacific/Apia', '0 */6 * * *', '2011-12-29 17:00-10', '{2011-12-29 18:00-10, 2011-12-31 00:00+14, 2011-12-31 06:00+14}');
SELECT zone, schedule, after, expected, actual
	FROM by_hand, LATERAL (SELECT array_agg(t) FROM delay_wheel.cron_times(schedule, zone, after, cardinality(expected)) t) a(actual)
	WHERE expected IS DISTINCT FROM actual;
SELECT count(*) FROM by_hand;

-- Whatever the year, also where the table of a time zone ends and its rule goes on:
-- these search over changes of the clock, and come at the same local time
SELECT zone, schedule, count(*), min(extract(year FROM t)), max(extract(year FROM t)), min((t AT TIME ZONE zone)::time), max((t AT TIME ZONE zone)::time)
	FROM unnest('{CET-1CEST\,M3.5.0\,M10.5.0/3, EST5EDT, Europe/Berlin}'::text[]) zone, unnest('{0 */24 15 7 *, 0 */24 15 1 *, 0 0 15 7 *}'::text[]) schedule,
		delay_wheel.cron_times(schedule, zone, '2025-02-01', 1000) t
	GROUP BY 1, 2 ORDER BY 1, 2;

-- The same as croniter: some thousand schedules, and some over years.
CREATE TEMP TABLE fixture (schedule text, zone text, start timestamptz, expected timestamptz[]);
\set fixture :abs_srcdir '/test/cron/fixture.tsv'
COPY fixture FROM :'fixture' (HEADER);
SELECT count(*) > 4000 AS thousands, count(*) FILTER (WHERE expected = '{}') > 0 AS some_never FROM fixture;
SELECT schedule, zone, start, expected, actual
	FROM fixture, LATERAL (SELECT ARRAY(SELECT delay_wheel.cron_times(schedule, zone, start, greatest(cardinality(expected), 1)))) a(actual)
	WHERE expected IS DISTINCT FROM actual ORDER BY 1, 2, 3 LIMIT 10;
CREATE TEMP TABLE years (schedule text, zone text, start timestamptz, n int, last timestamptz, digest text);
\set years :abs_srcdir '/test/cron/years.tsv'
COPY years FROM :'years' (HEADER);
SELECT sum(n) > 700000 AS thousands, max(last) > '2104-01-01' AS over_2100 FROM years;
SELECT years.*, a.*
	FROM years, LATERAL (SELECT max(t), md5(string_agg(to_char(t, 'YYYY-MM-DD HH24:MI:SS'), ',' ORDER BY t)) FROM delay_wheel.cron_times(schedule, zone, start, n) t) a(actual_last, actual_digest)
	WHERE last IS DISTINCT FROM actual_last OR digest IS DISTINCT FROM actual_digest ORDER BY 1, 2 LIMIT 10;
