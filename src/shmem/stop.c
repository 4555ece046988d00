/*-------------------------------------------------------------------------
 *
 * stop.c
 *	  Stopping a task that runs.
 *
 * Run by sessions that stop a task, and by executors.  A session that stops a task finds its
 * executor under the ready lock, sets a flag in the executor's place, and sends the executor a
 * cancel (SIGINT), still under the lock.  Executors begin and end tasks under the same lock.  An
 * executor that finds the flag fails the task, and clears the flag at the end of the task.  So the
 * flag never hits another task.
 *
 * The cancel is a signal, and may arrive late.  But it was sent before the lock was released, so
 * when the executor has the lock, the signal is pending or was handled.  The executor handles a
 * pending cancel before the next task begins (dw_stop_absorb).
 *
 * A failed task may be put back and run again.  From this decision until the end of the
 * transaction, the task is unstoppable.  A session that wants to stop it waits for the end of the
 * transaction, and then cancels the pending task.  So a task that was reported as stopping is never
 * run again.  The same holds for a task that must end with this attempt.
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

#include "executors.h"
#include "shared.h"

/*
 * Makes the executor of a running task stop it ("at_once"), or not run it again if this attempt
 * fails.  Called by sessions.
 *
 * Returns false if the caller must look at the task again: it does not run any more, runs in a
 * batch, or was about to be put back.  In the last case, waits for the end of that transaction
 * first.
 */
bool
dw_stop_task(DwDatabase *db, int64 id, bool at_once)
{
	bool		stopping = false;
	TransactionId putting_back = InvalidTransactionId;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_each_executor(e)
	{
		/* a batch is not stopped for one task; tasks that a batch leaves run alone */
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
		/* stored before the signal, so that the executor finds the reason */
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

/* Makes the task of this executor stoppable again.  Called by executors.  Takes the ready lock. */
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
 * Makes the task unstoppable, since the executor puts it back.  Returns false if it must be stopped
 * already, or must end with this attempt: then it must not be put back.  Called by executors.
 * Takes the ready lock.
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

/* Returns the role that asked to stop the task.  Takes the ready lock. */
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
 * Clears flag and state, since the task has ended.  Returns true if a session had asked to stop it.
 * Called by executors.  Needs the ready lock exclusively.
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
 * Handles and forgets a cancel that was sent for the last task, so that it hits no other task.
 *
 * If signals are pending when they are unblocked, at least one is handled before that call returns.
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
 * Forgets a pending cancel that was not meant for the next work of this process.
 *
 * A lock_timeout may have struck just when the lock was granted.  So this clears its indicator,
 * too.  Otherwise PostgreSQL would report the next cancel as a lock timeout.
 */
void
dw_cancel_forget(void)
{
	QueryCancelPending = false;
	(void) get_timeout_indicator(LOCK_TIMEOUT, true);
}

/*
 * Forgets a cancel that was not meant for the task.  Called before cancels are let in for a task's
 * SQL.  While cancels are held off, the claim may have reached lock_timeout, which becomes a
 * cancel.  A session that stops the task sets the flag before it sends the cancel.
 */
void
dw_cancel_for_task(const DwExecutor *me)
{
	dw_cancel_forget();
	if (dw_stop_requested(me))
		QueryCancelPending = InterruptPending = true;
}
