/*-------------------------------------------------------------------------
 *
 * run_now.c
 *	  delay_run() and delay_run_due(): running pending tasks at once, in one's
 *	  own transaction.
 *
 * Run by backends, and by executors whose tasks call it.
 *
 * The task's row is deleted as by an executor, then its SQL runs, and both
 * are part of the caller's transaction.
 *
 * If the session is the owner's own, the SQL is like any other of it.  In all
 * other cases, a superuser's above all, it must not come to rights that the
 * owner lacks, also not later on: it runs as the owner, in a
 * security-restricted operation (restricted.c).  What that lets through of
 * cursors is seen to here: those of the caller cannot be seen, read, closed or
 * replaced, those of the task are closed.  A caller who has large objects open
 * is refused: their descriptors are the session's, and cannot be hidden.
 *
 * delay_run_due() does the same with all tasks that are due by some time, for
 * tests of applications.  It finds one after the other, with a new snapshot, so
 * what a task schedules has its turn.  Delays count from the due time of the
 * task that is run, if that is later than now(): so what is scheduled comes
 * where it would come, and a task that schedules itself again comes to an end.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "datatype/timestamp.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/signature.h"
#include "../ending/conclude.h"
#include "../ending/pending.h"
#include "../rows/catalog.h"
#include "../rows/lane_scan.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/committing.h"
#include "../shmem/executors.h"
#include "../shmem/outcome.h"
#include "../shmem/shared.h"
#include "../statement/args.h"
#include "../statement/restricted.h"
#include "../statement/spi_run.h"
#include "../task/ended.h"
#include "../task/marks.h"
#include "../task/my_session.h"
#include "../task/other_nodes.h"

PG_FUNCTION_INFO_V1(dw_run);
PG_FUNCTION_INFO_V1(dw_run_due);

/*
 * So often tasks of one due time may be scheduled by others of that time, and
 * these by others again.
 */
#define MAX_ROUNDS	1000

/* A cursor that the task must not get at. */
typedef struct HiddenCursor
{
	const char *name;
	PortalStatus status;
	bool		visible;		/* with its query, in pg_cursors */
} HiddenCursor;

/* A task whose row is deleted, in our memory context. */
typedef struct Taken
{
	const char *function;		/* that runs it */
	DwTaskKey	key;
	Datum	   *values;
	bool	   *nulls;
} Taken;

/*---- As whom ----*/

/*
 * Is all of this session the owner's, so that there is nothing to escape to?
 * An executor is, whoever the process is connected as (session.c).
 */
static bool
is_own_session(Oid owner)
{
	if (GetUserId() != owner)
		return false;
	if (dw_this_executor != NULL)
		return dw_this_executor->owner == owner;
	return GetSessionUserId() == owner && GetAuthenticatedUserId() == owner;
}

static void
require_role(Oid owner)
{
	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(owner)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role with OID %u does not exist", owner),
				 errdetail("The role that scheduled the task was dropped.")));
}

/*---- The search path ----*/

