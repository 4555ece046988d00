/*-------------------------------------------------------------------------
 *
 * local_times.c
 *	  Tasks that are due at a local time: delay_schedule_local(), and the sweeper's job that moves
 *	  tasks whose local time now is another instant.
 *
 * Run by sessions, by executors whose tasks call the function, and by the sweeper.  The due time
 * may be later than the instant of the local time, by the spread of the queue.
 *
 * PostgreSQL does not report that the rules of time zones have changed.  So the sweeper checks the
 * tasks that are due at a local time when the timer starts, and once a day while such tasks exist.
 * Usually the sweeper is a new process, which reads the current rules.  A slice also sees the rows
 * of open and prepared transactions: they may be committed after the pass, so then another pass
 * must follow.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/fmgroids.h"
#include "utils/jsonb.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "../backend/backend.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "../sweeper/sweeper.h"
#include "../task/options.h"
#include "recurring.h"

/* Number of rows that one transaction reads. */
#define SLICE			1000
/* Time in us before the next pass if the table, or a row that must be moved, is locked. */
#define RETRY_US		(5 * USECS_PER_SEC)
/* Time between two passes, in us. */
#define LOOK_US			USECS_PER_DAY

/* The current pass. */
static struct
{
	int64		reached;		/* id of the last task read */
	bool		any;			/* there are such tasks */
	bool		left;			/* a locked task could not be moved */
	int64		moved;
}			pass = {.reached = PG_INT64_MIN};

/* The local due time of a task, stored in the column "more" of its row. */
typedef struct LocalTime
{
	Timestamp	time;			/* the time on the clocks of the zone */
	char	   *zone;
	TimestampTz instant;		/* instant of this time when the row was written */
} LocalTime;

/* The keys of the object DW_MORE_LOCAL, and its place in an array of one column. */
#define TIME			"time"
#define ZONE			"zone"
#define INSTANT			"instant"
#define COLUMN			1

/*
 * Finds the instant at which the clocks of a zone show a local time.  Returns false if the instant
 * is out of range.  Like AT TIME ZONE, takes the second instant of a time that occurs twice, and
 * uses the earlier offset for a time that the clocks skip.
 */
static bool
local_instant(Timestamp time, pg_tz *zone, TimestampTz *instant)
{
	struct pg_tm tm;
	fsec_t		fsec;
	int			tz;

	if (timestamp2tm(time, NULL, &tm, &fsec, NULL, NULL) != 0)
		return false;
	tz = DetermineTimeZoneOffset(&tm, zone);
	return tm2timestamp(&tm, fsec, &tz, instant) == 0 && IS_VALID_TIMESTAMP(*instant);
}

/*
 * Reads the local time of a task's row.  Returns false if the task has no local time, or plain SQL
 * wrote an invalid value.
 */
static bool
local_time_read(const Datum *values, const bool *nulls, LocalTime *local)
{
	Jsonb	   *object = dw_more_object(values, nulls, Anum_task_more, DW_MORE_LOCAL);
	const Datum column = PointerGetDatum(object);
	const bool	isnull = false;

	if (object == NULL ||
		!dw_more_number(&column, &isnull, COLUMN, TIME, &local->time) ||
		!dw_more_number(&column, &isnull, COLUMN, INSTANT, &local->instant) ||
		!IS_VALID_TIMESTAMP(local->time) || !IS_VALID_TIMESTAMP(local->instant))
		return false;
	local->zone = dw_more_text(&column, &isnull, COLUMN, ZONE);
	return local->zone != NULL;
}

/* Sets the local time of a task's row. */
static void
local_time_write(Datum *values, bool *nulls, const LocalTime *local)
{
	Datum		column = (Datum) 0;
	bool		isnull = true;

	dw_more_set_number(&column, &isnull, COLUMN, TIME, local->time);
	dw_more_set_text(&column, &isnull, COLUMN, ZONE, local->zone);
	dw_more_set_number(&column, &isnull, COLUMN, INSTANT, local->instant);
	dw_more_set_object(values, nulls, Anum_task_more, DW_MORE_LOCAL, DatumGetJsonbP(column));
}

/*---- Moving tasks.  Run by the sweeper ----*/

/*
 * Moves the task of a row to the present instant of its local time.  Returns false if the task
 * stays unchanged.  Does not change the task if its zone no longer exists.
 */
static bool
follow(Relation rel, HeapTuple tuple)
{
	LocalTime local;
	TimestampTz instant;
	TimestampTz due;
	DwTaskKey	key;
	Datum	   *values;
	bool	   *nulls;
	pg_tz	   *zone;

	dw_task_key(rel, tuple, &key);
	dw_deform(rel, tuple, &values, &nulls);
	if (key.origin != dw_origin_stamp() || !local_time_read(values, nulls, &local))
		return false;
	zone = pg_tzset(local.zone);
	if (zone == NULL || !local_instant(local.time, zone, &instant) || instant == local.instant)
		return false;
	due = dw_time_add(key.due, instant - local.instant);
	if (!IS_VALID_TIMESTAMP(due) || dw_task_is_cancelled(rel, tuple))
		return false;

	dw_writes_for(key.owner);
	DW_INJECT("local-before-delete");
	if (dw_row_remove(rel, &key) != TM_Ok)
	{
		/* a task that is due is probably running */
		pass.left |= key.due > dw_now();
		return false;
	}
	CommandCounterIncrement();
	local.instant = instant;
	local_time_write(values, nulls, &local);
	values[Anum_task_due - 1] = TimestampTzGetDatum(due);
	dw_pending_rewrite(rel, values, nulls, dw_lane_if_any(key.owner, key.queue, key.priority));
	return true;
}

