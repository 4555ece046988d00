/*-------------------------------------------------------------------------
 *
 * stop.c
 *	  Stopping a task that runs.
 *
 * Run by sessions that stop a task, and by executors.  A session that stops a task
 * finds its executor under the ready lock, sets a flag in the executor's place, and
 * sends the executor a cancel (SIGINT), still under the lock.  Executors begin and end
 * tasks under the same lock.  An executor that finds the flag fails the task, and
 * clears the flag when it ends the task.  So the flag is never meant for another task.
 *
 * The cancel is a signal, and may arrive late.  But it was sent before the lock was
 * released.  So when the executor has the lock, the signal is pending or was handled.
 * The executor lets it in before the next task begins (dw_stop_absorb).
 *
 * A task whose run has failed may be put back, to be run again.  From this decision
 * until the transaction has ended, the task is unstoppable.  A session that wants to
 * stop it waits for the end of the transaction, and then cancels the pending task.  So
 * a task that was reported as stopping is never run again.  Likewise one that was told to end
 * with this attempt.
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

/*
 * Tells the executor of a running task to stop it at once, or else not to run it again if
 * this attempt fails.  Called by sessions.
 *
 * Returns false if the caller must look at the task anew: it does not run any more,
 * runs in a batch, or was about to be put back; the end of that transaction was waited
 * for.
 */
bool
dw_stop_task(DwDatabase *db, int64 id, bool at_once)
{
	bool		stopping = false;
	TransactionId putting_back = InvalidTransactionId;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		/*
		 * a batch is not stopped for one task; what it leaves, if anything, runs alone
		 */
		if (e->database != db->oid || e->state != DW_EXECUTOR_BUSY || e->current.id != id ||
			e->in_batch)
			continue;
		if (e->unstoppable)
		{
			putting_back = pg_atomic_read_u32(&e->xid);
			continue;
		}
		stopping = true;
		e->is_last = true;
		if (!at_once)
			continue;
		/* before the signal, so that the executor finds the reason */
		e->stop_by = GetUserId();
		pg_atomic_write_u32(&e->stop, 1);
		(void) kill(e->pid, SIGINT);
	}
	LWLockRelease(dw_ready_lock(db));

	if (!TransactionIdIsValid(putting_back))
		return stopping;
	XactLockTableWait(putting_back, NULL, NULL, XLTW_None);
	return false;
}

/*
 * Allows again to stop the task of this executor.  Called by executors; takes the ready
 * lock.
 */
void
dw_stop_allow(DwDatabase *db, DwExecutor *me)
{
	if (!me->unstoppable)
		return;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	me->unstoppable = false;
	LWLockRelease(dw_ready_lock(db));
}

/*
 * Makes the task unstoppable, since the executor puts it back.  False if the task must
 * be stopped already, or was told to end with this attempt, and so must not be put back.  Called by executors; takes the
 * ready lock.
 */
bool
dw_stop_forbid(DwDatabase *db, DwExecutor *me)
{
	bool		allowed;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	allowed = !dw_stop_requested(me) && !me->is_last;
	me->unstoppable = allowed;
	LWLockRelease(dw_ready_lock(db));
	return allowed;
}

/* The role that asked to stop the task.  Takes the ready lock. */
Oid
dw_stop_by(DwDatabase *db, DwExecutor *me)
{
	Oid			role;

	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	role = me->stop_by;
	LWLockRelease(dw_ready_lock(db));
	return role;
}

/*
 * Clears flag and state, since the task has ended; true if it was to be stopped.
 * Called by executors.  Needs the ready lock, exclusively.
 */
bool
dw_stop_over(DwExecutor *me)
{
	bool		requested = dw_stop_requested(me);

	pg_atomic_write_u32(&me->stop, 0);
	me->unstoppable = me->is_last = false;
	return requested;
}

/*
 * Lets in a cancel that was sent for the task before, and forgets it, so that it hits
 * no other task.
 *
 * A signal that is pending when it is unblocked is handled before that call returns; of
 * several signals, at least one.
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
 * Forgets a pending cancel, which was not meant for what this process does next.
 *
 * A lock_timeout may have struck just when the lock was granted.  Its indicator is
 * cleared, too; otherwise PostgreSQL would report the next cancel as a lock timeout.
 */
void
dw_cancel_forget(void)
{
	QueryCancelPending = false;
	(void) get_timeout_indicator(LOCK_TIMEOUT, true);
}

/*
 * To be called before cancels are let in for a task's SQL: forgets a cancel that was not meant
 * for the task.  While cancels are held off, a wait of the claim may have met lock_timeout,
 * which becomes a cancel then.  A session that stops the task sets the flag before it
 * sends the cancel.
 */
void
dw_cancel_for_task(const DwExecutor *me)
{
	dw_cancel_forget();
	if (dw_stop_requested(me))
		QueryCancelPending = InterruptPending = true;
}
