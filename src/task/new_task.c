/*-------------------------------------------------------------------------
 *
 * new_task.c
 *	  One new task: its due time, its checks, and its row.
 *
 * Run by sessions that schedule, and by executors whose task causes another one: a
 * follow-up (options on_success and on_failure), or the next run of a recurring task.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/settings.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/shared.h"
#include "../shmem/writers.h"
#include "../statement/sqlcheck.h"
#include "my_session.h"
#include "new_task.h"
#include "touched.h"

/*
 * Raises an error if due + expires is out of the range of timestamps.  expires is an
 * interval.
 */
void
dw_check_expires(TimestampTz due, Datum expires)
{
	(void) DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(due), expires);
}

/*
 * Returns the time that delays count from: now(), the start of the transaction, or the
 * due time that delay_run_due() has reached, if that is later (see backend/run_now.c).
 */
TimestampTz
dw_schedule_now(void)
{
	return Max(GetCurrentTransactionStartTimestamp(), dw_run_now_clock);
}

/* Returns the due time after a delay; an error if it is not finite. */
TimestampTz
dw_due_after(const Interval *delay)
{
	TimestampTz due;

	due = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												  TimestampTzGetDatum(dw_schedule_now()),
												  IntervalPGetDatum(delay)));
	if (TIMESTAMP_NOT_FINITE(due))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("delay must not be infinite")));
	return due;
}

/* Returns the due time as it is; an error if it is not finite. */
TimestampTz
dw_finite_due(TimestampTz due)
{
	if (TIMESTAMP_NOT_FINITE(due))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("due time must not be infinite")));
	return due;
}

/*
 * True if a new session of the task's owner has the current search_path by default, so
 * that it need not be kept with the task.
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

/* Fills *task: a task of the current user, in the default queue, due at once after the commit. */
void
dw_new_task_init(DwNewTask *task, text *sql)
{
	memset(task, 0, sizeof(DwNewTask));
	memset(task->nulls, true, sizeof(task->nulls));
	task->owner = GetUserId();
	task->due = dw_schedule_now();
	task->values[Anum_task_sql - 1] = PointerGetDatum(sql);
	task->nulls[Anum_task_sql - 1] = false;
}

/*
 * Returns the due time with the queue's spread added: a hash of the id, so that a task
 * that is put back is moved by the same time again.
 */
static TimestampTz
spread_due(const DwNewTask *task, int64 id)
{
	uint64		hash;

	if (task->spread <= 0)
		return task->due;
	hash = hash_bytes_extended((unsigned char *) &id, sizeof(id), 0);
	return dw_finite_due(dw_time_add(task->due, hash % task->spread));
}

/*
 * Draws an id and writes the row; after the commit, the timer hears of the task.
 * Returns the id.  The table of tasks is locked for writing; lane is the task's lane,
 * or dw_no_lane.
 */
int64
dw_new_task_insert(DwNewTask *task, DwLaneRef lane)
{
	Datum	   *values = task->values;
	bool	   *nulls = task->nulls;
	DwHint		hint;

	hint.lane = lane;
	dw_writes_for(task->owner);
	hint.id = nextval_internal(dw_catalog()->task_id_seq, false);
	hint.due = spread_due(task, hint.id);
	if (!nulls[Anum_task_expires - 1])
		dw_check_expires(hint.due, values[Anum_task_expires - 1]);

	values[Anum_task_id - 1] = Int64GetDatum(hint.id);
	values[Anum_task_due - 1] = TimestampTzGetDatum(hint.due);
	values[Anum_task_origin - 1] = Int64GetDatum(dw_origin_stamp());
	values[Anum_task_owner - 1] = ObjectIdGetDatum(task->owner);
	values[Anum_task_queue - 1] = Int16GetDatum(task->queue);
	values[Anum_task_priority - 1] = Int16GetDatum(task->priority);
	for (int i = Anum_task_id; i <= Anum_task_priority; i++)
		nulls[i - 1] = false;

	DW_INJECT("schedule-before-insert");
	hint.tid = dw_task_insert(values, nulls);
	dw_touch_written(&hint);
	DW_INJECT("schedule-after-insert");
	return hint.id;
}

/* Keeps the current search_path with the task, unless that is its owner's default. */
void
dw_keep_search_path(DwNewTask *task)
{
	if (search_path_is_default())
		return;
	task->values[Anum_task_search_path - 1] = CStringGetTextDatum(namespace_search_path);
	task->nulls[Anum_task_search_path - 1] = false;
}

/*
 * Raises an error if the task's SQL, which has nargs arguments, cannot be scheduled.
 * Does nothing if delay_wheel.check_sql is off.
 */
void
dw_new_task_check_sql(const DwNewTask *task, int nargs)
{
	const text *sql = DatumGetTextPP(task->values[Anum_task_sql - 1]);

	if (!dw_check_sql_text)
		return;
	if (dw_mode(task->values, task->nulls) != DW_IN_TRANSACTION)
		dw_check_sql_autonomous(sql, nargs);
	else
		dw_check_sql(sql, nargs);
}

/* Checks the task's SQL, and keeps the search_path, by the two functions above. */
void
dw_new_task_check(DwNewTask *task, int nargs)
{
	dw_new_task_check_sql(task, nargs);
	dw_keep_search_path(task);
}

/*
 * Schedules a task that takes the place of one that ends, and returns its id.  Its SQL
 * was checked when the first task was scheduled.  No limit applies: neither of pending
 * tasks nor of lanes.
 */
int64
dw_schedule_successor(DwNewTask *task)
{
	DwLaneRef	lane = dw_lane_if_any(task->owner, task->queue, task->priority);

	dw_tasks_lock();
	return dw_new_task_insert(task, lane);
}