/* What ALTER ROLE or ALTER DATABASE has set search_path to, or NULL. */
static char *
search_path_of(Relation rel, Oid database, Oid role)
{
	static const char prefix[] = "search_path=";
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	char	   *path = NULL;

	ScanKeyInit(&keys[0], Anum_pg_db_role_setting_setdatabase, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(database));
	ScanKeyInit(&keys[1], Anum_pg_db_role_setting_setrole, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(role));
	scan = systable_beginscan(rel, DbRoleSettingDatidRolidIndexId, true, NULL, 2, keys);
	while (path == NULL && (tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;
		Datum		settings = heap_getattr(tuple, Anum_pg_db_role_setting_setconfig,
											RelationGetDescr(rel), &isnull);
		Datum	   *items;
		int			n = 0;

		if (!isnull)
			deconstruct_array(DatumGetArrayTypeP(settings), TEXTOID, -1, false, TYPALIGN_INT,
							  &items, NULL, &n);
		for (int i = 0; i < n; i++)
		{
			char	   *item = TextDatumGetCString(items[i]);

			if (strncmp(item, prefix, strlen(prefix)) == 0)
				path = item + strlen(prefix);
		}
	}
	systable_endscan(scan);
	return path;
}

/*
 * The search path that a new session of the owner begins with.  If that is the
 * server's, and this session began with another one, it is hidden from us; then
 * it is taken to be PostgreSQL's own default.
 */
static char *
default_search_path(Oid owner)
{
	const struct config_generic *setting = dw_find_setting("search_path");
	Relation	rel = table_open(DbRoleSettingRelationId, AccessShareLock);
	char	   *path = search_path_of(rel, MyDatabaseId, owner);

	if (path == NULL)
		path = search_path_of(rel, InvalidOid, owner);
	if (path == NULL)
		path = search_path_of(rel, MyDatabaseId, InvalidOid);
	if (path == NULL)
		path = search_path_of(rel, InvalidOid, InvalidOid);
	table_close(rel, AccessShareLock);

	if (path == NULL && setting != NULL && setting->reset_source <= PGC_S_ARGV)
		path = pstrdup(GetConfigOptionResetString("search_path"));
	return path != NULL ? path : pstrdup("\"$user\", public");
}

/*
 * Until the nest level of settings is left.  What is in the caller's temporary
 * schema is not meant by the task of another role.
 */
static void
set_run_search_path(const Taken *task, bool own)
{
	char	   *path;

	if (task->nulls[Anum_task_search_path - 1])
		path = default_search_path(task->key.owner);
	else
		path = TextDatumGetCString(task->values[Anum_task_search_path - 1]);
	if (!own)
		path = psprintf("%s%spg_temp", path, path[0] != '\0' ? ", " : "");
	(void) set_config_option("search_path", path, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/*---- Cursors ----*/

/* The names of all cursors, those of the protocol included. */
static List *
list_cursors(void)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *names = NIL;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	if (SPI_execute("SELECT c.name FROM pg_catalog.pg_cursor() c", true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list cursors");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		char	   *name = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1);
		MemoryContext old = MemoryContextSwitchTo(context);

		names = lappend(names, pstrdup(name));
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	return names;
}

/* A portal that is at work can be neither read nor closed: let it seem so, unseen. */
static List *
hide_cursors(void)
{
	List	   *hidden = NIL;
	ListCell   *lc;

	foreach(lc, list_cursors())
	{
		HiddenCursor *cursor = palloc(sizeof(HiddenCursor));
		Portal		portal = GetPortalByName(lfirst(lc));

		cursor->name = lfirst(lc);
		cursor->status = portal->status;
		cursor->visible = portal->visible;
		hidden = lappend(hidden, cursor);
	}
	foreach(lc, hidden)
	{
		Portal		portal = GetPortalByName(((HiddenCursor *) lfirst(lc))->name);

		portal->status = PORTAL_ACTIVE;
		portal->visible = false;
	}
	return hidden;
}

static void
restore_cursors(List *hidden)
{
	ListCell   *lc;

	foreach(lc, hidden)
	{
		HiddenCursor *cursor = lfirst(lc);
		Portal		portal = GetPortalByName(cursor->name);

		if (portal != NULL)
		{
			portal->status = cursor->status;
			portal->visible = cursor->visible;
		}
	}
}

/* Closes the cursors that the task has opened: all that do not seem at work. */
static void
close_cursors(void)
{
	ListCell   *lc;

	foreach(lc, list_cursors())
	{
		Portal		portal = GetPortalByName(lfirst(lc));

		if (portal->status != PORTAL_ACTIVE)
			PortalDrop(portal, false);
	}
}

/*---- Large objects ----*/

/*
 * No more descriptors than this are there: their places are an array in a
 * memory context of PostgreSQL's, which mostly is not there either.  Its name
 * is all that is known of it.
 */
static int
count_places(void)
{
	Size		size = 0;

	for (MemoryContext context = TopMemoryContext->firstchild; context; context = context->nextchild)
		if (strcmp(context->name, "Filesystem") == 0)
			size += MemoryContextMemAllocated(context, false);
	return (int) Min(size / sizeof(void *), PG_INT32_MAX);
}

/* Nothing tells but the error of those that are not there, which holds nothing. */
static bool
is_open_descriptor(int fd)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool is_open = true;

	PG_TRY();
	{
		(void) DirectFunctionCall1(be_lo_tell64, Int32GetDatum(fd));
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		is_open = geterrcode() != ERRCODE_UNDEFINED_OBJECT;
		FlushErrorState();
	}
	PG_END_TRY();
	return is_open;
}

/* Whoever has a descriptor reads and writes without a check of rights. */
static void
refuse_large_objects(void)
{
	int			places = count_places();

	for (int fd = 0; fd < places; fd++)
	{
		CHECK_FOR_INTERRUPTS();
		if (is_open_descriptor(fd))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot run a task of another role while large objects are open"),
					 errhint("Close them with lo_close() first.")));
	}
}

/*---- Running ----*/

static DwSpiResult
run_sql_now(const Taken *task)
{
	DwSpiResult result;
	char	   *sql = TextDatumGetCString(task->values[Anum_task_sql - 1]);

	PushActiveSnapshot(GetTransactionSnapshot());
	result = dw_spi_run_once(sql, dw_args_params(sql,
												 task->values[Anum_task_args - 1],
												 task->nulls[Anum_task_args - 1],
												 task->values[Anum_task_arg_types - 1],
												 task->nulls[Anum_task_arg_types - 1]));
	PopActiveSnapshot();
	return result;
}

/*
 * In a session that is not the owner's.  On an error, the abort of the
 * (sub)transaction takes the user back, and the settings.
 *
 * PL/pgSQL frees the memory of the expression that has called us when a DO block
 * in the task fails: what is needed after an error must not be there.
 */
static DwSpiResult
run_sql_restricted(const Taken *task)
{
	DwSpiResult result = {0};
	MemoryContext outer = CurrentMemoryContext;
	MemoryContext kept = AllocSetContextCreate(CurTransactionContext, "delay_wheel cursors",
											   ALLOCSET_SMALL_SIZES);
	List	   *hidden;

	refuse_large_objects();
	MemoryContextSwitchTo(kept);
	hidden = hide_cursors();
	MemoryContextSwitchTo(outer);

	PG_TRY();
	{
		DwRestricted state;

		dw_restricted_begin(&state, task->key.owner);
		result = run_sql_now(task);
		close_cursors();
		dw_restricted_end(&state);
	}
	PG_FINALLY();
	{
		dw_restricted_leave();
		restore_cursors(hidden);
		MemoryContextDelete(kept);
	}
	PG_END_TRY();
	return result;
}

static void
run_context(void *arg)
{
	const Taken *task = arg;

	if (is_own_session(task->key.owner))
		errcontext("task %lld, run by %s", (long long) task->key.id, task->function);
	else
		errcontext("task %lld, run by %s in a session that is not its owner's",
				   (long long) task->key.id, task->function);
}

static DwSpiResult
run_task(Taken *task)
{
	DwSpiResult result = {0};
	int64		outer_id = dw_run_now_id;
	bool		own = is_own_session(task->key.owner);
	int			nest_level = NewGUCNestLevel();
	ErrorContextCallback callback = {
		.previous = error_context_stack,
		.callback = run_context,
		.arg = task
	};

	error_context_stack = &callback;
	set_run_search_path(task, own);
	dw_run_now_id = task->key.id;
	PG_TRY();
	{
		if (own)
			result = run_sql_now(task);
		else
			result = run_sql_restricted(task);
	}
	PG_FINALLY();
	{
		dw_run_now_id = outer_id;
	}
	PG_END_TRY();
	AtEOXact_GUC(false, nest_level);
	error_context_stack = callback.previous;
	return result;
}

/* The row is deleted; false if there is nothing to run nevertheless. */
static bool
have_taken(Relation rel, HeapTuple tuple, Taken *task)
{
	dw_deform(rel, tuple, &task->values, &task->nulls);
	CommandCounterIncrement();
	dw_ending_wait();
	/* a cancellation may have come before the deletion, which then stands */
	if (!dw_task_is_cancelled(rel, tuple))
		return true;
	dw_conclude_row(rel, tuple, &task->key, DW_CANCELLED, NULL);
	return false;
}

/* Takes the task; false if there is nothing to run. */
static bool
take_for_run(int64 id, Taken *task)
{
	Relation	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	HeapTuple	tuple;
	DwHint		hint;
	bool		ready = false;

	if (dw_take_pending(rel, id, &tuple, &task->key, &hint) == DW_TAKEN)
		ready = have_taken(rel, tuple, task);
	table_close(rel, NoLock);
	return ready;
}

/* Runs it, and all that follows from its end. */
static void
run_and_conclude(Taken *task)
{
	DwEnded		ended = {
		.key = &task->key,
		.values = task->values,
		.nulls = task->nulls,
		.outcome = DW_DONE,
		.started = dw_now()
	};

	require_role(task->key.owner);
	if (task->key.origin != dw_origin_stamp())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task %lld is not armed", (long long) task->key.id),
				 errdetail("It came with a copy of another database."),
				 errhint("See delay_arm().")));
	if (dw_mode(task->values, task->nulls) != DW_IN_TRANSACTION)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task %lld cannot run inside a transaction", (long long) task->key.id),
				 errdetail("It was scheduled with a mode, to be run outside of one."),
				 errhint("To run it at once, use delay_reschedule(id, '0').")));
	ended.result = run_task(task);
	dw_other_nodes_prepare();
	dw_conclude(&ended);
}

