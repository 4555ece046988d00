/*-------------------------------------------------------------------------
 *
 * published.c
 *	  What each process publishes: its transaction, and the queues for which it waits.
 *
 * Run by all processes.  Each process writes its element of an array, and other processes read all
 * elements.
 *
 * Committing: touched.c publishes a transaction that has touched tasks and changed catalogs, before
 * it becomes visible, and until its locks are released.  COMMIT PREPARED publishes a prepared
 * transaction (ddl.c).  After a process has claimed a task (claim.c, run_now.c), it waits for
 * published transactions that are already visible.  These cannot wait for the claim any more, so no
 * deadlock is possible.  A transaction that waits for a synchronous standby counts as in progress.
 * delay_wait() waits in the same way (wait.c).  README.md describes the problem.  The row's xmin
 * cannot replace this list.  If xmin is the xid of a subtransaction, it is not locked any more.  A
 * transaction can also keep or resume a task without a new row version.
 *
 * Elsewhere: on Citus, a transaction is visible before other nodes have committed it.  So a process
 * that has claimed a task waits for the transaction that wrote the task's row.  Before it ends
 * batches, the sweeper waits for all these transactions, since one of them may have ended the last
 * member.  Nobody else waits: another node may not answer for a long time.
 *
 * Receiving: a session publishes its transaction before it deletes the first row of a message.  For
 * other sessions, received messages are running, like a task that an executor has claimed.  No
 * process waits for the end of a receiver's transaction, since it may be open for a long time.
 *
 * Writing: a transaction stores the owner of its tasks for the marks of delay_cancel_all()
 * (sweep.c, README.md).  Most transactions write tasks of only one role.
 *
 * Waiting: a session can wait for a message of several queues.  DwQueue.waiting counts the waiting
 * sessions.  A session looks for a message and registers under the ready lock.  Messages become
 * ready under the same lock, so no wake-up is lost.  One message wakes one session.  If more
 * messages are left, the session that takes a message wakes the next session.  If the woken session
 * does not look within DW_WAKE_AGAIN_US, the timer wakes another session, since the woken session
 * may be gone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/subtrans.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "executors.h"
#include "queue_limits.h"

/* What a process publishes.  The index is dw_my_proc() - 1. */
typedef struct Process
{
	/* the top-level transaction, or InvalidTransactionId */
	pg_atomic_uint32 xids[DW_PUBLISHED];

	pid_t		pid;			/* of a process that receives or waits */

	/* stored before the xid, like "pid" */
	Oid			served;			/* database of the transaction */
	TransactionId last;			/* last xid of the transaction's subtransactions, or its own
								 * (DW_ELSEWHERE) */
	TimestampTz since;			/* when a receiving transaction first received a message */

	/*
	 * Upper half: a local transaction id.  Lower half: the owner of the transaction's tasks;
	 * InvalidOid: any owner.  Here the index is dw_vxid_number() - 1.  Not cleared at the end of
	 * the transaction: the id differs from the next transaction's id.
	 */
	pg_atomic_uint64 writes;

	/* ready lock of the database */
	Oid			database;		/* database of the awaited queues, or InvalidOid */
	int16		queues[DW_MAX_AWAITED];
	int16		nqueues;
	bool		woken;			/* the process was woken, and has not looked for a message since */
	bool		end_asked;		/* dw_await_end() was called for this wait */
	uint32		counted;		/* bit i is set if DwQueue.waiting of queues[i] counts this
								 * process */
} Process;

typedef struct Published
{
	pg_atomic_uint32 n[DW_PUBLISHED];	/* number of published transactions */
	int			next;			/* index at which the search for a session to wake begins; a hint */
	Process		processes[FLEXIBLE_ARRAY_MEMBER];	/* MaxBackends */
} Published;

static Published *published = NULL;

/* True if this process has published its transaction. */
static bool is_published[DW_PUBLISHED];

static ExecutorStart_hook_type prev_executor_start = NULL;

static Size
published_size(void)
{
	return add_size(offsetof(Published, processes), mul_size(MaxBackends, sizeof(Process)));
}

void
dw_published_request(void)
{
	ShmemRequestStruct(.name = "delay_wheel transactions",
					   .size = published_size(),
					   .ptr = (void **) &published);
}

/* Returns a value for Process.writes. */
static uint64
writer(LocalTransactionId lxid, Oid owner)
{
	return (uint64) lxid << 32 | owner;
}

