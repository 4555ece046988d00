/*-------------------------------------------------------------------------
 *
 * follow.c
 *	  Tasks follow the shards of Citus whose triggers scheduled them.
 *
 * Run by sessions of administrators, and by sessions of Citus on the other nodes.
 *
 * A trigger on a distributed table schedules a task on the node that has the row's shard,
 * and the column "more" of the task's row names the shard.  When Citus moves a shard, its tasks
 * stay on the old node.  delay_wheel.follow_shards() moves these tasks to the new node.
 *
 * The tasks reach the new node through delay_wheel_data.handover.  This is a reference table of
 * Citus, so an INSERT is executed on all nodes, and two-phase commit makes it atomic.  The table
 * never stores a row.  On each node, its trigger take_over() schedules the tasks of this node, and
 * discards the row.  The same transaction deletes the tasks on the old node.
 *
 * OIDs and ids of queues are different on other nodes.  So a task is sent as jsonb with the names
 * of its roles, types and queue, and gets a new id.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "commands/extension.h"
#include "backend.h"

PG_FUNCTION_INFO_V1(dw_set_up_citus);
PG_FUNCTION_INFO_V1(dw_follow_shards);
PG_FUNCTION_INFO_V1(dw_leave_shards);
PG_FUNCTION_INFO_V1(dw_take_over);

/* Executes a statement; the caller has connected to SPI. */
static void
execute(const char *sql, int expected)
{
	if (SPI_execute(sql, false, 0) != expected)
		elog(ERROR, "could not execute \"%s\"", sql);
}

/* Executes a statement with arguments; the caller has connected to SPI. */
static void
execute_with(const char *sql, int n, Oid *types, Datum *values, int expected)
{
	if (SPI_execute_with_args(sql, n, types, values, NULL, false, 0) != expected)
		elog(ERROR, "could not execute \"%s\"", sql);
}

/* Returns a value of the last result, or raises an error if it is null. */
static Datum
result_value(int row, int column)
{
	bool		isnull;
	Datum		value = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &isnull);

	if (isnull)
		elog(ERROR, "a result is null");
	return value;
}

/* Raises an error if the database has no Citus. */
static void
require_citus(void)
{
	if (!OidIsValid(get_extension_oid("citus", true)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("database \"%s\" has no Citus", get_database_name(MyDatabaseId)),
				 errhint("Without Citus there is nothing to set up.")));
}

/*
 * Returns true if a query about a table of the schema delay_wheel_data ($1) returns a row.  Returns
 * false if there is no such table.  The caller has connected to SPI.
 */
static bool
is_so(const char *table, const char *query)
{
	Oid			type = REGCLASSOID;
	Oid			relid = get_relname_relid(table, get_namespace_oid("delay_wheel_data", false));
	Datum		value = ObjectIdGetDatum(relid);

	if (!OidIsValid(relid))
		return false;
	execute_with(query, 1, &type, &value, SPI_OK_SELECT);
	return SPI_processed > 0;
}

static const char *const exists = "SELECT";
static const char *const is_known_to_citus = "SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = $1";
static const char *const is_on_all_nodes =
"SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = $1 AND partmethod = 'n' AND repmodel = 't'";
static const char *const takes_over = "SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = $1 AND tgname = 'take_over'";

/*
 * SQL function delay_wheel.set_up_citus(): creates the tables two_phase (task/other_nodes.c) and
 * handover if they are missing.  If a dump has restored them as ordinary tables, makes them known
 * to Citus again.
 */
