--
-- PICTURES
-- When tasks will be due, counted or estimated; the pictures are well-formed
-- in all states, whatever names there are, and show nobody else's tasks.
--
\getenv abs_srcdir PG_ABS_SRCDIR
\set helpers :abs_srcdir '/test/helpers.sql'
\set ECHO none
\i :helpers
\set ECHO all
\set SHOW_CONTEXT never

CREATE ROLE regress_dw_pictures LOGIN;
CREATE ROLE regress_dw_other LOGIN;
CREATE ROLE regress_dw_monitor LOGIN IN ROLE pg_monitor;
SELECT delay_wheel.allow('regress_dw_pictures', 'regress_dw_other');
GRANT CREATE ON SCHEMA public TO regress_dw_pictures;

-- what the view tasks counts, in the same periods
CREATE FUNCTION pg_temp.counted(bounds timestamptz[], OUT n bigint, OUT tasks bigint, OUT exact boolean, OUT counted bigint) RETURNS SETOF record
LANGUAGE sql AS $$
	SELECT row_number() OVER (ORDER BY c.due_from NULLS FIRST), c.tasks, c.exact,
		   (SELECT count(*) FROM delay_wheel.tasks t WHERE (c.due_from IS NULL OR t.due >= c.due_from) AND (c.due_until IS NULL OR t.due < c.due_until))
		FROM delay_wheel_internal.count_due(bounds) c ORDER BY 1
$$;
CREATE FUNCTION pg_temp.well_formed() RETURNS TABLE (picture text, xml boolean) LANGUAGE sql AS $$
	VALUES ('ring', xml_is_well_formed_document(delay_wheel.ring_svg())),
		   ('forecast', xml_is_well_formed_document(delay_wheel.forecast_svg())),
		   ('lateness', xml_is_well_formed_document(delay_wheel.lateness_svg()))
$$;

--
-- Few tasks are counted
--
SET SESSION AUTHORIZATION regress_dw_pictures;
SELECT * FROM delay_wheel_internal.count_due('{}');
SELECT delay_wheel_internal.next_due();
SELECT step, count(*), sum(tasks), bool_and(exact) FROM delay_wheel.forecast GROUP BY step ORDER BY step;
SELECT * FROM pg_temp.well_formed();
-- bounds belong to what follows
SELECT delay_schedule_at(t, 'SELECT 1') > 0 AS ok FROM unnest('{2100-01-01, 2100-01-02, 2100-01-02 00:00:00.000001, 2100-01-03}'::timestamptz[]) t;
SELECT * FROM delay_wheel_internal.count_due('{2100-01-02, 2100-01-02 00:00:00.000001, 2100-01-03}');
SELECT * FROM delay_wheel_internal.count_due('{-infinity, infinity}');
SELECT delay_wheel_internal.next_due() = '2100-01-01' AS next;
SELECT step, sum(tasks) FROM delay_wheel.forecast WHERE tasks > 0 GROUP BY step;
-- in several lanes, with dead entries among them
CREATE TABLE pictures_ids AS
	SELECT delay_schedule_task('SELECT 1', due => '2100-02-01'::timestamptz + i * interval '1 min', priority => i % 3 - 1) AS id, i
	FROM generate_series(1, 3000) i;
SELECT count(delay_cancel(id)) FROM pictures_ids WHERE i % 2 = 0;
SELECT count(*), bool_and(exact) AS exact, bool_and(tasks = counted) AS same, sum(tasks)
	FROM pg_temp.counted(ARRAY(SELECT '2100-02-01'::timestamptz + i * interval '7 min' FROM generate_series(0, 400) i));
-- those of this transaction, too; those that were rolled back not
BEGIN;
SELECT delay_schedule_at('2100-01-05', 'SELECT 1') > 0 AS ok;
SELECT tasks FROM delay_wheel_internal.count_due('{2100-01-04, 2100-01-06}') WHERE due_from = '2100-01-04';
ROLLBACK;
SELECT tasks FROM delay_wheel_internal.count_due('{2100-01-04, 2100-01-06}') WHERE due_from = '2100-01-04';

