/*-------------------------------------------------------------------------
 *
 * committing.c
 *	  Transactions that are visible, but have not told all they did.
 *
 * A transaction that commits is visible first.  A moment later it tells other
 * processes what it has changed in catalogs, then it gives its locks back.  An
 * executor that claims its task in between goes by what the executor remembers:
 * it would run the task with the old version of a function, or without the right
 * that came with the task.
 *
 * So a transaction that has touched tasks, and has changed catalogs, publishes
 * its xid here before it is visible, until its locks are gone (touched.c); for a
 * prepared one COMMIT PREPARED does so (ddl.c).  A process that has claimed a
 * task looks here after the claim (claim.c, run_now.c), and waits for published
 * transactions that are visible already, by the lock that each has on its xid.
 * These are past anything that could make them wait for the claim.  Transactions
 * in progress do not matter: nothing of theirs has been seen.  That includes one
 * that waits for a synchronous standby.  delay_wait() waits in the same way
 * (wait.c).
 *
 * The row's own xmin would not do: a subtransaction's xid has no lock any more,
 * and a task can also be kept, or resumed, without being written.
 *
 * Run by backends and executors.  Mostly nothing is published, and all this is
 * one read.  Steps N1 to N4 of the model in test/model.
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

typedef struct Ending
{
	pg_atomic_uint32 n;			/* so many are published */
	pg_atomic_uint32 xids[FLEXIBLE_ARRAY_MEMBER];	/* by dw_my_proc() - 1 */
} Ending;

static Ending *ending = NULL;
static bool published = false;

Size
dw_ending_size(void)
{
	return add_size(offsetof(Ending, xids), mul_size(MaxBackends, sizeof(pg_atomic_uint32)));
}

void
dw_ending_attach(void)
{
	bool		found;

	ending = ShmemInitStruct("delay_wheel ending transactions", dw_ending_size(), &found);
	if (found)
		return;
	pg_atomic_init_u32(&ending->n, 0);
	for (int i = 0; i < MaxBackends; i++)
		pg_atomic_init_u32(&ending->xids[i], InvalidTransactionId);
}

/*
 * The transaction is about to commit, and there is something that others must
 * not miss; to be called before anybody can see that it has.  One at a time.
 */
void
dw_ending_publish(TransactionId xid)
{
	Assert(!published);
	pg_atomic_write_u32(&ending->xids[dw_my_proc() - 1], xid);
	/* full barrier */
	pg_atomic_fetch_add_u32(&ending->n, 1);
	published = true;
}

/*
 * Its locks are gone, or it is undone; if none was published, nothing happens.
 */
void
dw_ending_withdraw(void)
{
	if (!published)
		return;
	pg_atomic_write_u32(&ending->xids[dw_my_proc() - 1], InvalidTransactionId);
	/* full barrier: a process that does not find us any more finds what we told */
	pg_atomic_fetch_sub_u32(&ending->n, 1);
	published = false;
}

/*
 * When this returns, the transactions whose changes the caller has seen have
 * told all they did: catalogs are looked at anew, and so can waiters' slots be.
 */
void
dw_ending_wait(void)
{
	/* a transaction that is visible had published before, see ProcArrayLock */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&ending->n) > 0)
	{
		pg_read_barrier();
		for (int i = 0; i < MaxBackends; i++)
		{
			TransactionId xid = pg_atomic_read_u32(&ending->xids[i]);

			/* our own is in progress, too */
			if (TransactionIdIsValid(xid) && !TransactionIdIsInProgress(xid))
				XactLockTableWait(xid, NULL, NULL, XLTW_None);
		}
	}
	/* the next one looks without a lock whether there is any news */
	pg_memory_barrier();
	AcceptInvalidationMessages();
}
