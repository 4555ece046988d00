/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  The SQL functions that schedule, cancel and reschedule tasks.
 *
 * Run by backends, and by executors whose tasks call them.  What they do is
 * part of the caller's transaction; the timer hears of it at its end, see
 * touched.c.
 *
 * A task is found by its id with a snapshot taken just then, whatever the
 * isolation level: it may have been moved by a transaction that was open
 * when ours began.  Its row's lock decides between this transaction, other
 * ones, and an executor's claim (steps T1 to T3 of the model).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "args.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "commands/trigger.h"
#include "compat.h"
#include "copies.h"
#include "executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "inject.h"
#include "lanes.h"
#include "miscadmin.h"
#include "rights.h"
#include "schedule.h"
#include "settings.h"
#include "signature.h"
#include "sqlcheck.h"
#include "storage/lmgr.h"
#include "task_rows.h"
#include "touched.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(dw_origin);
PG_FUNCTION_INFO_V1(dw_task_changed);
PG_FUNCTION_INFO_V1(dw_task_guard);
PG_FUNCTION_INFO_V1(dw_schedule);
PG_FUNCTION_INFO_V1(dw_schedule_at);
PG_FUNCTION_INFO_V1(dw_cancel);
PG_FUNCTION_INFO_V1(dw_reschedule);
PG_FUNCTION_INFO_V1(dw_reschedule_at);

/* What became of an attempt to take a task's row. */
typedef enum RowState
{
	ROW_TAKEN,
	ROW_RUNNING,
	ROW_GONE
} RowState;

Datum
dw_origin(PG_FUNCTION_ARGS)
{
	dw_require_signature(fcinfo, INT8OID, 0, NULL);
	PG_RETURN_INT64(dw_origin_stamp());
}

/* What calls a trigger function of ours must be a trigger on a table of ours. */
static TriggerData *
require_trigger(FunctionCallInfo fcinfo, const char *function)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		RelationGetNamespace(trigger->tg_relation) != get_namespace_oid("delay_wheel", true))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by a trigger of extension \"%s\"",
						function, "delay_wheel")));
	return trigger;
}

/* Trigger on delay_wheel.task: plain SQL wrote rows. */
Datum
dw_task_changed(PG_FUNCTION_ARGS)
{
	(void) require_trigger(fcinfo, "task_changed");
	/* a restore into a server without the library must go on */
	if (dw_shared != NULL)
		dw_touch_all();
	PG_RETURN_POINTER(NULL);
}

/* The owner in a row of delay_wheel.task or failed_task; 0 if it is null. */
static Oid
owner_of_row(TriggerData *trigger, HeapTuple tuple)
{
	TupleDesc	desc = RelationGetDescr(trigger->tg_relation);
	int			column = SPI_fnumber(desc, "owner");
	bool		isnull;
	Datum		owner;

	if (SPI_gettypeid(desc, column) != REGROLEOID)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("table \"%s\" has no owners of tasks",
						RelationGetRelationName(trigger->tg_relation))));
	owner = SPI_getbinval(tuple, desc, column, &isnull);
	return isnull ? InvalidOid : DatumGetObjectId(owner);
}

/*
 * Trigger on delay_wheel.task and failed_task: plain SQL must not make a task
 * of a role whose rights the current user does not have, nor change one.
 */
Datum
dw_task_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = require_trigger(fcinfo, "task_guard");
	HeapTuple	row;

	if (!TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired for each row", "task_guard")));

	row = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple : trigger->tg_trigtuple;
	if (!has_privs_of_role(GetUserId(), owner_of_row(trigger, row)) ||
		!has_privs_of_role(GetUserId(), owner_of_row(trigger, trigger->tg_trigtuple)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to write a task of another role"),
				 errhint("Use SET ROLE and delay_schedule().")));
	return PointerGetDatum(dw_accept_replicated(trigger, row) ? row : NULL);
}