--
-- Nobody else's
--
SET SESSION AUTHORIZATION regress_dw_other;
SELECT * FROM delay_wheel_internal.count_due('{2100-01-01}');
SELECT delay_wheel_internal.next_due();
SELECT delay_schedule_at('2099-12-31', 'SELECT 1') > 0 AS ok;
SELECT * FROM pg_temp.counted('{2100-01-01}');
SET SESSION AUTHORIZATION regress_dw_pictures;
SELECT delay_wheel_internal.next_due() = '2100-01-01' AS next;
SELECT * FROM pg_temp.counted('{2100-01-01, 2100-01-04}') WHERE n < 3;
SET SESSION AUTHORIZATION regress_dw_monitor;
SELECT delay_wheel_internal.next_due() < '2100-01-01' AS sees_next, sum(tasks) >= 1505 AS sees_all FROM delay_wheel_internal.count_due('{2100-01-01}');
SELECT step, tasks >= 1505 AS sees_all FROM delay_wheel.forecast WHERE step = 'later';
SELECT * FROM pg_temp.well_formed();
RESET SESSION AUTHORIZATION;

--
-- Many are estimated: a day with 25,000, with a few before and after.  Their SQL
-- is long, so that the table has more pages than are all read for an estimate.
--
SET SESSION AUTHORIZATION regress_dw_pictures;
SELECT count(delay_schedule_at('2100-06-02'::timestamptz + i * 7 % 86400 * interval '1 s', 'SELECT 1 --' || repeat('x', 1500))) FROM generate_series(1, 25000) i;
SELECT count(delay_schedule_at('2100-06-01'::timestamptz + i * interval '1 h', 'SELECT 1')) FROM generate_series(0, 9) i;
SELECT count(delay_schedule_at('2100-06-03'::timestamptz + i * interval '1 h', 'SELECT 1')) FROM generate_series(0, 6) i;
SELECT n, exact, abs(tasks - counted) < 0.05 * counted AS about, CASE WHEN exact THEN tasks END AS tasks
	FROM pg_temp.counted('{2100-06-01, 2100-06-02, 2100-06-03, 2100-06-04}') WHERE n BETWEEN 2 AND 4;
-- its hours are counted
SELECT count(*), bool_and(exact) AS exact, bool_and(tasks = counted) AS same, sum(tasks)
	FROM pg_temp.counted(ARRAY(SELECT '2100-06-02'::timestamptz + i * interval '1 h' FROM generate_series(0, 24) i)) WHERE n BETWEEN 2 AND 25;
-- what is cancelled is not estimated either, also before its rows are removed
BEGIN;
SELECT delay_cancel_all(due_from => '2100-06-02', due_until => '2100-06-02 12:00') > 0 AS ok;
SELECT n, exact, abs(tasks - counted) < 0.05 * counted AS about FROM pg_temp.counted('{2100-06-02, 2100-06-03}') WHERE n = 2;
SELECT tasks, exact FROM delay_wheel_internal.count_due('{2100-06-02, 2100-06-02 12:00}') WHERE due_until = '2100-06-02 12:00';
ROLLBACK;
-- they do not make those of others estimates, nor are they among them
SET SESSION AUTHORIZATION regress_dw_other;
SELECT * FROM pg_temp.counted('{2100-01-01}');
SET SESSION AUTHORIZATION regress_dw_monitor;
SELECT exact, abs(tasks - 25000) < 1250 AS about FROM delay_wheel_internal.count_due('{2100-06-02, 2100-06-03}') WHERE due_from = '2100-06-02';
SET SESSION AUTHORIZATION regress_dw_pictures;
-- cancelled all at once: their rows are still there
BEGIN;
SELECT delay_cancel_all(due_until => '2100-01-02 12:00') > 0 AS ok;
SELECT * FROM delay_wheel_internal.count_due('{2100-01-01, 2100-01-02, 2100-01-02 12:00, 2100-01-04}') WHERE due_until <= '2100-01-04';
RESET SESSION AUTHORIZATION;
SELECT count(*) FROM delay_wheel_data.task WHERE owner = 'regress_dw_pictures'::regrole AND due < '2100-01-02 12:00';
COMMIT;
SET SESSION AUTHORIZATION regress_dw_pictures;
SELECT delay_cancel_all(due_from => '-infinity') > 0 AS ok;
RESET SESSION AUTHORIZATION;

