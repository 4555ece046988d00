/*-------------------------------------------------------------------------
 *
 * open_query.c
 *	  Queries that stay open from one task of a batch to the next.
 *
 * Run by executors, for tasks that share a transaction and have a kept plan (plans.c).
 *
 * README.md describes which queries stay open, and when they are closed: no task may notice an open
 * query.  An abort frees the query's memory and resources: snapshots, buffers and tables belong to
 * the batch's transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "nodes/nodeFuncs.h"
#include "pgstat.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "statement.h"

/* Limit of the queries that are open at a time. */
#define MAX_OPEN	16

/* A query that is open. */
struct DwOpenQuery
{
	dlist_node	node;			/* in queries */
	DwOpenPlace *place;			/* the place of its plan */
	MemoryContext context;		/* holds all memory of the query */
	CachedPlanSource *source;
	CachedPlan *plan;			/* pinned */
	QueryDesc  *desc;
	bool		was_run;
	bool		runs;			/* the current task runs it */
};

/* In the memory of the batch's transaction. */
static dlist_head queries = DLIST_STATIC_INIT(queries);
static int	nqueries = 0;

/* True while a batch is running: queries may stay open. */
static bool may_open = false;

/*---- Hooks ----*/

/* The hooks that watch queries, as they were after delay_wheel had set its hooks. */
static struct
{
	bool		others;			/* another extension set hooks before delay_wheel */
	ExecutorStart_hook_type start;
	ExecutorRun_hook_type run;
	ExecutorFinish_hook_type finish;
}			our_hooks;

/* Called by the postmaster before delay_wheel sets its hooks that watch queries ... */
void
dw_open_queries_hooks_begin(void)
{
	our_hooks.others = ExecutorStart_hook != NULL || ExecutorRun_hook != NULL ||
		ExecutorFinish_hook != NULL;
}

/* ... and after it has set them. */
void
dw_open_queries_hooks_end(void)
{
	our_hooks.start = ExecutorStart_hook;
	our_hooks.run = ExecutorRun_hook;
	our_hooks.finish = ExecutorFinish_hook;
}

/* Returns true if another extension watches queries, or checks their permissions. */
static bool
others_watch_queries(void)
{
	return our_hooks.others || ExecutorStart_hook != our_hooks.start ||
		ExecutorRun_hook != our_hooks.run || ExecutorFinish_hook != our_hooks.finish ||
		ExecutorEnd_hook != NULL || ExecutorCheckPerms_hook != NULL;
}

/*---- Queries that can stay open ----*/

/* For check_functions_in_node().  True if not immutable, and in SQL or another extension's C. */
static bool
may_keep_state(Oid function, void *arg)
{
	HeapTuple	tuple;
	bool		result = true;

	if (function < FirstNormalObjectId)
		return false;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_proc form = (Form_pg_proc) GETSTRUCT(tuple);

		result = (form->prolang == ClanguageId || form->prolang == SQLlanguageId) &&
			form->provolatile != PROVOLATILE_IMMUTABLE;
		ReleaseSysCache(tuple);
	}
	return result;
}

/*
 * Expression walker.  Returns true if any part calls a function that may keep a state, or coerces
 * to a domain, whose checks may call such a function.
 */
static bool
keeps_state(Node *node, void *arg)
{
	return node != NULL && (IsA(node, CoerceToDomain) || check_functions_in_node(node, may_keep_state, arg) ||
							expression_tree_walker(node, keeps_state, arg));
}

/* Returns true if a trigger of the table may call a function that may keep a state. */
static bool
triggers_keep_state(const TriggerDesc *triggers)
{
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
		if (may_keep_state(triggers->triggers[i].tgfoid, NULL) ||
			(triggers->triggers[i].tgqual != NULL &&
			 keeps_state(stringToNode(triggers->triggers[i].tgqual), NULL)))
			return true;
	return false;
}

