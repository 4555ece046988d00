/*-------------------------------------------------------------------------
 *
 * leases.c
 *	  The sweeper ends messages whose last lease has ended.
 *
 * Run by the sweeper.  A message whose lease ends without a word of its receiver is due
 * again, and the next receiver gets it.  After the last attempt nobody may get it: it has
 * failed.  Its row of failed_task, and what follows from its end, are written here, and
 * never in the transaction of a receiver, who may roll it back or lack the rights.
 *
 * The session that gives a last lease asks for this job at the lease's end, and so does
 * one that meets such a message in a ready list.  After a restart the timer asks.
 *
 * Steps S2 to S4 of the model in test/model; S1 and S5 are in sweeper.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "../ending/attempt_end.h"
#include "../ending/claim.h"
#include "../rows/catalog.h"
#include "../rows/lease_scan.h"
#include "../rows/task_rows.h"
#include "../shmem/groups.h"
#include "../shmem/lanes.h"
#include "../shmem/outcome.h"
#include "../shmem/queue_limits.h"
#include "../shmem/shared.h"
#include "../shmem/stats.h"
#include "../shmem/writers.h"
#include "../task/marks.h"
#include "../task/row_lock.h"
#include "../task/touched.h"
#include "leases.h"
#include "slice.h"

/* Messages that are ended in one transaction. */
#define SLICE		100
/* Time before the next look if the table, or a row, is locked, in us. */
#define RETRY_US	(10 * USECS_PER_SEC)

/* What a slice has come to. */
typedef struct Slice
{
	int			n;				/* messages that were ended */
	TimestampTz next;			/* when the next last lease ends; DW_NEVER: none does */
	DwLaneRef	lanes[SLICE];	/* of these messages; dw_no_lane if it has none */
} Slice;

/* Ends a message whose last lease has ended.  The caller has read its row. */
static bool
end_message(DwDatabase *db, Relation rel, HeapTuple tuple, const DwTaskKey *key, DwLaneRef *lane)
{
	ErrorData	error = {
		.sqlerrcode = DW_ERRCODE_LEASE_ENDED,
		.message = "its last lease has ended, and its receiver has not said how it went"
	};
	DwClaim		claim;

	dw_writes_for(key->owner);
	/* if a mark has hit it, its row is removed with the others */
	if (dw_task_is_cancelled(rel, tuple) || dw_row_remove(rel, key) != TM_Ok)
		return false;
	CommandCounterIncrement();
	dw_claim_read(db, rel, heap_copytuple(tuple), &claim);
	/* history has it as this attempt, which is counted already */
	claim.key.attempts--;
	dw_attempt_fail(&claim, key->attempts, dw_claim_leased_at(&claim), &error);
	return dw_lane_enter(db, key->owner, key->queue, key->priority, lane);
}

/* Ends up to SLICE messages. */
static void
end_some(DwDatabase *db, Relation rel, Slice *slice)
{
	DwLeaseScan *scan = dw_lease_scan_begin(rel, DT_NOBEGIN, GetActiveSnapshot());
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "delay_wheel leases",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext outer = CurrentMemoryContext;
	TimestampTz now = dw_now();
	HeapTuple	tuple;

	while (slice->n < SLICE && (tuple = dw_lease_scan_next(scan)) != NULL)
	{
		DwClaim		claim;
		DwTaskKey	key;
		DwLaneRef	lane;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(context);
		MemoryContextSwitchTo(context);
		dw_task_key(rel, tuple, &key);
		dw_claim_read(db, rel, tuple, &claim);
		MemoryContextSwitchTo(outer);
		if (key.origin != dw_origin_stamp())
			continue;
		if (key.attempts < claim.terms.max_attempts)
		{
			/* it was not the last one any more when max_attempts was raised, and may be forgotten */
			if (key.due <= now && dw_lane_enter(db, key.owner, key.queue, key.priority, &lane))
				dw_touch_lane(lane, key.due);
			continue;
		}
		if (key.due > now)
			slice->next = Min(slice->next, key.due);
		/* S3 */
		else if (end_message(db, rel, tuple, &key, &slice->lanes[slice->n]))
			slice->n++;
		else
			slice->next = Min(slice->next, now + RETRY_US);
	}
	MemoryContextDelete(context);
	dw_lease_scan_end(scan);
}

/* Does a slice in the transaction of dw_slice_do(). */
static bool
end_slice(DwDatabase *db, const DwCatalog *cat, void *state)
{
	Relation	rel = dw_slice_open(cat->task);

	if (rel == NULL)
		return false;
	end_some(db, rel, state);
	dw_slice_close(rel);
	DW_INJECT("leases-before-commit");
	return true;
}

/*
 * Ends a slice of the messages whose last lease has ended, in a transaction of its own.
 * Sets *more to true if it must be called again at once.  Otherwise returns when it must
 * be called again, as far as is known now; DW_NEVER if no such lease is left.
 */
TimestampTz
dw_leases_end(DwDatabase *db, bool *more)
{
	Slice	   *slice = palloc(sizeof(Slice));

	*more = false;
	slice->n = 0;
	slice->next = DW_NEVER;
	if (!dw_slice_do(db, end_slice, slice))
		return dw_now() + RETRY_US;
	for (int i = 0; i < slice->n; i++)
	{
		DwLane	   *lane = &dw_lanes[slice->lanes[i].index];

		dw_count_end(db, lane, DW_FAILED);
		dw_limits_lease_lapsed(db->oid, lane->queue_place, lane->queue);
	}
	*more = slice->n == SLICE;
	return slice->next;
}
