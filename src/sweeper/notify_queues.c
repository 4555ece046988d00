/*-------------------------------------------------------------------------
 *
 * notify_queues.c
 *	  The sweeper notifies channels of queues.
 *
 * Run by the sweeper.  An external queue may have a channel, for receivers that LISTEN in
 * place of calling delay_await().  The timer flags the queue when a message can be taken,
 * and asks for this job; a notification needs a transaction that commits, which a timer
 * does not have.  Notifications are coalesced: a queue has one in PAUSE_US.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/async.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../shmem/queue_limits.h"
#include "../shmem/shared.h"
#include "../task/queues.h"
#include "notify_queues.h"
#include "slice.h"

/* Time between two notifications, in us. */
#define PAUSE_US	(100 * 1000)
/* Time before the next try after an error, in us. */
#define RETRY_US	USECS_PER_SEC

/* True if the timer has flagged the queue; the flag is cleared. */
static bool
take_flag(DwDatabase *db, int16 queue)
{
	DwQueue    *place;
	bool		asked = false;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	place = dw_queue_place_of(db, queue);
	if (place != NULL)
	{
		asked = place->notify_asked;
		place->notify_asked = false;
	}
	LWLockRelease(dw_ready_lock(db));
	return asked;
}

/* Notifies the channels of all queues that are flagged, in the transaction of dw_slice_do(). */
static bool
notify_flagged(DwDatabase *db, const DwCatalog *cat, void *state)
{
	const DwQueueTables *tables;

	PushActiveSnapshot(GetTransactionSnapshot());
	tables = dw_queue_tables_now(db);
	for (int i = 0; i < tables->nqueues; i++)
	{
		const DwDeclaredQueue *queue = &tables->queues[i];

		if (take_flag(db, queue->id) && queue->notify_channel != NULL)
			Async_Notify(queue->notify_channel, queue->name);
	}
	PopActiveSnapshot();
	return true;
}

/*
 * Notifies the channels of queues with messages that can be received, in a transaction of
 * its own.  Returns DW_NEVER: the timer asks again.  After an error, returns when to try
 * again.
 */
TimestampTz
dw_queues_notify(DwDatabase *db, bool *more)
{
	*more = false;
	if (!dw_slice_do(db, notify_flagged, NULL))
		return dw_now() + RETRY_US;
	dw_job_put_off(&db->sweeper_news, DW_JOB_NOTIFY, dw_now() + PAUSE_US);
	return DW_NEVER;
}