--
-- Errors
--
SELECT code, message FROM pg_temp.error_of($$SELECT delay_wheel_internal.count_due('{2100-01-02, 2100-01-01}')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_wheel_internal.count_due('{2100-01-02, 2100-01-02}')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_wheel_internal.count_due('{2100-01-02, NULL}')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_wheel_internal.count_due('{{2100-01-02}, {2100-01-03}}')$$);
SELECT code, message FROM pg_temp.error_of($$SELECT delay_wheel_internal.count_due(ARRAY(SELECT now() + i * interval '1 s' FROM generate_series(1, 501) i))$$);
SELECT count(*) FROM delay_wheel_internal.count_due(ARRAY(SELECT now() + i * interval '1 s' FROM generate_series(1, 500) i));

--
-- The periods: a minute lies in one hour, an hour in one day; none is left out
--
SET SESSION AUTHORIZATION regress_dw_other;
SELECT delay_cancel(id) FROM delay_wheel.tasks;
SELECT count(delay_schedule(i * interval '10 min' + interval '5 s', 'SELECT 1')) FROM generate_series(1, 1000) i;
SET TimeZone = 'Asia/Kathmandu';
SELECT f.step, f.tasks = c.tasks AS same FROM (SELECT step, sum(tasks) AS tasks, min(due_from) AS due_from, max(due_until) AS due_until FROM delay_wheel.forecast GROUP BY step) f,
	LATERAL (SELECT count(*) AS tasks FROM delay_wheel.tasks t WHERE t.due >= f.due_from AND t.due < f.due_until) c WHERE f.step IN ('minute', 'hour', 'day') ORDER BY f.step;
SELECT step, bool_and(date_trunc(step, due_from) = due_from) AS whole, bool_and(due_from = previous) AS one_after_the_other
	FROM (SELECT *, lag(due_until) OVER (PARTITION BY step ORDER BY due_from) AS previous FROM delay_wheel.forecast WHERE step IN ('minute', 'hour', 'day')) f
	WHERE previous IS NOT NULL GROUP BY step ORDER BY step;
SELECT sum(tasks) FROM delay_wheel.forecast WHERE step IN ('overdue', 'day', 'later');
-- a zone in which some day has no midnight, since the clock goes from 0 to 1 then: nothing is left out, or counted twice
SELECT to_char(now() + interval '10 days', 'DDD')::int % 365 AS day, to_char(now() + interval '200 days', 'DDD')::int % 365 AS back \gset
SELECT set_config('TimeZone', format('XXX0YYY,%s/0,%s/0', :day, :back), false) <> '' AS set;
BEGIN;
SELECT delay_schedule_at((current_date + 30)::timestamp + interval '30 min', 'SELECT 1') > 0 AS ok;
SELECT count(*), count(*) FILTER (WHERE due_from::time = '01:00') AS without_midnight, bool_and(due_from = previous) AS one_after_the_other, max(due_until) = max(later) AS until_later
	FROM (SELECT *, lag(due_until) OVER (PARTITION BY step ORDER BY due_from) AS previous, (SELECT due_from FROM delay_wheel.forecast WHERE step = 'later') AS later
		  FROM delay_wheel.forecast WHERE step = 'day') f WHERE previous IS NOT NULL;
