/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  What launcher, timers and executors have in common as processes.
 *
 * SIGTERM ends a worker at its next check for interrupts, also while it waits
 * for a lock; SIGINT is as background workers have it; SIGQUIT is watched, to
 * know who crashed (crashes.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "crashes.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "worker.h"

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
	dw_crashes_watch_signals();
	BackgroundWorkerUnblockSignals();
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
