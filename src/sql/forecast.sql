/*---- The forecast: how many tasks will be due, and when ----*/

-- not in a parallel query, also not in its leader: the marks of delay_cancel_all() take a new snapshot
CREATE FUNCTION delay_wheel_internal.count_due(bounds timestamptz[], OUT due_from timestamptz, OUT due_until timestamptz, OUT tasks bigint, OUT exact boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_count_due' LANGUAGE C STABLE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel_internal.count_due(timestamptz[]) IS
'how many of one''s own pending tasks are due in each period between the bounds, those that run just now included; of all roles for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers. One row more than there are bounds: due_from, inclusive, is null in the first one, due_until, exclusive, in the last. exact: the tasks were counted. They are where up to 10,000 rows are due in the period, and up to 50,000 before it in all periods that are given; or if the table of tasks is smaller than 31 MB. Rows that VACUUM has not yet removed count for these limits. Other numbers are estimates, by the tasks in 2,000 to 4,000 pages of the table, evenly spread: some percent off for a period that has a hundredth of all tasks, more for fewer; no ANALYZE is needed. Tasks that came with a copy of another database and are not armed do not count. There can be up to 500 bounds, SQLSTATE 54000; they must be in ascending order, 22023, and not null, 22004';

CREATE FUNCTION delay_wheel_internal.next_due() RETURNS timestamptz
AS 'MODULE_PATHNAME', 'dw_next_due' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel_internal.next_due() IS
'the next time from now on at which one of one''s own pending tasks is due, of all roles for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers; null if there is none. What is overdue does not count. If 50,000 rows that are cancelled, or not visible, come first, it is the time of such a row: it does not look further';

CREATE FUNCTION delay_wheel_internal.next_tasks(most integer, OUT id bigint, OUT due timestamptz) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_next_tasks' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel_internal.next_tasks(integer) IS
'the pending tasks that are due first, 1000 at most: of roles that one is a member of, of all for pg_read_all_data and superusers. What is overdue, or runs just now, comes first. After 50,000 rows that are cancelled, or not visible, it looks no further';

/*
 * Each operator is one of pg_catalog for exactly these types (there is no integer *
 * interval, for example): otherwise a better match in the schema given to CREATE
 * EXTENSION would be taken, by whoever may create operators there.
 */
CREATE VIEW delay_wheel.forecast AS
WITH clock AS MATERIALIZED (
	SELECT pg_catalog.statement_timestamp() AS now,
		   pg_catalog.date_trunc('minute'::text, pg_catalog.statement_timestamp()) AS minute,
		   pg_catalog.date_trunc('hour'::text, pg_catalog.statement_timestamp()) AS hour,
		   pg_catalog.date_trunc('day'::text, pg_catalog.statement_timestamp()::timestamp) AS day	-- local: some days have no midnight
), period AS MATERIALIZED (
	SELECT 1 AS place, 'overdue'::text AS step, NULL::timestamptz AS due_from, now AS due_until FROM clock
	UNION ALL
	SELECT 2, 'minute'::text, GREATEST(t, now), t + '1 minute'::interval
		FROM clock, pg_catalog.generate_series(minute, minute + '59 minutes'::interval, '1 minute'::interval) t
	UNION ALL
	SELECT 3, 'hour'::text, GREATEST(t, now), t + '1 hour'::interval
		FROM clock, pg_catalog.generate_series(hour, hour + '47 hours'::interval, '1 hour'::interval) t
	UNION ALL
	SELECT 4, 'day'::text, CASE n WHEN 0 THEN now ELSE (day + pg_catalog.make_interval(days => n))::timestamptz END, (day + pg_catalog.make_interval(days => n + 1))::timestamptz
		FROM clock, pg_catalog.generate_series(0, 30) n
	UNION ALL
	SELECT 5, 'later'::text, (day + '31 days'::interval)::timestamptz, NULL::timestamptz FROM clock
), cell AS MATERIALIZED (
	SELECT c.due_from, c.due_until, c.tasks, c.exact
	FROM delay_wheel_internal.count_due((
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
'how many of one''s own pending tasks will be due, and when; of all roles for pg_monitor, pg_read_all_stats, pg_read_all_data and superusers. For each of the next 60 minutes, 48 hours and 31 days one row, in the time zone of the session; one for what is overdue, one for what is due later. Each minute lies in one of the hours, and each hour in one of the days. It is cheap however many tasks there are, since large numbers are estimated, see delay_wheel_internal.count_due()';
COMMENT ON COLUMN delay_wheel.forecast.step IS 'overdue, minute, hour, day or later';
COMMENT ON COLUMN delay_wheel.forecast.due_from IS 'begin of the period, inclusive; now for the first minute, hour and day, null for overdue';
COMMENT ON COLUMN delay_wheel.forecast.due_until IS 'end of the period, exclusive; now for overdue, null for later';
COMMENT ON COLUMN delay_wheel.forecast.tasks IS 'pending tasks that are due in the period; those that run just now are among the overdue ones';
COMMENT ON COLUMN delay_wheel.forecast.exact IS 'false if the number of tasks is an estimate, some percent off for a large part of all tasks, more for a small one; up to 10,000 are mostly counted, see delay_wheel_internal.count_due()';

GRANT SELECT ON delay_wheel.forecast
	TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel_internal.count_due(timestamptz[]), delay_wheel_internal.next_due(), delay_wheel_internal.next_tasks(integer)
	TO PUBLIC;
