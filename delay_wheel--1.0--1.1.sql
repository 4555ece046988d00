/* delay_wheel--1.0--1.1.sql: what came with 1.1: pictures, forecast, progress, for those who watch */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION delay_wheel UPDATE TO '1.1'" to load this file. \quit

/*---- Default privileges: this stands first, its call last ----*/

-- takes back what ALTER DEFAULT PRIVILEGES grants on what is created from here on, see 1.0
CREATE FUNCTION delay_wheel.revoke_defaults() RETURNS void
AS 'MODULE_PATHNAME', 'dw_revoke_new_defaults' LANGUAGE C
SET search_path = pg_catalog, pg_temp;

/*---- New objects go here, above the next heading, with GRANTs to PUBLIC only ----*/

/*---- Pictures: when tasks are due, the ring, lateness ----*/

CREATE FUNCTION delay_wheel.count_due(bounds timestamptz[], OUT due_from timestamptz, OUT due_until timestamptz, OUT tasks bigint, OUT exact boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_count_due' LANGUAGE C STABLE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.count_due(timestamptz[]) IS
'how many of one''s own pending tasks are due in each period between the bounds, those that run just now included; of all roles for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers. One row more than there are bounds: due_from, inclusive, is null in the first one, due_until, exclusive, in the last. The tasks are not counted one by one: the inner pages of an index say about how many there are, so this takes about 20,000 pages at most, and mostly much less, however many tasks there are. exact: the number is no estimate; so it is with up to some hundred tasks in a period. An estimate counts tasks that delay_cancel_all() has cancelled until their rows are removed. Tasks that came with a copy of another database and are not armed do not count. There can be up to 500 bounds, SQLSTATE 54000; they must be in ascending order, 22023, and not null, 22004';

CREATE FUNCTION delay_wheel.next_due() RETURNS timestamptz
AS 'MODULE_PATHNAME', 'dw_next_due' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.next_due() IS
'the next time from now on at which one of one''s own pending tasks is due, of all roles for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers; null if there is none. What is overdue does not count';

CREATE VIEW delay_wheel.forecast AS
WITH clock AS MATERIALIZED (
	SELECT pg_catalog.statement_timestamp() AS now,
		   pg_catalog.date_trunc('minute'::text, pg_catalog.statement_timestamp()) AS minute,
		   pg_catalog.date_trunc('hour'::text, pg_catalog.statement_timestamp()) AS hour,
		   pg_catalog.date_trunc('day'::text, pg_catalog.statement_timestamp()) AS day
), period AS MATERIALIZED (
	SELECT 1 AS place, 'overdue'::text AS step, NULL::timestamptz AS due_from, now AS due_until FROM clock
	UNION ALL
	SELECT 2, 'minute'::text, GREATEST(t, now), t + '1 minute'::interval
		FROM clock, pg_catalog.generate_series(minute, minute + '59 minutes'::interval, '1 minute'::interval) t
	UNION ALL
	SELECT 3, 'hour'::text, GREATEST(t, now), t + '1 hour'::interval
		FROM clock, pg_catalog.generate_series(hour, hour + '47 hours'::interval, '1 hour'::interval) t
	UNION ALL
	SELECT 4, 'day'::text, GREATEST(t, now), t + '1 day'::interval
		FROM clock, pg_catalog.generate_series(day, day + '30 days'::interval, '1 day'::interval) t
	UNION ALL
	SELECT 5, 'later'::text, day + '31 days'::interval, NULL::timestamptz FROM clock
), cell AS MATERIALIZED (
	SELECT c.due_from, c.due_until, c.tasks, c.exact
	FROM delay_wheel.count_due((
		SELECT pg_catalog.array_agg(b.bound ORDER BY b.bound)
		FROM (SELECT due_from AS bound FROM period WHERE due_from IS NOT NULL
			  UNION SELECT due_until FROM period WHERE due_until IS NOT NULL) b)) c
)
SELECT p.step, p.due_from, p.due_until, pg_catalog.sum(c.tasks)::bigint AS tasks, pg_catalog.bool_and(c.exact) AS exact
FROM period p
	 JOIN cell c ON (p.due_from IS NULL OR c.due_from >= p.due_from) AND (p.due_until IS NULL OR c.due_until <= p.due_until)
GROUP BY p.place, p.step, p.due_from, p.due_until
ORDER BY p.place, p.due_from;
COMMENT ON VIEW delay_wheel.forecast IS
'how many of one''s own pending tasks will be due, and when; of all roles for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers. For each of the next 60 minutes, 48 hours and 31 days one row, in the time zone of the session; one for what is overdue, one for what is due later. Each minute lies in one of the hours, and each hour in one of the days. It is cheap however many tasks there are, since large numbers are estimated, see delay_wheel.count_due()';
COMMENT ON COLUMN delay_wheel.forecast.step IS 'overdue, minute, hour, day or later';
COMMENT ON COLUMN delay_wheel.forecast.due_from IS 'begin of the period, inclusive; now for the first minute, hour and day, null for overdue';
COMMENT ON COLUMN delay_wheel.forecast.due_until IS 'end of the period, exclusive; now for overdue, null for later';
COMMENT ON COLUMN delay_wheel.forecast.tasks IS 'pending tasks that are due in the period; those that run just now are among the overdue ones';
COMMENT ON COLUMN delay_wheel.forecast.exact IS 'false if the number of tasks is an estimate, mostly right to some percent; small numbers are exact';

CREATE FUNCTION delay_wheel.ring_svg() RETURNS text
AS 'MODULE_PATHNAME', 'dw_ring_svg' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION delay_wheel.ring_svg() IS
'a picture of this database''s ring as SVG, which any browser shows: how many tasks its slots hold, the current index, the horizon up to which tasks are in memory, and which slots hold tasks of a later turn. These are tasks of all roles, as in delay_wheel.ring; the next due time is of one''s own tasks, see delay_wheel.next_due(). Times are in the time zone of the session';

CREATE FUNCTION delay_wheel.forecast_svg() RETURNS text
AS 'MODULE_PATHNAME', 'dw_forecast_svg' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION delay_wheel.forecast_svg() IS
'the view delay_wheel.forecast as a picture in SVG, which any browser shows: tasks due in each of the next 60 minutes, 48 hours and 31 days, in the time zone of the session. Estimates are hatched';

CREATE FUNCTION delay_wheel.lateness_svg() RETURNS text
AS 'MODULE_PATHNAME', 'dw_lateness_svg' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION delay_wheel.lateness_svg() IS
'how late tasks of this database were begun since the start of the server, as a picture in SVG, which any browser shows: a histogram of all attempts, and median, 95th percentile and maximum of the lanes that were latest, which are one''s own ones, or those of all roles for pg_monitor, pg_read_all_stats and superusers';

CREATE FUNCTION delay_wheel.get_lateness(OUT from_ms double precision, OUT until_ms double precision, OUT attempts bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_lateness' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_lateness() IS
'how late tasks of this database were begun since the start of the server: attempts by the time from due to start, in milliseconds, from_ms inclusive, until_ms exclusive; the bounds are powers of two of a microsecond. Only rows with attempts. Waiting for limits, and pauses, are part of it';

GRANT SELECT ON delay_wheel.forecast TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel.count_due(timestamptz[]), delay_wheel.next_due(), delay_wheel.get_lateness(),
	delay_wheel.ring_svg(), delay_wheel.forecast_svg(), delay_wheel.lateness_svg()
	TO PUBLIC;

/*---- Progress of what is done in the background ----*/

CREATE FUNCTION delay_wheel.get_progress(
	OUT database name, OUT work text, OUT phase text, OUT active boolean, OUT pid integer,
	OUT started timestamptz, OUT duration interval, OUT unit text, OUT done bigint, OUT total bigint,
	OUT rate double precision, OUT steps bigint, OUT steps_total bigint, OUT times bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_progress' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_progress() IS
'what goes on in the background in this database, or in each one that is served, see delay_wheel.progress';
CREATE VIEW delay_wheel.progress AS SELECT * FROM delay_wheel.get_progress();
COMMENT ON VIEW delay_wheel.progress IS
'how far the background processes have come: a row for each kind of work that was begun in this database since the start of the server, as it goes on, or as it was the last time; for pg_read_all_stats and superusers also those of other databases. It is kept in shared memory; reading it takes microseconds, and waits for nobody';
COMMENT ON COLUMN delay_wheel.progress.database IS 'name of the database';
COMMENT ON COLUMN delay_wheel.progress.work IS
'load: tasks of the near future are read into memory, all of them, since the timer has started, an inbox was full, or plain SQL wrote rows (loads of single lanes in between, as the ring turns, are not shown); dropped roles: tasks of roles that were dropped are moved to the failed ones; cancel: rows of tasks that delay_cancel_all() has cancelled are removed; failed: old rows of failed tasks are removed, see delay_wheel.failed_max_age and delay_wheel.failed_max_count; history: the oldest table of the history is emptied; recurring: it is looked whether recurring tasks have their runs';
COMMENT ON COLUMN delay_wheel.progress.phase IS
'of load: looking for lanes, loading; of dropped roles: moving; of cancel: sweeping; of failed: counting, deleting; of history: emptying; of recurring: checking. Of all: waiting: for a lock, or for transactions that may have scheduled cancelled tasks, and it is tried again; done; interrupted: the process ended in the middle, and it begins anew';
COMMENT ON COLUMN delay_wheel.progress.active IS 'it goes on; false if phase is done or interrupted';
COMMENT ON COLUMN delay_wheel.progress.pid IS
'process that does it: the timer (load, dropped roles) or the sweeper; null if it does not go on, or waits without a process';
COMMENT ON COLUMN delay_wheel.progress.started IS 'when it began';
COMMENT ON COLUMN delay_wheel.progress.duration IS 'how long it has lasted so far, or lasted in all, waiting included; right also if the clock is set';
COMMENT ON COLUMN delay_wheel.progress.unit IS
'what done and total count: tasks (load, dropped roles, cancel), rows (failed), pages of 8 kB, or as the server was built (history), recurring tasks (recurring)';
COMMENT ON COLUMN delay_wheel.progress.done IS
'read into memory, moved, removed, counted, emptied or looked at so far; what is committed only';
COMMENT ON COLUMN delay_wheel.progress.total IS
'of so many at most, while rows of failed tasks are counted: delay_wheel.failed_max_count; else null: not known, since nobody counts rows beforehand';
COMMENT ON COLUMN delay_wheel.progress.rate IS 'done for each second of duration; null in the first microsecond';
COMMENT ON COLUMN delay_wheel.progress.steps IS
'of load: lanes that have in memory what they can have; of cancel: calls of delay_cancel_all() that are complete; null for others';
COMMENT ON COLUMN delay_wheel.progress.steps_total IS
'of load: lanes known so far; of cancel: calls of delay_cancel_all() met since it began; null for others';
COMMENT ON COLUMN delay_wheel.progress.times IS 'how often this work was begun since the start of the server, or since the database was served';

GRANT SELECT ON delay_wheel.progress TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel.get_progress() TO PUBLIC;

/*---- For programs that watch ----*/

CREATE FUNCTION delay_wheel.get_waiting(
	OUT database name, OUT state text, OUT lanes bigint, OUT tasks bigint, OUT first_due timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_waiting' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_waiting() IS
'due tasks in memory, and what they wait for, of this database, or of each one that is served, see delay_wheel.waiting';
CREATE VIEW delay_wheel.waiting AS SELECT * FROM delay_wheel.get_waiting();
COMMENT ON VIEW delay_wheel.waiting IS
'due tasks in memory by what they wait for: a row for each state, of this database; for pg_read_all_stats and superusers of each one that is served. See delay_wheel.lanes for whose they are. Tasks that are in the table only, since memory is short, or since there is no timer, are not counted';
COMMENT ON COLUMN delay_wheel.waiting.database IS 'name of the database';
COMMENT ON COLUMN delay_wheel.waiting.state IS
'of the lanes that the tasks are in, as in delay_wheel.lanes: ready: all executors are busy; running: executors are on the lane; limited: by what the queue allows; blocked: no executor can be had; paused. And suspected: tasks that are suspected to have crashed the server, which are counted whether due or not, and stand in delay_wheel.failed, with SQLSTATE DW004, after the third crash';
COMMENT ON COLUMN delay_wheel.waiting.lanes IS 'lanes in this state that have due tasks; null for suspected';
COMMENT ON COLUMN delay_wheel.waiting.tasks IS 'due tasks in these lanes; those that are being run do not count';
COMMENT ON COLUMN delay_wheel.waiting.first_due IS
'due time of the task that has waited longest among those that are first in line in their lanes; null if there is none';

CREATE FUNCTION delay_wheel.get_lateness_sums(OUT database name, OUT below double precision, OUT tasks bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_lateness_sums' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION delay_wheel.get_lateness_sums() IS
'how late tasks of this database, or of each one that is served, began, see delay_wheel.lateness';
CREATE VIEW delay_wheel.lateness AS SELECT * FROM delay_wheel.get_lateness_sums();
COMMENT ON VIEW delay_wheel.lateness IS
'how many tasks began less than so long after they were due, since the start of the server: a cumulative histogram of 33 rows, whose bounds are powers of two; of this database, for pg_read_all_stats and superusers of each one that is served. Two looks at it tell how late tasks were in between';
COMMENT ON COLUMN delay_wheel.lateness.database IS 'name of the database';
COMMENT ON COLUMN delay_wheel.lateness.below IS 'seconds: 0.000064, doubled from row to row up to 137438.953472, then Infinity';
COMMENT ON COLUMN delay_wheel.lateness.tasks IS
'attempts that began less than that after their due time, as in delay_wheel.status; waiting for limits, and pauses, are part of it';

GRANT SELECT ON delay_wheel.waiting, delay_wheel.lateness TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel.get_waiting(), delay_wheel.get_lateness_sums() TO PUBLIC;

/*---- The end ----*/

SELECT delay_wheel.revoke_defaults();
DROP FUNCTION delay_wheel.revoke_defaults();

-- GRANTs to certain roles go below
