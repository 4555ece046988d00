/*-------------------------------------------------------------------------
 *
 * message_group.c
 *	  Limits and order of groups of messages.
 *
 * Run by sessions that receive, between taking a message from its ready list and claiming it.
 *
 * README.md describes the steps Y1 to Y5 (of the model in test/model): the session counts the
 * leases of the group with a snapshot that is newer than the taking of the message.  If the group
 * is full, or another message must be first, the message goes back, and the group is held.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/inject.h"
#include "backend.h"

/*
 * Decides about the message of the entry by the rows of the table.  Sets *full to true if leases
 * fill its group, and *first and *until as dw_group_decide() does.
 */
static DwGroupDecision
look_for_leases(DwDatabase *db, Relation rel, int16 queue, const DwEntry *entry, DwGroupTaken *taken,
				DwLeaseCounts counts, bool *full, DwTaskKey *first, TimestampTz *until)
{
	/* Y2: the snapshot is newer than taken->running */
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	DwGroupDecision decision = DW_GROUP_RUN_IT;
	const DwDeclaredQueue *declared;
	DwGroupLeases leases;

	dw_leases_of_group(rel, queue, taken->hash, snapshot, counts, &leases);
	*full = taken->running + leases.n > taken->limit;
	*until = leases.next_end;
	if (taken->running + leases.n == taken->limit)
		taken->full_until = leases.next_end;
	if (*full)
		decision = DW_GROUP_WAIT;
	else if (taken->ordered)
	{
		(void) dw_queue_tables_now(db);
		declared = dw_queue_declared(queue);
		decision = dw_group_decide(rel, snapshot, entry,
								   leases.any_lapsed && declared != NULL && declared->group_order == DW_ORDER_HOLD ?
								   &leases.lapsed : NULL,
								   first, until);
	}
	UnregisterSnapshot(snapshot);
	return decision;
}

/*
 * Puts a message back that may not be claimed now, and holds its group.  Needs the ready lock.
 *
 * In an ordered group, this message goes back at once, since no other message was taken meanwhile.
 * The next message of the group may be in another lane, and the same call may receive it.  Messages
 * of groups without an order go back in their order, at the end of the call.
 */
static DwGroupVerdict
send_back(DwDatabase *db, const DwEntry *entry, DwGroupTaken *taken, TimestampTz until, bool full, bool *reload)
{
	/* if free places are rare, a waiting group must give up its place */
	if (dw_group_places_are_short())
	{
		*reload = !dw_ready_set_aside(db, entry);
		return DW_GROUP_WENT_BACK;
	}
	taken->waits = dw_group_hold_taken(entry, taken, until, full);
	if (!taken->ordered)
		return DW_GROUP_GOES_BACK;
	*reload = !dw_ready_put_back(db, entry, false);
	return DW_GROUP_WENT_BACK;
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
	DwGroupVerdict verdict = DW_GROUP_CLAIM;
	DwGroupDecision decision;
	DwTaskKey	first;
	TimestampTz until;
	bool		full;
	bool		reload = false;

	if (taken->hash == DW_NO_GROUP || taken->limit == 0)
		return DW_GROUP_CLAIM;
	decision = look_for_leases(db, rel, queue, entry, taken, counts, &full, &first, &until);
	if (decision == DW_GROUP_RUN_IT)
		return DW_GROUP_CLAIM;
	DW_INJECT("receive-before-hold");
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	/* Y3 */
	if (decision == DW_GROUP_WAIT ||
		!dw_group_try_other(entry, first.id) || !dw_ready_exchange(db, entry, first.due, first.id))
		verdict = send_back(db, entry, taken, until, full, &reload);
	LWLockRelease(dw_ready_lock(db));
	if (reload)
		dw_wake_timer(db, DW_AWAKE);
	return verdict;
}

/*
 * Puts a message back, and holds its group.  This session has taken the first message of the group,
 * but another transaction has locked the row.  The end of that transaction may not be noticed.
 * Takes the ready lock.
 */
DwGroupVerdict
dw_group_is_locked(DwDatabase *db, const DwEntry *entry, DwGroupTaken *taken)
{
	DwGroupVerdict verdict;
	bool		reload = false;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	verdict = send_back(db, entry, taken, DW_NEVER, false, &reload);
	LWLockRelease(dw_ready_lock(db));
	if (reload)
		dw_wake_timer(db, DW_AWAKE);
	return verdict;
}

/* Returns true if the group of this message has limits or an order. */
bool
dw_group_is_limited(const DwTaskKey *key)
{
	const DwDeclaredQueue *declared;

	if (key->group == DW_NO_GROUP)
		return false;
	(void) dw_queue_tables_now(dw_my_database());
	declared = dw_queue_declared(key->queue);
	return declared != NULL && declared->groups &&
		(declared->group_max_running > 0 || declared->group_order != DW_ORDER_NONE);
}