Datum
dw_set_up_citus(PG_FUNCTION_ARGS)
{
	int			nest_level;

	require_citus();
	(void) SPI_connect();
	if (!is_so("two_phase", exists))
		execute("CREATE TABLE delay_wheel_data.two_phase (n int)", SPI_OK_UTILITY);
	if (!is_so("two_phase", is_known_to_citus))
		execute("SELECT pg_catalog.citus_add_local_table_to_metadata('delay_wheel_data.two_phase')", SPI_OK_SELECT);
	nest_level = NewGUCNestLevel();
	(void) set_config_option("citus.enable_unsafe_triggers", "on", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	/* Citus copies the table to a new node by logical replication only if it has a key */
	if (!is_so("handover", exists))
		execute("CREATE TABLE delay_wheel_data.handover (id int PRIMARY KEY, node int NOT NULL, task jsonb NOT NULL)", SPI_OK_UTILITY);
	if (!is_so("handover", is_on_all_nodes))
		execute("SELECT pg_catalog.create_reference_table('delay_wheel_data.handover')", SPI_OK_SELECT);
	if (!is_so("handover", takes_over))
		execute("CREATE TRIGGER take_over BEFORE INSERT ON delay_wheel_data.handover"
				" FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.take_over()", SPI_OK_UTILITY);
	AtEOXact_GUC(true, nest_level);
	SPI_finish();
	PG_RETURN_BOOL(true);
}

/* ---- The node that had the shard ---- */

/*
 * Finds the first tasks whose shards are on other nodes.  Leaves out messages under a lease, and
 * tasks of nodes without delay_wheel_data.handover.
 */
static const char *const find =
"WITH shard AS ("
"	SELECT pg_catalog.to_jsonb(p.shardid) AS id, pg_catalog.min(p.groupid) AS node"
"	FROM pg_catalog.pg_dist_placement p"
"	WHERE p.shardstate = 1"
"	GROUP BY p.shardid"
"	HAVING pg_catalog.bool_and(p.groupid <> (SELECT groupid FROM pg_catalog.pg_dist_local_group)))"
" SELECT t.id, t.due, s.node, q.name, t.ctid, t.owner::oid, t.queue, t.priority, COALESCE(t.group_hash, 0)"
" FROM delay_wheel_data.task t"
"	JOIN shard s ON s.id = t.more->'shard'"
"	JOIN delay_wheel.tasks pending ON pending.id = t.id"
"	LEFT JOIN delay_wheel_data.queue q ON q.id = t.queue"
" WHERE t.token IS NULL AND s.node IN ("
"	SELECT p.groupid FROM pg_catalog.pg_dist_placement p JOIN pg_catalog.pg_dist_shard h ON h.shardid = p.shardid"
"	WHERE h.logicalrelid = 'delay_wheel_data.handover'::pg_catalog.regclass AND p.shardstate = 1)"
" ORDER BY t.due LIMIT 1000";

/* Deletes the found tasks, except running tasks, locked tasks, and tasks with a new due time. */
static const char *const take_off =
"WITH away AS ("
"	SELECT t.id, a.node, a.name"
"	FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3), pg_catalog.unnest($4)) AS a(id, due, node, name)"
"		JOIN delay_wheel_data.task t ON t.id = a.id AND t.due = a.due"
"	FOR UPDATE OF t SKIP LOCKED),"
" gone AS ("
"	DELETE FROM delay_wheel_data.task t USING away a WHERE t.id = a.id"
"	RETURNING t.id, a.node, pg_catalog.to_jsonb(t) || pg_catalog.jsonb_build_object('queue_name', a.name) AS task)"
" SELECT * FROM gone";

/* Returns an array of a column of the last result. */
static Datum
result_array(int column, Oid type)
{
	ArrayBuildState *state = initArrayResult(type, CurrentMemoryContext, false);

	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		Datum		value = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, column, &isnull);

		(void) accumArrayResult(state, value, isnull, type, CurrentMemoryContext);
	}
	return makeArrayResult(state, CurrentMemoryContext);
}

/*
 * Notes that this transaction may delete the task in a row of the last result, since deletion by
 * SQL notes nothing.  An executor that finds the deleted row forgets the task.  If the transaction
 * fails, the timer gets a hint for the task again.
 */
