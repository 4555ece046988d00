/*-------------------------------------------------------------------------
 *
 * trial.c
 *	  Running a task alone that is suspected of crashing the server.
 *
 * Run by executors.  Which process crashed is known without that (crashes.c);
 * but a task that damages shared memory can make others crash.  So while a task
 * is on trial no executor of the server begins another one, and the trial
 * begins when none runs: both for TRIAL_WAIT_US at most.  Then tasks that take
 * long, or wait for each other, go on side by side, still on trial.
 *
 * It runs in a process of its own: what tasks before it have left in theirs
 * could crash it (run_task.c sees to that).
 *
 * The token, dw_shared->trial, is the place of the executor whose trial others
 * make way for.  It has it from when it begins to wait until its task has
 * ended; another suspect waits for the token, and no longer than for the rest.
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

#define TRIAL_WAIT_US	(3 * USECS_PER_SEC)
#define LOOK_MS			10

static uint32
token_of(const DwExecutor *me)
{
	return (uint32) (me - dw_executors) + 1;
}

static bool
take_token(const DwExecutor *me)
{
	uint32		nobody = 0;

	return pg_atomic_compare_exchange_u32(&dw_shared->trial, &nobody, token_of(me));
}

static void
hold_others(int64 from)
{
	pg_atomic_write_u64(&dw_shared->trial_until, (uint64) (from + TRIAL_WAIT_US));
}

/* Suspects that wait for their turn run nothing. */
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

static bool
is_recent(int64 since)
{
	return dw_uptime() - since < TRIAL_WAIT_US;
}

static void
look_later(DwDatabase *db, DwExecutor *me)
{
	static uint32 wait_event = 0;

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 LOOK_MS, dw_wait_event(wait_event, "DelayWheelTrial"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	dw_executor_obey_exit(db, me);
}

void
dw_trial_begin(DwDatabase *db, DwExecutor *me)
{
	int64		since = dw_uptime();
	bool		mine;

	me->trial = DW_TRIAL_AWAITED;
	while (!(mine = take_token(me)) && is_recent(since))
		look_later(db, me);
	if (mine)
	{
		since = dw_uptime();
		hold_others(since);
		while (others_run(me) && is_recent(since))
			look_later(db, me);
		hold_others(dw_uptime());
	}
	DW_INJECT("trial-begins");
	me->trial = DW_ON_TRIAL;
}

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
 * For how long is this executor not to begin a task, in ms; 0 if it may.  It
 * is woken when the trial is over.
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
