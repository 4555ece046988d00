/*-------------------------------------------------------------------------
 *
 * group_first.c
 *	  The first task of an ordered group.
 *
 * Run by executors and by sessions that receive messages, before they claim a task of a queue that
 * has group_order.
 *
 * Only the table shows the first task: a task that was put back, or scheduled late, may be behind
 * other tasks in memory.
 *
 * If a receiver did not end its lease, the message is due when the lease has ended, and keeps its
 * token until it is received again.  Under 'hold' the message keeps its place from before the
 * lease.
 *
 * The process does not see uncommitted rows.  So a task that is committed after a later task has
 * begun runs after that task.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "ending.h"

/*
 * Finds the first task of the group, except cancelled tasks, and tasks that wait for their next
 * attempt while other tasks may pass them.  (A task may have failed under 'hold', and the order is
 * 'pass' now.)  Returns false if no such task exists.  Sets *not_before to the time when the task,
 * or the first waiting task, may begin; 0: no task waits.
 */
static bool
find_first_of_group(Relation rel, Snapshot snapshot, const DwLane *lane, uint32 hash,
					DwTaskKey *first, TimestampTz *not_before)
{
	DwRowScan *scan = dw_group_scan_begin(rel, lane->queue, hash, PG_INT64_MIN, PG_INT64_MIN, snapshot);
	TimestampTz passed = DW_NEVER;
	HeapTuple	tuple;
	bool		found = false;

	while (!found && (tuple = dw_row_scan_next(scan)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		dw_task_key(rel, tuple, first);
		if (dw_task_is_cancelled(rel, tuple))
			continue;
		found = true;
		*not_before = dw_task_not_before(rel, tuple, first);
		if (*not_before > dw_now() && !dw_queue_holds_groups(lane->queue))
		{
			passed = Min(passed, *not_before);
			found = false;
		}
	}
	dw_row_scan_end(scan);
	if (!found)
		*not_before = passed == DW_NEVER ? 0 : passed;
	return found;
}

/*
 * Decides about the task of this entry, by the snapshot.  lapsed: the first message of the group
 * whose lease has ended, if the message keeps its place before other messages, else NULL.  For
 * DW_GROUP_TAKE_OTHER, sets *first to the first task.  For DW_GROUP_WAIT, sets *until to the time
 * to look again, or to DW_NEVER if this time is unknown.
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
	/* a task that is gone, or was moved, must not be put back */
	own = dw_task_find(rel, entry->id, snapshot);
	if (own == NULL)
		return DW_GROUP_RUN_IT;
	dw_task_key(rel, own, &key);
	if (key.due != entry->due)
		return DW_GROUP_RUN_IT;
	return first->owner == lane->owner && first->priority == lane->priority ?
		DW_GROUP_TAKE_OTHER : DW_GROUP_WAIT;
}