static void
note_found(int row)
{
	DwHint		hint = {
		.id = DatumGetInt64(result_value(row, 1)),
		.due = DatumGetTimestampTz(result_value(row, 2)),
		.tid = *(ItemPointer) DatumGetPointer(result_value(row, 5)),
		.lane = dw_lane_if_any(DatumGetObjectId(result_value(row, 6)), DatumGetInt16(result_value(row, 7)),
							   DatumGetInt16(result_value(row, 8)))
	};

	dw_touch_row(&hint, DW_TOUCH_LOCKED);
	dw_touch_group(DatumGetInt16(result_value(row, 7)), DatumGetUInt32(result_value(row, 9)));
}

/*
 * Deletes the tasks of the last result, and sends them to the nodes that have their shards.
 * Returns the number of tasks.  The caller has connected to SPI.
 */
static uint64
send_tasks(void)
{
	Oid			found_types[] = {INT8ARRAYOID, TIMESTAMPTZARRAYOID, INT4ARRAYOID, TEXTARRAYOID};
	Oid			gone_types[] = {INT4ARRAYOID, JSONBARRAYOID};
	Datum		found[] = {result_array(1, INT8OID), result_array(2, TIMESTAMPTZOID),
	result_array(3, INT4OID), result_array(4, TEXTOID)};
	Datum		gone[2];
	uint64		n;

	execute_with(take_off, 4, found_types, found, SPI_OK_SELECT);
	n = SPI_processed;
	if (n == 0)
		return 0;
	for (uint64 i = 0; i < n; i++)
		dw_touch_ended(DatumGetInt64(result_value(i, 1)), DW_CANCELLED);
	gone[0] = result_array(2, INT4OID);
	gone[1] = result_array(3, JSONBOID);
	execute_with("INSERT INTO delay_wheel_data.handover (node, task)"
				 " SELECT * FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2))",
				 2, gone_types, gone, SPI_OK_INSERT);
	return n;
}

/*
 * SQL function delay_wheel_internal.leave_shards(): sends some tasks of this node to the nodes that
 * have their shards.  Returns the number of tasks; 0 if no task is left.
 */
Datum
dw_leave_shards(PG_FUNCTION_ARGS)
{
	uint64		n = 0;

	require_citus();
	dw_require_writable("delay_wheel.follow_shards()");
	(void) SPI_connect();
	execute(find, SPI_OK_SELECT);
	for (uint64 i = 0; i < SPI_processed; i++)
		note_found(i);
	if (SPI_processed > 0)
		n = send_tasks();
	if (n > 0 && dw_audits(DW_AUDIT_CONTROL))
		dw_audit_write(&(DwAction) {.what = "follow_shards",.rows = (int64) n});
	SPI_finish();
	PG_RETURN_INT64((int64) n);
}

/*
 * Executes a statement that returns a number on all nodes, and returns the sum.  moved: the number
 * of tasks that were moved before.  The caller has connected to SPI.
 */
static int64
sum_over_nodes(const char *statement, int64 moved)
{
	static const char *const query =
		"SELECT r.success, COALESCE(n.nodename || ':' || n.nodeport, '?'), r.result"
		" FROM pg_catalog.run_command_on_all_nodes($1, parallel := false) r"
		"	LEFT JOIN pg_catalog.pg_dist_node n USING (nodeid)";
	Oid			type = TEXTOID;
	Datum		command = CStringGetTextDatum(statement);
	int64		sum = 0;

	execute_with(query, 1, &type, &command, SPI_OK_SELECT);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		char	   *result = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 3);

		if (!DatumGetBool(result_value(i, 1)))
			ereport(ERROR,
					(errcode(ERRCODE_FDW_ERROR),
					 errmsg("node %s could not hand its tasks over: %s",
							TextDatumGetCString(result_value(i, 2)), result ? result : ""),
					 errdetail("%lld tasks were moved before this error.", (long long) moved)));
		sum += strtoll(result, NULL, 10);
	}
	SPI_freetuptable(SPI_tuptable);
	return sum;
}

/*
 * SQL function delay_wheel.follow_shards(): makes each node send its tasks, until no task is left.
 * Each transaction, on the connections of Citus, moves at most 1,000 tasks.
 */
