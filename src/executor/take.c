/*-------------------------------------------------------------------------
 *
 * take.c
 *	  An executor takes its next task, or ends.
 *
 * Run by executors.  A task comes from the ready lists of the executor's role; a task
 * that is taken and not run is put back before all others of its lane.  An executor ends
 * when it is old, when its turn is over and another owner waits, or when somebody asks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/clock.h"
#include "../ring/ring.h"
#include "../shmem/executors.h"
#include "../shmem/ready.h"
#include "../shmem/shared.h"
#include "take.h"
#include "trial.h"

/* What tasks make a session keep goes with it, at the latest after this. */
#define MAX_AGE_US	USECS_PER_HOUR
DwDatabase *dw_executor_db = NULL;

/* This executor has seen a task to its end. */
bool dw_executor_proved = false;

/* It has run several, perhaps, before it has seen one to its end. */
static bool in_a_row = false;
int64 dw_executor_born = 0;

void
dw_put_back(DwDatabase *db, const DwEntry *entry, bool alone)
{
	DwLane	   *lane = &dw_lanes[entry->lane];
	DwEntry		again = *entry;

	if (alone)
		again.offset |= DW_ENTRY_ALONE;
	if (dw_ready_put_back(db, lane, &again))
		pg_atomic_fetch_add_u64(&db->ready, 1);
	else
	{
		dw_atomic_lower(&lane->reload_from, entry->due);
		dw_lane_dirty(db, lane);
	}
}

/* For the executor: it has not run anything before its current task. */
bool
dw_executor_is_fresh(void)
{
	return !dw_executor_proved && !in_a_row;
}

/*
 * Notes what was taken from a ready list; true if the lane is to be loaded
 * again.
 */
bool
dw_note_taken(DwExecutor *me, const DwEntry *entry)
{
	DwLane	   *lane = &dw_lanes[entry->lane];

	me->current = *entry;
	me->begun = false;
	/* one that has called exit() did not take itself off; they are all gone by now */
	pg_atomic_write_u32(&me->helpers, 0);
	pg_atomic_fetch_sub_u64(&dw_executor_db->ready, 1);
	if (lane->load_below == 0 || dw_lane_held(lane) >= lane->load_below)
		return false;
	lane->load_below = 0;
	return true;
}

void
dw_ask_for_load(const DwLane *lane)
{
	dw_lane_dirty(dw_executor_db, lane);
	dw_wake_timer(dw_executor_db, DW_AWAKE);
}

/* Does it take no other task, and end? */
bool
dw_executor_must_end(DwExecutor *me)
{
	return me->must_exit || dw_uptime() - dw_executor_born > MAX_AGE_US || pg_atomic_read_u32(&me->stale) != DW_FRESH;
}

/*
 * For the executor: takes another task of the lane of its current one, due
 * until then, which becomes its current one, if it is to go on with its batch.
 */
bool
dw_executor_next(DwExecutor *me, TimestampTz until, DwEntry *entry)
{
	bool		low = false;
	bool		found;

	LWLockAcquire(dw_ready_lock(dw_executor_db), LW_EXCLUSIVE);
	/* who starves waits for the end of a turn, not of a batch: that is short */
	found = !dw_executor_must_end(me) && dw_trial_wait(me) == 0 &&
		dw_ready_pop_next(dw_executor_db, me, until, entry);
	if (found)
	{
		low = dw_note_taken(me, entry);
		me->since = dw_now();
		in_a_row = true;
	}
	LWLockRelease(dw_ready_lock(dw_executor_db));
	if (low)
		dw_ask_for_load(&dw_lanes[entry->lane]);
	return found;
}
