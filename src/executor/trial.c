/*-------------------------------------------------------------------------
 *
 * trial.c
 *	  Running a task alone that is suspected of crashing the server.
 *
 * Run by executors.  A suspect is a task that ran when its process crashed.  A trial
 * is the next run of a suspect: without other tasks beside it, so that it becomes
 * clear whether the suspect is to blame.  The server knows which process has crashed
 * (suspects.c), but a task that damages shared memory can make another process crash.
 *
 * The trial waits until no executor of the server runs a task, and then no other
 * executor begins one; both for TRIAL_WAIT_US at most.  After that time tasks that
 * take long, or that wait for each other, run beside the suspect, which is still on
 * trial.
 *
 * An executor that has run other tasks does not try a suspect, since their remains in
 * the process could crash the suspect (run_task.c sees to that).
 *
 * The token, dw_shared->trial, names the place of the executor whose trial others
 * make way for.  An executor holds the token from before it waits for the others
 * until its task has ended.  Another executor with a suspect waits for the token, for
 * TRIAL_WAIT_US at most, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/inject.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "trial.h"

/* Limit of each wait: for the token, for others' tasks, and of others for the trial; us. */
#define TRIAL_WAIT_US	(3 * USECS_PER_SEC)
/* Pause between two looks at the token or the other executors, in ms. */
#define LOOK_MS			10

/* The token's value while this executor has it: its place plus 1.  0 means nobody. */
static uint32
token_of(const DwExecutor *me)
{
	return (uint32) (me - dw_executors) + 1;
}

/* True if this executor has got the token: nobody had it. */
static bool
take_token(const DwExecutor *me)
{
	uint32		nobody = 0;

	return pg_atomic_compare_exchange_u32(&dw_shared->trial, &nobody, token_of(me));
}

/* Keeps other executors from beginning tasks, for TRIAL_WAIT_US after the given time. */
static void
hold_others(int64 from)
{
	pg_atomic_write_u64(&dw_shared->trial_until, (uint64) (from + TRIAL_WAIT_US));
}

/*
 * True if another executor runs a task.  An executor whose suspect still waits for its
 * trial does not count.
 */
static bool
others_run(const DwExecutor *me)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		const DwExecutor *e = &dw_executors[i];

		if (e != me && e->state == DW_EXECUTOR_BUSY && e->trial != DW_TRIAL_AWAITED)
			return true;
	}
	return false;
}

/* True if a wait that began at this time may go on. */
static bool
is_recent(int64 since)
{
	return dw_uptime() - since < TRIAL_WAIT_US;
}

/* Sleeps for LOOK_MS.  Handles interrupts, and ends the process if it is told to exit. */
static void
sleep_before_look(DwDatabase *db, DwExecutor *me)
{
	static uint32 wait_event = 0;

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 LOOK_MS, dw_wait_event(wait_event, "DelayWheelTrial"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	dw_executor_obey_exit(db, me);
}

/*
 * Begins the trial of the current task.  Waits for the token and for the other
 * executors' tasks, TRIAL_WAIT_US each at most.  No transaction may be open.  Ends the
 * process if it is told to exit meanwhile.
 */
void
dw_trial_begin(DwDatabase *db, DwExecutor *me)
{
	int64		since = dw_uptime();
	bool		mine;

	me->trial = DW_TRIAL_AWAITED;
	while (!(mine = take_token(me)) && is_recent(since))
		sleep_before_look(db, me);
	if (mine)
	{
		since = dw_uptime();
		hold_others(since);
		while (others_run(me) && is_recent(since))
			sleep_before_look(db, me);
		hold_others(dw_uptime());
	}
	DW_INJECT("trial-begins");
	me->trial = DW_ON_TRIAL;
}

/*
 * Ends this executor's trial, if it has one, and wakes executors that have made way.
 * Also called with the ready lock held, when the executor exits.
 */
void
dw_trial_end(DwExecutor *me)
{
	uint32		mine = token_of(me);

	if (me->trial == DW_NO_TRIAL)
		return;
	me->trial = DW_NO_TRIAL;
	if (!pg_atomic_compare_exchange_u32(&dw_shared->trial, &mine, 0))
		return;
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].state == DW_EXECUTOR_IDLE || dw_executors[i].state == DW_EXECUTOR_WOKEN)
			SetLatch(dw_proc_latch(dw_executors[i].proc));
}

/*
 * For how long, in ms, this executor must not begin a task because of another
 * executor's trial; 0 if it may begin one.  Sets no timer, but the end of the trial
 * sets the latch of idle executors.
 */
long
dw_trial_wait(const DwExecutor *me)
{
	uint32		token = pg_atomic_read_u32(&dw_shared->trial);
	int64		left;

	if (token == 0 || token == token_of(me))
		return 0;
	left = dw_atomic_read(&dw_shared->trial_until) - dw_uptime();
	return left <= 0 ? 0 : (long) (left / 1000) + 1;
}