Datum
dw_follow_shards(PG_FUNCTION_ARGS)
{
	static const char *const count_of_no_shard =
		"SELECT count(*) FROM delay_wheel_data.task t JOIN delay_wheel.tasks pending ON pending.id = t.id"
		" WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_dist_shard s WHERE pg_catalog.to_jsonb(s.shardid) = t.more->'shard')"
		" AND t.more->'shard' IS NOT NULL";
	int64		moved = 0;
	int64		now;
	int64		left;

	require_citus();
	(void) SPI_connect();
	if (!is_so("handover", is_on_all_nodes))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"delay_wheel_data.handover\" does not exist, or is no reference table"),
				 errhint("Call %s once, at the coordinator.", "delay_wheel.set_up_citus()")));
	do
	{
		CHECK_FOR_INTERRUPTS();
		now = sum_over_nodes("SELECT delay_wheel_internal.leave_shards()", moved);
		moved += now;
	} while (now > 0);
	left = sum_over_nodes(count_of_no_shard, moved);
	if (left > 0)
		ereport(NOTICE,
				(errcode(ERRCODE_WARNING),
				 errmsg_plural("%lld task stays where it is, since its shard no longer exists",
							   "%lld tasks stay where they are, since their shards no longer exist",
							   left, (long long) left),
				 errdetail("Citus has split these shards, or their tables were dropped. The tasks run through Citus.")));
	SPI_finish();
	PG_RETURN_INT64(moved);
}

/* ---- The new node of the shard ---- */

/*
 * Schedules the task of the last result, whose only row has the columns of delay_wheel_data.task
 * and the name of the queue.  If this node already has a task with the key, the new task is
 * dropped: since the move, the trigger has scheduled the existing task.
 */
static void
schedule_arrived(void)
{
	HeapTuple	row = SPI_tuptable->vals[0];
	TupleDesc	desc = SPI_tuptable->tupdesc;
	char	   *queue = SPI_getvalue(row, desc, Natts_task + 1);
	DwNewTask	task = {0};

	for (int i = 1; i <= Natts_task; i++)
		task.values[i - 1] = SPI_getbinval(row, desc, i, &task.nulls[i - 1]);
	task.owner = DatumGetObjectId(task.values[Anum_task_owner - 1]);
	task.due = DatumGetTimestampTz(task.values[Anum_task_due - 1]);
	task.priority = DatumGetInt16(task.values[Anum_task_priority - 1]);
	task.queue = queue == NULL ? 0 : dw_queue_named(queue);
	task.if_exists = DW_KEEP;
	/* this value is the number of a mark of the other node */
	task.nulls[Anum_task_spared - 1] = true;
	(void) dw_schedule_row(&task, false);
}

/*
 * SQL function delay_wheel_internal.take_over(), the trigger of delay_wheel_data.handover:
 * schedules the task if it is for this node.  The row itself is not stored.
 */
Datum
dw_take_over(PG_FUNCTION_ARGS)
{
	static const char *const query =
		"SELECT t.*, $2->>'queue_name'"
		" FROM pg_catalog.pg_dist_local_group g, pg_catalog.jsonb_populate_record(NULL::delay_wheel_data.task, $2) t"
		" WHERE g.groupid = $1";
	TriggerData *trigger = dw_require_trigger(fcinfo, "take_over", true);
	TupleDesc	desc = RelationGetDescr(trigger->tg_relation);
	Oid			types[] = {INT4OID, JSONBOID};
	Datum		values[2];
	bool		isnull;

	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to hand tasks over")));
	dw_require_writable("delay_wheel.follow_shards()");
	for (int i = 0; i < 2; i++)
		values[i] = SPI_getbinval(trigger->tg_trigtuple, desc, i + 2, &isnull);
	(void) SPI_connect();
	if (SPI_execute_with_args(query, 2, types, values, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read a task that arrives");
	if (SPI_processed > 0)
		schedule_arrived();
	SPI_finish();
	return PointerGetDatum(NULL);
}
