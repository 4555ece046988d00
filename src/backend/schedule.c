/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  The SQL functions that schedule, cancel and reschedule tasks.
 *
 * Run by sessions, and by executors whose tasks call these functions.  Their changes
 * belong to the caller's transaction; its commit tells the timer, see task/touched.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
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
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/errors.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../base/wing.h"
#include "../ending/ending.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/committing.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "../statement/statement.h"
#include "../task/queues.h"
#include "../task/task.h"
#include "../task/touched.h"
#include "backend.h"

PG_FUNCTION_INFO_V1(dw_origin);
PG_FUNCTION_INFO_V1(dw_task_changed);
PG_FUNCTION_INFO_V1(dw_task_guard);
PG_FUNCTION_INFO_V1(dw_schedule);
PG_FUNCTION_INFO_V1(dw_schedule_text);
PG_FUNCTION_INFO_V1(dw_schedule_at);
PG_FUNCTION_INFO_V1(dw_schedule_task);
PG_FUNCTION_INFO_V1(dw_put);
PG_FUNCTION_INFO_V1(dw_cancel);
PG_FUNCTION_INFO_V1(dw_cancel_key);
PG_FUNCTION_INFO_V1(dw_reschedule);
PG_FUNCTION_INFO_V1(dw_reschedule_text);
PG_FUNCTION_INFO_V1(dw_reschedule_at);
PG_FUNCTION_INFO_V1(dw_reschedule_key);
PG_FUNCTION_INFO_V1(dw_reschedule_key_text);
PG_FUNCTION_INFO_V1(dw_reschedule_key_at);

/*---- Tables of tasks, and plain SQL that writes them ----*/

/*
 * SQL function delay_wheel_internal.origin(): returns this database's stamp, which tells
 * its own tasks from those that came with a copy of another database.
 */
Datum
dw_origin(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(dw_origin_stamp());
}

/*
 * Statement trigger on delay_wheel_data.task, fired when plain SQL has written or deleted rows:
 * the commit makes the timer look at all lanes and recurring tasks, sessions in delay_wait()
 * at their tasks, and leases be counted again.
 */
Datum
dw_task_changed(PG_FUNCTION_ARGS)
{
	(void) dw_require_trigger(fcinfo, "task_changed", false);
	/* a restore must succeed even if the server has not preloaded the library */
	if (dw_shared != NULL)
		dw_touch_all();
	PG_RETURN_POINTER(NULL);
}

/* Returns the owner in a row of a table of tasks; InvalidOid if it is null. */
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
 * Raises an error if plain SQL puts a task, or a recurring one, into a queue into which
 * the current user may not schedule.
 */
static void
require_queue_of_row(TriggerData *trigger, HeapTuple row)
{
	TupleDesc	desc = RelationGetDescr(trigger->tg_relation);
	int			column = SPI_fnumber(desc, "queue");
	bool		isnull;
	bool		is_message;
	int16		queue;

	if (superuser() || dw_shared == NULL || SPI_gettypeid(desc, column) != INT2OID ||
		(RelationGetRelid(trigger->tg_relation) != dw_catalog()->task &&
		 RelationGetRelid(trigger->tg_relation) != dw_catalog()->recurring))
		return;
	is_message = RelationGetRelid(trigger->tg_relation) == dw_catalog()->task &&
		!heap_attisnull(row, Anum_task_payload, desc);
	queue = DatumGetInt16(SPI_getbinval(row, desc, column, &isnull));
	if (isnull || (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) &&
				   queue == DatumGetInt16(SPI_getbinval(trigger->tg_trigtuple, desc, column, &isnull))))
		return;
	dw_queue_require(queue, is_message);
}

/*
 * Row trigger on the tables of tasks.  Raises an error if plain SQL inserts, changes or
 * deletes a task of a role whose rights the current user lacks.
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
	/* for COPY and apply workers, nothing before this has noted a writer (shmem/writers.c) */
	if (dw_shared != NULL)
		dw_writes_for(InvalidOid);
	if (dw_audits(DW_AUDIT_CONTROL))
		dw_audit_count(trigger->tg_relation);
	return PointerGetDatum(dw_accept_replicated(trigger, row) ? row : NULL);
}

/*---- Scheduling ----*/

/*
 * Inserts the row of a task that was judged, or moves the pending task of its key, whose row
 * was deleted for that.  Returns the id of the one or the other.  limited: as for
 * dw_schedule_row().
 */
