/*-------------------------------------------------------------------------
 *
 * forecast.c
 *	  Number of tasks that will be due in each period, and the next tasks.
 *
 * README.md describes the estimate.  If the sample is the whole table, the number is exact, too.
 * The ring cannot be used: only the timer may read its entries, which are hints and include
 * cancelled tasks.  A standby has no ring.  PostgreSQL's statistics cannot be used, since they
 * include the rows of all roles, and are as old as the last ANALYZE.
 *
 * Run by sessions.  For any number of tasks, a call reads at most about 2 * MAX_ROWS entries of the
 * index, some additional entries for each lane, and SAMPLE_PAGES pages of the table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/table.h"
#include "access/tableam.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/signature.h"
#include "../task/task.h"
#include "views.h"

#define MAX_BOUNDS		500
/* limits for the entries of the index that are read for one period, and for one call */
#define PERIOD_ROWS		10000
#define MAX_ROWS		50000
/* limit for the pages that one call reads; at least half of them if the table is large enough */
#define SAMPLE_PAGES	4000

/* The state of a call's scan of the index. */
typedef struct Walk
{
	Relation	rel;
	DwRowScan *scan;
	List	   *lanes;			/* the first key of each lane that the user may watch */
	bool		marked;			/* there may be rows of cancelled tasks */
	int			left;			/* number of entries that may still be read */
} Walk;

/* Limit of the number of tasks that are listed */
#define MAX_LISTED		1000

/* Tasks of a period. */
typedef struct Period
{
	int64		tasks;
	bool		exact;
} Period;

PG_FUNCTION_INFO_V1(dw_count_due);
PG_FUNCTION_INFO_V1(dw_next_due);
PG_FUNCTION_INFO_V1(dw_next_tasks);

/* Returns true if the task is counted: the user may watch it, and it is armed. */
static bool
is_watched(const DwTaskKey *key)
{
	return key->origin == dw_origin_stamp() && dw_may_watch(key->owner);
}

/*---- The index of lanes ----*/

/* Finds the lanes that the user may watch, by a skip scan.  The caller calls end_walk(). */
static Walk
begin_walk(void)
{
	static const DwTaskKey lowest = {.owner = InvalidOid};
	Walk		walk = {.left = MAX_ROWS};
	int			nmarks;
	DwTaskKey	key;
	bool		visible;

	dw_require_shared();
	walk.rel = table_open(dw_catalog()->task, AccessShareLock);
	(void) dw_marks_anew(&nmarks);
	walk.marked = nmarks > 0;
	walk.scan = dw_lanes_scan_begin(walk.rel, &lowest, GetActiveSnapshot());
	/* only the row itself shows if the task is cancelled */
	if (!walk.marked)
		dw_lane_scan_keys_only(walk.scan, false);
	while (dw_lane_scan_step(walk.scan, &key, &visible))
	{
		CHECK_FOR_INTERRUPTS();
		if (is_watched(&key))
		{
			DwTaskKey  *lane = palloc(sizeof(DwTaskKey));

			*lane = key;
			walk.lanes = lappend(walk.lanes, lane);
		}
		key.due = key.id = PG_INT64_MAX;
		dw_lanes_scan_seek(walk.scan, &key);
	}
	return walk;
}

static void
end_walk(Walk *walk)
{
	dw_row_scan_end(walk->scan);
	table_close(walk->rel, AccessShareLock);
}

/* Returns true if the visible row that was read last is not cancelled. */
static bool
is_pending(const Walk *walk)
{
	HeapTuple	tuple;
	bool		pending;

	if (!walk->marked)
		return true;
	tuple = dw_lane_scan_tuple(walk->scan);
	pending = !dw_marks_hit(walk->rel, tuple);
	heap_freetuple(tuple);
	return pending;
}

/*
 * Moves *lane, the position of the scan, to the key of the lane's next pending task.  Returns false
 * if this task is due at until or later, or does not exist (then lane->due is DW_NEVER).  The last
 * entry that may be read counts as a pending task.
 */
static bool
next_pending(Walk *walk, DwTaskKey *lane, TimestampTz until)
{
	DwTaskKey	key;
	bool		visible;

	while (dw_lane_scan_step(walk->scan, &key, &visible))
	{
		CHECK_FOR_INTERRUPTS();
		if (key.owner != lane->owner || key.origin != lane->origin ||
			key.queue != lane->queue || key.priority != lane->priority)
			break;
		*lane = key;
		if (key.due >= until)
			return false;
		if (--walk->left <= 0 || (visible && is_pending(walk)))
			return true;
	}
	lane->due = DW_NEVER;
	return false;
}

/* Moves the scan to the lane's key, or to the lane's first task that is due at from or later. */
static void
seek_lane(Walk *walk, DwTaskKey *lane, TimestampTz from)
{
	if (lane->due < from)
	{
		lane->due = from;
		lane->id = PG_INT64_MIN;
	}
	dw_lanes_scan_seek(walk->scan, lane);
}

/* Counts each period within the limits.  Returns true if all numbers are exact. */
static bool
count_periods(Walk *walk, const TimestampTz *bounds, int n, Period *periods)
{
	int			left = MAX_ROWS;
	bool		exact = true;

	for (int i = 0; i <= n; i++)
	{
		TimestampTz until = i < n ? bounds[i] : DW_NEVER;
		int			most = Min(left, PERIOD_ROWS);
		ListCell   *cell;

		walk->left = most;
		foreach(cell, walk->lanes)
		{
			DwTaskKey  *lane = lfirst(cell);

			if (lane->due >= until || walk->left <= 0)
				continue;
			seek_lane(walk, lane, i > 0 ? bounds[i - 1] : PG_INT64_MIN);
			while (next_pending(walk, lane, until) && walk->left > 0)
				periods[i].tasks++;
		}
		periods[i].exact = walk->left > 0;
		exact = exact && periods[i].exact;
		left -= most - walk->left;
	}
	return exact;
}

