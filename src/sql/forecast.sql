/*---- The forecast: how many tasks will be due, and when ----*/

-- PARALLEL UNSAFE: reading the marks of delay_cancel_all() takes a new snapshot
CREATE FUNCTION delay_wheel_internal.count_due(bounds timestamptz[], OUT due_from timestamptz, OUT due_until timestamptz, OUT tasks bigint, OUT exact boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_count_due' LANGUAGE C STABLE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel_internal.count_due(timestamptz[]) IS
'Returns the counted or estimated number of pending tasks that are due in each period between the bounds. The view delay_wheel.forecast calls this function.';

CREATE FUNCTION delay_wheel_internal.next_due() RETURNS timestamptz
AS 'MODULE_PATHNAME', 'dw_next_due' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel_internal.next_due() IS
'Returns the earliest due time of a pending task from now on; NULL if no task is due from now on.';

CREATE FUNCTION delay_wheel_internal.next_tasks(most integer, OUT id bigint, OUT due timestamptz) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_next_tasks' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel_internal.next_tasks(integer) IS
'Returns the pending tasks that are due first, at most 1,000.';

/*
 * pg_catalog has each operator here for exactly these types (it has no integer * interval,
 * for example).  Otherwise a role that may create operators in the schema given to
 * CREATE EXTENSION could create an operator that matches better.
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
'Numbers of pending tasks: overdue, due in each of the next 60 minutes, 48 hours and 31 days, and due later';
COMMENT ON COLUMN delay_wheel.forecast.step IS 'overdue, minute, hour, day or later';
COMMENT ON COLUMN delay_wheel.forecast.due_from IS 'Start of the period, inclusive; now for the first minute, hour and day, NULL for overdue';
COMMENT ON COLUMN delay_wheel.forecast.due_until IS 'End of the period, exclusive; now for overdue, NULL for later';
COMMENT ON COLUMN delay_wheel.forecast.tasks IS 'Pending tasks that are due in the period; running tasks count as overdue';
COMMENT ON COLUMN delay_wheel.forecast.exact IS 'False if the number is an estimate; numbers up to 10,000 are mostly exact';

GRANT SELECT ON delay_wheel.forecast
	TO PUBLIC;
GRANT EXECUTE ON FUNCTION delay_wheel_internal.count_due(timestamptz[]), delay_wheel_internal.next_due(), delay_wheel_internal.next_tasks(integer)
	TO PUBLIC;