static int64
insert_or_move(Relation rel, DwNewTask *task, const DwKeyRow *pending, DwLaneRef lane, bool limited)
{
	int64		id;

	if (task->outcome == DW_MOVED)
	{
		task->due = dw_new_task_due(task, pending->task.id);
		dw_pending_move(rel, pending->tuple, &pending->task, task->due);
		return pending->task.id;
	}
	if (task->outcome == DW_REPLACED && task->if_exists == DW_REPLACE_KEEP_DUE)
	{
		task->due = pending->task.due;
		task->spread = 0;
		dw_more_remove(task->values, task->nulls, Anum_task_more, DW_MORE_LOCAL);
		if (!task->nulls[Anum_task_expires - 1])
			dw_check_expires(task->due, task->values[Anum_task_expires - 1]);
	}
	/* not before: a task that replaces another one, or is not needed, takes no room */
	if (limited && dw_max_pending >= 0)
		dw_require_room(task->owner);
	id = dw_new_task_insert(rel, task, lane);
	if (task->unique_for > 0)
		dw_period_begin(task, id);
	return id;
}

/* Records that a task was scheduled, or that the pending one of its key was moved or replaced. */
static void
audit_scheduled(const DwNewTask *task, const DwKeyRow *pending, Relation rel)
{
	if (task->outcome == DW_MOVED)
		dw_audit_row("reschedule", rel, pending->tuple, task->due, NULL);
	else
		dw_audit_task("schedule", task->values, task->nulls, task->due,
					  task->outcome == DW_REPLACED ?
					  psprintf("replaces task %lld", (long long) pending->task.id) : NULL);
}

/*
 * Inserts the row of a task that was judged, in the current transaction, and notes it for
 * the commit, which tells the timer.  Returns the id of the task, or that of a pending task
 * with the same key that is kept or moved, or for which it is refused; the outcome tells.
 * limited: the owner's number of tasks is.  The caller has called dw_require_writable().
 */
int64
dw_schedule_row(DwNewTask *task, bool limited)
{
	DwKeyRow   *pending = NULL;
	bool		has_key = !task->nulls[Anum_task_key - 1];
	DwLaneRef	lane = dw_require_lane(task->owner, task->queue, task->priority);
	Relation	rel;
	int64		id;

	/*
	 * Lock the task table before an id is drawn: the sweeper must see each transaction
	 * that may bring a task with an id below a mark's number (task/marks.c).
	 */
	rel = dw_tasks_open();
	if (task->unique_for > 0)
		dw_period_prepare();
	if (has_key)
		pending = dw_key_enter(rel, task);
	if (task->outcome == DW_KEPT || task->outcome == DW_REFUSED)
	{
		task->due = pending->task.due;
		table_close(rel, NoLock);
		return pending->task.id;
	}
	id = insert_or_move(rel, task, pending, lane, limited);
	if (has_key)
		dw_key_leave();
	/* only what a role has asked for: a task that comes from another node was scheduled there */
	if (limited && dw_audits(task->outcome == DW_NEW ? DW_AUDIT_ALL : DW_AUDIT_CONTROL))
		audit_scheduled(task, pending, rel);
	table_close(rel, NoLock);
	return id;
}

/*
 * Schedules a new task in the current transaction: judges it, and inserts its row as
 * dw_schedule_row() does, whose result it returns.  nargs is as for dw_new_task_check().
 */
int64
dw_schedule_new(DwNewTask *task, int nargs)
{
	dw_new_task_check(task, nargs);
	dw_new_task_keep(task);
	return dw_schedule_row(task, true);
}

/*
 * delay_schedule() and delay_schedule_at(): the SQL text is argument 1 (counted from 0),
 * and the task's arguments follow.
 */
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

/* SQL function delay_schedule(). */
Datum
dw_schedule(PG_FUNCTION_ARGS)
{
	dw_require_right();
	dw_require_writable("delay_schedule()");
	dw_refuse_null(PG_ARGISNULL(0), "delay");
	PG_RETURN_INT64(schedule_plain(fcinfo, dw_due_after(PG_GETARG_INTERVAL_P(0))));
}

/* SQL function delay_schedule() with a delay as text. */
Datum
dw_schedule_text(PG_FUNCTION_ARGS)
{
	dw_require_right();
	dw_require_writable("delay_schedule()");
	dw_refuse_null(PG_ARGISNULL(0), "delay");
	PG_RETURN_INT64(schedule_plain(fcinfo, dw_due_after_text(PG_GETARG_TEXT_PP(0))));
}

