/*-------------------------------------------------------------------------
 *
 * committing.c
 *	  Transactions that are visible, but have not told other processes all they did.
 *
 * Run by all processes that end tasks or claim them: sessions and executors.
 *
 * A commit has three moments: the transaction's rows become visible; it tells other
 * processes what it has changed in catalogs; it gives its locks back.  An executor that
 * finds and claims a task between the first and the second moment goes by the catalogs
 * that it remembers.  It would run the task with the old version of a function, or
 * without the right that came with the task.
 *
 * So a transaction that has touched tasks and changed catalogs is published: its xid
 * stands here from before it is visible until its locks are gone (touched.c).  For a
 * prepared transaction COMMIT PREPARED does so (ddl.c).  A process that has claimed a
 * task looks here after the claim (claim.c, run_now.c).  It waits for published
 * transactions that are visible already, by the lock that each of them has on its xid;
 * these cannot wait for the claim in turn any more.  It does not wait for transactions
 * in progress, since it has seen nothing of them.  A transaction that waits for a
 * synchronous standby is in progress. delay_wait() waits in the same way (wait.c).
 *
 * The row's xmin would not do: a subtransaction's xid has no lock any more, and a task
 * can also be kept or resumed without a new version of its row.
 *
 * Mostly nothing is published, and all this costs one atomic read.  Steps N1 to N4 of
 * the model in test/model.
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
#include "committing.h"

/* The published transactions, in shared memory. */
typedef struct Committing
{
	pg_atomic_uint32 n;			/* number of published transactions */
	pg_atomic_uint32 xids[FLEXIBLE_ARRAY_MEMBER];	/* one for each process, at dw_my_proc()
													 * - 1; or InvalidTransactionId */
} Committing;

static Committing *committing = NULL;

/* True if this process has published a transaction. */
static bool published = false;

/* Requests shared memory for the published transactions. */
void
dw_committing_request(void)
{
	ShmemRequestStruct(.name = "delay_wheel committing transactions",
					   .size = add_size(offsetof(Committing, xids),
										mul_size(MaxBackends, sizeof(pg_atomic_uint32))),
					   .ptr = (void **) &committing);
}

/* Initializes them.  Called once for each shared memory. */
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
 * Ends the publication: the transaction's locks are gone, or it was rolled back.  Does
 * nothing if this process has published none.
 */
void
dw_committing_withdraw(void)
{
	if (!published)
		return;
	pg_atomic_write_u32(&committing->xids[dw_my_proc() - 1], InvalidTransactionId);
	/*
	 * full barrier: a process that does not find our xid any more finds what we have
	 * told
	 */
	pg_atomic_fetch_sub_u32(&committing->n, 1);
	published = false;
}

/*
 * Waits until all transactions that the caller has seen have told all they did.  Then
 * it reads what they told of catalogs; after that the slots of waiting sessions are up
 * to date, too.
 */
void
dw_committing_wait(void)
{
	/* a transaction that the caller has seen was published before, see ProcArrayLock */
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
	/* AcceptInvalidationMessages() looks without a lock whether there is news */
	pg_memory_barrier();
	AcceptInvalidationMessages();
}
