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
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "datatype/timestamp.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "../base/errors.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../ending/conclude.h"
#include "../ending/keys.h"
#include "../ending/pending.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/shared.h"
#include "../shmem/stop.h"
#include "../shmem/writers.h"
#include "../statement/args.h"
#include "../task/key_lock.h"
#include "../task/marks.h"
#include "../task/my_session.h"
#include "../task/new_task.h"
#include "../task/queues.h"
#include "../task/rights.h"
#include "../task/touched.h"
#include "options.h"
#include "schedule.h"

PG_FUNCTION_INFO_V1(dw_origin);
PG_FUNCTION_INFO_V1(dw_task_changed);
PG_FUNCTION_INFO_V1(dw_task_guard);
PG_FUNCTION_INFO_V1(dw_schedule);
PG_FUNCTION_INFO_V1(dw_schedule_at);
PG_FUNCTION_INFO_V1(dw_schedule_task);
PG_FUNCTION_INFO_V1(dw_cancel);
PG_FUNCTION_INFO_V1(dw_cancel_key);
PG_FUNCTION_INFO_V1(dw_reschedule);
PG_FUNCTION_INFO_V1(dw_reschedule_at);

Datum
dw_origin(PG_FUNCTION_ARGS)
{
	dw_require_signature(fcinfo, INT8OID, 0, NULL);
	PG_RETURN_INT64(dw_origin_stamp());
}

/* Trigger on delay_wheel.task: plain SQL wrote rows. */
Datum
dw_task_changed(PG_FUNCTION_ARGS)
{
	(void) dw_require_trigger(fcinfo, "task_changed", false);
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

/* A task may be put into a queue that the current user may schedule into. */
static void
require_queue_of_row(TriggerData *trigger, HeapTuple row)
{
	TupleDesc	desc = RelationGetDescr(trigger->tg_relation);
	int			column = SPI_fnumber(desc, "queue");
	bool		isnull;
	int16		queue;

	if (superuser() || dw_shared == NULL || SPI_gettypeid(desc, column) != INT2OID ||
		(RelationGetRelid(trigger->tg_relation) != dw_catalog()->task &&
		 RelationGetRelid(trigger->tg_relation) != dw_catalog()->recurring))
		return;
	queue = DatumGetInt16(SPI_getbinval(row, desc, column, &isnull));
	if (isnull || (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) &&
				   queue == DatumGetInt16(SPI_getbinval(trigger->tg_trigtuple, desc, column, &isnull))))
		return;
	dw_queue_require(queue);
}

/*
 * Trigger on delay_wheel.task and failed_task: plain SQL must not make a task
 * of a role whose rights the current user does not have, nor change one.
 */
Datum
dw_task_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = dw_require_trigger(fcinfo, "task_guard", true);
	HeapTuple	row;

	row = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple : trigger->tg_trigtuple;
	if (!has_privs_of_role(GetUserId(), owner_of_row(trigger, row)) ||
		!has_privs_of_role(GetUserId(), owner_of_row(trigger, trigger->tg_trigtuple)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to write a task of another role"),
				 errhint("Use SET ROLE and delay_schedule().")));
	require_queue_of_row(trigger, row);
	/* COPY and apply workers have not said it before, see writers.c */
	if (dw_shared != NULL)
		dw_writes_for(InvalidOid);
	return PointerGetDatum(dw_accept_replicated(trigger, row) ? row : NULL);
}

/*
 * Puts it into a queue, as delay_schedule_task does: NULL is the default one,
 * DW_NO_PRIORITY the queue's.  An error if the current user may not.
 */
void
dw_new_task_queue(DwNewTask *task, const char *name, int16 priority)
{
	DwQueueForTask queue;

	dw_queue_find(name, &queue);
	task->queue = queue.id;
	task->spread = queue.spread;
	task->priority = priority == DW_NO_PRIORITY ? queue.priority : priority;
}

/* A task with a key: its id, or that of the one that is pending already. */
static int64
insert_keyed_task(DwNewTask *task, DwLaneRef lane)
{
	Relation	rel = dw_tasks_open();
	DwKey		key = {
		.owner = task->owner,
		.queue = task->queue,
		.key = DatumGetTextPP(task->values[Anum_task_key - 1])
	};
	int64		id;

	if (dw_key_enter(rel, &key, task->if_exists, &id))
	{
		if (dw_max_pending >= 0)
			dw_require_room(task->owner);
		id = dw_new_task_insert(task, lane);
		dw_key_leave();
	}
	table_close(rel, NoLock);
	return id;
}

