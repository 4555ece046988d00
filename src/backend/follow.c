/*-------------------------------------------------------------------------
 *
 * follow.c
 *	  Tasks follow the shards of Citus that their triggers are on.
 *
 * Run by sessions of administrators, and by those of Citus on the other nodes.
 *
 * A trigger on a distributed table schedules a task on the node that has the row's shard,
 * and the task's row names the shard ("more").  When Citus moves a shard, its tasks stay
 * behind.  delay_follow_shards() moves them to the node that has the shard now.
 *
 * The table delay_wheel.handover takes them there.  It is a reference table of Citus, so
 * an INSERT is executed on all nodes, and committed on all or none by two-phase commit.
 * Nothing is ever stored in the table: on each node its trigger, take_over(), schedules
 * the tasks that are for this node, and drops the row.  The deletion of the tasks on the
 * old node belongs to the same transaction.
 *
 * The other nodes know neither the OIDs of this one nor its ids of queues.  So a task goes
 * as jsonb, in which roles and types have names, with the name of its queue.  It gets a
 * new id.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "../base/errors.h"
#include "../base/signature.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../task/my_session.h"
#include "../task/new_task.h"
#include "../task/queues.h"
#include "schedule.h"

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

/* Returns a value of the only row of the last result; an error if it is null. */
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
				 errhint("On a server by itself nothing is to be set up.")));
}

/* True if the schema delay_wheel has a table of this name. */
static bool
has_table(const char *name)
{
	return OidIsValid(get_relname_relid(name, get_namespace_oid("delay_wheel", false)));
}

/*
 * SQL function delay_wheel.set_up_citus(): creates the tables by which the nodes commit
 * together (task/other_nodes.c) and hand tasks over, where they are missing.
 */
Datum
dw_set_up_citus(PG_FUNCTION_ARGS)
{
	int			nest_level;

	require_citus();
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	if (!has_table("two_phase"))
	{
		execute("CREATE TABLE delay_wheel.two_phase (n int)", SPI_OK_UTILITY);
		execute("SELECT pg_catalog.citus_add_local_table_to_metadata('delay_wheel.two_phase')", SPI_OK_SELECT);
	}
	if (!has_table("handover"))
	{
		execute("CREATE TABLE delay_wheel.handover (node int NOT NULL, task jsonb NOT NULL)", SPI_OK_UTILITY);
		execute("SELECT pg_catalog.create_reference_table('delay_wheel.handover')", SPI_OK_SELECT);
		nest_level = NewGUCNestLevel();
		(void) set_config_option("citus.enable_unsafe_triggers", "on", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
		execute("CREATE TRIGGER take_over BEFORE INSERT ON delay_wheel.handover"
				" FOR EACH ROW EXECUTE FUNCTION delay_wheel_internal.take_over()", SPI_OK_UTILITY);
		AtEOXact_GUC(true, nest_level);
	}
	SPI_finish();
	PG_RETURN_VOID();
}

/*---- The node that has a shard no more ----*/

/*
 * Deletes tasks whose shards are on other nodes.  The result has one row: how many tasks
 * there are, and arrays of their nodes and of the tasks themselves.  Tasks that run, or
 * that others have locked, are left, and so are messages under a lease.
 */
static const char *const take_off =
"WITH shard AS ("
"	SELECT pg_catalog.to_jsonb(p.shardid) AS id, pg_catalog.min(p.groupid) AS node"
"	FROM pg_catalog.pg_dist_placement p"
"	WHERE p.shardstate = 1"
"	GROUP BY p.shardid"
"	HAVING pg_catalog.bool_and(p.groupid <> (SELECT groupid FROM pg_catalog.pg_dist_local_group))),"
" away AS ("
"	SELECT t.id, s.node, q.name"
"	FROM delay_wheel.task t"
"		JOIN shard s ON s.id = t.more->'shard'"
"		JOIN delay_wheel.tasks pending ON pending.id = t.id"
"		LEFT JOIN delay_wheel.queue q ON q.id = t.queue"
"	WHERE t.token IS NULL"
"	LIMIT 1000 FOR UPDATE OF t SKIP LOCKED),"
" gone AS ("
"	DELETE FROM delay_wheel.task t USING away a WHERE t.id = a.id"
"	RETURNING a.node, pg_catalog.to_jsonb(t) || pg_catalog.jsonb_build_object('queue_name', a.name) AS task)"
" SELECT pg_catalog.count(*), pg_catalog.array_agg(node), pg_catalog.array_agg(task) FROM gone";

/*
 * SQL function delay_wheel_internal.leave_shards(): hands some tasks of this node over
 * whose shards are on other nodes; returns how many, 0 if there are none left.
 */
Datum
dw_leave_shards(PG_FUNCTION_ARGS)
{
	Oid			types[] = {INT4ARRAYOID, JSONBARRAYOID};
	Datum		values[2];
	int64		n;

	require_citus();
	dw_require_writable("delay_follow_shards()");
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	execute(take_off, SPI_OK_SELECT);
	n = DatumGetInt64(result_value(0, 1));
	if (n > 0)
	{
		values[0] = result_value(0, 2);
		values[1] = result_value(0, 3);
		if (SPI_execute_with_args("INSERT INTO delay_wheel.handover"
								  " SELECT * FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2))",
								  2, types, values, NULL, false, 0) != SPI_OK_INSERT)
			elog(ERROR, "could not hand tasks over");
	}
	SPI_finish();
	PG_RETURN_INT64(n);
}

/*
 * SQL function delay_follow_shards(): lets each node hand over its tasks, until none is
 * left.  Each thousand of them is a transaction of its own, on the connections of Citus.
 */
Datum
dw_follow_shards(PG_FUNCTION_ARGS)
{
	static const char *const query =
		"SELECT r.success, COALESCE(n.nodename || ':' || n.nodeport, '?'), r.result"
		" FROM pg_catalog.run_command_on_all_nodes('SELECT delay_wheel_internal.leave_shards()', parallel := false) r"
		"	LEFT JOIN pg_catalog.pg_dist_node n USING (nodeid)";
	int64		moved = 0;
	int64		now;

	require_citus();
	if (!has_table("handover"))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"delay_wheel.handover\" does not exist"),
				 errhint("Call %s once, at the coordinator.", "delay_wheel.set_up_citus()")));
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	do
	{
		CHECK_FOR_INTERRUPTS();
		now = 0;
		execute(query, SPI_OK_SELECT);
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			char	   *result = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 3);

			if (!DatumGetBool(result_value(i, 1)))
				ereport(ERROR,
						(errcode(ERRCODE_FDW_ERROR),
						 errmsg("node %s could not hand its tasks over: %s",
								TextDatumGetCString(result_value(i, 2)), result ? result : ""),
						 errdetail("%lld tasks have been moved before.", (long long) moved)));
			now += strtoll(result, NULL, 10);
		}
		moved += now;
		SPI_freetuptable(SPI_tuptable);
	} while (now > 0);
	SPI_finish();
	PG_RETURN_INT64(moved);
}

