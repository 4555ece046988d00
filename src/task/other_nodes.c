/*-------------------------------------------------------------------------
 *
 * other_nodes.c
 *	  Tasks that write to or read from other nodes: Citus, and foreign tables.
 *
 * Run by executors, and by sessions that schedule, receive or run tasks.
 *
 * Citus does not notice that C code deletes the row of a task, and so would commit another node
 * first, in one phase: after a crash in between, the task would run again.  This file makes Citus
 * use two-phase commit.  On PostgreSQL 15, it calls a function of the library of Citus.  From 16
 * on, extensions hide all symbols except functions that SQL calls.  So from 16 on, if Citus takes
 * part in the transaction, this file executes an INSERT ... SELECT of no rows into
 * delay_wheel_data.two_phase, since Citus always uses two-phase commit for this statement.
 * delay_wheel.set_up_citus() creates this table (backend/follow.c).
 *
 * Sessions call Citus in a callback that runs just before the callback of Citus at the commit,
 * since the library of Citus is loaded first.  Executors call Citus earlier, when an error still
 * counts as the task's error.
 *
 * A task that uses a foreign table is the last of its batch: later tasks would miss rows that were
 * committed on the other server after its snapshot.  When a query begins, the hooks look for
 * foreign tables in the query's list of tables.  They look again when the query ends, since the
 * list lacks partitions that only tuple routing finds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/executor.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/signature.h"
#include "task.h"

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish = NULL;

/*---- Two-phase commit ----*/

/* Functions of Citus; NULL if Citus is not loaded, or hides its functions. */
static void (*use_two_phase) (void) = NULL;
static PGFunction should_use_two_phase = NULL;

/* Looks up these functions, once in a process.  All libraries are loaded with RTLD_GLOBAL. */
static void
find_functions(void)
{
	static bool found = false;

	if (found)
		return;
	*(void **) &use_two_phase = dlsym(RTLD_DEFAULT, "Use2PCForCoordinatedTransaction");
	*(void **) &should_use_two_phase = dlsym(RTLD_DEFAULT, "coordinated_transaction_should_use_2PC");
	found = true;
}

/* Returns true if Citus is loaded, so that transactions of this process may reach other nodes. */
bool
dw_other_nodes_exist(void)
{
	find_functions();
	return should_use_two_phase != NULL;
}

/*
 * Returns how Citus would commit this transaction, or would have committed it, if it has failed.
 * If Citus takes no part, its function raises an error, after which no cleanup is needed.  The error
 * resets the counters by which the caller may hold off interrupts, so this function restores them.
 */
DwPhases
dw_other_nodes_phases(void)
{
	MemoryContext context = CurrentMemoryContext;
	volatile DwPhases result = DW_NO_PART;
	uint32		interrupts_held = InterruptHoldoffCount;
	uint32		cancels_held = QueryCancelHoldoffCount;

	find_functions();
	if (should_use_two_phase == NULL)
		return DW_NO_PART;
	PG_TRY();
	{
		result = DatumGetBool(DirectFunctionCall1(should_use_two_phase, (Datum) 0)) ?
			DW_TWO_PHASES : DW_ONE_PHASE;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		InterruptHoldoffCount = interrupts_held;
		QueryCancelHoldoffCount = cancels_held;
	}
	PG_END_TRY();
	return result;
}

/*
 * Executes an INSERT of no rows into delay_wheel_data.two_phase, so that Citus commits in two
 * phases.  Runs as the table's owner, in a security-restricted operation, so that a trigger on the
 * table gets no rights that the owner lacks.
 */
static void
write_no_rows(void)
{
	Oid			schema = get_namespace_oid("delay_wheel_data", true);
	Oid			table = OidIsValid(schema) ? get_relname_relid("two_phase", schema) : InvalidOid;
	Relation	rel;
	Oid			user;
	int			context;

	rel = OidIsValid(table) ? RelationIdGetRelation(table) : NULL;
	if (!RelationIsValid(rel))
		return;
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(rel->rd_rel->relowner,
						   context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	RelationClose(rel);
	/* just before its commit a session has no active snapshot */
	PushActiveSnapshot(GetTransactionSnapshot());
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	if (SPI_execute("INSERT INTO delay_wheel_data.two_phase SELECT n FROM pg_catalog.generate_series(1, 0) AS n",
					false, 0) != SPI_OK_INSERT)
		elog(ERROR, "could not write to table \"delay_wheel_data.two_phase\"");
	SPI_finish();
	PopActiveSnapshot();
	SetUserIdAndSecContext(user, context);
}

/*
 * Reports, once in a process, that Citus still commits in one phase: the table is missing, or is an
 * ordinary table that a dump has restored.
 */
static void
say_one_phase(void)
{
	static bool said = false;

	if (!said)
		ereport(LOG,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("tasks that write to other nodes may run again after a crash, since table \"delay_wheel_data.two_phase\" does not exist, or Citus does not know it"),
				 errhint("Call %s once, at the coordinator, as a superuser.", "delay_wheel.set_up_citus()")));
	said = true;
}

/*
 * Called before the commit of a transaction that has run, scheduled or received tasks.  Makes Citus
 * use two-phase commit on other nodes.
 */
void
dw_other_nodes_prepare(void)
{
	find_functions();
	if (use_two_phase != NULL)
		use_two_phase();
	else if (!XactReadOnly && dw_other_nodes_phases() == DW_ONE_PHASE)
	{
		write_no_rows();
		if (dw_other_nodes_phases() == DW_ONE_PHASE)
			say_one_phase();
	}
}

/*---- Foreign tables ----*/