Datum
dw_run(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {INT8OID};
	Taken		task = {.function = "delay_run()"};

	dw_require_signature(fcinfo, BOOLOID, lengthof(types), types);
	dw_require_writable("delay_run()");
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("task id must not be null")));
	if (!take_for_run(PG_GETARG_INT64(0), &task))
		PG_RETURN_BOOL(false);
	run_and_conclude(&task);
	PG_RETURN_BOOL(true);
}

/*---- All that is due ----*/

/* How far delay_run_due() has come. */
typedef struct Progress
{
	TimestampTz until;
	DwTaskKey	at;				/* owner and origin; due and id of the last task */
	TimestampTz reached;		/* the highest due time */
	int			rounds;			/* at that */
	int64		round_end;		/* tasks of higher ids are of another round */
	int64		done;
	int64		left;			/* in this pass */
} Progress;

static bool
is_before(const DwTaskKey *a, const DwTaskKey *b)
{
	return a->due < b->due || (a->due == b->due && a->id < b->id);
}

/*
 * The first of the owner's tasks after the last one, in order of (due, id), that
 * is due by then; NULL if there is none.  Each lane is entered in that place.
 */
static HeapTuple
find_next(Relation rel, const Progress *progress, DwTaskKey *next)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	HeapTuple	found = NULL;
	DwTaskKey	from = progress->at;
	DwLaneScan *scan;
	DwTaskKey	key;
	bool		visible;

	from.queue = from.priority = PG_INT16_MIN;
	from.id++;
	scan = dw_lanes_scan_begin(rel, &from, snapshot);
	while (dw_lane_scan_step(scan, &key, &visible) &&
		   key.owner == from.owner && key.origin == from.origin)
	{
		bool		enter = is_before(&key, &from);
		bool		leave = key.due > progress->until || (found != NULL && is_before(next, &key));

		CHECK_FOR_INTERRUPTS();
		if (!enter && !leave && visible)
		{
			found = dw_lane_scan_tuple(scan);
			*next = key;
			leave = true;
		}
		if (!enter && !leave)
			continue;
		from.queue = key.queue;
		from.priority = key.priority + (leave ? 1 : 0);
		dw_lanes_scan_seek(scan, &from);
	}
	dw_lane_scan_end(scan);
	UnregisterSnapshot(snapshot);
	return found;
}

