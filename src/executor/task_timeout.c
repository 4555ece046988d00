/*-------------------------------------------------------------------------
 *
 * task_timeout.c
 *	  The timeout of a task or a batch.
 *
 * Run by executors.  PostgreSQL does not use the timer of statement_timeout in background workers,
 * so this file can use it.
 *
 * A timeout sends one cancel.  SQL can catch the cancel (WHEN query_canceled) and continue forever.
 * So if the task has not ended GRACE_MS after its timeout, the process ends itself.  While the
 * cancel is still pending, the process does not end itself: the task is in code that cannot be
 * interrupted, and the cancel takes effect after this code.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timeout.h"

#include "executor.h"

/* Time in ms from the timeout until the process ends itself, if the task continues. */
#define GRACE_MS		5000

static bool armed = false;
static volatile sig_atomic_t ends_process = false;

/* Timeout handler: terminates this process, unless the cancel is still pending. */
static void
end_process(void)
{
	if (QueryCancelPending)
		return;
	ends_process = true;
	ProcDiePending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
}

/* Returns the id of the timeout that ends the process.  The first call registers the timeout. */
static TimeoutId
end_timeout(void)
{
	static TimeoutId id = MAX_TIMEOUTS;

	if (id == MAX_TIMEOUTS)
		id = RegisterTimeout(USER_TIMEOUT, end_process);
	return id;
}

/*
 * Begins a timeout, which cancels this process's work after ms milliseconds.  0 means no timeout.
 */
void
dw_timeout_arm(int ms)
{
	EnableTimeoutParams both[2] = {
		{.id = STATEMENT_TIMEOUT, .type = TMPARAM_AFTER, .delay_ms = ms},
		{.type = TMPARAM_EVERY, .delay_ms = (int) Min((int64) ms + GRACE_MS, PG_INT32_MAX)}
	};

	armed = ms > 0;
	if (!armed)
		return;
	both[1].id = end_timeout();
	enable_timeouts(both, lengthof(both));
}

/* Disables the timeout, if dw_timeout_arm() has enabled it. */
void
dw_timeout_disarm(void)
{
	if (armed)
	{
		DisableTimeoutParams both[2] = {{.id = STATEMENT_TIMEOUT}, {.id = end_timeout()}};

		disable_timeouts(both, lengthof(both));
	}
	armed = false;
}

/* Returns true if the timeout was armed and has expired.  To be called before it is disarmed. */
bool
dw_timeout_struck(void)
{
	return armed && !get_timeout_active(STATEMENT_TIMEOUT);
}

/* Returns true if this process ends because a task went on after its timeout. */
bool
dw_timeout_ends_process(void)
{
	return ends_process;
}
