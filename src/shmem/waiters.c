/*-------------------------------------------------------------------------
 *
 * waiters.c
 *	  Slots of sessions that wait in delay_wait().
 *
 * Run by these sessions, and by all who end tasks.  A slot names a task and is told its
 * outcome by atomics only, so that commit callbacks can do it.  The session looks for
 * itself, too, when tasks may have ended that nobody told of.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/shmem.h"
#include "storage/spin.h"

#include "../base/compat.h"
#include "outcome.h"
#include "shared.h"
#include "waiters.h"

/* By dw_my_proc() - 1. */
static DwWaiter *slots = NULL;

Size
dw_wait_size(void)
{
	return mul_size(MaxBackends, sizeof(DwWaiter));
}

void
dw_wait_attach(void)
{
	bool		found;

	slots = ShmemInitStruct("delay_wheel waiters", dw_wait_size(), &found);
	if (found)
		return;
	memset(slots, 0, dw_wait_size());
	for (int i = 0; i < MaxBackends; i++)
		SpinLockInit(&slots[i].lock);
}

static void
wake(int slot)
{
	SetLatch(dw_proc_latch(slot + 1));
}

/* Who waits has said so before he looked at the rows. */
static bool
anybody_waits(DwDatabase *db)
{
	pg_memory_barrier();
	return pg_atomic_read_u32(&db->waiters) > 0;
}

void
dw_tell_waiters(DwDatabase *db, int64 id, DwOutcome outcome)
{
	if (!anybody_waits(db))
		return;
	for (int i = 0; i < MaxBackends; i++)
	{
		DwWaiter	   *slot = &slots[i];

		if (slot->database != db->oid || slot->id != id)
			continue;
		/* still? */
		SpinLockAcquire(&slot->lock);
		if (slot->database == db->oid && slot->id == id)
			slot->outcome = outcome;
		SpinLockRelease(&slot->lock);
	}
}

void
dw_let_waiters_go(DwDatabase *db, int64 id)
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

void
dw_make_waiters_look(DwDatabase *db)
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

DwWaiter *
dw_my_waiter(void)
{
	return &slots[dw_my_proc() - 1];
}

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
	/* full barrier, before the row is looked for */
	pg_atomic_fetch_add_u32(&db->waiters, 1);
}

void
dw_wait_end(int code, Datum db)
{
	DwWaiter	   *slot = dw_my_waiter();

	SpinLockAcquire(&slot->lock);
	slot->database = InvalidOid;
	SpinLockRelease(&slot->lock);
	pg_atomic_fetch_sub_u32(&((DwDatabase *) DatumGetPointer(db))->waiters, 1);
}

/* What the slot says; *look is whether to look at the row. */
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
