/*-------------------------------------------------------------------------
 *
 * group_order.c
 *	  Which task of an ordered group comes first.
 *
 * Run by executors, before they claim a task of a queue that has group_order.
 *
 * At most one task of such a group is taken at a time, see shmem/groups.c.  But which one is
 * first only the table knows: one that was put back, or was scheduled late, may stand behind
 * others in memory.  So the executor looks for the first row of the group by its index.  If
 * that is another one of its lane, the executor takes that one instead.  If the row belongs
 * to another lane, or cannot begin, the group is held.
 *
 * Rows that are not committed are not seen: a task that is committed after a later one has
 * begun comes late.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../rows/lane_scan.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/groups.h"
#include "../shmem/queue_limits.h"
#include "../shmem/ready.h"
#include "../shmem/shared.h"
#include "../task/marks.h"
#include "group_order.h"

/* What the executor does with its current task. */
typedef enum Decision
{
	RUN_IT,						/* it comes first, or is not there any more, which the claim finds */
	TAKE_OTHER,					/* another one of its lane comes first */
	WAIT						/* none of the lane may begin now */
} Decision;

/* The first task of the group that is not cancelled; false if there is none. */
static bool
find_first_of_group(Relation rel, const DwLane *lane, uint32 hash, DwTaskKey *first, TimestampTz *not_before)
{
	DwGroupScan *scan = dw_group_scan_begin(rel, lane->queue, hash, PG_INT64_MIN, PG_INT64_MIN,
											GetActiveSnapshot());
	HeapTuple	tuple;
	bool		found = false;

	*not_before = 0;
	while (!found && (tuple = dw_group_scan_next(scan)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		dw_task_key(rel, tuple, first);
		if (dw_task_is_cancelled(rel, tuple))
			continue;
		found = true;
		if (first->has_more)
		{
			Datum	   *values;
			bool	   *nulls;

			dw_deform(rel, tuple, &values, &nulls);
			(void) dw_more_number(values, nulls, Anum_task_more, DW_MORE_NOT_BEFORE, not_before);
		}
	}
	dw_group_scan_end(scan);
	return found;
}

/*
 * Decides about the task of this entry.  *first is the task that comes first, for
 * TAKE_OTHER; *until is when to look again, or DW_NEVER if that is not known, for WAIT.
 */
static Decision
decide(Relation rel, const DwEntry *entry, DwTaskKey *first, TimestampTz *until)
{
	const DwLane *lane = &dw_lanes[entry->lane];
	TimestampTz not_before;
	HeapTuple	own;
	DwTaskKey	key;

	*until = DW_NEVER;
	if (!find_first_of_group(rel, lane, entry->block, first, &not_before))
		return RUN_IT;
	if (not_before > dw_now())
	{
		*until = not_before;
		return WAIT;
	}
	if (first->id == entry->id)
		return RUN_IT;
	/* one that is gone, or was moved, is not put back */
	own = dw_task_find(rel, entry->id, GetActiveSnapshot());
	if (own == NULL)
		return RUN_IT;
	dw_task_key(rel, own, &key);
	if (key.due != entry->due)
		return RUN_IT;
	return first->owner == lane->owner && first->priority == lane->priority ? TAKE_OTHER : WAIT;
}

/* As decide(), in a transaction of its own.  If the table cannot be read now, that is WAIT. */
static Decision
look(DwDatabase *db, const DwEntry *entry, DwTaskKey *first, TimestampTz *until)
{
	volatile Decision decision = WAIT;

	*until = DW_NEVER;
	PG_TRY();
	{
		Relation	rel = dw_read_begin();

		if (rel != NULL)
			decision = decide(rel, entry, first, until);
		dw_read_end(rel);
	}
	PG_CATCH();
	{
		decision = WAIT;
		dw_read_failed(db, "look for the first task of a group");
	}
	PG_END_TRY();
	return decision;
}

/*
 * True if the executor may claim its current task, as far as the order of its group goes; it
 * may be another task of the group and lane than before.  False if the task was put back,
 * and its group is held.  Takes the ready lock.
 */
bool
dw_group_order_keeps(DwDatabase *db, DwExecutor *me)
{
	const DwQueue *queue = dw_lane_queue(&dw_lanes[me->current.lane]);
	Decision	decision;
	DwTaskKey	first;
	TimestampTz until;
	bool		reload = false;

	/* the group of a current task does not change, nor does its lane; its queue may, at any time */
	if (!dw_entry_has_group(&me->current) || me->current.block == DW_NO_GROUP ||
		queue == NULL || !queue->group_order)
		return true;
	decision = look(db, &me->current, &first, &until);
	if (decision == RUN_IT)
		return true;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	if (decision == TAKE_OTHER &&
		(!dw_group_try_other(&me->current, first.id) ||
		 !dw_ready_exchange(db, me, first.due, first.id)))
		decision = WAIT;
	if (decision == WAIT && dw_groups_are_short())
		/* where places are short, a group must not keep one while it waits */
		reload = !dw_ready_set_aside(db, &me->current);
	else if (decision == WAIT)
	{
		dw_group_hold(&me->current, until);
		reload = !dw_ready_put_back(db, &me->current, false);
	}
	LWLockRelease(dw_ready_lock(db));
	if (reload)
		dw_wake_timer(db, DW_AWAKE);
	return decision != WAIT;
}
