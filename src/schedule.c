/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  The SQL functions that schedule, cancel and reschedule tasks.
 *
 * Run by backends, and by executors whose tasks call them.  What they do is
 * part of the caller's transaction; the timer hears of it at its end, see
 * touched.c.
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
#include "pending.h"
#include "rights.h"
#include "settings.h"
#include "signature.h"
#include "sqlcheck.h"
#include "stop.h"
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
	hint.lane = dw_require_lane(GetUserId(), 0, 0);
	/* before an id is drawn: see marks.c, who waits for those with lower ones */
	LockRelationOid(dw_catalog()->task, RowExclusiveLock);
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

/* Cancels a pending task; one that runs is stopped if that is wanted. */
static const char *
cancel(Relation rel, int64 id, bool stop_running)
{
	HeapTuple	tuple;
	DwTaskKey	key;
	DwHint		hint;

	for (;;)
	{
		switch (dw_take_pending(rel, id, &tuple, &key, &hint))
		{
			case DW_TAKEN:
				CommandCounterIncrement();
				dw_touch_ended(id, DW_CANCELLED);
				return "cancelled";
			case DW_GONE:
				return "gone";
			case DW_RUNNING:
				if (!stop_running)
					return "running";
				if (dw_stop_task(dw_my_database(), id))
					return "stopping";
				/* it has just ended, or was put back: look again */
				break;
		}
	}
}

Datum
dw_cancel(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {INT8OID, BOOLOID};
	Relation	rel;
	const char *result;

	dw_require_signature(fcinfo, TEXTOID, lengthof(types), types);
	refuse_null(PG_ARGISNULL(0), "task id");
	dw_require_writable("delay_cancel()");
	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	result = cancel(rel, PG_GETARG_INT64(0), PG_GETARG_BOOL(1));
	table_close(rel, NoLock);
	PG_RETURN_TEXT_P(cstring_to_text(result));
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

	if (dw_take_pending(rel, id, &tuple, &key, &hint) != DW_TAKEN)
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
