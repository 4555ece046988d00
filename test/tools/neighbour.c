/*-------------------------------------------------------------------------
 *
 * neighbour.c
 *	  Another extension, which has the same hooks as delay_wheel and some more.
 *
 * For test/t/550_neighbour.pl, which compiles it, and loads it before and after
 * delay_wheel.  It counts how often it is called, by all processes together,
 * and hands on to whoever was there before; so neighbour_counts() tells whether
 * the chain is whole.  It passes on a copy of a utility statement, as some do.
 * It takes neighbour.wait_events of the names that wait events can have (0;
 * from 17 on).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/objectaccess.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "optimizer/planner.h"
#include "parser/analyze.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

PG_FUNCTION_INFO_V1(neighbour_counts);

typedef enum Hook
{
	HOOK_ANALYZE, HOOK_PLAN, HOOK_START, HOOK_RUN, HOOK_FINISH, HOOK_END, HOOK_CHECK,
	HOOK_UTILITY, HOOK_ACCESS, HOOK_LOG, NHOOKS
} Hook;

static const char *const names[NHOOKS] = {
	"analyze", "plan", "start", "run", "finish", "end", "check", "utility", "access", "log"
};

static pg_atomic_uint64 *counts = NULL;
static int	wait_events = 0;

static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;
static post_parse_analyze_hook_type prev_analyze = NULL;
static planner_hook_type prev_planner = NULL;
static ExecutorStart_hook_type prev_start = NULL;
static ExecutorRun_hook_type prev_run = NULL;
static ExecutorFinish_hook_type prev_finish = NULL;
static ExecutorEnd_hook_type prev_end = NULL;
static ExecutorCheckPerms_hook_type prev_check = NULL;
static ProcessUtility_hook_type prev_utility = NULL;
static object_access_hook_type prev_access = NULL;
static emit_log_hook_type prev_log = NULL;

static void
count(Hook hook)
{
	if (counts != NULL)
		pg_atomic_fetch_add_u64(&counts[hook], 1);
}

static void
request_memory(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(NHOOKS * sizeof(pg_atomic_uint64));
}

static void
startup_memory(void)
{
	bool		found;

	if (prev_shmem_startup)
		prev_shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	counts = ShmemInitStruct("neighbour", NHOOKS * sizeof(pg_atomic_uint64), &found);
	for (int i = 0; !found && i < NHOOKS; i++)
		pg_atomic_init_u64(&counts[i], 0);
	LWLockRelease(AddinShmemInitLock);
#if PG_VERSION_NUM >= 170000
	for (int i = 0; i < wait_events; i++)
		WaitEventExtensionNew(psprintf("Neighbour%d", i));
#endif
}

#if PG_VERSION_NUM >= 190000
#define CONST_JUMBLE const
#define EXPLAIN_PARAM , struct ExplainState *es
#define EXPLAIN_ARG , es
#else
#define CONST_JUMBLE
#define EXPLAIN_PARAM
#define EXPLAIN_ARG
#endif

static void
analyze(ParseState *pstate, Query *query, CONST_JUMBLE JumbleState *jstate)
{
	count(HOOK_ANALYZE);
	if (prev_analyze)
		prev_analyze(pstate, query, jstate);
}

static PlannedStmt *
plan(Query *parse, const char *query_string, int options, ParamListInfo params EXPLAIN_PARAM)
{
	count(HOOK_PLAN);
	return prev_planner ? prev_planner(parse, query_string, options, params EXPLAIN_ARG) :
		standard_planner(parse, query_string, options, params EXPLAIN_ARG);
}

#if PG_VERSION_NUM >= 180000
#define RUN_ONCE_PARAM
#define RUN_ONCE
#else
#define RUN_ONCE_PARAM	, bool once
#define RUN_ONCE		, once
#endif

static void
start(QueryDesc *query, int flags)
{
	count(HOOK_START);
	if (prev_start)
		prev_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

static void
run(QueryDesc *query, ScanDirection direction, uint64 rows RUN_ONCE_PARAM)
{
	count(HOOK_RUN);
	if (prev_run)
		prev_run(query, direction, rows RUN_ONCE);
	else
		standard_ExecutorRun(query, direction, rows RUN_ONCE);
}

static void
finish(QueryDesc *query)
{
	count(HOOK_FINISH);
	if (prev_finish)
		prev_finish(query);
	else
		standard_ExecutorFinish(query);
}

static void
end(QueryDesc *query)
{
	count(HOOK_END);
	if (prev_end)
		prev_end(query);
	else
		standard_ExecutorEnd(query);
}

#if PG_VERSION_NUM >= 160000
static bool
check(List *range_table, List *permissions, bool error)
{
	count(HOOK_CHECK);
	return prev_check ? prev_check(range_table, permissions, error) : true;
}
#else
static bool
check(List *range_table, bool error)
{
	count(HOOK_CHECK);
	return prev_check ? prev_check(range_table, error) : true;
}
#endif

static void
utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
		ProcessUtilityContext context, ParamListInfo params,
		QueryEnvironment *query_env, DestReceiver *dest, QueryCompletion *qc)
{
	PlannedStmt *copy = copyObject(pstmt);

	count(HOOK_UTILITY);
	if (prev_utility)
		prev_utility(copy, query_string, false, context, params, query_env, dest, qc);
	else
		standard_ProcessUtility(copy, query_string, false, context, params, query_env, dest, qc);
}

static void
access_object(ObjectAccessType access, Oid class, Oid object, int sub, void *arg)
{
	count(HOOK_ACCESS);
	if (prev_access)
		prev_access(access, class, object, sub, arg);
}

static void
emit_log(ErrorData *error)
{
	count(HOOK_LOG);
	if (prev_log)
		prev_log(error);
}

Datum
neighbour_counts(PG_FUNCTION_ARGS)
{
	char	   *result = "";

	for (int i = 0; i < NHOOKS; i++)
		result = psprintf("%s%s%s=" UINT64_FORMAT, result, i == 0 ? "" : " ", names[i],
						  pg_atomic_read_u64(&counts[i]));
	PG_RETURN_TEXT_P(cstring_to_text(result));
}

#define INSTALL(hook, prev, own) (prev = hook, hook = own)

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	DefineCustomIntVariable("neighbour.wait_events", "names of wait events that are taken", NULL,
							&wait_events, 0, 0, 1000, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	INSTALL(shmem_request_hook, prev_shmem_request, request_memory);
	INSTALL(shmem_startup_hook, prev_shmem_startup, startup_memory);
	INSTALL(post_parse_analyze_hook, prev_analyze, analyze);
	INSTALL(planner_hook, prev_planner, plan);
	INSTALL(ExecutorStart_hook, prev_start, start);
	INSTALL(ExecutorRun_hook, prev_run, run);
	INSTALL(ExecutorFinish_hook, prev_finish, finish);
	INSTALL(ExecutorEnd_hook, prev_end, end);
	INSTALL(ExecutorCheckPerms_hook, prev_check, check);
	INSTALL(ProcessUtility_hook, prev_utility, utility);
	INSTALL(object_access_hook, prev_access, access_object);
	INSTALL(emit_log_hook, prev_log, emit_log);
}
