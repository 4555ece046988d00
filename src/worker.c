/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  What launcher, timers and executors have in common as processes.
 *
 * SIGTERM ends a worker at its next check for interrupts, also while it waits
 * for a lock; SIGINT is as background workers have it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
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
	/* an error is a task's outcome, or something to try again */
	SetConfigOption("exit_on_error", "off", PGC_USERSET, PGC_S_OVERRIDE);
	dw_no_transaction_timeout();
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