/* Returns true if a check of the table may call a function that may keep a state. */
static bool
checks_keep_state(const TupleConstr *constraints)
{
	for (int i = 0; constraints != NULL && i < constraints->num_check; i++)
		if (keeps_state(stringToNode(constraints->check[i].ccbin), NULL))
			return true;
	return false;
}

/* Returns true if a plan that reads rows can begin again with other values. */
static bool
read_can_begin_again(const Plan *plan)
{
	if (plan->lefttree != NULL || plan->righttree != NULL || plan->initPlan != NIL ||
		keeps_state((Node *) plan->targetlist, NULL) || keeps_state((Node *) plan->qual, NULL))
		return false;
	if (IsA(plan, Result))
		return !keeps_state(((const Result *) plan)->resconstantqual, NULL);
	return IsA(plan, IndexScan) && ((const IndexScan *) plan)->indexorderby == NIL &&
		!keeps_state((Node *) ((const IndexScan *) plan)->indexqualorig, NULL);
}

/* Returns true if the plan of the query can begin again with other values. */
static bool
can_begin_again(const PlannedStmt *stmt)
{
	const Plan *plan = stmt->planTree;
	const ModifyTable *change = (const ModifyTable *) plan;

	if (stmt->commandType == CMD_UTILITY || stmt->subplans != NIL || stmt->rowMarks != NIL ||
		stmt->hasModifyingCTE || stmt->hasReturning || stmt->parallelModeNeeded || stmt->jitFlags != 0)
		return false;
	if (stmt->commandType == CMD_SELECT)
		return read_can_begin_again(plan);
	return IsA(plan, ModifyTable) && plan->initPlan == NIL && change->operation != CMD_MERGE &&
		list_length(change->resultRelations) == 1 && change->onConflictAction == ONCONFLICT_NONE &&
		change->withCheckOptionLists == NIL && read_can_begin_again(outerPlan(plan));
}

/* Returns the state of the query's change of a table; NULL if it changes no table. */
static ModifyTableState *
change_of(const DwOpenQuery *query)
{
	PlanState  *state = query->desc->planstate;

	return IsA(state, ModifyTableState) ? (ModifyTableState *) state : NULL;
}

/* Returns true if the table of the query allows the query to begin again. */
static bool
table_can_be_kept(const DwOpenQuery *query)
{
	const ModifyTableState *change = change_of(query);
	Relation	table;

	if (change == NULL)
		return true;
	table = change->resultRelInfo->ri_RelationDesc;
	return table->rd_rel->relkind == RELKIND_RELATION && !table->rd_rel->relispartition &&
		change->mt_transition_capture == NULL &&
		!triggers_keep_state(change->resultRelInfo->ri_TrigDesc) &&
		!checks_keep_state(RelationGetDescr(table)->constr);
}

/*---- Opening and closing ----*/

/* Closes a query, and forgets it. */
void
dw_open_query_close(DwOpenQuery *query)
{
	dlist_delete(&query->node);
	nqueries--;
	query->place->query = NULL;
	ExecutorEnd(query->desc);
	FreeQueryDesc(query->desc);
	ReleaseCachedPlan(query->plan, CurrentResourceOwner);
	MemoryContextDelete(query->context);
}

