/*---- All nodes of Citus ----*/

CREATE FUNCTION delay_wheel.set_up_citus() RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_set_up_citus' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel.set_up_citus() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.set_up_citus() IS
'Prepares a Citus cluster for delay_wheel. Call it once, at the coordinator.';

CREATE FUNCTION delay_wheel.follow_shards() RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_follow_shards' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel.follow_shards() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.follow_shards() IS
'Moves pending tasks to the nodes that have the shards of their rows, after Citus has moved shards. Returns the number of moved tasks.';

CREATE FUNCTION delay_wheel_internal.leave_shards() RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_leave_shards' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.leave_shards() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel_internal.leave_shards() IS
'Hands up to 1,000 tasks of this node over to the nodes that have their shards. delay_wheel.follow_shards() calls this function on each node.';

CREATE FUNCTION delay_wheel_internal.take_over() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_take_over' LANGUAGE C
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.take_over() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel_internal.take_over() IS
'Trigger function of delay_wheel_data.handover: schedules a task that was handed over to this node.';

CREATE FUNCTION delay_wheel_internal.get_nodes(OUT node text, OUT figures text, OUT error text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_nodes' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel_internal.get_nodes() IS
'Returns figures of all nodes of Citus. The view delay_wheel.nodes calls this function.';

CREATE VIEW delay_wheel.nodes AS
SELECT n.node, f.state, f.pending, f.ready, f.running, f.failed, f.done, f.lateness_p50, f.lateness_p95, f.lateness_max, f.last_problem, n.error
FROM delay_wheel_internal.get_nodes() n
	 LEFT JOIN LATERAL pg_catalog.json_to_record(n.figures::json) f(
		state text, pending bigint, ready bigint, running integer, failed bigint, done bigint,
		lateness_p50 double precision, lateness_p95 double precision, lateness_max double precision, last_problem text) ON n.figures IS NOT NULL;
COMMENT ON VIEW delay_wheel.nodes IS
'Figures of all nodes of a Citus cluster, one row for each node; one row on a server without Citus';
COMMENT ON COLUMN delay_wheel.nodes.node IS 'Host and port in the metadata of Citus; NULL without Citus';
COMMENT ON COLUMN delay_wheel.nodes.state IS 'State, as in delay_wheel.status; NULL if the node does not answer';
COMMENT ON COLUMN delay_wheel.nodes.pending IS 'Pending tasks, running tasks included; large numbers are estimates, as in delay_wheel.forecast';
COMMENT ON COLUMN delay_wheel.nodes.ready IS 'Due tasks in memory that wait for an executor';
COMMENT ON COLUMN delay_wheel.nodes.running IS 'Tasks that executors are running';
COMMENT ON COLUMN delay_wheel.nodes.failed IS 'Rows of delay_wheel.failed';
COMMENT ON COLUMN delay_wheel.nodes.done IS 'Tasks that succeeded since the start of that server';
COMMENT ON COLUMN delay_wheel.nodes.lateness_p50 IS 'Median time from due to start in milliseconds since the start of that server';
COMMENT ON COLUMN delay_wheel.nodes.lateness_p95 IS '95th percentile, see lateness_p50';
COMMENT ON COLUMN delay_wheel.nodes.lateness_max IS 'Exact maximum, see lateness_p50';
COMMENT ON COLUMN delay_wheel.nodes.last_problem IS 'As in delay_wheel.status';
COMMENT ON COLUMN delay_wheel.nodes.error IS 'Why the node did not answer; NULL if it answered';

GRANT EXECUTE ON FUNCTION delay_wheel_internal.get_nodes() TO PUBLIC;
GRANT SELECT ON delay_wheel.nodes TO PUBLIC;
