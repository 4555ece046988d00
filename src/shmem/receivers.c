/*-------------------------------------------------------------------------
 *
 * receivers.c
 *	  Sessions that receive messages, and sessions that wait for a message.
 *
 * Run by sessions that receive or wait, and by the timer and sessions that wake a waiting session.
 * Sessions that find a row locked also check here whether the message was received.  Each process
 * has one place in the array.
 *
 * A session that receives publishes its transaction before it deletes the first row.  For other
 * sessions, received messages are running, like a task that an executor has claimed.  No process
 * waits for the end of a receiver's transaction, since it may be open for a long time.
 *
 * A session can wait for a message of several queues.  DwQueue.waiting counts the waiting sessions.
 * A session looks for a message and registers under the ready lock.  Messages become ready under
 * the same lock, so no wake-up is lost.  One message wakes one session.  If more messages are left,
 * the session that takes a message wakes the next session.  If the woken session does not look
 * within DW_WAKE_AGAIN_US, the timer wakes another session, since the woken session may be gone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/subtrans.h"
#include "access/transam.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "queue_limits.h"

typedef struct Receiver
{
	/* the top-level transaction that has received messages; else InvalidTransactionId */
	pg_atomic_uint32 xid;
	/* data of this transaction; stored before its xid */
	Oid			served;			/* database of the transaction */
	pid_t		pid;
	TimestampTz since;			/* when the transaction first received a message */

	/* ready lock of the database */
	Oid			database;		/* database of the awaited queues, or InvalidOid */
	int16		queues[DW_MAX_AWAITED];
	int16		nqueues;
	bool		woken;			/* the process was woken, and has not looked for a message since */
	bool		end_asked;		/* dw_await_end() was called for this wait */
	pid_t		waiting_pid;	/* the waiting process */
	uint32		counted;		/* bit i is set if DwQueue.waiting of queues[i] counts this
								 * process */
} Receiver;

typedef struct Receivers
{
	pg_atomic_uint32 n;			/* number of published transactions */
	int			next;			/* index at which the search for a session to wake begins; a hint */
	Receiver	places[FLEXIBLE_ARRAY_MEMBER];	/* index: dw_my_proc() - 1 */
} Receivers;

static Receivers *receivers = NULL;

/* True if this process has published its transaction. */
static bool published = false;

static Size
receivers_size(void)
{
	return add_size(offsetof(Receivers, places), mul_size(MaxBackends, sizeof(Receiver)));
}

void
dw_receivers_request(void)
{
	ShmemRequestStruct(.name = "delay_wheel receivers",
					   .size = receivers_size(),
					   .ptr = (void **) &receivers);
}

void
dw_receivers_init(void)
{
	memset(receivers, 0, receivers_size());
	pg_atomic_init_u32(&receivers->n, 0);
	for (int i = 0; i < MaxBackends; i++)
		pg_atomic_init_u32(&receivers->places[i].xid, InvalidTransactionId);
}

/*---- Transactions that have received messages ----*/

/* Publishes this top-level transaction, which is about to delete the row of a message. */
void
dw_receiver_publish(TransactionId xid)
{
	Receiver   *mine = &receivers->places[dw_my_proc() - 1];

	if (published)
		return;
	mine->served = MyDatabaseId;
	mine->pid = MyProcPid;
	mine->since = dw_now();
	pg_write_barrier();
	pg_atomic_write_u32(&mine->xid, xid);
	/* full barrier */
	pg_atomic_fetch_add_u32(&receivers->n, 1);
	published = true;
}

/*
 * Ends the publication of this process's transaction, if it is published.  Callbacks call this at
 * the end of the transaction.
 */
void
dw_receiver_withdraw(void)
{
	if (!published)
		return;
	pg_atomic_write_u32(&receivers->places[dw_my_proc() - 1].xid, InvalidTransactionId);
	pg_atomic_fetch_sub_u32(&receivers->n, 1);
	published = false;
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
	if (pg_atomic_read_u32(&receivers->n) == 0 ||
		TransactionIdPrecedes(xid, TransactionXmin))
		return false;
	top = SubTransGetTopmostTransaction(xid);
	for (int i = 0; i < MaxBackends; i++)
		if (TransactionIdEquals(pg_atomic_read_u32(&receivers->places[i].xid), top))
			return true;
	return false;
}

/* Returns true if the place has a published transaction of the database. */
static bool
receives_in(Receiver *place, const DwDatabase *db)
{
	if (pg_atomic_read_u32(&place->xid) == InvalidTransactionId)
		return false;
	pg_read_barrier();
	return place->served == db->oid;
}

/*
 * Returns when the oldest published transaction of the database received its first message, or
 * DW_NEVER if none is published.
 */
TimestampTz
dw_receivers_oldest(DwDatabase *db)
{
	TimestampTz oldest = DW_NEVER;

	if (pg_atomic_read_u32(&receivers->n) == 0)
		return DW_NEVER;
	for (int i = 0; i < MaxBackends; i++)
		if (receives_in(&receivers->places[i], db))
			oldest = Min(oldest, receivers->places[i].since);
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
		Receiver   *place = &receivers->places[i];

		if (receives_in(place, db) && place->pid == pid && place->since <= by)
		{
			/* the session may take some time to end, and later calls must not terminate it again */
			place->since = DW_NEVER;
			return kill(pid, SIGTERM) == 0;
		}
	}
	return false;
}

/*---- Waiting ----*/

/*
 * Registers this session as waiting for a message of queues of the database.  A queue may have no
 * place yet.  When the queue gets a place, all waiting sessions are woken.  Needs the ready lock.
 */
void
dw_await_enter(DwDatabase *db, const int16 *queues, int n)
{
	Receiver   *mine = &receivers->places[dw_my_proc() - 1];

	Assert(mine->database == InvalidOid && n <= DW_MAX_AWAITED);
	mine->database = db->oid;
	mine->nqueues = n;
	mine->woken = false;
	mine->end_asked = false;
	mine->waiting_pid = MyProcPid;
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
	Receiver   *mine = &receivers->places[dw_my_proc() - 1];

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

/* Returns true if the process of this place waits for a message of the queue, and was not woken. */
static bool
can_be_woken(const Receiver *place, const DwQueue *queue)
{
	if (place->database != queue->database || place->woken)
		return false;
	for (int i = 0; i < place->nqueues; i++)
		if (place->queues[i] == queue->id)
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
	int			first = receivers->next;

	if (queue->waiting == 0)
		return false;
	for (int i = 0; i < MaxBackends; i++)
	{
		int			n = (first + i) % MaxBackends;
		Receiver   *place = &receivers->places[n];

		if (!can_be_woken(place, queue))
			continue;
		place->woken = true;
		queue->woken_at = dw_now();
		receivers->next = (n + 1) % MaxBackends;
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
		Receiver   *place = &receivers->places[i];

		if (place->database != db->oid || place->waiting_pid != pid)
			continue;
		place->end_asked = true;
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
		if (receivers->places[i].database == db->oid)
		{
			receivers->places[i].woken = true;
			SetLatch(dw_proc_latch(i + 1));
		}
}