SELECT sum(tasks) FROM delay_wheel.forecast WHERE step IN ('overdue', 'day', 'later');
ROLLBACK;
RESET TimeZone;
-- what is cancelled is not the next one, also before its row is removed
BEGIN;
SELECT delay_cancel_all(due_until => now() + interval '1 hour') > 0 AS ok;
SELECT delay_wheel_internal.next_due() BETWEEN now() + interval '59 min' AND now() + interval '71 min' AS next;
ROLLBACK;
SELECT delay_wheel_internal.next_due() BETWEEN now() + interval '9 min' AND now() + interval '11 min' AS next;

--
-- Pictures: full, paused, with names that must not be taken for markup
--
SELECT * FROM pg_temp.well_formed();
SELECT delay_wheel.forecast_svg() LIKE '%>1,000 tasks</text>%' AS counted;
RESET SESSION AUTHORIZATION;
CREATE ROLE "regress_dw <b>&amp;""'ü" LOGIN;
GRANT ALL ON SCHEMA public TO "regress_dw <b>&amp;""'ü";
SELECT delay_wheel.allow('regress_dw <b>&amp;"''ü');
SELECT delay_wheel.create_queue(E'<script>alert(1)</script>\x07', users => '{public}');
SET SESSION AUTHORIZATION "regress_dw <b>&amp;""'ü";
SELECT delay_schedule_task('SELECT 1', queue => E'<script>alert(1)</script>\x07') AS id \gset
SELECT pg_temp.wait_for(format('NOT EXISTS (SELECT FROM delay_wheel.tasks WHERE id = %s)', :id));
SELECT pg_temp.wait_for('sum(done) = 1 FROM delay_wheel.lanes');
SELECT * FROM pg_temp.well_formed();
SELECT m[1] FROM regexp_matches(delay_wheel.lateness_svg(), '<title>([^<]*regress_dw[^<]*): median') m;
SELECT delay_wheel.lateness_svg() ~ '[^\x01-\x7f]' AS not_ascii;
RESET SESSION AUTHORIZATION;
SELECT delay_wheel.pause_database();
SELECT pg_temp.wait_for($$state = 'paused' FROM delay_wheel.status WHERE database = current_database()$$);
SELECT * FROM pg_temp.well_formed();
SELECT delay_wheel.ring_svg() LIKE '%Timer: paused%' AS says_so;
SELECT delay_wheel.resume_database();
SELECT pg_temp.wait_for($$state = 'running' FROM delay_wheel.status WHERE database = current_database()$$);
-- whatever the settings of the session
-- from 19 on, backslashes always stand for themselves
SELECT current_setting('server_version_num')::int < 190000 AS backslashes \gset
\if :backslashes
SET standard_conforming_strings = off;
\endif
SELECT * FROM pg_temp.well_formed();
RESET standard_conforming_strings;
-- each slot is in the picture, once
SELECT count(*) AS segments, sum(coalesce(m[3], m[1])::int - m[1]::int + 1) = current_setting('delay_wheel.slots')::int AS all_slots
	FROM regexp_matches(delay_wheel.ring_svg(), '<title>slots? (\d+)( to (\d+))?: ', 'g') m;
-- the histogram has all attempts
SELECT sum(replace(m[1], ',', '')::int) = (SELECT max(tasks) FROM delay_wheel.lateness WHERE database = current_database()) AS all_attempts
	FROM regexp_matches(delay_wheel.lateness_svg(), '<title>[^<]*: ([\d,]+) attempts?</title>', 'g') m;
-- the last period has no end
SELECT delay_schedule_at(now() - interval '10 days', 'SELECT 1') AS id \gset
SELECT pg_temp.wait_for($$max(tasks) > max(tasks) FILTER (WHERE below < 'Infinity') FROM delay_wheel.lateness WHERE database = current_database()$$);
SELECT delay_wheel.lateness_svg() LIKE '%<title>1 d 14 h or more: %' AS picture, (delay_wheel.page_data() -> 'lateness' -> -1 -> 1)::text AS page;