/*---- The node that has the shard now ----*/

/*
 * Schedules the task of the only row of the last result: the columns of delay_wheel.task,
 * and the name of the queue.  A newer task of its key, which the trigger has scheduled here
 * since the move, is kept instead.
 */
static void
schedule_arrived(void)
{
	HeapTuple	row = SPI_tuptable->vals[0];
	TupleDesc	desc = SPI_tuptable->tupdesc;
	char	   *queue = SPI_getvalue(row, desc, Natts_task + 1);
	DwNewTask	task;

	memset(&task, 0, sizeof(task));
	for (int i = 1; i <= Natts_task; i++)
		task.values[i - 1] = SPI_getbinval(row, desc, i, &task.nulls[i - 1]);
	task.owner = DatumGetObjectId(task.values[Anum_task_owner - 1]);
	task.due = DatumGetTimestampTz(task.values[Anum_task_due - 1]);
	task.priority = DatumGetInt16(task.values[Anum_task_priority - 1]);
	task.queue = queue == NULL ? 0 : dw_queue_named(queue);
	task.if_exists = DW_KEEP;
	/* a number of a mark of the other node */
	task.nulls[Anum_task_spared - 1] = true;
	(void) dw_schedule_row(&task, false);
}

/*
 * SQL function delay_wheel_internal.take_over(), the trigger of delay_wheel.handover: takes
 * the task over if it is for this node.  No row is stored.
 */
Datum
dw_take_over(PG_FUNCTION_ARGS)
{
	static const char *const query =
		"SELECT t.*, $2->>'queue_name'"
		" FROM pg_catalog.pg_dist_local_group g, pg_catalog.jsonb_populate_record(NULL::delay_wheel.task, $2) t"
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
	dw_require_writable("delay_follow_shards()");
	for (int i = 0; i < 2; i++)
		values[i] = SPI_getbinval(trigger->tg_trigtuple, desc, i + 1, &isnull);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	if (SPI_execute_with_args(query, 2, types, values, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read a task that arrives");
	if (SPI_processed > 0)
		schedule_arrived();
	SPI_finish();
	return PointerGetDatum(NULL);
}
