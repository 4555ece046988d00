/*-------------------------------------------------------------------------
 *
 * task_timeout.c
 *	  The timeout of what an executor runs.
 *
 * Run by executors; nobody arms the statement timeout for a background worker.
 *
 * A timeout is a cancel, and strikes once.  SQL can catch that (WHEN
 * query_canceled), and go on for ever.  So who has been cancelled, and does not
 * come to an end within some seconds, ends the process.  One that has not
 * taken notice of the cancel yet is left alone: it is somewhere where it cannot
 * be interrupted, and is cancelled when it gets out.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timeout.h"

#include "task_timeout.h"

#define GRACE_MS		5000

static bool armed = false;
static volatile sig_atomic_t ends_process = false;

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

/* Registered when it is first needed: before, timeouts are not set up. */
static TimeoutId
end_timeout(void)
{
	static TimeoutId id = MAX_TIMEOUTS;

	if (id == MAX_TIMEOUTS)
		id = RegisterTimeout(USER_TIMEOUT, end_process);
	return id;
}

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

/* It was armed, and has struck. */
bool
dw_timeout_struck(void)
{
	return armed && !get_timeout_active(STATEMENT_TIMEOUT);
}

/* What ran did not end then, so this process is ended. */
bool
dw_timeout_ends_process(void)
{
	return ends_process;
}
