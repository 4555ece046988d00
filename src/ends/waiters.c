/*-------------------------------------------------------------------------
 *
 * waiters.c
 *	  Slots of sessions that wait in delay_wait().
 *
 * Run by these sessions, and by all processes that end tasks.  Each process has one slot, which
 * names the task that it waits for.  A process that ends a task writes the outcome into the slots
 * that name the task.  Later, when its locks are released, it allows these sessions to return.
 * Commit callbacks do this: they take only spinlocks, allocate nothing, and cannot fail.
 *
 * A waiting session also reads the task's row on request, and once a minute, since no process
 * reports some ends (for example by logical replication).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/shmem.h"
#include "storage/spin.h"

#include "../base/compat.h"
#include "ends.h"

/* One slot for each process; its index is dw_my_proc() - 1. */
static DwWaiter *slots = NULL;

/* Requests shared memory for the slots. */
static void
request_slots(void)
{
	ShmemRequestStruct(.name = "delay_wheel waiters",
					   .size = mul_size(MaxBackends, sizeof(DwWaiter)),
					   .ptr = (void **) &slots);
}

/* Initializes the slots.  Called once for each shared memory. */
static void
init_slots(void)
{
	memset(slots, 0, mul_size(MaxBackends, sizeof(DwWaiter)));
	for (int i = 0; i < MaxBackends; i++)
		SpinLockInit(&slots[i].lock);
}

/* Sets the latch of the process with this slot. */
static void
wake(int slot)
{
	SetLatch(dw_proc_latch(slot + 1));
}

/*
 * Returns true if any session waits in this database.  A session raises db->waiters before it reads
 * the row, so this function sees each session that found the task pending.
 */
static bool
anybody_waits(DwDatabase *db)
{
	pg_memory_barrier();
	return pg_atomic_read_u32(&db->waiters) > 0;
}

/*
 * Writes the outcome of a task into the slots that wait for it.  The sessions wait until
 * let_waiters_go() allows them to return.  For commit callbacks.
 */
static void
tell_end(DwDatabase *db, int64 id, int outcome)
{
	if (!anybody_waits(db))
		return;
	for (int i = 0; i < MaxBackends; i++)
	{
		DwWaiter	   *slot = &slots[i];

		if (slot->database != db->oid || slot->id != id)
			continue;
		/* check again under the lock */
		SpinLockAcquire(&slot->lock);
		if (slot->database == db->oid && slot->id == id)
			slot->outcome = outcome;
		SpinLockRelease(&slot->lock);
	}
}

/*
 * Allows sessions that have the outcome of this task to return, since the transaction that ended it
 * has released its locks.  For commit callbacks.
 */
static void
let_waiters_go(DwDatabase *db, int64 id)
{
	if (!anybody_waits(db))
		return;
	for (int i = 0; i < MaxBackends; i++)
	{
		DwWaiter	   *slot = &slots[i];
		bool		let_go = false;

		if (slot->database != db->oid || slot->id != id)
			continue;
		SpinLockAcquire(&slot->lock);
		if (slot->database == db->oid && slot->id == id && slot->outcome != DW_NOT_ENDED)
			let_go = slot->let_go = true;
		SpinLockRelease(&slot->lock);
		if (let_go)
			wake(i);
	}
}

/*
 * Makes all waiting sessions of the database read their tasks' rows, since a change may concern
 * many of these tasks.  For commit callbacks.
 */
static void
make_waiters_look(DwDatabase *db)
{
	if (!anybody_waits(db))
		return;
	for (int i = 0; i < MaxBackends; i++)
	{
		DwWaiter	   *slot = &slots[i];

		if (slot->database != db->oid)
			continue;
		SpinLockAcquire(&slot->lock);
		slot->look = true;
		SpinLockRelease(&slot->lock);
		wake(i);
	}
}

/* Returns the slot of this process. */
DwWaiter *
dw_my_waiter(void)
{
	return &slots[dw_my_proc() - 1];
}

/* Fills in the slot: this session begins to wait for the task. */
void
dw_wait_begin(DwDatabase *db, int64 id)
{
	DwWaiter	   *slot = dw_my_waiter();

	SpinLockAcquire(&slot->lock);
	slot->database = db->oid;
	slot->id = id;
	slot->outcome = DW_NOT_ENDED;
	slot->let_go = slot->look = false;
	SpinLockRelease(&slot->lock);
	/* a full barrier, so that the slot is written before the row is read */
	pg_atomic_fetch_add_u32(&db->waiters, 1);
}

/* Clears the slot.  Called directly, and as an exit callback.  db: a pointer to the DwDatabase. */
void
dw_wait_end(int code, Datum db)
{
	DwWaiter	   *slot = dw_my_waiter();

	SpinLockAcquire(&slot->lock);
	slot->database = InvalidOid;
	SpinLockRelease(&slot->lock);
	pg_atomic_fetch_sub_u32(&((DwDatabase *) DatumGetPointer(db))->waiters, 1);
}

/*
 * Returns the outcome in the slot.  Sets *look to true if the session must read the row, and clears
 * this request in the slot.
 */
DwOutcome
dw_wait_read(bool *look)
{
	DwWaiter	   *slot = dw_my_waiter();
	DwOutcome	outcome;

	SpinLockAcquire(&slot->lock);
	outcome = slot->outcome;
	*look = slot->look;
	slot->look = false;
	SpinLockRelease(&slot->lock);
	return outcome;
}

/*---- The wing ----*/

const DwWing dw_ends_wing = {
	.request_memory = request_slots,
	.memory_is_ready = init_slots,
	.task_ended = dw_ends_follow,
	.end_committed = tell_end,
	.end_visible = let_waiters_go,
	.ends_in_doubt = make_waiters_look,
	.outcome_of = dw_outcome_if_ended
};
