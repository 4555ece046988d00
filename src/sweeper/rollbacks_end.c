/*-------------------------------------------------------------------------
 *
 * rollbacks_end.c
 *	  The sweeper counts attempts whose transactions were rolled back.
 *
 * Run by the sweeper.  A message whose receiver was rolled back three times in a row is in
 * nobody's memory but in the list of shmem/rollbacks.c.  The sweeper ends the attempt: the
 * message is due again after its retry delay, or has failed.  If the server crashes
 * before, the message is simply due.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/rel.h"

#include "../base/clock.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "../ending/attempt_end.h"
#include "../ending/claim.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/lanes.h"
#include "../shmem/outcome.h"
#include "../shmem/queue_limits.h"
#include "../shmem/rollbacks.h"
#include "../shmem/shared.h"
#include "../shmem/stats.h"
#include "../shmem/writers.h"
#include "../task/marks.h"
#include "../task/row_lock.h"
#include "../task/touched.h"
#include "rollbacks_end.h"
#include "slice.h"

/* Time before the next try if the table is locked, or after an error, in us. */
#define RETRY_US	USECS_PER_SEC

/* What became of one message. */
typedef struct Settled
{
	int64		id;				/* 0: none was left */
	DwOutcome	outcome;		/* DW_NOT_ENDED: others have the message, or had it */
	bool		has_lapsed;		/* it was received after a lease had ended without a word */
	DwLaneRef	lane;
	bool		again;			/* another transaction has the row locked: hint is for the timer */
	DwHint		hint;
} Settled;

/* Ends the attempt of the message, unless others have its row by now. */
static void
settle_message(DwDatabase *db, Relation rel, Settled *settled)
{
	ErrorData	error = {
		.sqlerrcode = DW_ERRCODE_ROLLED_BACK,
		.message = "the transaction that received it was rolled back"
	};
	HeapTuple	tuple = dw_task_find(rel, settled->id, NULL);
	DwTaskKey	key;
	DwClaim		claim;

	if (tuple == NULL)
		return;
	dw_task_key(rel, tuple, &key);
	dw_writes_for(key.owner);
	/* leased or moved since; and the sweeper removes what a mark has hit */
	if (!key.is_message || key.due > dw_now() || dw_task_is_cancelled(rel, tuple))
		return;
	if (dw_row_remove(rel, &key) != TM_Ok)
	{
		/* plain SQL that has locked it hints nothing: the next claim asks for a recheck */
		settled->hint = (DwHint) {.id = key.id, .due = key.due, .tid = key.tid};
		settled->again = dw_lane_enter(db, key.owner, key.queue, key.priority,
									   &settled->hint.lane);
		return;
	}
	settled->has_lapsed = key.is_leased;
	CommandCounterIncrement();
	dw_claim_read(db, rel, tuple, &claim);
	if (dw_lane_enter(db, key.owner, key.queue, key.priority, &settled->lane))
		settled->outcome = DW_RETRIED;
	if (dw_attempt_end(rel, &claim, DW_NEVER, false, dw_now(), &error) == DW_FAILED &&
		settled->outcome != DW_NOT_ENDED)
		settled->outcome = DW_FAILED;
}

/* Deals with one message in the transaction of dw_slice_do(). */
static bool
settle_one(DwDatabase *db, const DwCatalog *cat, void *state)
{
	Settled    *settled = state;
	Relation	rel;

	settled->id = dw_rollback_to_settle(&db->rollbacks);
	if (settled->id == 0)
		return true;
	rel = dw_slice_open(cat->task);
	if (rel == NULL)
		return false;
	settle_message(db, rel, settled);
	dw_slice_close(rel);
	DW_INJECT("rollbacks-before-commit");
	return true;
}

/*
 * Ends the attempt of one message whose receivers were rolled back, in a transaction of
 * its own.  Sets *more to true if it must be called again at once.  Otherwise returns when
 * it must be called again; DW_NEVER if there is no such message.
 */
TimestampTz
dw_rollbacks_end(DwDatabase *db, bool *more)
{
	Settled		settled = {.outcome = DW_NOT_ENDED};

	*more = false;
	if (!dw_slice_do(db, settle_one, &settled))
		return dw_now() + RETRY_US;
	if (settled.id == 0)
		return DW_NEVER;
	/* only now: until the commit it must not be forgotten */
	dw_rollback_settled(&db->rollbacks, settled.id);
	if (settled.again)
		dw_deliver(db, &settled.hint);
	if (settled.outcome != DW_NOT_ENDED)
	{
		DwLane	   *lane = &dw_lanes[settled.lane.index];

		dw_count_end(db, lane, settled.outcome);
		if (settled.has_lapsed)
			dw_limits_lease_lapsed(db->oid, lane->queue_place, lane->queue);
	}
	*more = true;
	return DW_NEVER;
}