/* Tasks that go on scheduling others for the same time would have no end. */
static void
count_round(Progress *progress, const DwTaskKey *key)
{
	if (key->due > progress->reached)
	{
		progress->reached = key->due;
		progress->rounds = 0;
	}
	if (key->id <= progress->round_end)
		return;
	if (++progress->rounds > MAX_ROUNDS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("tasks schedule others without end"),
				 errdetail("Task %lld, due at %s, was scheduled by a task of that time, which was scheduled by another one, %d times.",
						   (long long) key->id, timestamptz_to_str(key->due), MAX_ROUNDS),
				 errhint("Let tasks that schedule themselves again do so with a delay.")));
	progress->round_end = nextval_internal(dw_catalog()->task_id_seq, false);
}

/* Takes the next task; false if there is none.  *ready is whether it can be run. */
static bool
take_next_due(Progress *progress, Taken *task, bool *ready)
{
	Relation	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	HeapTuple	tuple = find_next(rel, progress, &task->key);
	bool		again = false;
	DwHint		hint;

	*ready = false;
	if (tuple != NULL)
	{
		dw_deform(rel, tuple, &task->values, &task->nulls);
		if (dw_mode(task->values, task->nulls) != DW_IN_TRANSACTION)
			progress->left++;
		else if (dw_take_found(rel, tuple, &task->key, &hint, &again) == DW_TAKEN)
			*ready = have_taken(rel, tuple, task);
		if (!again)
		{
			progress->at.due = task->key.due;
			progress->at.id = task->key.id;
		}
	}
	table_close(rel, NoLock);
	return tuple != NULL;
}