void
dw_published_init(void)
{
	memset(published, 0, published_size());
	for (int as = 0; as < DW_PUBLISHED; as++)
	{
		pg_atomic_init_u32(&published->n[as], 0);
		for (int i = 0; i < MaxBackends; i++)
			pg_atomic_init_u32(&published->processes[i].xids[as], InvalidTransactionId);
	}
	for (int i = 0; i < MaxBackends; i++)
		pg_atomic_init_u64(&published->processes[i].writes,
						   writer(InvalidLocalTransactionId, InvalidOid));
}

/* Returns the element of this process. */
static Process *
my_process(void)
{
	return &published->processes[dw_my_proc() - 1];
}

/*---- Transactions that are visible but hold locks, or that have received messages ----*/

/*
 * Publishes a top-level transaction: before its commit is visible (DW_COMMITTING, step N1, and
 * DW_ELSEWHERE), or before it deletes the row of a message (DW_RECEIVING).  A process publishes one
 * transaction of each kind at a time.
 */
void
dw_xid_publish(DwPublished as, TransactionId xid)
{
	Process    *mine = my_process();

	Assert(as == DW_RECEIVING || !is_published[as]);
	if (is_published[as])
		return;
	mine->served = MyDatabaseId;
	if (as == DW_RECEIVING)
	{
		mine->pid = MyProcPid;
		mine->since = dw_now();
	}
	if (as == DW_ELSEWHERE)
	{
		TransactionId *children;
		int			n = xactGetCommittedChildren(&children);

		mine->last = n > 0 ? children[n - 1] : xid;
	}
	pg_write_barrier();
	pg_atomic_write_u32(&mine->xids[as], xid);
	/* full barrier */
	pg_atomic_fetch_add_u32(&published->n[as], 1);
	is_published[as] = true;
}

/*
 * Ends the publication, if this process has published a transaction: after it has released its
 * locks, or at its end.  Called in callbacks.
 */
void
dw_xid_withdraw(DwPublished as)
{
	if (!is_published[as])
		return;
	pg_atomic_write_u32(&my_process()->xids[as], InvalidTransactionId);
	/* full barrier: a process that does not find our xid will find our invalidations */
	pg_atomic_fetch_sub_u32(&published->n[as], 1);
	is_published[as] = false;
}

/*
 * Waits for the locks of transactions that are published in this way, and that the caller has seen.
 * writer: InvalidTransactionId, or an xid (DW_ELSEWHERE): waits only for its transaction.  The xids
 * between those of a transaction and its last subtransaction stand for this transaction, since
 * pg_subtrans may not have them any more.
 */
static void
wait_for_visible(DwPublished as, TransactionId writer)
{
	/* each visible transaction was published before it became visible, see ProcArrayLock */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&published->n[as]) == 0)
		return;
	pg_read_barrier();
	for (int i = 0; i < MaxBackends; i++)
	{
		Process    *process = &published->processes[i];
		TransactionId xid = pg_atomic_read_u32(&process->xids[as]);

		pg_read_barrier();
		if (!TransactionIdIsValid(xid) || (as == DW_ELSEWHERE && process->served != MyDatabaseId))
			continue;
		if (TransactionIdIsValid(writer) &&
			(TransactionIdPrecedes(writer, xid) || TransactionIdFollows(writer, process->last)))
			continue;
		/* our own transaction is in progress, so we do not wait for it */
		if (!TransactionIdIsInProgress(xid))
			XactLockTableWait(xid, NULL, NULL, XLTW_None);
	}
}

/*
 * Waits until all transactions that the caller has seen have finished their commits, and then
 * processes their catalog invalidations.  After the call, the slots of sessions in delay_wait() are
 * up to date, too.  Usually no transaction is published, and this costs one atomic read.
 *
 * writer: the xmin of a row that the caller has claimed, or InvalidTransactionId.  This transaction
 * has then committed on other nodes, too.
 */
void
dw_committing_wait(TransactionId writer)
{
	wait_for_visible(DW_COMMITTING, InvalidTransactionId);
	if (TransactionIdIsValid(writer))
		wait_for_visible(DW_ELSEWHERE, writer);
	/* AcceptInvalidationMessages() checks for new messages without a lock */
	pg_memory_barrier();
	AcceptInvalidationMessages();
}

