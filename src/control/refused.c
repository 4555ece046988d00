/*-------------------------------------------------------------------------
 *
 * refused.c
 *	  Starts for which no background worker was free.
 *
 * Run by the launcher.  A background worker that is free serves any of the starts that were
 * refused, so all of them have one time at which they are tried again.  The pauses grow, since
 * other extensions' workers come and go without a word.  Of the end of one of ours the launcher
 * hears (dw_worker_leaves()), a little before the postmaster gives its place to another one: then
 * the pauses begin anew, with short ones.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"

#include "../base/clock.h"
#include "../shmem/shared.h"
#include "refused.h"

/* Shortest and longest pause before the next try. */
#define PAUSE_MIN_US	(USECS_PER_SEC / 100)
#define PAUSE_MAX_US	(5 * USECS_PER_SEC)
/*
 * A refusal that lasts this long is reported.  A worker that has just ended occupies its place
 * until the postmaster notices its end; and at a shutdown timers end, and cannot be started,
 * before the launcher ends.
 */
#define LASTING_US		(USECS_PER_SEC / 10)

/* When all that was refused is tried again, by dw_uptime(). */
static int64 retry_at = 0;

/* The last pause; 0: nothing was refused since a worker was free, or has ended. */
static int64 pause_us = 0;

/*
 * No background worker was free for this start: puts the next try off, of all that were refused.
 * If several are tried after a pause, only the first one makes the next pause longer.
 *
 * True if the refusal lasts, and is to be shown; *is_first is set to whether it was not shown
 * before.
 */
bool
dw_refused(DwRefusal *refusal, bool *is_first)
{
	int64		now = dw_uptime();

	pg_atomic_write_u32(&dw_shared->starts_refused, 1);
	if (retry_at <= now)
	{
		pause_us = pause_us == 0 ? PAUSE_MIN_US : Min(pause_us * 2, PAUSE_MAX_US);
		retry_at = now + pause_us;
	}
	if (refusal->since == 0)
	{
		refusal->since = now;
		refusal->is_told = false;
	}
	if (now - refusal->since < LASTING_US)
		return false;
	*is_first = !refusal->is_told;
	refusal->is_told = true;
	return true;
}

/* All that was refused is tried again at once. */
static void
retry(void)
{
	retry_at = pause_us = 0;
}

/* A background worker was free for this start, so one may be for others. */
void
dw_refusal_ends(DwRefusal *refusal)
{
	refusal->since = 0;
	retry();
}

/* When this start may be tried, by dw_uptime(); 0 if it was not refused. */
int64
dw_refused_until(const DwRefusal *refusal)
{
	return refusal->since == 0 ? 0 : retry_at;
}

/* If a worker of ours has ended since the last call, has all tried again that was refused. */
void
dw_refused_look(void)
{
	if (pg_atomic_exchange_u32(&dw_shared->worker_ended, 0) != 0)
		retry();
}