/* SQL function delay_schedule_at(). */
Datum
dw_schedule_at(PG_FUNCTION_ARGS)
{
	dw_require_right();
	dw_require_writable("delay_schedule_at()");
	dw_refuse_null(PG_ARGISNULL(0), "due time");
	PG_RETURN_INT64(schedule_plain(fcinfo, dw_finite_due(PG_GETARG_TIMESTAMPTZ(0))));
}

/* SQL function delay_schedule_task(). */
Datum
dw_schedule_task(PG_FUNCTION_ARGS)
{
	DwNewTask	task;
	int			nargs;

	dw_require_right();
	dw_require_writable("delay_schedule_task()");
	nargs = dw_options_read(fcinfo, &task);
	PG_RETURN_INT64(dw_schedule_new(&task, nargs));
}

/*
 * Schedules a new task as dw_schedule_new() does; returns a row that says what became of it,
 * as the result of the SQL function.
 */
static Datum
schedule_and_tell(FunctionCallInfo fcinfo, DwNewTask *task, int nargs)
{
	static const char *const outcomes[] = {
		[DW_NEW] = "new", [DW_REPLACED] = "replaced", [DW_KEPT] = "kept", [DW_MOVED] = "moved",
		[DW_REFUSED] = "refused"
	};
	int64		id = dw_schedule_new(task, nargs);
	const DwColumn row[] = {
		DW_INT8(id), dw_text_or_null(outcomes[task->outcome]),
		dw_null_if(task->outcome == DW_REFUSED, DW_TIME(task->due))
	};

	return dw_make_row(fcinfo, row, lengthof(row));
}

/* SQL function delay_put(): as delay_schedule_task(), and tells what it has done. */
Datum
dw_put(PG_FUNCTION_ARGS)
{
	DwNewTask	task;
	int			nargs;

	dw_require_right();
	dw_require_writable("delay_put()");
	nargs = dw_options_read(fcinfo, &task);
	return schedule_and_tell(fcinfo, &task, nargs);
}

/*---- Cancelling ----*/

/*
 * Ends the lease of a message, whose row was just found, and cancels the message: its
 * token is void then.  Returns the result of delay_cancel().  A message that a transaction
 * has received is "running": what the receiver does with it cannot be stopped.  NULL: the
 * caller has to look again, now that those have ended who had the row.
 */
static const char *
end_lease(Relation rel, HeapTuple tuple, const DwTaskKey *key)
{
	if (!dw_task_lease_lasts(key) || dw_row_delete(rel, key) != TM_Ok)
		return dw_row_wait(rel, key) ? NULL : "running";
	CommandCounterIncrement();
	dw_conclude_row(rel, tuple, key, DW_CANCELLED, NULL);
	if (dw_audits(DW_AUDIT_CONTROL))
		dw_audit_row("cancel", rel, tuple, 0, "ends the lease");
	dw_touch_leases();
	return "cancelled";
}

/* Records that a running task was told to stop; the owner is not known of one without a row. */
static void
audit_stop(int64 id, const DwTaskKey *key)
{
	DwAction	action = {
		.what = "cancel",
		.task = id,
		.owner = key->owner,
		.queue = key->queue,
		.with_queue = OidIsValid(key->owner),
		.detail = "stops the running task"
	};

	dw_audit_write(&action);
}

/* How the task has ended, if a wing knows; else NULL. */
static const char *
known_outcome(int64 id)
{
	const char *result = NULL;

	dw_each_wing(wing, outcome_of)
		if (result == NULL)
			result = wing->outcome_of(id);
	return result;
}

/*
 * SQL function delay_cancel(): cancels a pending task, stops a running one if asked to, and if
 * asked to tells how a task has ended that is gone.
 */
Datum
dw_cancel(PG_FUNCTION_ARGS)
{
	int64		id;
	Relation	rel;
	HeapTuple	tuple;
	DwTaskKey	key = {0};
	const char *result = NULL;

	dw_require_right();
	/* as if it were STRICT, but for the right */
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		PG_RETURN_NULL();
	dw_require_writable("delay_cancel()");
	id = PG_GETARG_INT64(0);
	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	while (result == NULL)
		switch (dw_take_pending(rel, id, &tuple, &key))
		{
			case DW_TAKEN:
				CommandCounterIncrement();
				dw_conclude_row(rel, tuple, &key, DW_CANCELLED, NULL);
				if (dw_audits(DW_AUDIT_CONTROL))
					dw_audit_row("cancel", rel, tuple, 0, NULL);
				result = "cancelled";
				break;
			case DW_GONE:
				result = PG_GETARG_BOOL(2) ? known_outcome(id) : NULL;
				if (result == NULL)
					result = "gone";
				break;
			case DW_RUNNING:
				/* a task that delay_run() runs in this session cannot be stopped by itself */
				if (!PG_GETARG_BOOL(1) || dw_run_now_id == id)
					result = "running";
				else if (key.is_message)
					result = end_lease(rel, tuple, &key);
				else if (dw_stop_task(dw_my_database(), id))
				{
					if (dw_audits(DW_AUDIT_CONTROL))
						audit_stop(id, &key);
					result = "stopping";
				}
				/* else the task has just ended, or was put back: look again */
				break;
		}
	table_close(rel, NoLock);
	PG_RETURN_TEXT_P(cstring_to_text(result));
}