/* What SQL would check for a statement that writes. */
void
dw_require_writable(const char *function)
{
	dw_require_shared();
	PreventCommandDuringRecovery(function);
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	if (InSecurityRestrictedOperation())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot execute %s within security-restricted operation", function)));
}

static void
refuse_null(bool isnull, const char *what)
{
	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
}

/* Due times count from now(), the start of the transaction. */
static TimestampTz
due_after(Interval *delay)
{
	TimestampTz due;

	due = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												  TimestampTzGetDatum(GetCurrentTransactionStartTimestamp()),
												  IntervalPGetDatum(delay)));
	if (TIMESTAMP_NOT_FINITE(due))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("delay must not be infinite")));
	return due;
}

static TimestampTz
finite_due(TimestampTz due)
{
	if (TIMESTAMP_NOT_FINITE(due))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("due time must not be infinite")));
	return due;
}

/*
 * The lane of a task, entered if need be.  The last one is remembered: most
 * sessions schedule into one lane only.
 */
static bool
enter_lane(Oid owner, int16 queue, int16 priority, DwLaneRef *lane)
{
	static DwLaneRef last;
	static Oid	last_owner = InvalidOid;
	static int16 last_queue;
	static int16 last_priority;
	DwDatabase *db = dw_my_database();

	if (last_owner != owner || last_queue != queue || last_priority != priority ||
		pg_atomic_read_u32(&dw_lanes[last.index].generation) != last.generation)
	{
		last_owner = InvalidOid;
		if (db == NULL || !dw_lane_enter(db, owner, queue, priority, &last))
			return false;
		last_owner = owner;
		last_queue = queue;
		last_priority = priority;
	}
	*lane = last;
	return true;
}

/* Stands for none: it never was, so the timer looks for all there are. */
static const DwLaneRef no_lane = {0, 0};

/*
 * The lane of a new task.  If all places are taken, the timer is given a
 * second to find one that is not needed any more.
 */
static DwLaneRef
require_lane(Oid owner, int16 queue, int16 priority)
{
	DwLaneRef	lane;
	DwDatabase *db = dw_my_database();

	if (db == NULL)
	{
		dw_warn_no_place();
		return no_lane;
	}

	for (int i = 0; i < 100; i++)
	{
		if (enter_lane(owner, queue, priority, &lane))
			return lane;
		dw_wake_timer(db, DW_AWAKE);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many combinations of owner, queue and priority have pending tasks: the limit of %d is reached",
					dw_max_lanes),
			 errhint("Increase \"%s\" and restart the server.", "delay_wheel.max_lanes")));
}

/*
 * Whether the task will find the current search_path by itself, being run
 * by a new session of its owner.
 */
static bool
search_path_is_default(void)
{
	static struct config_generic *setting = NULL;

	if (setting == NULL)
		setting = dw_find_setting("search_path");
	return setting != NULL && setting->source <= PGC_S_DATABASE_USER &&
		GetUserId() == GetAuthenticatedUserId();
}

