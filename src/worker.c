/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  What launcher, timers, executors and sweepers have in common as processes.
 *
 * SIGTERM ends a worker at its next check for interrupts, also while it waits
 * for a lock; SIGINT is as background workers have it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "shared.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "worker.h"

/* what the clock is set back by; readings of it are less exact */
#define SET_BACK_US		1000

static volatile sig_atomic_t terminated = false;

static void
note_and_die(SIGNAL_ARGS)
{
	terminated = true;
	die(postgres_signal_arg);
}

bool
dw_worker_terminated(void)
{
	return terminated;
}

void
dw_worker_begin(void)
{
	pqsignal(SIGTERM, note_and_die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	(void) dw_worker_clock_set_back();
}

bool
dw_worker_interrupts(void)
{
	QueryCancelPending = false;
	CHECK_FOR_INTERRUPTS();
	if (!ConfigReloadPending)
		return false;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	return true;
}

/*
 * Between two looks at the clock that is never set, the other one is ahead of
 * it by something between the two differences.
 */
int64
dw_worker_clock_set_back(void)
{
	static int64 ahead = PG_INT64_MIN;	/* it has been, for certain */
	int64		before = dw_uptime();
	TimestampTz now = dw_now();
	int64		after = dw_uptime();
	int64		back = ahead == PG_INT64_MIN ? 0 : ahead - (now - before);

	if (back >= SET_BACK_US)
	{
		ahead = now - after;
		return back;
	}
	ahead = Max(ahead, now - after);
	return 0;
}