/* Prepares a query for its first run, with the active snapshot.  Keeps the plan pinned. */
static DwOpenQuery *
open_query(DwOpenPlace *place, CachedPlanSource *source, CachedPlan *plan,
		   const SPIExecuteOptions *options)
{
	MemoryContext context = AllocSetContextCreate(TopTransactionContext, "delay_wheel open query",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext outer = MemoryContextSwitchTo(context);
	DwOpenQuery *query = palloc0(sizeof(DwOpenQuery));
	ParamListInfo params = options->params == NULL ? NULL :
		makeParamList(options->params->numParams);

	query->context = context;
	query->place = place;
	query->source = source;
	query->plan = plan;
	query->desc = CreateQueryDesc(linitial_node(PlannedStmt, plan->stmt_list), source->query_string,
								  GetActiveSnapshot(), InvalidSnapshot, options->dest, params,
								  NULL, 0);
	ExecutorStart(query->desc, 0);
	MemoryContextSwitchTo(outer);
	place->query = query;
	dlist_push_head(&queries, &query->node);
	nqueries++;
	return query;
}

/* Opens a query if the plan is generic and can begin again.  Otherwise notes that it cannot. */
static DwOpenQuery *
try_to_open(DwOpenPlace *place, CachedPlanSource *source, const SPIExecuteOptions *options)
{
	CachedPlan *plan = source->gplan;

	/* the first runs with arguments, and perhaps later runs, are planned for their values */
	if (plan == NULL || nqueries >= MAX_OPEN || place->refused == plan->generation)
		return NULL;
	if (list_length(plan->stmt_list) == 1 && can_begin_again(linitial_node(PlannedStmt, plan->stmt_list)))
	{
		/* locks the tables, and makes a new plan if the old plan is not valid any more */
		plan = GetCachedPlan(source, options->params, CurrentResourceOwner, NULL);
		if (plan == source->gplan && list_length(plan->stmt_list) == 1 &&
			can_begin_again(linitial_node(PlannedStmt, plan->stmt_list)))
			return open_query(place, source, plan, options);
		ReleaseCachedPlan(plan, CurrentResourceOwner);
	}
	/* do not note the generation of the source, which each plan for certain values increases */
	if (source->gplan != NULL)
		place->refused = source->gplan->generation;
	return NULL;
}

/*---- Running ----*/

/* Copies the values of the arguments, which a hook may have to supply. */
static void
copy_values(ParamListInfo from, ParamListInfo to)
{
	for (int i = 0; from != NULL && i < from->numParams; i++)
	{
		ParamExternData room = {.isnull = true};
		const ParamExternData *value = &from->params[i];

		if (from->paramFetch != NULL)
			value = from->paramFetch(from, i + 1, false, &room);
		to->params[i] = *value;
	}
}

/*
 * Makes the part of the plan that reads rows begin again.  The search values of an index are
 * computed only when the first row is requested: triggers BEFORE STATEMENT run earlier, and may
 * change these values.
 */
static void
read_from_start(PlanState *read, Snapshot snapshot)
{
	IndexScanState *scan = IsA(read, IndexScanState) ? (IndexScanState *) read : NULL;

	if (scan != NULL && scan->iss_ScanDesc != NULL)
		scan->iss_ScanDesc->xs_snapshot = snapshot;
	if (scan != NULL && scan->iss_NumRuntimeKeys > 0)
		scan->iss_RuntimeKeysReady = false;
	else
		ExecReScan(read);
}

/* Makes the query begin again, with the active snapshot. */
static void
begin_again(DwOpenQuery *query)
{
	EState	   *estate = query->desc->estate;
	Snapshot	before = estate->es_snapshot;
	ModifyTableState *change = change_of(query);
	PlanState  *read = change != NULL ? outerPlanState(change) : query->desc->planstate;

	estate->es_snapshot = RegisterSnapshot(GetActiveSnapshot());
	UnregisterSnapshot(before);
	read_from_start(read, estate->es_snapshot);
	if (change != NULL)
	{
		estate->es_output_cid = GetCurrentCommandId(true);
		change->mt_done = false;
		change->fireBSTriggers = true;
	}
	estate->es_finished = false;
	DW_COUNT("queries-begun-again");
	if ((estate->es_top_eflags & EXEC_FLAG_SKIP_TRIGGERS) == 0)
		AfterTriggerBeginQuery();
	pgstat_report_query_id(query->desc->plannedstmt->queryId, false);
}

/* Runs the query with the active snapshot.  Returns a result code of SPI. */
static int
run_once(DwOpenQuery *query, const SPIExecuteOptions *options)
{
	static const int codes[] = {
		[CMD_SELECT] = SPI_OK_SELECT,
		[CMD_UPDATE] = SPI_OK_UPDATE,
		[CMD_INSERT] = SPI_OK_INSERT,
		[CMD_DELETE] = SPI_OK_DELETE
	};
	int			result = codes[query->desc->operation];
	const ModifyTableState *change = change_of(query);

	query->runs = true;
	query->desc->dest = options->dest;
	copy_values(options->params, query->desc->params);
	if (query->was_run)
		begin_again(query);
	ExecutorRun(query->desc, ForwardScanDirection, 0 DW_NOT_ONCE);
	SPI_processed = query->desc->estate->es_processed;
	ExecutorFinish(query->desc);
	query->runs = false;
	if (!query->was_run && !table_can_be_kept(query))
		query->place->refused = query->plan->generation;
	query->was_run = true;
	/* rechecks of a row that another transaction had changed stay in its state, by this snapshot */
	if (query->place->refused == query->plan->generation ||
		(change != NULL && change->mt_epqstate.recheckestate != NULL))
		dw_open_query_close(query);
	return result;
}

/* Error context callback: adds the same context as SPI.  arg is the SQL. */
static void
query_callback(void *arg)
{
	if (geterrposition() > 0)
		dw_position_callback(arg);
	else
		errcontext("SQL statement \"%s\"", (const char *) arg);
}

/* Returns true if a run by the plan's source would now do the same as the query. */
static bool
is_valid(const DwOpenQuery *query)
{
	return query->source->is_valid && query->plan->is_valid && query->source->gplan == query->plan;
}

/*
 * Runs a task's SQL by the query that is open for its plan, or opens a query.  Like
 * SPI_execute_plan_extended(), but returns false if the plan has no query that can stay open.
 */
bool
dw_open_query_run(DwOpenPlace *place, SPIPlanPtr spi, const SPIExecuteOptions *options, int *result)
{
	CachedPlanSource *source = linitial(SPI_plan_get_plan_sources(spi));
	ErrorContextCallback callback;
	DwOpenQuery *query;

	/* checked for each task, since an earlier task may have loaded a library */
	if (may_open && others_watch_queries())
		dw_open_queries_end();
	if (!may_open)
		return false;
	query = place->query;
	dw_push_context(&callback, query_callback, source->query_string);
	if (query != NULL && !is_valid(query))
	{
		dw_open_query_close(query);
		query = NULL;
	}
	CommandCounterIncrement();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (query == NULL)
		query = try_to_open(place, source, options);
	if (query != NULL)
		*result = run_once(query, options);
	PopActiveSnapshot();
	error_context_stack = callback.previous;
	if (query == NULL)
		return false;
	CommandCounterIncrement();
	return true;
}

/*---- Batches ----*/

/*
 * Closes all queries except a query that the current task runs.  To be called before a utility
 * statement, which may refuse to change a table that a query in this process has opened.  The
 * statement may run in a function and in a subtransaction.
 */
void
dw_open_queries_give_way(void)
{
	ResourceOwner owner = CurrentResourceOwner;
	dlist_mutable_iter iter;

	CurrentResourceOwner = TopTransactionResourceOwner;
	dlist_foreach_modify(iter, &queries)
	{
		/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
		DwOpenQuery *query = dlist_container(DwOpenQuery, node, iter.cur);

		if (!query->runs)
			dw_open_query_close(query);
	}
	CurrentResourceOwner = owner;
}

/* Notes that a batch begins, in a transaction. */
void
dw_open_queries_begin(void)
{
	may_open = true;
}

/* Closes all queries, before the commit of the batch. */
void
dw_open_queries_end(void)
{
	may_open = false;
	dw_open_queries_give_way();
}

/* Forgets all queries, before the abort of the batch's transaction, which frees them. */
void
dw_open_queries_forget(void)
{
	dlist_iter	iter;

	may_open = false;
	dlist_foreach(iter, &queries)
		/* cppcheck-suppress nullPointer */
		dlist_container(DwOpenQuery, node, iter.cur)->place->query = NULL;
	dlist_init(&queries);
	nqueries = 0;
}
