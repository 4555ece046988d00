/*-------------------------------------------------------------------------
 *
 * take.c
 *	  An executor takes its next task, or ends.
 *
 * Run by executors.  A lane is the tasks of one owner, queue and priority.  A lane's
 * ready list holds the entries of its tasks that are due.  An executor takes entries
 * from the ready lists of its role.  A task that was taken and not run is put back,
 * before all others of its lane.  An executor ends when it is old, when another
 * process has told it to, or when a login would find other rights or settings.
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

/*
 * Longest life of an executor, in us.  Its end frees memory that tasks have made the
 * session keep.
 */
#define MAX_AGE_US	USECS_PER_HOUR

/* The database of this executor. */
DwDatabase *dw_executor_db = NULL;

/* True if this executor has ended a task, or a batch, and lived on. */
bool dw_executor_proved = false;

/* True if this executor has taken a second task for a batch. */
static bool in_a_row = false;

/* Start of this executor, as dw_uptime() tells it. */
int64 dw_executor_born = 0;

/*
 * Puts a task back before all others of its lane.  To be called under the ready lock,
 * exclusively.  alone: the task must not join a batch next time.  If shared memory is
 * short, the timer reads the task from the table again.
 */
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

/* True if this executor has run nothing before its current task. */
bool
dw_executor_is_fresh(void)
{
	return !dw_executor_proved && !in_a_row;
}

/*
 * Makes an entry that was taken from a ready list the executor's current task.  To be
 * called under the ready lock.  True if the lane has few tasks left in memory: the
 * caller is to call dw_ask_for_load() after it has released the lock.
 */
bool
dw_note_taken(DwExecutor *me, const DwEntry *entry)
{
	DwLane	   *lane = &dw_lanes[entry->lane];

	me->current = *entry;
	me->begun = false;
	/* a parallel worker that calls exit() does not decrement it; all are gone by now */
	pg_atomic_write_u32(&me->helpers, 0);
	pg_atomic_fetch_sub_u64(&dw_executor_db->ready, 1);
	if (lane->load_below == 0 || dw_lane_held(lane) >= lane->load_below)
		return false;
	lane->load_below = 0;
	return true;
}

/* Asks the timer to load more tasks of the lane from the table. */
void
dw_ask_for_load(const DwLane *lane)
{
	dw_lane_dirty(dw_executor_db, lane);
	dw_wake_timer(dw_executor_db, DW_AWAKE);
}

/* True if this executor must take no other task, and end. */
bool
dw_executor_must_end(DwExecutor *me)
{
	return me->must_exit || dw_uptime() - dw_executor_born > MAX_AGE_US ||
		pg_atomic_read_u32(&me->stale) != DW_FRESH;
}

/*
 * Takes the next task for the batch that this executor runs: from the lane of its
 * current task, and due by the given time.  The taken task becomes the current one.
 * False if there is none, or the batch is to end.
 */
bool
dw_executor_next(DwExecutor *me, TimestampTz until, DwEntry *entry)
{
	bool		low = false;
	bool		found;

	LWLockAcquire(dw_ready_lock(dw_executor_db), LW_EXCLUSIVE);
	/* an owner without an executor waits for the whole batch: batches are short */
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