/*
 * Reads a key of the current user from the argument that has the name of its queue (null: the
 * default queue); the key is argument 0.
 */
static DwKey
key_argument(FunctionCallInfo fcinfo, int queue)
{
	DwKey		key = {.owner = GetUserId()};

	/* the user need not (any more) have the right to schedule into the queue */
	key.queue = PG_ARGISNULL(queue) ? 0 : dw_queue_named(text_to_cstring(PG_GETARG_TEXT_PP(queue)));
	key.key = PG_GETARG_TEXT_PP(0);
	return key;
}

/*
 * Takes the pending task that argument 0 names, as dw_take_pending(): by its id if queue is
 * DW_BY_ID, else by its key, and queue is the argument with the name of the key's queue.
 * False if the task is not pending.
 */
bool
dw_take_named(FunctionCallInfo fcinfo, int queue, Relation rel, HeapTuple *tuple, DwTaskKey *key)
{
	DwKey		wanted;

	if (queue == DW_BY_ID)
		return dw_take_pending(rel, PG_GETARG_INT64(0), tuple, key) == DW_TAKEN;
	wanted = key_argument(fcinfo, queue);
	return dw_key_take(rel, &wanted, tuple, key) == DW_TAKEN;
}

/* Cancels the pending task with a key, in the current transaction. */
DwTakeResult
dw_schedule_cancel(const DwKey *key)
{
	Relation	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	DwTakeResult state = dw_key_cancel(rel, key);

	if (state == DW_TAKEN)
		CommandCounterIncrement();
	table_close(rel, NoLock);
	return state;
}

/* SQL function delay_cancel_key(). */
Datum
dw_cancel_key(PG_FUNCTION_ARGS)
{
	DwKey		key;
	DwTakeResult result;

	dw_require_right();
	dw_require_writable("delay_cancel_key()");
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	key = key_argument(fcinfo, 1);
	result = dw_schedule_cancel(&key);
	PG_RETURN_TEXT_P(cstring_to_text(result == DW_TAKEN ? "cancelled" :
									 result == DW_RUNNING ? "running" : "gone"));
}

/*---- Rescheduling ----*/

/* Raises an error if the call cannot change anything, or has no task or no time. */
static void
require_call(FunctionCallInfo fcinfo, const char *function, const char *task, const char *when)
{
	dw_require_right();
	dw_require_writable(function);
	dw_refuse_null(PG_ARGISNULL(0), task);
	dw_refuse_null(PG_ARGISNULL(1), when);
}

/*
 * Gives a pending task another due time: its row is deleted, and inserted again with the
 * same id.  Returns false if the task is not pending.  The arguments name the task as in
 * dw_take_named().
 */
static Datum
reschedule(FunctionCallInfo fcinfo, int queue, TimestampTz due)
{
	Relation	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	HeapTuple	tuple;
	DwTaskKey	key;
	bool		taken = dw_take_named(fcinfo, queue, rel, &tuple, &key);

	if (taken)
	{
		dw_pending_move(rel, tuple, &key, due);
		if (dw_audits(DW_AUDIT_CONTROL))
			dw_audit_row("reschedule", rel, tuple, due, NULL);
	}
	table_close(rel, NoLock);
	PG_RETURN_BOOL(taken);
}

/* SQL function delay_reschedule(). */
Datum
dw_reschedule(PG_FUNCTION_ARGS)
{
	require_call(fcinfo, "delay_reschedule()", "task id", "delay");
	return reschedule(fcinfo, DW_BY_ID, dw_due_after(PG_GETARG_INTERVAL_P(1)));
}