/*
 * Waits until all transactions of this database that the caller has seen have committed on other
 * nodes.
 */
void
dw_elsewhere_wait(void)
{
	wait_for_visible(DW_ELSEWHERE, InvalidTransactionId);
}

/*
 * Returns true if the top-level transaction of this transaction has received messages.  The
 * transaction is in progress, or was in progress a moment ago.
 */
bool
dw_xid_receives(TransactionId xid)
{
	TransactionId top;

	/* the xid was published before it was in a row that the caller can read */
	pg_read_barrier();
	if (pg_atomic_read_u32(&published->n[DW_RECEIVING]) == 0 ||
		TransactionIdPrecedes(xid, TransactionXmin))
		return false;
	top = SubTransGetTopmostTransaction(xid);
	for (int i = 0; i < MaxBackends; i++)
		if (TransactionIdEquals(pg_atomic_read_u32(&published->processes[i].xids[DW_RECEIVING]), top))
			return true;
	return false;
}

/* Returns true if the process has a published transaction of the database. */
static bool
receives_in(Process *process, const DwDatabase *db)
{
	if (pg_atomic_read_u32(&process->xids[DW_RECEIVING]) == InvalidTransactionId)
		return false;
	pg_read_barrier();
	return process->served == db->oid;
}

/*
 * Returns when the oldest published transaction of the database received its first message, or
 * DW_NEVER if none is published.
 */
TimestampTz
dw_receivers_oldest(DwDatabase *db)
{
	TimestampTz oldest = DW_NEVER;

	if (pg_atomic_read_u32(&published->n[DW_RECEIVING]) == 0)
		return DW_NEVER;
	for (int i = 0; i < MaxBackends; i++)
		if (receives_in(&published->processes[i], db))
			oldest = Min(oldest, published->processes[i].since);
	return oldest;
}

/*
 * Terminates the session with this pid if its transaction in this database received its first
 * message at this time or before.  Returns true if the session was terminated.
 */
bool
dw_receiver_terminate(DwDatabase *db, pid_t pid, TimestampTz by)
{
	for (int i = 0; i < MaxBackends; i++)
	{
		Process    *process = &published->processes[i];

		if (receives_in(process, db) && process->pid == pid && process->since <= by)
		{
			/* the session may take some time to end, and later calls must not terminate it again */
			process->since = DW_NEVER;
			return kill(pid, SIGTERM) == 0;
		}
	}
	return false;
}

/*---- Transactions that may still commit tasks, and the owners of these tasks ----*/

/*
 * Notes that this transaction may write tasks of the role, or of any role if "owner" is InvalidOid.
 *
 * The caller has locked the task table for writing.  The caller must call this before it draws a
 * number for a task, or reads the marks for a task that is moved, tried again or put back.
 */
void
dw_writes_for(Oid owner)
{
	VirtualTransactionId me;
	pg_atomic_uint64 *mine;
	uint64		known;

	GET_VXID_FROM_PGPROC(me, *MyProc);
	mine = &published->processes[dw_vxid_number(me) - 1].writes;
	known = pg_atomic_read_u64(mine);
	/* the transaction writes tasks of more than one role, so note "any role" */
	if (known >> 32 == me.localTransactionId && (Oid) known != owner)
		owner = InvalidOid;
	if (known == writer(me.localTransactionId, owner))
		return;
	pg_atomic_write_u64(mine, writer(me.localTransactionId, owner));
	/* this store must come before the caller reads marks or draws a number */
	pg_memory_barrier();
}

/*
 * Called for a transaction that has locked the task table for writing.  Returns true if the
 * transaction may write tasks with ids that it has drawn already.  If true, *owner is the owner of
 * these tasks, or InvalidOid if they may have several or unknown owners.
 */
bool
dw_is_writer(VirtualTransactionId vxid, Oid *owner)
{
	uint64		known;

	*owner = InvalidOid;
	/* a prepared transaction has no process any more */
	if (VirtualTransactionIdIsRecoveredPreparedXact(vxid))
		return true;
	known = pg_atomic_read_u64(&published->processes[dw_vxid_number(vxid) - 1].writes);
	*owner = (Oid) known;
	return known >> 32 == vxid.localTransactionId;
}

