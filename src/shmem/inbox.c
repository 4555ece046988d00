/*-------------------------------------------------------------------------
 *
 * inbox.c
 *	  The inbox of a database: hints by which sessions tell the timer of tasks.
 *
 * Run by sessions, in commit callbacks: dw_inbox_push() never fails, waits for long or
 * allocates.  The timer takes the hints out.  delay_wheel.inbox_size is their number.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/shmem.h"

#include "../base/settings.h"
#include "inbox.h"

/* Bytes of an inbox. */
Size
dw_inbox_bytes(void)
{
	return MAXALIGN(add_size(offsetof(DwInbox, hints), mul_size(dw_inbox_size, sizeof(DwHint))));
}

/* Makes the inbox empty. */
void
dw_inbox_init(DwInbox *inbox)
{
	SpinLockInit(&inbox->lock);
	inbox->head = inbox->count = 0;
}

/*
 * Puts a hint into the inbox; false if the inbox is full.
 *
 * *crowded is set if the inbox is at least half full; then the caller wakes the timer
 * at once, whatever the due time.  Otherwise *crowded is left as it is.
 */
bool
dw_inbox_push(DwInbox *inbox, const DwHint *hint, bool *crowded)
{
	bool		pushed = false;

	SpinLockAcquire(&inbox->lock);
	if (inbox->count < (uint32) dw_inbox_size)
	{
		inbox->hints[(inbox->head + inbox->count) % dw_inbox_size] = *hint;
		inbox->count++;
		pushed = true;
	}
	if (inbox->count >= (uint32) dw_inbox_size / 2)
		*crowded = true;
	SpinLockRelease(&inbox->lock);
	return pushed;
}

/*
 * Takes up to max hints out of the inbox, and returns their number.  Called by the
 * timer.
 *
 * The spinlock is released after each 8 hints, so that committing sessions do not spin
 * for long.
 */
uint32
dw_inbox_drain(DwInbox *inbox, DwHint *hints, uint32 max)
{
	uint32		n = 0;
	bool		empty = false;

	while (n < max && !empty)
	{
		uint32		stop = Min(max, n + 8);

		SpinLockAcquire(&inbox->lock);
		while (n < stop && inbox->count > 0)
		{
			hints[n++] = inbox->hints[inbox->head];
			inbox->head = (inbox->head + 1) % dw_inbox_size;
			inbox->count--;
		}
		empty = inbox->count == 0;
		SpinLockRelease(&inbox->lock);
	}
	return n;
}

/* True if the inbox has no hint. */
bool
dw_inbox_is_empty(DwInbox *inbox)
{
	bool		empty;

	SpinLockAcquire(&inbox->lock);
	empty = inbox->count == 0;
	SpinLockRelease(&inbox->lock);
	return empty;
}
