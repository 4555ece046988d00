/*-------------------------------------------------------------------------
 *
 * stop.c
 *	  Stopping a task that runs.
 *
 * Run by sessions that stop a task, and by executors.  A session that stops a task finds its
 * executor under the ready lock, sets a flag in the executor's place, and sends the executor a
 * cancel (SIGINT), still under the lock.  Executors begin and end tasks under the same lock.  An
 * executor that finds the flag ends the task as failed, and clears the flag at the end of the task.
 * So the flag never stops another task.
 *
 * The cancel is a signal, which may arrive late.  But the session sends it before it releases the
 * lock.  So when the executor has the lock, the signal is pending or was handled.  The executor
 * handles a pending cancel before the next task begins (dw_stop_absorb).
 *
 * An executor may put a failed task back, to run it again.  From this decision until the end of the
 * transaction, the task is unstoppable.  A session that wants to stop the task waits for the end of
 * the transaction, and then cancels the pending task.  So a task that was reported as stopping
 * never runs again.  A task that must end with its present attempt also never runs again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/transam.h"
#include "libpq/pqsignal.h"
#include "storage/lmgr.h"
#include "utils/timeout.h"

#include "executors.h"

/*
 * Makes the executor of a running task stop the task ("at_once"), or not run the task again if this
 * attempt fails.  Called by sessions.
 *
 * Returns false if the caller must look at the task again: the task does not run any more, runs in
 * a batch, or is being put back.  If the task is being put back, first waits for the end of its
 * transaction.
 */
bool
dw_stop_task(DwDatabase *db, int64 id, bool at_once)
{
	bool		stopping = false;
	TransactionId putting_back = InvalidTransactionId;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_each_executor(e)
	{
		/* a batch is not stopped for one task; tasks that a batch has put back run alone */
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

/*
 * Ends the state in which the executor's task is unstoppable.  Called by executors.  Takes the
 * ready lock.
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
 * Makes the task unstoppable, since the executor puts it back.  Returns false if the task must not
 * be put back: it must be stopped, or must end with this attempt.  Called by executors.  Takes the
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
 * Clears flag and state, since the task has ended.  Returns true if a session had asked to stop the
 * task.  Called by executors.  Needs the ready lock exclusively.
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
 * Handles and discards a cancel that was sent for the last task, so that no other task is
 * cancelled.
 *
 * When pending signals are unblocked, sigprocmask() returns only after at least one was handled.
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
 * Discards a pending cancel that was not meant for the next work of this process.
 *
 * Also clears the indicator of lock_timeout.  The timeout may have been reached just when the lock
 * was granted.  Otherwise PostgreSQL would report the next cancel as a lock timeout.
 */
void
dw_cancel_forget(void)
{
	QueryCancelPending = false;
	(void) get_timeout_indicator(LOCK_TIMEOUT, true);
}

/*
 * Discards a cancel that was not meant for the task.  Called before a task's SQL, while cancels are
 * held off.  Such a cancel may come from lock_timeout during the claim.  A session that stops the
 * task sets the flag before it sends the cancel.
 */
void
dw_cancel_for_task(const DwExecutor *me)
{
	dw_cancel_forget();
	if (dw_stop_requested(me))
		QueryCancelPending = InterruptPending = true;
}