/*
 * Writes its row, in the current transaction, and remembers it for the end of
 * that.  Its SQL, which has so many arguments, is checked before, and limits
 * are kept to.  Returns its id, or that of the one that is pending already.
 * The caller has called dw_require_writable().
 */
int64
dw_schedule_new(DwNewTask *task, int nargs)
{
	dw_new_task_check_sql(task, nargs);
	return dw_schedule_checked(task);
}

/* The same for who has had the SQL checked before. */
int64
dw_schedule_checked(DwNewTask *task)
{
	bool		has_key = !task->nulls[Anum_task_key - 1];
	DwLaneRef	lane;

	if (dw_max_pending >= 0 && !has_key)
		dw_require_room(task->owner);
	dw_keep_search_path(task);
	lane = dw_require_lane(task->owner, task->queue, task->priority);
	/* before an id is drawn: see marks.c, who waits for those with lower ones */
	dw_tasks_lock();
	return has_key ? insert_keyed_task(task, lane) : dw_new_task_insert(task, lane);
}

/* delay_schedule and delay_schedule_at: arguments follow the SQL text. */
static int64
schedule_plain(FunctionCallInfo fcinfo, TimestampTz due)
{
	DwNewTask	task;
	int			nargs;

	dw_refuse_null(PG_ARGISNULL(1), "SQL text");
	dw_new_task_init(&task, PG_GETARG_TEXT_PP(1));
	task.due = due;
	nargs = dw_args_collect(fcinfo, 2, &task.values[Anum_task_args - 1],
							&task.values[Anum_task_arg_types - 1],
							&task.nulls[Anum_task_args - 1]);
	task.nulls[Anum_task_arg_types - 1] = task.nulls[Anum_task_args - 1];
	return dw_schedule_new(&task, nargs);
}

Datum
dw_schedule(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {INTERVALOID, TEXTOID};

	dw_require_signature(fcinfo, INT8OID, lengthof(types), types);
	dw_require_writable("delay_schedule()");
	dw_refuse_null(PG_ARGISNULL(0), "delay");
	PG_RETURN_INT64(schedule_plain(fcinfo, dw_due_after(PG_GETARG_INTERVAL_P(0))));
}

Datum
dw_schedule_at(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {TIMESTAMPTZOID, TEXTOID};

	dw_require_signature(fcinfo, INT8OID, lengthof(types), types);
	dw_require_writable("delay_schedule_at()");
	dw_refuse_null(PG_ARGISNULL(0), "due time");
	PG_RETURN_INT64(schedule_plain(fcinfo, dw_finite_due(PG_GETARG_TIMESTAMPTZ(0))));
}

/* When delay_schedule_task is to run: after a delay, at a time, or now. */
static TimestampTz
option_due(FunctionCallInfo fcinfo)
{
	if (!PG_ARGISNULL(DW_ARG_DELAY) && !PG_ARGISNULL(DW_ARG_DUE))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("delay and due cannot both be given"),
				 errhint("Without any of them the task runs at once after the commit.")));
	if (!PG_ARGISNULL(DW_ARG_DELAY))
		return dw_due_after(PG_GETARG_INTERVAL_P(DW_ARG_DELAY));
	if (!PG_ARGISNULL(DW_ARG_DUE))
		return dw_finite_due(PG_GETARG_TIMESTAMPTZ(DW_ARG_DUE));
	return dw_schedule_now();
}

/*
 * Reads the arguments args and arg_types of delay_schedule_task; how many there are.
 */
int
dw_option_args(FunctionCallInfo fcinfo, DwNewTask *task)
{
	int			nargs;

	nargs = dw_args_parse(PG_ARGISNULL(DW_ARG_ARGS) ? NULL : PG_GETARG_ARRAYTYPE_P(DW_ARG_ARGS),
						  PG_ARGISNULL(DW_ARG_ARG_TYPES) ? NULL : PG_GETARG_ARRAYTYPE_P(DW_ARG_ARG_TYPES),
						  &task->values[Anum_task_args - 1],
						  &task->values[Anum_task_arg_types - 1],
						  &task->nulls[Anum_task_args - 1]);
	task->nulls[Anum_task_arg_types - 1] = task->nulls[Anum_task_args - 1];
	return nargs;
}

