/*-------------------------------------------------------------------------
 *
 * stop.c
 *	  Stopping a task that runs.
 *
 * A backend that is to stop a task finds its executor under the ready lock,
 * under which the executor begins and ends tasks, leaves a flag there, and
 * sends it a cancel, still under the lock.  The executor, which fails the
 * task when it finds the flag, takes that away when it ends the task, under
 * the same lock: the flag is never meant for another task.
 *
 * The cancel is a signal and could be on its way yet.  But it was sent before
 * the lock was released, so once the executor has the lock the signal is
 * pending, if it was not handled: it is let in before the next task begins.
 *
 * A task whose run has failed may be put back, to be run again.  From the
 * moment when that is decided until the transaction has ended, stopping is
 * not allowed: who wants to waits for that end, and then cancels the pending
 * task.  So a task that was said to be stopping is never run again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/transam.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/timeout.h"

#include "../ring/ring.h"
#include "executors.h"
#include "shared.h"
#include "stop.h"

/*
 * For backends: tells the executor of a task that runs to stop it.
 *
 * False if the task cannot be stopped any more, but has to be looked at anew:
 * it has ended, or is about to be put back, whose end was waited for.
 */
bool
dw_stop_task(DwDatabase *db, int64 id)
{
	bool		stopping = false;
	TransactionId putting_back = InvalidTransactionId;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		/* a batch is no task's: what it leaves, if anything, runs alone */
		if (e->database != db->oid || e->state != DW_EXECUTOR_BUSY || e->current.id != id ||
			e->in_batch)
			continue;
		if (e->unstoppable)
		{
			putting_back = pg_atomic_read_u32(&e->xid);
			continue;
		}
		/* before the signal: who is stopped by it finds the reason */
		e->stop_by = GetUserId();
		pg_atomic_write_u32(&e->stop, 1);
		(void) kill(e->pid, SIGINT);
		stopping = true;
	}
	LWLockRelease(dw_ready_lock(db));

	if (!TransactionIdIsValid(putting_back))
		return stopping;
	XactLockTableWait(putting_back, NULL, NULL, XLTW_None);
	return false;
}

/* The task may be stopped from here on; it may until this is forbidden. */
void
dw_stop_allow(DwDatabase *db, DwExecutor *me)
{
	if (!me->unstoppable)
		return;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	me->unstoppable = false;
	LWLockRelease(dw_ready_lock(db));
}

/* The task is to be put back.  False if it must not be. */
bool
dw_stop_forbid(DwDatabase *db, DwExecutor *me)
{
	bool		allowed;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	allowed = !dw_stop_requested(me);
	me->unstoppable = allowed;
	LWLockRelease(dw_ready_lock(db));
	return allowed;
}

/* Who wants the task to be stopped. */
Oid
dw_stop_by(DwDatabase *db, DwExecutor *me)
{
	Oid			role;

	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	role = me->stop_by;
	LWLockRelease(dw_ready_lock(db));
	return role;
}

/* The task is over; under the ready lock.  Was it to be stopped? */
bool
dw_stop_over(DwExecutor *me)
{
	bool		requested = dw_stop_requested(me);

	pg_atomic_write_u32(&me->stop, 0);
	me->unstoppable = false;
	return requested;
}

/*
 * Lets a cancel in that was sent for the task before, so that it hits no other.
 *
 * A signal that is pending when it is unblocked is handled before that call
 * returns; of several, at least one.
 */
void
dw_stop_absorb(void)
{
	sigset_t	pending;

	do
	{
		sigprocmask(SIG_SETMASK, &BlockSig, NULL);
		sigpending(&pending);
		sigprocmask(SIG_SETMASK, &UnBlockSig, NULL);
	} while (sigismember(&pending, SIGINT));
	dw_cancel_forget();
}

/*
 * A cancel that is pending was not meant for what comes next.
 *
 * Also what a timeout for locks has left that struck when the lock was just
 * granted: the next cancel would be taken for it.
 */
void
dw_cancel_forget(void)
{
	QueryCancelPending = false;
	(void) get_timeout_indicator(LOCK_TIMEOUT, true);
}
