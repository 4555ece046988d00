/*---- All nodes of Citus ----*/

CREATE FUNCTION delay_wheel.set_up_citus() RETURNS boolean
AS 'MODULE_PATHNAME', 'dw_set_up_citus' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel.set_up_citus() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.set_up_citus() IS
'prepares a cluster of Citus, once, at the coordinator: creates the tables delay_wheel_data.two_phase, by which tasks that write to other nodes commit in two phases from PostgreSQL 16 on, and delay_wheel_data.handover, which delay_wheel.follow_shards() needs; nothing is ever stored in them. Does nothing if they exist; tables that a dump has restored it makes known to Citus again. For superusers. Errors: 55000 if the database has no Citus, and those of Citus. Returns true';

CREATE FUNCTION delay_wheel.follow_shards() RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_follow_shards' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel.follow_shards() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel.follow_shards() IS
'to be called after Citus has moved shards: moves the pending tasks of their rows to the nodes that have the shards now, and returns how many. Those are tasks and messages that delay_schedule_trigger() and delay_send_trigger() have made; others do not name a shard, and stay, and so do tasks of a shard that was split or dropped, with a notice. A task moves once, in one two-phase commit, a thousand at a time; these are not undone by ROLLBACK. It gets a new id; all else it keeps, its key, attempts and due time, too; delay_wait() for its old id says cancelled. If the new node has a task of its key already, that one is kept, and the other one is not run: so keys should contain the distribution column. Tasks that run just then, and messages under a lease, stay. Queues must exist on the new node, else an error. For superusers; from any node. Errors: 55000 without Citus, or without delay_wheel.set_up_citus(), also after a dump was restored; HV000 if a node could not, with its error; to call it again is right after any error';

CREATE FUNCTION delay_wheel_internal.leave_shards() RETURNS bigint
AS 'MODULE_PATHNAME', 'dw_leave_shards' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.leave_shards() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel_internal.leave_shards() IS
'hands up to a thousand tasks of this node over whose shards are on other nodes, and returns how many; called on each node by delay_wheel.follow_shards()';

CREATE FUNCTION delay_wheel_internal.take_over() RETURNS trigger
AS 'MODULE_PATHNAME', 'dw_take_over' LANGUAGE C
SET search_path = pg_catalog, pg_temp;
REVOKE EXECUTE ON FUNCTION delay_wheel_internal.take_over() FROM PUBLIC;
COMMENT ON FUNCTION delay_wheel_internal.take_over() IS
'trigger of delay_wheel_data.handover: schedules a task on the node that it is for';

CREATE FUNCTION delay_wheel_internal.get_nodes(OUT node text, OUT figures text, OUT error text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'dw_get_nodes' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION delay_wheel_internal.get_nodes() IS 'figures of all nodes of Citus, see delay_wheel.nodes';

CREATE VIEW delay_wheel.nodes AS
SELECT n.node, f.state, f.pending, f.ready, f.running, f.failed, f.done, f.lateness_p50, f.lateness_p95, f.lateness_max, f.last_problem, n.error
FROM delay_wheel_internal.get_nodes() n
	 LEFT JOIN LATERAL pg_catalog.json_to_record(n.figures::json) f(
		state text, pending bigint, ready bigint, running integer, failed bigint, done bigint,
		lateness_p50 double precision, lateness_p95 double precision, lateness_max double precision, last_problem text) ON n.figures IS NOT NULL;
COMMENT ON VIEW delay_wheel.nodes IS
'all nodes of a cluster of Citus at a glance, the coordinator included; on a server by itself, one row. Each node is asked, one connection each, as the current user, who sees of pending and failed what the views of that node show; a node that does not answer has a row with its error';
COMMENT ON COLUMN delay_wheel.nodes.node IS 'host and port, as Citus knows it; null without Citus';
COMMENT ON COLUMN delay_wheel.nodes.state IS 'as in delay_wheel.status; null if the node does not answer';
COMMENT ON COLUMN delay_wheel.nodes.pending IS 'pending tasks, as in delay_wheel.forecast: counted up to a limit, estimated beyond; those that run just now included';
COMMENT ON COLUMN delay_wheel.nodes.ready IS 'tasks in memory that are due and wait for an executor';
COMMENT ON COLUMN delay_wheel.nodes.running IS 'tasks that executors run just now';
COMMENT ON COLUMN delay_wheel.nodes.failed IS 'rows of delay_wheel.failed';
COMMENT ON COLUMN delay_wheel.nodes.done IS 'tasks that were run with success, since the start of that server';
COMMENT ON COLUMN delay_wheel.nodes.lateness_p50 IS 'milliseconds from due to start, median, since the start of that server';
COMMENT ON COLUMN delay_wheel.nodes.lateness_p95 IS 'the same, 95th percentile';
COMMENT ON COLUMN delay_wheel.nodes.lateness_max IS 'the same, highest value';
COMMENT ON COLUMN delay_wheel.nodes.last_problem IS 'as in delay_wheel.status';
COMMENT ON COLUMN delay_wheel.nodes.error IS 'why the node has not answered; else null';

GRANT EXECUTE ON FUNCTION delay_wheel_internal.get_nodes() TO PUBLIC;
GRANT SELECT ON delay_wheel.nodes TO PUBLIC;
