/*-------------------------------------------------------------------------
 *
 * wake_receivers.c
 *	  The timer wakes sessions that wait for a message.
 *
 * Run by the timer, whenever something may have become ready, and when a limit of a queue
 * has ended.  One session is woken for each external queue with a message that can be
 * taken.  That session wakes the next one, when it takes a message and others are left.
 * If it has not looked within DW_WAKE_AGAIN_US, the timer wakes another.  Sessions that
 * listen to a queue's channel are notified by the sweeper, since a timer commits nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/clock.h"
#include "../shmem/queue_limits.h"
#include "../shmem/ready.h"
#include "../shmem/receivers.h"
#include "../shmem/shared.h"
#include "wake_receivers.h"

/* Step Q4 of the model: wakes a session for one queue, see dw_wake_receivers(). */
static TimestampTz
wake_for_queue(DwDatabase *db, DwQueue *queue)
{
	TimestampTz now = dw_now();
	TimestampTz look_again = DW_NEVER;

	/* a time in the future is of a clock that was set back since */
	if (queue->woken_at <= now && now - queue->woken_at < DW_WAKE_AGAIN_US)
		return queue->woken_at + DW_WAKE_AGAIN_US;
	if (dw_ready_has_message(db, queue, &look_again) && dw_await_wake_one(queue))
		look_again = now + DW_WAKE_AGAIN_US;
	return look_again;
}

/*
 * Asks the sweeper to notify the channel of a queue, if something has become ready since it
 * was asked last and can be taken.  Returns when to look again, since a limit ends.
 */
static TimestampTz
notify_for_queue(DwDatabase *db, DwQueue *queue, bool *ask)
{
	TimestampTz look_again = DW_NEVER;

	if (!queue->has_news || !dw_ready_has_message(db, queue, &look_again))
		return look_again;
	queue->has_news = false;
	queue->notify_asked = true;
	*ask = true;
	return DW_NEVER;
}

/*
 * Wakes a session for each external queue with a message that can be taken, and has those
 * notified that have a channel.  Returns when the timer must call it again, unless
 * something becomes ready before.
 */
TimestampTz
dw_wake_receivers(DwDatabase *db)
{
	TimestampTz look_again = DW_NEVER;
	bool		ask = false;

	/* a session that registers after this has looked at what is ready now */
	if (db->awaiting == 0 && db->notifying == 0)
		return DW_NEVER;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (int i = 0; i < db->queue_places; i++)
	{
		DwQueue    *queue = &dw_queues[i];
		TimestampTz wake_at = DW_NEVER;
		TimestampTz notify_at = DW_NEVER;

		if (queue->database != db->oid)
			continue;
		if (queue->waiting > 0)
			wake_at = wake_for_queue(db, queue);
		if (queue->notifies)
			notify_at = notify_for_queue(db, queue, &ask);
		look_again = Min(look_again, Min(wake_at, notify_at));
	}
	LWLockRelease(dw_ready_lock(db));
	if (ask)
		dw_ask_sweeper(db, DW_JOB_NOTIFY, dw_job_soonest(&db->sweeper_news, DW_JOB_NOTIFY));
	return look_again;
}