--
-- What pictures write: text that can stand in XML, also the begin and the end of it; numbers and times for people
--
SELECT delay_wheel_internal.svg_escape(t) FROM unnest(ARRAY['<a b="1">&''', E'\\x41\\', E'\t\n', E'\x01\r\x7f\uFFFE\uFFFF', 'ü日😀']) t;
SELECT count(*), count(*) FILTER (WHERE delay_wheel_internal.svg_escape(chr(c)) = '&#' || c || ';') AS same
	FROM generate_series(128, 1114111, 127) c WHERE c NOT BETWEEN 55296 AND 57343;
SELECT n, delay_wheel_internal.svg_escape(left('abcdefghijklmnopqrstuvwxyz', n), 12) FROM generate_series(11, 14) n;
SELECT us, delay_wheel_internal.svg_duration(us) FROM unnest('{0, 999.4, 999.6, 9949, 9951, 999499, 999501, 59.4e6, 59.6e6, 200e6, 3599.6e6, 18720e6, 86399.6e6, 273600e6}'::float8[]) us;
SELECT n, delay_wheel_internal.svg_short(n), delay_wheel_internal.svg_count(n, 'task'), delay_wheel_internal.svg_count(n, 'task', false)
	FROM unnest('{0, 1, 999, 1000, 1949, 99949, 99950, 999499, 999500, 9223372036854775807}'::numeric[]) n;

SELECT delay_cancel_all(due_from => '-infinity') > 0 AS ok;
SELECT delay_wheel.disallow('regress_dw_pictures', 'regress_dw_other', 'regress_dw <b>&amp;"''ü');
SELECT pg_temp.wait_for('NOT EXISTS (SELECT FROM delay_wheel_data.cancellation)');
SELECT delay_wheel.drop_queue(E'<script>alert(1)</script>\x07');
DROP TABLE pictures_ids;
REVOKE CREATE ON SCHEMA public FROM regress_dw_pictures;
REVOKE ALL ON SCHEMA public FROM "regress_dw <b>&amp;""'ü";
DROP ROLE regress_dw_pictures, regress_dw_other, regress_dw_monitor, "regress_dw <b>&amp;""'ü";

-- the tasks that are due first: over lanes, one's own, not those that are cancelled
BEGIN;
CREATE ROLE regress_dw_next LOGIN IN ROLE pg_monitor;
SELECT delay_wheel.allow('regress_dw_next');
SELECT delay_wheel.create_queue('regress_next');
SELECT count(delay_schedule_task('SELECT 1', due => '2098-01-01'::timestamptz + i * interval '1 day', tag => i::text, priority => i % 3)) FROM generate_series(1, 6) i;
SELECT delay_schedule_task('SELECT 1', due => '2098-01-03 12:00', tag => 'queue', queue => 'regress_next') > 0;
SET LOCAL ROLE regress_dw_next;
SELECT delay_schedule_task('SELECT 1', due => '2098-01-02 12:00', tag => 'other') > 0;
SELECT t.tag FROM delay_wheel_internal.next_tasks(10) n JOIN delay_wheel.tasks t USING (id);
SELECT count(*) FROM delay_wheel_internal.next_tasks(10);
RESET ROLE;
CREATE TEMP VIEW first_tasks AS
SELECT string_agg(t.tag, ' ' ORDER BY n.place) AS tags FROM delay_wheel_internal.next_tasks(4) WITH ORDINALITY n(id, due, place) JOIN delay_wheel_data.task t USING (id);
SELECT tags FROM first_tasks;
SELECT delay_cancel_all(tag => '2') > 0;
SELECT tags FROM first_tasks;
SELECT bool_and(n.due = t.due) AS same FROM delay_wheel_internal.next_tasks(4) n JOIN delay_wheel_data.task t USING (id);
SELECT count(*) FROM delay_wheel_internal.next_tasks(0);
SELECT count(*) FROM delay_wheel_internal.next_tasks(-1);
SELECT count(*) >= 7 AS all FROM delay_wheel_internal.next_tasks(2147483647);
ROLLBACK;
