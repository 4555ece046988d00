/*-------------------------------------------------------------------------
 *
 * arm.c
 *	  delay_wheel.arm(): arms tasks that came with a copy of another database.
 *
 * Run by sessions, and by executors whose tasks call it.  README.md describes unarmed tasks, and
 * the passes that arm them.
 *
 * The rows are read lane by lane, here also by origin.  If another transaction is changing a row,
 * delay_wheel.arm() waits for the transaction's end, as UPDATE would.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "../base/inject.h"
#include "../base/wing.h"
#include "../task/task.h"

PG_FUNCTION_INFO_V1(dw_arm);

/* The state of a call of delay_wheel.arm() */
typedef struct Arming
{
	Relation	rel;			/* the table of tasks */
	MemoryContext row_context;	/* reset after each row */
	int64		armed;			/* number of tasks armed so far */

	/* the members below are for one pass over all rows */
	Snapshot	snapshot;
	int64		ownerless;		/* number of rows left unarmed, since their owners do not exist */
	bool		left;			/* true if rows were left unarmed for any reason */
	bool		changed;		/* true if other transactions changed rows: do another pass */
} Arming;

/* Notes that a lane gets tasks of this database's origin.  The commit informs the timer. */
static void
touch_lane(const DwTaskKey *task, TimestampTz due)
{
	dw_touch_lane(dw_lane_if_any(task->owner, task->queue, task->priority), due);
}

/*
 * Arms one task.  If a mark (a row by which delay_cancel_all() cancels many tasks) has cancelled
 * the task, only deletes its row.
 */
static void
arm_row(Arming *arming, DwRowScan *scan, DwTaskKey *key)
{
	HeapTuple	tuple = dw_lane_scan_tuple(scan);
	/* cancelled by a mark that came with the copy, or by a mark of this database */
	bool		cancelled = dw_task_is_cancelled(arming->rel, tuple);
	Datum	   *values;
	bool	   *nulls;

	DW_INJECT("arm-before-delete");
	if (dw_heap_delete(arming->rel, &key->tid, true) != TM_Ok)
	{
		/* the row is gone, or has moved: the next pass finds its new place */
		arming->changed = true;
		return;
	}
	if (cancelled)
		return;
	dw_deform(arming->rel, tuple, &values, &nulls);
	values[Anum_task_origin - 1] = Int64GetDatum(dw_origin_stamp());
	/* the receivers of the other database cannot finish its leases here */
	if (!nulls[Anum_task_first_due - 1])
	{
		values[Anum_task_due - 1] = values[Anum_task_first_due - 1];
		touch_lane(key, DatumGetTimestampTz(values[Anum_task_due - 1]));
		dw_touch_leases();
	}
	dw_row_end_lease(nulls);
	(void) dw_task_insert_again(arming->rel, values, nulls);
	arming->armed++;
}

/*
 * Arms a lane of another origin, whose first row is given.  Leaves the lane unarmed if the current
 * user lacks the owner's rights, or the owner does not exist.
 */
static void
arm_lane(Arming *arming, const DwTaskKey *first)
{
	bool		has_owner = SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(first->owner));
	DwRowScan *scan;
	DwTaskKey	key;

	if (!has_privs_of_role(GetUserId(), first->owner))
	{
		arming->left = true;
		return;
	}
	if (has_owner)
		touch_lane(first, first->due);
	else
		arming->left = true;

	dw_writes_for(first->owner);
	scan = dw_lane_scan_begin(arming->rel, first, arming->snapshot);
	while (dw_lane_scan_next(scan, &key))
	{
		MemoryContext context = MemoryContextSwitchTo(arming->row_context);

		CHECK_FOR_INTERRUPTS();
		if (has_owner)
			arm_row(arming, scan, &key);
		else
			arming->ownerless++;
		MemoryContextSwitchTo(context);
		MemoryContextReset(arming->row_context);
	}
	dw_row_scan_end(scan);
}

/* Does one pass over all rows. */
static void
arm_all(Arming *arming)
{
	DwTaskKey	key;
	bool		first = true;

	/* a new snapshot at any isolation level, as for delay_cancel() */
	arming->snapshot = RegisterSnapshot(GetLatestSnapshot());
	arming->ownerless = 0;
	arming->left = arming->changed = false;
	while (dw_next_lane(arming->rel, arming->snapshot, &key, first))
	{
		first = false;
		if (key.origin != dw_origin_stamp())
			arm_lane(arming, &key);
	}
	UnregisterSnapshot(arming->snapshot);
}

/* SQL function delay_wheel.arm().  Returns the number of tasks that were armed. */
Datum
dw_arm(PG_FUNCTION_ARGS)
{
	Arming		arming = {0};

	dw_require_writable("delay_wheel.arm()");
	arming.rel = table_open(dw_catalog()->task, RowExclusiveLock);
	arming.row_context = AllocSetContextCreate(CurrentMemoryContext, "delay_wheel.arm",
											   ALLOCSET_DEFAULT_SIZES);
	do
		arm_all(&arming);
	while (arming.changed);
	dw_each_wing(wing, arm)
		wing->arm(&arming.left);
	if (!arming.left)
		dw_marks_armed();
	MemoryContextDelete(arming.row_context);
	table_close(arming.rel, NoLock);
	dw_touch(arming.left ? DW_UNARMED_LEFT : DW_NONE_UNARMED);

	if (dw_audits(DW_AUDIT_CONTROL))
		dw_audit_write(&(DwAction) {.what = "arm",.rows = arming.armed});
	if (arming.ownerless > 0)
		ereport(WARNING,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg_plural("%lld task is left unarmed, since its owner does not exist",
							   "%lld tasks are left unarmed, since their owners do not exist",
							   arming.ownerless, (long long) arming.ownerless),
				 errhint("Cancel these tasks, or change their owner by UPDATE of delay_wheel_data.task and call delay_wheel.arm() again.")));
	PG_RETURN_INT64(arming.armed);
}
