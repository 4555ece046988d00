/*-------------------------------------------------------------------------
 *
 * message_group.c
 *	  Limits and order of groups of messages.
 *
 * Run by sessions that receive, between taking a message from its ready list and claiming it.
 *
 * README.md describes the steps Y1 to Y5 (of the model in test/model).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/inject.h"
#include "backend.h"

/*
 * Puts a message back that may not be claimed now, and holds its group until a time (DW_NEVER:
 * unknown).  If another message of its lane is first (NULL: none), takes that message in its place,
 * if possible.  full: leases fill the group.  Takes the ready lock.
 *
 * In an ordered group, this message goes back at once, since no other message was taken meanwhile.
 * The next message of the group may be in another lane, and the same call may receive it.  Messages
 * of groups without an order go back in their order, at the end of the call.
 */
DwGroupVerdict
dw_group_send_back(DwDatabase *db, DwEntry *entry, DwGroupTaken *taken, const DwTaskKey *first,
				   TimestampTz until, bool full)
{
	DwGroupVerdict verdict = DW_GROUP_WENT_BACK;
	bool		is_back = true;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	/* Y3 */
	if (first != NULL && dw_group_try_other(entry, first->id) &&
		dw_ready_exchange(db, entry, first->due, first->id))
		verdict = DW_GROUP_CLAIM;
	/* if free places are rare, a waiting group must give up its place */
	else if (dw_group_places_are_short())
		is_back = dw_ready_set_aside(db, entry);
	else
	{
		taken->waits = dw_group_hold_taken(entry, taken, until, full);
		if (taken->ordered)
			is_back = dw_ready_put_back(db, entry, false);
		else
			verdict = DW_GROUP_GOES_BACK;
	}
	LWLockRelease(dw_ready_lock(db));
	/* the timer must load the message again */
	if (!is_back)
		dw_wake_timer(db, DW_AWAKE);
	return verdict;
}

/*
 * Decides about a message that this session has taken, by the limits and the order of its group.
 * counts() returns false for leases that this transaction has begun, since memory counts them until
 * the transaction ends.  rel: the table of tasks.  Takes the ready lock.
 */
DwGroupVerdict
dw_group_verdict(DwDatabase *db, Relation rel, int16 queue, DwEntry *entry, DwGroupTaken *taken,
				 DwLeaseCounts counts)
{
	Snapshot	snapshot;
	DwGroupDecision decision = DW_GROUP_RUN_IT;
	DwGroupLeases leases;
	DwTaskKey	first;
	TimestampTz until;
	bool		full;

	if (taken->hash == DW_NO_GROUP || taken->limit == 0)
		return DW_GROUP_CLAIM;
	/* Y2: the snapshot is newer than taken->running */
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	dw_leases_of_group(rel, queue, taken->hash, snapshot, counts, &leases);
	full = taken->running + leases.n > taken->limit;
	until = leases.next_end;
	if (taken->running + leases.n == taken->limit)
		taken->full_until = leases.next_end;
	if (full)
		decision = DW_GROUP_WAIT;
	else if (taken->ordered)
	{
		bool		keeps = leases.any_lapsed && dw_queue_holds_groups(queue);

		decision = dw_group_decide(rel, snapshot, entry, keeps ? &leases.lapsed : NULL,
								   &first, &until);
	}
	UnregisterSnapshot(snapshot);
	if (decision == DW_GROUP_RUN_IT)
		return DW_GROUP_CLAIM;
	DW_INJECT("receive-before-hold");
	return dw_group_send_back(db, entry, taken, decision == DW_GROUP_TAKE_OTHER ? &first : NULL,
							  until, full);
}

/* Returns true if the group of this message has limits or an order. */
bool
dw_group_is_limited(const DwTaskKey *key)
{
	const DwDeclaredQueue *declared = key->group == DW_NO_GROUP ? NULL :
		dw_queue_now(dw_my_database(), key->queue);

	return declared != NULL && declared->groups &&
		(declared->group_max_running > 0 || declared->group_order != DW_ORDER_NONE);
}