Datum
dw_schedule_task(PG_FUNCTION_ARGS)
{
	static const Oid types[DW_NARGS] = {
		TEXTOID, TEXTARRAYOID, REGTYPEARRAYOID, INTERVALOID, TIMESTAMPTZOID,
		TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID,
		INT4OID, INTERVALOID, INTERVALOID, INTERVALOID,
		INTERVALOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID
	};
	DwNewTask	task;
	int			nargs;

	dw_require_signature(fcinfo, INT8OID, lengthof(types), types);
	dw_require_writable("delay_schedule_task()");
	dw_refuse_null(PG_ARGISNULL(DW_ARG_SQL), "SQL text");
	dw_new_task_init(&task, PG_GETARG_TEXT_PP(DW_ARG_SQL));
	task.due = option_due(fcinfo);
	nargs = dw_option_args(fcinfo, &task);
	dw_options_read(fcinfo, task.values, task.nulls);
	task.if_exists = dw_option_if_exists(fcinfo);
	dw_new_task_queue(&task, PG_ARGISNULL(DW_ARG_QUEUE) ? NULL :
					  text_to_cstring(PG_GETARG_TEXT_PP(DW_ARG_QUEUE)),
					  dw_option_priority(fcinfo));
	PG_RETURN_INT64(dw_schedule_new(&task, nargs));
}

static Datum
return_taken(DwTaken state)
{
	PG_RETURN_TEXT_P(cstring_to_text(state == DW_TAKEN ? "cancelled" :
									 state == DW_RUNNING ? "running" : "gone"));
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
				dw_conclude_row(rel, tuple, &key, DW_CANCELLED, NULL);
				return "cancelled";
			case DW_GONE:
				return "gone";
			case DW_RUNNING:
				/* delay_run() runs it in this very session */
				if (!stop_running || dw_run_now_id == id)
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
	dw_refuse_null(PG_ARGISNULL(0), "task id");
	dw_require_writable("delay_cancel()");
	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	result = cancel(rel, PG_GETARG_INT64(0), PG_GETARG_BOOL(1));
	table_close(rel, NoLock);
	PG_RETURN_TEXT_P(cstring_to_text(result));
}

/* Cancels the pending task of a key. */
DwTaken
dw_schedule_cancel(const DwKey *key)
{
	Relation	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	DwTaken		state = dw_key_cancel(rel, key);

	if (state == DW_TAKEN)
		CommandCounterIncrement();
	table_close(rel, NoLock);
	return state;
}

Datum
dw_cancel_key(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {TEXTOID, TEXTOID};
	DwKey		key;

	dw_require_signature(fcinfo, TEXTOID, lengthof(types), types);
	dw_require_writable("delay_cancel_key()");
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	key.owner = GetUserId();
	/* whether or not one may schedule into it any more */
	key.queue = PG_ARGISNULL(1) ? 0 : dw_queue_named(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	key.key = PG_GETARG_TEXT_PP(0);
	return return_taken(dw_schedule_cancel(&key));
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
	int64		mark;
	bool		has_key;

	if (dw_take_pending(rel, id, &tuple, &key, &hint) != DW_TAKEN)
	{
		table_close(rel, NoLock);
		return false;
	}

	dw_deform(rel, tuple, &values, &nulls);
	if (!nulls[Anum_task_expires - 1])
		dw_check_expires(due, values[Anum_task_expires - 1]);
	values[Anum_task_due - 1] = TimestampTzGetDatum(due);
	/* a cancellation that did not hit it where it was does not where it comes to */
	mark = dw_mark_on_row(values, nulls);
	if (mark != 0)
	{
		values[Anum_task_spared - 1] = Int64GetDatum(mark);
		nulls[Anum_task_spared - 1] = false;
	}
	hint.due = due;
	has_key = dw_key_lock_of(rel, tuple);
	hint.tid = dw_task_insert(values, nulls);
	if (has_key)
		dw_key_leave();
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
	dw_refuse_null(PG_ARGISNULL(0), "task id");
	dw_refuse_null(PG_ARGISNULL(1), "delay");
	PG_RETURN_BOOL(reschedule(PG_GETARG_INT64(0), dw_due_after(PG_GETARG_INTERVAL_P(1))));
}

Datum
dw_reschedule_at(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {INT8OID, TIMESTAMPTZOID};

	dw_require_signature(fcinfo, BOOLOID, lengthof(types), types);
	dw_require_writable("delay_reschedule_at()");
	dw_refuse_null(PG_ARGISNULL(0), "task id");
	dw_refuse_null(PG_ARGISNULL(1), "due time");
	PG_RETURN_BOOL(reschedule(PG_GETARG_INT64(0), dw_finite_due(PG_GETARG_TIMESTAMPTZ(1))));
}
