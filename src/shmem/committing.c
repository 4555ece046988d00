/*-------------------------------------------------------------------------
 *
 * committing.c
 *	  Visible transactions whose catalog changes may not have reached all processes.
 *
 * Run by sessions and executors that end or claim tasks.  README.md describes the problem.
 *
 * touched.c publishes a transaction that has touched tasks and changed catalogs: it stores the xid
 * here before the transaction becomes visible, and removes the xid after the locks are released.
 * COMMIT PREPARED publishes a prepared transaction (ddl.c).  After a process has claimed a task
 * (claim.c, run_now.c), it waits for published transactions that are already visible.  These cannot
 * wait for the claim any more, so no deadlock is possible.  A transaction that waits for a
 * synchronous standby counts as in progress.  delay_wait() waits in the same way (wait.c).
 *
 * The row's xmin cannot replace this list.  If xmin is the xid of a subtransaction, it is not
 * locked any more.  A transaction can also keep or resume a task without a new row version.
 *
 * Usually no transaction is published, and the check costs one atomic read.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/inval.h"

#include "../base/compat.h"
#include "shared.h"

/* List of the published transactions, in shared memory. */
typedef struct Committing
{
	pg_atomic_uint32 n;			/* number of published transactions */
	pg_atomic_uint32 xids[FLEXIBLE_ARRAY_MEMBER];	/* published xid of each process, or
													 * InvalidTransactionId; index: dw_my_proc() -
													 * 1 */
} Committing;

static Committing *committing = NULL;

/* True if this process has published a transaction. */
static bool published = false;

void
dw_committing_request(void)
{
	ShmemRequestStruct(.name = "delay_wheel committing transactions",
					   .size = add_size(offsetof(Committing, xids),
										mul_size(MaxBackends, sizeof(pg_atomic_uint32))),
					   .ptr = (void **) &committing);
}

void
dw_committing_init(void)
{
	pg_atomic_init_u32(&committing->n, 0);
	for (int i = 0; i < MaxBackends; i++)
		pg_atomic_init_u32(&committing->xids[i], InvalidTransactionId);
}

/*
 * Publishes a transaction that this process is about to commit, before the commit is
 * visible (step N1).  A process publishes one transaction at a time.
 */
void
dw_committing_publish(TransactionId xid)
{
	Assert(!published);
	pg_atomic_write_u32(&committing->xids[dw_my_proc() - 1], xid);
	/* full barrier */
	pg_atomic_fetch_add_u32(&committing->n, 1);
	published = true;
}

/*
 * Ends the publication after the transaction has released its locks or was rolled back.  Does
 * nothing if this process has published no transaction.
 */
void
dw_committing_withdraw(void)
{
	if (!published)
		return;
	pg_atomic_write_u32(&committing->xids[dw_my_proc() - 1], InvalidTransactionId);
	/* full barrier: a process that does not find our xid will find our invalidations */
	pg_atomic_fetch_sub_u32(&committing->n, 1);
	published = false;
}

/*
 * Waits until all transactions that the caller has seen have finished their commits, and then
 * processes their catalog invalidations.  After the call, the slots of sessions in delay_wait() are
 * up to date, too.
 */
void
dw_committing_wait(void)
{
	/* each visible transaction was published before it became visible, see ProcArrayLock */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&committing->n) > 0)
	{
		pg_read_barrier();
		for (int i = 0; i < MaxBackends; i++)
		{
			TransactionId xid = pg_atomic_read_u32(&committing->xids[i]);

			/* our own transaction is in progress, so we do not wait for it */
			if (TransactionIdIsValid(xid) && !TransactionIdIsInProgress(xid))
				XactLockTableWait(xid, NULL, NULL, XLTW_None);
		}
	}
	/* AcceptInvalidationMessages() checks for new messages without a lock */
	pg_memory_barrier();
	AcceptInvalidationMessages();
}
