/*-------------------------------------------------------------------------
 *
 * group_order.c
 *	  Executors check that their task comes first in an ordered group.
 *
 * Run by executors, before they claim a task of a queue that has group_order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/snapmgr.h"

#include "executor.h"

/* A task of an ordered group, and the decision on it. */
typedef struct Look
{
	const DwEntry *entry;
	DwGroupDecision decision;
	DwTaskKey	first;			/* the first task of the group */
	TimestampTz until;			/* until when the group must wait; DW_NEVER: not known */
} Look;

/* For dw_read(). */
static bool
look(Relation rel, void *arg)
{
	Look	   *l = arg;

	l->decision = dw_group_decide(rel, GetActiveSnapshot(), l->entry, NULL, &l->first, &l->until);
	return true;
}

/*
 * Puts the executor's current task back, and holds its group until "until", or for a while if
 * "until" is DW_NEVER.  Returns true if the caller must wake the timer.  Needs the ready lock.
 */
static bool
put_back_first(DwDatabase *db, const DwExecutor *me, TimestampTz until)
{
	/* if free places are rare, a waiting group must give up its place */
	if (dw_group_places_are_short())
		return !dw_ready_set_aside(db, &me->current);
	/* if a task of the group has ended since group_changes was read, the group continues at once */
	(void) dw_group_hold(&me->current, me->group_changes, until);
	return !dw_ready_put_back(db, &me->current, false);
}

/*
 * Returns true if the executor may claim its current task, perhaps exchanged for another task of the
 * group and lane.  Returns false if the task was put back, and the group is held.  Takes the ready
 * lock.
 */
bool
dw_group_order_keeps(DwDatabase *db, DwExecutor *me)
{
	Look		found = {.entry = &me->current, .until = DW_NEVER};
	DwGroupDecision decision = DW_GROUP_WAIT;
	bool		reload = false;

	if (!dw_entry_is_ordered(&me->current))
		return true;
	/* if the table cannot be read, the group waits */
	if (dw_read(db, "look for the first task of a group", look, &found) == DW_READ_DONE)
		decision = found.decision;
	if (decision == DW_GROUP_RUN_IT)
		return true;
	DW_INJECT("order-before-hold");
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	if (decision == DW_GROUP_TAKE_OTHER &&
		(!dw_group_try_other(&me->current, found.first.id) ||
		 !dw_ready_exchange(db, &me->current, found.first.due, found.first.id)))
		decision = DW_GROUP_WAIT;
	if (decision == DW_GROUP_WAIT)
		reload = put_back_first(db, me, found.until);
	LWLockRelease(dw_ready_lock(db));
	/* this was the TID of the former task */
	if (decision == DW_GROUP_TAKE_OTHER)
		ItemPointerSetInvalid(&me->tid);
	if (reload)
		dw_wake_timer(db, DW_AWAKE);
	return decision != DW_GROUP_WAIT;
}

/* Puts the current task back and holds its group: a lock on its row may end without a hint. */
void
dw_group_order_waits(DwDatabase *db, const DwExecutor *me)
{
	bool		reload;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	reload = put_back_first(db, me, DW_NEVER);
	LWLockRelease(dw_ready_lock(db));
	if (reload)
		dw_wake_timer(db, DW_AWAKE);
}
