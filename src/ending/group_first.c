/*-------------------------------------------------------------------------
 *
 * group_first.c
 *	  Which task of an ordered group comes first.
 *
 * Run by executors and by sessions that receive messages, before they claim a task of a queue
 * that has group_order.
 *
 * At most one task of such a group is taken at a time, see shmem/groups.c.  But which one is
 * first only the table knows: one that was put back, or was scheduled late, may stand behind
 * others in memory.  So the process looks for the first row of the group by its index.  If
 * that is another one of the lane, the process takes that one instead.  If the row belongs
 * to another lane, or cannot begin, the group is held.
 *
 * A message whose lease has ended without a word is due when the lease ended, and keeps its
 * token until it is received again.  Under 'hold' its place is where it was before the lease.
 *
 * Rows that are not committed are not seen: a task that is committed after a later one has
 * begun comes late.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup.h"
#include "miscadmin.h"

#include "../base/clock.h"
#include "../rows/lane_scan.h"
#include "../shmem/shared.h"
#include "../task/marks.h"
#include "../task/queues.h"
#include "../task/task.h"
#include "ending.h"

/* True if those of a group wait for one that waits for its next attempt. */
static bool
waits_for_attempts(int16 queue_id)
{
	const DwDeclaredQueue *queue;

	(void) dw_queue_tables_now(dw_my_database());
	queue = dw_queue_declared(queue_id);
	return queue != NULL && queue->group_order == DW_ORDER_HOLD;
}

/*
 * The first task of the group that is not cancelled; false if there is none that may begin, or
 * holds back the others.  *not_before is when the first one may begin that must not yet, or 0.
 *
 * One that has failed under 'hold' has kept its due time.  If the order is 'pass' now, the others
 * pass it by.
 */
static bool
find_first_of_group(Relation rel, Snapshot snapshot, const DwLane *lane, uint32 hash,
					DwTaskKey *first, TimestampTz *not_before)
{
	DwGroupScan *scan = dw_group_scan_begin(rel, lane->queue, hash, PG_INT64_MIN, PG_INT64_MIN, snapshot);
	TimestampTz passed = DW_NEVER;
	HeapTuple	tuple;
	bool		found = false;

	while (!found && (tuple = dw_group_scan_next(scan)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		dw_task_key(rel, tuple, first);
		if (dw_task_is_cancelled(rel, tuple))
			continue;
		found = true;
		*not_before = dw_task_not_before(rel, tuple, first);
		if (*not_before > dw_now() && !waits_for_attempts(lane->queue))
		{
			passed = Min(passed, *not_before);
			found = false;
		}
	}
	dw_group_scan_end(scan);
	if (!found)
		*not_before = passed == DW_NEVER ? 0 : passed;
	return found;
}

/*
 * Decides about the task of this entry, by the snapshot.  lapsed is the first message of the
 * group whose lease has ended, if that keeps its place before others; else NULL.  *first is the
 * task that comes first, for DW_GROUP_TAKE_OTHER; *until is when to look again, or DW_NEVER if
 * that is not known, for DW_GROUP_WAIT.
 */
DwGroupDecision
dw_group_decide(Relation rel, Snapshot snapshot, const DwEntry *entry, const DwLapsed *lapsed,
				DwTaskKey *first, TimestampTz *until)
{
	const DwLane *lane = &dw_lanes[entry->lane];
	TimestampTz not_before = 0;	/* for gcc at -O1 */
	HeapTuple	own;
	DwTaskKey	key;

	*until = DW_NEVER;
	if (!find_first_of_group(rel, snapshot, lane, entry->block, first, &not_before) && not_before == 0)
		return DW_GROUP_RUN_IT;
	if (lapsed != NULL && (lapsed->first_due < first->due ||
						   (lapsed->first_due == first->due && lapsed->key.id < first->id)))
	{
		*first = lapsed->key;
		not_before = 0;
	}
	if (not_before > dw_now())
	{
		*until = not_before;
		return DW_GROUP_WAIT;
	}
	if (first->id == entry->id)
		return DW_GROUP_RUN_IT;
	/* one that is gone, or was moved, is not put back */
	own = dw_task_find(rel, entry->id, snapshot);
	if (own == NULL)
		return DW_GROUP_RUN_IT;
	dw_task_key(rel, own, &key);
	if (key.due != entry->due)
		return DW_GROUP_RUN_IT;
	return first->owner == lane->owner && first->priority == lane->priority ?
		DW_GROUP_TAKE_OTHER : DW_GROUP_WAIT;
}