/*
 * Looks at up to SLICE rows, in the transaction of dw_slice_do().  Sets *ended to true at the end
 * of the pass.
 */
static bool
follow_slice(DwDatabase *db, const DwCatalog *cat, void *ended)
{
	SnapshotData dirty;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple = NULL;
	Relation	rel;
	Relation	index;

	if (!dw_slice_open_both(cat->task, cat->task_local_index, &rel, &index))
		return false;
	InitDirtySnapshot(dirty);
	ScanKeyInit(&key, Anum_task_id, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(pass.reached));
	scan = systable_beginscan_ordered(rel, index, &dirty, 1, &key);
	for (int n = 0; n < SLICE; n++)
	{
		CHECK_FOR_INTERRUPTS();
		tuple = systable_getnext_ordered(scan, ForwardScanDirection);
		if (tuple == NULL)
			break;
		/* set before the row is moved: after an error the pass continues with the next row */
		pass.reached = DatumGetInt64(dw_row_column(rel, tuple, Anum_task_id));
		pass.any = true;
		if (!TransactionIdIsValid(dirty.xmin) && follow(rel, heap_copytuple(tuple)))
			pass.moved++;
	}
	systable_endscan_ordered(scan);
	*(bool *) ended = tuple == NULL;
	dw_slice_close_both(rel, index);
	return true;
}

/* Ends the pass.  Returns the time of the next pass; DW_NEVER if there are no such tasks. */
static TimestampTz
end_pass(void)
{
	TimestampTz now = dw_now();
	TimestampTz next = DW_NEVER;

	if (pass.moved > 0)
		ereport(LOG,
				(errmsg_plural("delay_wheel has moved %lld task to another due time, since rules of time zones have changed",
							   "delay_wheel has moved %lld tasks to other due times, since rules of time zones have changed",
							   pass.moved, (long long) pass.moved)));
	if (pass.left)
		next = now + RETRY_US;
	else if (pass.any)
		next = now + LOOK_US;
	DW_INJECT("local-after-pass");
	memset(&pass, 0, sizeof(pass));
	pass.reached = PG_INT64_MIN;
	return next;
}

/* The job: a slice of a pass.  See DwWingJob. */
TimestampTz
dw_local_times_follow(DwDatabase *db)
{
	bool		ended = true;
	int64		moved = pass.moved;

	if (!dw_slice_do(db, follow_slice, &ended))
	{
		/* the slice was rolled back */
		pass.moved = moved;
		return dw_now() + RETRY_US;
	}
	return ended ? end_pass() : PG_INT64_MIN;
}

/*---- delay_schedule_local(): schedules a task for a local time of a time zone ----*/

PG_FUNCTION_INFO_V1(dw_schedule_local);

#define LOCAL_TIME		0
#define TIME_ZONE		1

/* Reads the local due time from the arguments. */
static void
read_local_time(FunctionCallInfo fcinfo, LocalTime *local)
{
	dw_refuse_null(PG_ARGISNULL(LOCAL_TIME), "local time");
	dw_refuse_null(PG_ARGISNULL(TIME_ZONE), "time zone");
	local->time = PG_GETARG_TIMESTAMP(LOCAL_TIME);
	local->zone = text_to_cstring(PG_GETARG_TEXT_PP(TIME_ZONE));
	if (TIMESTAMP_NOT_FINITE(local->time))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("local time must not be infinite")));
	if (!local_instant(local->time, dw_time_zone(local->zone), &local->instant))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("local time is out of range")));
}

/*
 * SQL function delay_schedule_local(): has the options of delay_schedule_task() except due times.
 */
Datum
dw_schedule_local(PG_FUNCTION_ARGS)
{
	static const DwOption parameters[] = {
		DW_OPT_WHEN, DW_OPT_TIME_ZONE, DW_OPT_SQL, DW_OPT_ARGS, DW_OPT_NAMED, DW_OPT_KEY, DW_OPT_IF_EXISTS,
		DW_OPT_QUEUE, DW_OPT_TAG, DW_OPT_PRIORITY, DW_OPT_MAX_ATTEMPTS, DW_OPT_GROUP_KEY, DW_OPT_JSON
	};
	DwDatabase *db;
	LocalTime local;
	DwOptions	options;
	DwNewTask	task;
	int			nargs;
	int64		id;

	dw_require_right_to_write("delay_schedule_local()");
	read_local_time(fcinfo, &local);
	dw_options_take(fcinfo, parameters, lengthof(parameters), DW_FOR_TASK, &options);
	nargs = dw_options_task(&options, &task);
	task.due = local.instant;
	local_time_write(task.values, task.nulls, &local);
	id = dw_schedule_new(&task, nargs);
	/* asks after the insertion, since the sweeper also sees rows of open transactions */
	db = dw_my_database();
	if (db != NULL)
		dw_ask_sweeper(db, DW_JOB_LOCAL, dw_time_add(dw_now(), USECS_PER_DAY));
	PG_RETURN_INT64(id);
}