/* Writes a new task and remembers it for the end of the transaction. */
static int64
schedule(FunctionCallInfo fcinfo, TimestampTz due)
{
	Datum		values[Natts_task] = {0};
	bool		nulls[Natts_task];
	char	   *sql;
	int			nargs;
	DwHint		hint;

	refuse_null(PG_ARGISNULL(1), "SQL text");
	sql = text_to_cstring(PG_GETARG_TEXT_PP(1));

	memset(nulls, true, sizeof(nulls));
	nargs = dw_args_collect(fcinfo, 2, &values[Anum_task_args - 1],
							&values[Anum_task_arg_types - 1], &nulls[Anum_task_args - 1]);
	nulls[Anum_task_arg_types - 1] = nulls[Anum_task_args - 1];
	if (dw_check_sql_text)
		dw_check_sql(sql, nargs);

	if (dw_max_pending >= 0)
		dw_require_room(GetUserId());
	hint.lane = require_lane(GetUserId(), 0, 0);
	hint.id = nextval_internal(dw_catalog()->task_id_seq, false);
	hint.due = due;

	values[Anum_task_id - 1] = Int64GetDatum(hint.id);
	values[Anum_task_due - 1] = TimestampTzGetDatum(due);
	values[Anum_task_origin - 1] = Int64GetDatum(dw_origin_stamp());
	values[Anum_task_owner - 1] = ObjectIdGetDatum(GetUserId());
	values[Anum_task_queue - 1] = Int16GetDatum(0);
	values[Anum_task_priority - 1] = Int16GetDatum(0);
	for (int i = Anum_task_id; i <= Anum_task_priority; i++)
		nulls[i - 1] = false;
	values[Anum_task_sql - 1] = PG_GETARG_DATUM(1);
	nulls[Anum_task_sql - 1] = false;
	if (!search_path_is_default())
	{
		values[Anum_task_search_path - 1] = CStringGetTextDatum(namespace_search_path);
		nulls[Anum_task_search_path - 1] = false;
	}

	DW_INJECT("schedule-before-insert");
	hint.tid = dw_task_insert(values, nulls);
	dw_touch_written(&hint);
	DW_INJECT("schedule-after-insert");
	return hint.id;
}

Datum
dw_schedule(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {INTERVALOID, TEXTOID};

	dw_require_signature(fcinfo, INT8OID, lengthof(types), types);
	dw_require_writable("delay_schedule()");
	refuse_null(PG_ARGISNULL(0), "delay");
	PG_RETURN_INT64(schedule(fcinfo, due_after(PG_GETARG_INTERVAL_P(0))));
}

Datum
dw_schedule_at(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {TIMESTAMPTZOID, TEXTOID};

	dw_require_signature(fcinfo, INT8OID, lengthof(types), types);
	dw_require_writable("delay_schedule_at()");
	refuse_null(PG_ARGISNULL(0), "due time");
	PG_RETURN_INT64(schedule(fcinfo, finite_due(PG_GETARG_TIMESTAMPTZ(0))));
}

static void
require_owner(const DwTaskKey *key)
{
	if (!has_privs_of_role(GetUserId(), key->owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for task %lld", (long long) key->id),
				 errdetail("Only members of the role that scheduled the task, and superusers, may change it.")));
}

/*
 * Waits for the transaction that holds the row, without becoming the next
 * holder: an executor that comes in between is to be told, not waited for.
 */
static TM_Result
wait_for_holder(Relation rel, HeapTuple tuple, TransactionId holder, TM_FailureData *failure)
{
	/*
	 * Several holders, who locked the row by plain SQL: queue up as usual. Or
	 * our own transaction has locked it so: then there is nobody to wait for.
	 */
	if ((tuple->t_data->t_infomask & HEAP_XMAX_IS_MULTI) ||
		TransactionIdIsCurrentTransactionId(holder))
		return heap_delete(rel, &tuple->t_self, GetCurrentCommandId(true),
						   InvalidSnapshot, true, failure, false);

	XactLockTableWait(holder, rel, &tuple->t_self, XLTW_Delete);
	return TM_BeingModified;
}

/* Remembers the row as it is, for the case that this is rolled back. */
static void
touch_locked(const DwTaskKey *key, DwHint *hint)
{
	hint->id = key->id;
	hint->due = key->due;
	hint->tid = key->tid;
	if (enter_lane(key->owner, key->queue, key->priority, &hint->lane))
		dw_touch_locked(hint);
	else
	{
		/* more lanes, or databases, than places: the timer must look for it */
		hint->lane = no_lane;
		dw_touch_all();
	}
}

/*
 * Deletes the row of a task, having waited for whoever else changes it.  On
 * success *tuple is a copy of it, *key says what is in it, and *hint is what
 * to tell of it.
 */