/* SQL function delay_reschedule() with a delay as text. */
Datum
dw_reschedule_text(PG_FUNCTION_ARGS)
{
	require_call(fcinfo, "delay_reschedule()", "task id", "delay");
	return reschedule(fcinfo, DW_BY_ID, dw_due_after_text(PG_GETARG_TEXT_PP(1)));
}

/* SQL function delay_reschedule_at(). */
Datum
dw_reschedule_at(PG_FUNCTION_ARGS)
{
	require_call(fcinfo, "delay_reschedule_at()", "task id", "due time");
	return reschedule(fcinfo, DW_BY_ID, dw_finite_due(PG_GETARG_TIMESTAMPTZ(1)));
}

/* SQL function delay_reschedule_key(). */
Datum
dw_reschedule_key(PG_FUNCTION_ARGS)
{
	require_call(fcinfo, "delay_reschedule_key()", "key", "delay");
	return reschedule(fcinfo, 2, dw_due_after(PG_GETARG_INTERVAL_P(1)));
}

/* SQL function delay_reschedule_key() with a delay as text. */
Datum
dw_reschedule_key_text(PG_FUNCTION_ARGS)
{
	require_call(fcinfo, "delay_reschedule_key()", "key", "delay");
	return reschedule(fcinfo, 2, dw_due_after_text(PG_GETARG_TEXT_PP(1)));
}

/* SQL function delay_reschedule_key_at(). */
Datum
dw_reschedule_key_at(PG_FUNCTION_ARGS)
{
	require_call(fcinfo, "delay_reschedule_key_at()", "key", "due time");
	return reschedule(fcinfo, 2, dw_finite_due(PG_GETARG_TIMESTAMPTZ(1)));
}

/*---- delay_send() and delay_put_message(): send a message into an external queue ----*/

/*
 * Run by sessions, and by executors whose tasks call it.  A message is a task with a
 * payload in place of SQL: the options are those of delay_schedule_task(), and are read
 * by the same code.
 */

PG_FUNCTION_INFO_V1(dw_send);
PG_FUNCTION_INFO_V1(dw_put_message);

/*
 * The arguments of delay_send(), in the order of the install script: which argument of
 * delay_schedule_task() each one is.  The payload, argument PAYLOAD, is none.
 */
static const int option_of[] = {
	DW_ARG_QUEUE, -1, DW_ARG_DELAY, DW_ARG_DUE, DW_ARG_KEY, DW_ARG_IF_EXISTS, DW_ARG_TAG,
	DW_ARG_PRIORITY, DW_ARG_MAX_ATTEMPTS, DW_ARG_RETRY_DELAY, DW_ARG_EXPIRES,
	DW_ARG_SKIP_AFTER, DW_ARG_NOTIFY, DW_ARG_ON_SUCCESS, DW_ARG_ON_FAILURE,
	DW_ARG_RETRY_BACKOFF, DW_ARG_RETRY_MAX_DELAY, DW_ARG_UNIQUE_FOR, DW_ARG_GROUP_KEY
};

#define PAYLOAD		1

/* Makes a message of the arguments of delay_send().  An invalid one raises an error. */
static void
read_message(FunctionCallInfo fcinfo, DwNewTask *message)
{
	LOCAL_FCINFO(options, DW_NARGS);

	dw_refuse_null(PG_ARGISNULL(0), "queue name");
	dw_refuse_null(PG_ARGISNULL(PAYLOAD), "payload");
	InitFunctionCallInfoData(*options, fcinfo->flinfo, DW_NARGS, InvalidOid, NULL, NULL);
	for (int i = 0; i < DW_NARGS; i++)
		options->args[i].isnull = true;
	for (int i = 0; i < lengthof(option_of); i++)
		if (option_of[i] >= 0)
			options->args[option_of[i]] = fcinfo->args[i];
	dw_options_read_message(options, PG_GETARG_DATUM(PAYLOAD), message);
}

/* SQL function delay_send(). */
Datum
dw_send(PG_FUNCTION_ARGS)
{
	DwNewTask	message;

	dw_require_right();
	dw_require_writable("delay_send()");
	read_message(fcinfo, &message);
	PG_RETURN_INT64(dw_schedule_new(&message, DW_SQL_CHECKED));
}

/* SQL function delay_put_message(): as delay_send(), and tells what it has done. */
Datum
dw_put_message(PG_FUNCTION_ARGS)
{
	DwNewTask	message;

	dw_require_right();
	dw_require_writable("delay_put_message()");
	read_message(fcinfo, &message);
	return schedule_and_tell(fcinfo, &message, DW_SQL_CHECKED);
}