/*---- The sample ----*/

/* Returns the number of bounds at or before the time. */
static int
period_of(TimestampTz due, const TimestampTz *bounds, int n)
{
	int			low = 0;
	int			high = n;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (bounds[middle] <= due)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * Estimates the periods that were not fully counted.  Reads pages at fixed distances: the table has
 * the tasks in the order of scheduling, so tasks of one period are often on neighbouring pages.
 */
static void
estimate_periods(Relation rel, const TimestampTz *bounds, int n, Period *periods)
{
	int64	   *sampled = palloc0(sizeof(int64) * (n + 1));
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	BlockNumber distance = nblocks / SAMPLE_PAGES + 1;
	int			npages = 0;

	for (uint64 block = 0; block < nblocks; block += distance, npages++)
	{
		ItemPointerData first;
		ItemPointerData last;
		TableScanDesc scan;

		CHECK_FOR_INTERRUPTS();
		ItemPointerSet(&first, block, FirstOffsetNumber);
		ItemPointerSet(&last, block, MaxOffsetNumber);
		scan = dw_beginscan_tidrange(rel, GetActiveSnapshot(), &first, &last);
		while (table_scan_getnextslot_tidrange(scan, ForwardScanDirection, slot))
		{
			HeapTuple	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);
			DwTaskKey	key;

			dw_task_key(rel, tuple, &key);
			if (is_watched(&key) && !dw_marks_hit(rel, tuple))
				sampled[period_of(key.due, bounds, n)]++;
		}
		table_endscan(scan);
	}
	ExecDropSingleTupleTableSlot(slot);

	for (int i = 0; i <= n; i++)
		if (!periods[i].exact)
		{
			double		estimate = rint((double) sampled[i] * nblocks / npages);

			periods[i].tasks = Max(periods[i].tasks, (int64) estimate);
			periods[i].exact = distance == 1;
		}
}

/*---- SQL functions ----*/

/* Returns the bounds of the array, which must be ascending. */
static TimestampTz *
read_bounds(ArrayType *array, int *n)
{
	Datum	   *values;
	TimestampTz *bounds;

	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("bounds must be a one-dimensional array")));
	values = dw_elements_not_null(array, "bounds", n);
	if (*n > MAX_BOUNDS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("there can be %d bounds at most", MAX_BOUNDS)));
	bounds = palloc(sizeof(TimestampTz) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
	{
		bounds[i] = DatumGetTimestampTz(values[i]);
		if (i > 0 && bounds[i] <= bounds[i - 1])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("bounds must be in ascending order")));
	}
	return bounds;
}

Datum
dw_count_due(PG_FUNCTION_ARGS)
{
	TimestampTz *bounds;
	Walk		walk;
	Period	   *periods;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	bounds = read_bounds(PG_GETARG_ARRAYTYPE_P(0), &n);
	periods = palloc0(sizeof(Period) * (n + 1));
	walk = begin_walk();
	if (!count_periods(&walk, bounds, n, periods))
		estimate_periods(walk.rel, bounds, n, periods);
	end_walk(&walk);
	for (int i = 0; i <= n; i++)
		dw_put_row(fcinfo, dw_null_if(i == 0, DW_TIME(i > 0 ? bounds[i - 1] : 0)),
				   dw_null_if(i == n, DW_TIME(i < n ? bounds[i] : 0)),
				   DW_INT8(periods[i].tasks), DW_BOOL(periods[i].exact));
	return (Datum) 0;
}

Datum
dw_next_due(PG_FUNCTION_ARGS)
{
	TimestampTz first = DW_NEVER;
	Walk		walk = begin_walk();
	ListCell   *cell;

	foreach(cell, walk.lanes)
	{
		DwTaskKey  *lane = lfirst(cell);

		if (lane->due >= first)
			continue;
		seek_lane(&walk, lane, dw_now());
		if (next_pending(&walk, lane, first))
			first = lane->due;
	}
	end_walk(&walk);
	if (first == DW_NEVER)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(first);
}

/* Puts a task into a list of at most n first tasks by due time and id. */
static void
keep_first(DwTaskKey *list, int *length, int n, const DwTaskKey *task)
{
	int			place = *length < n ? (*length)++ : n - 1;

	for (; place > 0 && (list[place - 1].due > task->due ||
						 (list[place - 1].due == task->due && list[place - 1].id > task->id)); place--)
		list[place] = list[place - 1];
	list[place] = *task;
}

/*
 * SQL function: returns the first n tasks by due time that the user may read.  Overdue and running
 * tasks come first.
 */
Datum
dw_next_tasks(PG_FUNCTION_ARGS)
{
	int			n = Min(Max(PG_GETARG_INT32(0), 0), MAX_LISTED);
	DwTaskKey  *first = palloc(sizeof(DwTaskKey) * (n + 1));
	int			length = 0;
	Walk		walk = begin_walk();
	ListCell   *cell;

	InitMaterializedSRF(fcinfo, 0);
	foreach(cell, walk.lanes)
	{
		DwTaskKey  *lane = lfirst(cell);

		if (n == 0 || walk.left <= 0 || !dw_may_read(lane->owner))
			continue;
		seek_lane(&walk, lane, PG_INT64_MIN);
		while (next_pending(&walk, lane, length < n ? DW_NEVER : first[n - 1].due) && walk.left > 0)
			keep_first(first, &length, n, lane);
	}
	end_walk(&walk);
	for (int i = 0; i < length; i++)
		dw_put_row(fcinfo, DW_INT8(first[i].id), DW_TIME(first[i].due));
	return (Datum) 0;
}