static RowState
take_row(Relation rel, int64 id, HeapTuple *tuple, DwTaskKey *key, DwHint *hint)
{
	if (dw_executor_runs_here(id))
		return ROW_RUNNING;

	for (;;)
	{
		Snapshot	snapshot;
		TM_FailureData failure;
		TM_Result	result;

		CHECK_FOR_INTERRUPTS();
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		*tuple = dw_task_find(rel, id, snapshot);
		UnregisterSnapshot(snapshot);
		if (*tuple == NULL)
			return ROW_GONE;
		dw_task_key(rel, *tuple, key);
		require_owner(key);

		/* before the deletion: from then on a claim may forget the task */
		touch_locked(key, hint);
		DW_INJECT("take-before-delete");
		result = heap_delete(rel, &key->tid, GetCurrentCommandId(true),
							 InvalidSnapshot, false, &failure, false);
		if (result == TM_BeingModified)
		{
			if (dw_xid_is_executor(failure.xmax))
				return ROW_RUNNING;
			result = wait_for_holder(rel, *tuple, failure.xmax, &failure);
		}
		if (result == TM_Ok)
			return ROW_TAKEN;
		/* deleted by plain SQL in this very command */
		if (result == TM_SelfModified)
			return ROW_GONE;

		/* changed or moved meanwhile: look again */
		heap_freetuple(*tuple);
	}
}

Datum
dw_cancel(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {INT8OID};
	Relation	rel;
	HeapTuple	tuple;
	DwTaskKey	key;
	DwHint		hint;
	RowState	state;

	dw_require_signature(fcinfo, TEXTOID, lengthof(types), types);
	refuse_null(PG_ARGISNULL(0), "task id");
	dw_require_writable("delay_cancel()");
	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	state = take_row(rel, PG_GETARG_INT64(0), &tuple, &key, &hint);
	if (state == ROW_TAKEN)
		CommandCounterIncrement();
	table_close(rel, NoLock);

	PG_RETURN_TEXT_P(cstring_to_text(state == ROW_TAKEN ? "cancelled" :
									 state == ROW_RUNNING ? "running" : "gone"));
}

/* Moves a task: its row is deleted and inserted again with the same id. */
static bool
reschedule(int64 id, TimestampTz due)
{
	Relation	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	HeapTuple	tuple;
	DwTaskKey	key;
	DwHint		hint;
	Datum	   *values;
	bool	   *nulls;

	if (take_row(rel, id, &tuple, &key, &hint) != ROW_TAKEN)
	{
		table_close(rel, NoLock);
		return false;
	}

	dw_deform(rel, tuple, &values, &nulls);
	values[Anum_task_due - 1] = TimestampTzGetDatum(due);
	hint.due = due;
	hint.tid = dw_task_insert(values, nulls);
	dw_touch_written(&hint);
	table_close(rel, NoLock);
	return true;
}

Datum
dw_reschedule(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {INT8OID, INTERVALOID};

	dw_require_signature(fcinfo, BOOLOID, lengthof(types), types);
	dw_require_writable("delay_reschedule()");
	refuse_null(PG_ARGISNULL(0), "task id");
	refuse_null(PG_ARGISNULL(1), "delay");
	PG_RETURN_BOOL(reschedule(PG_GETARG_INT64(0), due_after(PG_GETARG_INTERVAL_P(1))));
}

Datum
dw_reschedule_at(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {INT8OID, TIMESTAMPTZOID};

	dw_require_signature(fcinfo, BOOLOID, lengthof(types), types);
	dw_require_writable("delay_reschedule_at()");
	refuse_null(PG_ARGISNULL(0), "task id");
	refuse_null(PG_ARGISNULL(1), "due time");
	PG_RETURN_BOOL(reschedule(PG_GETARG_INT64(0), finite_due(PG_GETARG_TIMESTAMPTZ(1))));
}