/* Goes through the tasks once, in order. */
static void
run_pass(Progress *progress)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "delay_run_due",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext outer = MemoryContextSwitchTo(context);
	Taken		task = {.function = "delay_run_due()"};
	bool		ready;

	progress->at.due = progress->at.id = PG_INT64_MIN;
	progress->left = 0;
	while (take_next_due(progress, &task, &ready))
	{
		if (ready)
		{
			count_round(progress, &task.key);
			dw_run_now_clock = task.key.due;
			run_and_conclude(&task);
			progress->done++;
		}
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(outer);
	MemoryContextDelete(context);
}

/* What is scheduled for a time that was gone through already takes another pass. */
static void
run_passes(Progress *progress)
{
	int64		before;

	do
	{
		before = progress->done;
		run_pass(progress);
	} while (progress->done > before);
	if (progress->left > 0)
		ereport(NOTICE,
				(errmsg_plural("%lld task was left, since it does not run in a transaction",
							   "%lld tasks were left, since they do not run in a transaction",
							   progress->left, (long long) progress->left)));
}

Datum
dw_run_due(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {TIMESTAMPTZOID};
	TimestampTz outer_clock = dw_run_now_clock;
	Progress	progress = {
		.reached = DT_NOBEGIN,
		.round_end = PG_INT64_MIN
	};

	dw_require_signature(fcinfo, INT8OID, lengthof(types), types);
	dw_require_writable("delay_run_due()");
	progress.until = PG_ARGISNULL(0) ? GetCurrentTransactionStartTimestamp() : PG_GETARG_TIMESTAMPTZ(0);
	progress.at.owner = GetUserId();
	progress.at.origin = dw_origin_stamp();
	PG_TRY();
	{
		run_passes(&progress);
	}
	PG_FINALLY();
	{
		dw_run_now_clock = outer_clock;
	}
	PG_END_TRY();
	PG_RETURN_INT64(progress.done);
}