/* Returns true for the table delay_wheel_data.task. */
static bool
is_task_table(Relation rel)
{
	return strcmp(RelationGetRelationName(rel), "task") == 0 &&
		RelationGetNamespace(rel) == get_namespace_oid("delay_wheel_data", true);
}

/*
 * ExecutorStart hook: notes that a statement of plain SQL on the task table may write tasks of any
 * role, at its start, after the check of rights.  For COPY and apply workers a row trigger notes
 * the role, a moment after the task's number was drawn.
 */
static void
note_query(QueryDesc *query, int flags)
{
	ListCell   *lc;

	dw_crashes_watch_query();
	if (prev_executor_start)
		prev_executor_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
	foreach(lc, query->estate->es_opened_result_relations)
		if (is_task_table(((ResultRelInfo *) lfirst(lc))->ri_RelationDesc))
			dw_writes_for(InvalidOid);
}

/* Installs the hook.  Called once, by the postmaster. */
void
dw_published_install(void)
{
	prev_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = note_query;
}

/*---- Waiting ----*/

/*
 * Registers this session as waiting for a message of queues of the database.  A queue may have no
 * place yet.  When the queue gets a place, all waiting sessions are woken.  Needs the ready lock.
 */
void
dw_await_enter(DwDatabase *db, const int16 *queues, int n)
{
	Process    *mine = my_process();

	Assert(mine->database == InvalidOid && n <= DW_MAX_AWAITED);
	mine->database = db->oid;
	mine->nqueues = n;
	mine->woken = false;
	mine->end_asked = false;
	mine->pid = MyProcPid;
	mine->counted = 0;
	for (int i = 0; i < n; i++)
	{
		DwQueue    *place = dw_queue_place_of(db, queues[i]);

		mine->queues[i] = queues[i];
		if (place == NULL)
			continue;
		mine->counted |= UINT32_C(1) << i;
		place->waiting++;
	}
	db->awaiting++;
}

/*
 * Ends the wait of this session, if it waits.  Returns true if another session has asked for that.
 * Needs the ready lock.
 */
bool
dw_await_leave(DwDatabase *db)
{
	Process    *mine = my_process();

	if (mine->database == InvalidOid)
		return false;
	mine->database = InvalidOid;
	db->awaiting--;
	for (int i = 0; i < mine->nqueues; i++)
	{
		DwQueue    *place = dw_queue_place_of(db, mine->queues[i]);

		if ((mine->counted & UINT32_C(1) << i) != 0 && place != NULL && place->waiting > 0)
			place->waiting--;
	}
	return mine->end_asked;
}

/* Returns true if the process waits for a message of the queue, and was not woken. */
static bool
can_be_woken(const Process *process, const DwQueue *queue)
{
	if (process->database != queue->database || process->woken)
		return false;
	for (int i = 0; i < process->nqueues; i++)
		if (process->queues[i] == queue->id)
			return true;
	return false;
}

/*
 * Wakes one session that waits for a message of the queue and has not been woken yet.  Returns
 * false if there is none.  Needs the ready lock.
 */
bool
dw_await_wake_one(DwQueue *queue)
{
	int			first = published->next;

	if (queue->waiting == 0)
		return false;
	for (int i = 0; i < MaxBackends; i++)
	{
		int			n = (first + i) % MaxBackends;
		Process    *process = &published->processes[n];

		if (!can_be_woken(process, queue))
			continue;
		process->woken = true;
		queue->woken_at = dw_now();
		published->next = (n + 1) % MaxBackends;
		SetLatch(dw_proc_latch(n + 1));
		return true;
	}
	return false;
}

/*
 * Asks the process to end its wait in this database.  Returns false if it does not wait.  Needs the
 * ready lock.
 */
bool
dw_await_end(DwDatabase *db, pid_t pid)
{
	for (int i = 0; i < MaxBackends; i++)
	{
		Process    *process = &published->processes[i];

		if (process->database != db->oid || process->pid != pid)
			continue;
		process->end_asked = true;
		SetLatch(dw_proc_latch(i + 1));
		return true;
	}
	return false;
}

/* Wakes all sessions that wait in this database, since queues have changed.  Needs the ready lock. */
void
dw_await_wake_all(DwDatabase *db)
{
	for (int i = 0; i < MaxBackends; i++)
		if (published->processes[i].database == db->oid)
		{
			published->processes[i].woken = true;
			SetLatch(dw_proc_latch(i + 1));
		}
}