/* ExecutorStart_hook: closes the batch if the query's list of tables has a foreign table. */
static void
watch_foreign_query(QueryDesc *query, int flags)
{
	if (dw_this_executor != NULL && dw_this_executor->in_batch)
	{
		ListCell   *lc;

		foreach(lc, query->plannedstmt->rtable)
		{
			RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

			if (rte->rtekind == RTE_RELATION && rte->relkind == RELKIND_FOREIGN_TABLE)
				dw_batch_is_closed = true;
		}
	}
	if (prev_ExecutorStart)
		prev_ExecutorStart(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

/*
 * Returns true if a batch is running, and the query may write to partitions that its list of tables
 * lacks.
 */
static bool
may_route(QueryDesc *query)
{
	ListCell   *lc;

	if (dw_this_executor == NULL || !dw_this_executor->in_batch)
		return false;
	if (query->operation == CMD_SELECT && !query->plannedstmt->hasModifyingCTE)
		return false;
	foreach(lc, query->plannedstmt->rtable)
		if (lfirst_node(RangeTblEntry, lc)->relkind == RELKIND_PARTITIONED_TABLE)
			return true;
	return false;
}

/* Closes the batch if the query has written to a partition that is a foreign table. */
static void
look_at_partitions(QueryDesc *query)
{
	ListCell   *lc;

	foreach(lc, query->estate->es_tuple_routing_result_relations)
		if (((ResultRelInfo *) lfirst(lc))->ri_FdwRoutine != NULL)
			dw_batch_is_closed = true;
}

/*
 * ExecutorRun_hook.  Also looks at the partitions after an error: the task may catch the error, but
 * the other server keeps its snapshot.
 */
static void
run_query(QueryDesc *query, ScanDirection direction, uint64 count DW_ONCE_PARAMETER)
{
	bool		routes = may_route(query);

	PG_TRY();
	{
		if (prev_ExecutorRun)
			prev_ExecutorRun(query, direction, count DW_ONCE);
		else
			standard_ExecutorRun(query, direction, count DW_ONCE);
	}
	PG_FINALLY();
	{
		if (routes)
			look_at_partitions(query);
	}
	PG_END_TRY();
}

/*
 * ExecutorFinish_hook.  PostgreSQL calls it to complete data-modifying WITH queries that were not
 * read to their end.
 */
static void
finish_query(QueryDesc *query)
{
	bool		routes = may_route(query);

	PG_TRY();
	{
		if (prev_ExecutorFinish)
			prev_ExecutorFinish(query);
		else
			standard_ExecutorFinish(query);
	}
	PG_FINALLY();
	{
		if (routes)
			look_at_partitions(query);
	}
	PG_END_TRY();
}

/* Installs the hooks; called once by the postmaster. */
void
dw_other_nodes_install(void)
{
	prev_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = watch_foreign_query;
	prev_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = run_query;
	prev_ExecutorFinish = ExecutorFinish_hook;
	ExecutorFinish_hook = finish_query;
}

/* Shards of Citus */

/*
 * Run by sessions whose triggers schedule tasks.
 *
 * A trigger on a distributed table fires on the shard that gets the row: a separate table on one
 * node.  The rows of a reference table, and of replicated shards, are on several nodes, and the
 * trigger fires on each node.
 *
 * The code reads the tables of Citus anew for each call; all roles may read these tables.
 */

/* Returns the number after the last underscore of a shard's name; 0 if there is none. */
static int64
number_of_name(const char *name)
{
	const char *number = strrchr(name, '_');

	if (number == NULL || number[1] == '\0' || strlen(number + 1) > 18 ||
		number[1 + strspn(number + 1, "0123456789")] != '\0')
		return 0;
	return strtoll(number + 1, NULL, 10);
}

/*
 * Fills in *shard for a table, by its name and the catalog of Citus.  Executes a query if the name
 * may be the name of a shard and the database has Citus.
 */
void
dw_shard_of(Relation rel, DwShard *shard)
{
	/* a long name of a table is shortened in the names of its shards */
	static const char *const query =
		"SELECT pg_catalog.count(*) > 1 OR pg_catalog.bool_or(d.partmethod = 'n' AND d.repmodel = 't'),"
		" pg_catalog.min(p.groupid) = pg_catalog.min(l.groupid)"
		" FROM pg_catalog.pg_dist_shard s"
		" JOIN pg_catalog.pg_class c ON c.oid = s.logicalrelid"
		" JOIN pg_catalog.pg_dist_partition d ON d.logicalrelid = s.logicalrelid"
		" JOIN pg_catalog.pg_dist_placement p ON p.shardid = s.shardid AND p.shardstate = 1"
		" CROSS JOIN pg_catalog.pg_dist_local_group l"
		" WHERE s.shardid = $1 AND c.relnamespace = $2"
		" AND (c.relname::text || '_' || s.shardid = $3 OR pg_catalog.octet_length($3) > 50)"
		" HAVING pg_catalog.count(*) > 0";
	Oid			types[] = {INT8OID, OIDOID, TEXTOID};
	Datum		values[3];
	int			nest_level;
	bool		isnull;

	memset(shard, 0, sizeof(DwShard));
	shard->is_first = true;
	shard->id = number_of_name(RelationGetRelationName(rel));
	if (shard->id == 0 || !OidIsValid(get_extension_oid("citus", true)))
	{
		shard->id = 0;
		return;
	}
	values[0] = Int64GetDatum(shard->id);
	values[1] = ObjectIdGetDatum(RelationGetNamespace(rel));
	values[2] = CStringGetTextDatum(RelationGetRelationName(rel));
	nest_level = dw_own_sql_begin();
	if (SPI_execute_with_args(query, 3, types, values, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not look for a shard");
	if (SPI_processed == 0)
		shard->id = 0;
	else
	{
		shard->is_copy = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
		shard->is_first = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));
	}
	dw_own_sql_end(nest_level);
}
