/*-------------------------------------------------------------------------
 *
 * new_task.c
 *	  One new task: its time, its checks, and its row.
 *
 * Run by sessions that schedule, and by executors whose task causes another one: a
 * follow-up, or the next run of a recurring task.
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

void
dw_check_expires(TimestampTz due, Datum expires)
{
	(void) DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(due), expires);
}

/* What delays count from, see run_now.h. */
TimestampTz
dw_schedule_now(void)
{
	return Max(GetCurrentTransactionStartTimestamp(), dw_run_now_clock);
}

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

/*
 * A task of the current user, in the default queue, due at once after the commit.
 */
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

/* By its id, so that a task that is put back has the same place. */
static TimestampTz
spread_due(const DwNewTask *task, int64 id)
{
	uint64		hash;

	if (task->spread <= 0)
		return task->due;
	hash = hash_bytes_extended((unsigned char *) &id, sizeof(id), 0);
	return dw_finite_due(dw_time_add(task->due, hash % task->spread));
}

/* Draws an id, writes the row and remembers it for the end of the transaction. */
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

void
dw_keep_search_path(DwNewTask *task)
{
	if (search_path_is_default())
		return;
	task->values[Anum_task_search_path - 1] = CStringGetTextDatum(namespace_search_path);
	task->nulls[Anum_task_search_path - 1] = false;
}

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

/*
 * What dw_schedule_new does first: checks its SQL, which has so many arguments,
 * and keeps the search path.
 */
void
dw_new_task_check(DwNewTask *task, int nargs)
{
	dw_new_task_check_sql(task, nargs);
	dw_keep_search_path(task);
}

/*
 * A task whose SQL was checked when it was given, and that takes the place of
 * one that ends: no limit is in its way, and it is no error.
 */
int64
dw_schedule_successor(DwNewTask *task)
{
	DwLaneRef	lane = dw_lane_if_any(task->owner, task->queue, task->priority);

	dw_tasks_lock();
	return dw_new_task_insert(task, lane);
}
