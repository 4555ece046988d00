/*-------------------------------------------------------------------------
 *
 * plan_check.c
 *	  Checks names, types and rights of a task's SQL when the task is scheduled.
 *
 * Run by sessions that schedule tasks, and by executors whose tasks do so, if the setting
 * delay_wheel.check_sql or the option check_sql is "plan".
 *
 * The statements are analyzed, rewritten and planned like a prepared statement, but not executed,
 * in a subtransaction whose rollback releases the locks on tables.  Planning may evaluate functions
 * that are declared immutable or stable, as for each query.
 *
 * A task may create objects that its later statements need, so the statements after the first
 * utility statement are not checked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "nodes/nodeFuncs.h"
#include "rewrite/rewriteHandler.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/errors.h"
#include "statement.h"

/*---- Rights ----*/

/* For check_functions_in_node().  Raises an error if the current user may not call the function. */
static bool
require_function(Oid function, void *context)
{
	AclResult	result = dw_function_aclcheck(function, GetUserId(), ACL_EXECUTE);

	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_FUNCTION, get_func_name(function));
	return false;
}

/* Calls require_function() for all functions in a query or an expression.  Always returns false. */
static bool
require_functions(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, require_functions, context, 0);
	/* PostgreSQL does not check rights on the input and output functions of types */
	if (!IsA(node, CoerceViaIO))
		(void) check_functions_in_node(node, require_function, context);
	return expression_tree_walker(node, require_functions, context);
}

/* Raises an error if the plan needs rights that the current user lacks, or a temporary table. */
static void
require_tables(PlannedStmt *plan)
{
	ListCell   *lc;

	foreach(lc, plan->rtable)
	{
		RangeTblEntry *entry = lfirst_node(RangeTblEntry, lc);

		if (entry->rtekind == RTE_RELATION &&
			get_rel_persistence(entry->relid) == RELPERSISTENCE_TEMP)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("a task cannot use temporary table \"%s\"", get_rel_name(entry->relid)),
					 errdetail("Only this session sees the temporary table, and the task runs in another session."),
					 errhint("Use another table. If a permanent table has the same name, put its schema before the name.")));
	}
	(void) dw_check_table_rights(plan);
}

/*---- Statements ----*/

/* Checks a query that was analyzed and rewritten. */
static void
check_query(Query *query, const char *sql)
{
	Query	   *contained;
	ListCell   *lc;

	if (query->commandType != CMD_UTILITY)
	{
		(void) require_functions((Node *) query, NULL);
		require_tables(dw_plan_query(query, sql, CURSOR_OPT_PARALLEL_OK));
		return;
	}
	if (IsA(query->utilityStmt, CallStmt))
		(void) require_functions((Node *) castNode(CallStmt, query->utilityStmt)->funcexpr, NULL);
	/* the query of EXPLAIN, DECLARE and CREATE TABLE AS */
	contained = UtilityContainsQuery(query->utilityStmt);
	if (contained == NULL)
		return;
	foreach(lc, QueryRewrite(copyObject(contained)))
		check_query(lfirst_node(Query, lc), sql);
}

/* Checks the statements of a text, up to the first utility statement. */
static void
check_statements(const char *sql, ParamListInfo params)
{
	ListCell   *lc;

	foreach(lc, raw_parser(sql, RAW_PARSE_DEFAULT))
	{
		ListCell   *lq;
		bool		utility = false;

		foreach(lq, dw_args_analyze(lfirst_node(RawStmt, lc), sql, params))
		{
			utility |= lfirst_node(Query, lq)->commandType == CMD_UTILITY;
			check_query(lfirst_node(Query, lq), sql);
		}
		if (utility)
			return;
	}
}

/*
 * Raises an error if the SQL of a task, with these arguments (see dw_args_params()), could not be
 * planned now, or if the current user lacks the rights for it.
 */
void
dw_check_plan(const text *text, Datum args, bool args_null, Datum types, bool types_null)
{
	DwSqlText	shown = {.sql = text_to_cstring(text)};
	ErrorContextCallback callback;
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	dw_push_context(&callback, dw_sql_text_callback, &shown);
	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		check_statements(shown.sql, dw_args_params(shown.sql, args, args_null, types, types_null));
		PopActiveSnapshot();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		ReThrowError(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	error_context_stack = callback.previous;
}
