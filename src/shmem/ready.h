/*-------------------------------------------------------------------------
 *
 * ready.h
 *	  Ready lists: tasks that are due, lane by lane, until an executor takes them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_READY_H
#define DW_READY_H

#include "postgres.h"

#include "../ring/ring.h"
#include "executors.h"
#include "shared.h"

/*
 * Takes the next task of an owner, from its queues in turn; false if there is
 * none that may run now.  The counts of running tasks are raised.  The timer
 * is to look again at *look_again, if that is not DW_NEVER.
 */
extern bool dw_ready_pop(DwDatabase *db, DwOwner *owner, DwEntry *entry, TimestampTz *look_again);

/*
 * Takes another task of the lane of the executor's current one, at a place of
 * the list that it keeps to, if it is due until then, may share a transaction
 * with the one before, and no other lane of the same owner and queue has its
 * turn.
 */
extern bool dw_ready_pop_next(DwDatabase *db, DwExecutor *me, TimestampTz until, DwEntry *entry);

/* May the task that was just taken from the lane begin a batch with the next one? */
extern bool dw_ready_may_batch(const DwLane *lane, const DwEntry *entry);

/*
 * Puts a task back before all others of the lane; false if the pool has no
 * place for it.
 */
extern bool dw_ready_put_back(DwDatabase *db, DwLane *lane, const DwEntry *entry);

/*
 * Takes the whole ready list away, so that it can be worked on without the lock;
 * no executor has its place there any more.
 */
extern DwList dw_ready_take_away(DwDatabase *db, DwLane *lane);

/* Ready lists; caller holds the ready lock exclusively, as for the above. */
extern bool dw_ready_push(DwDatabase *db, DwLane *lane, const DwEntry *entry);
extern void dw_ready_unlist(DwDatabase *db, DwLane *lane);
extern void dw_ready_list(DwDatabase *db, DwLane *lane);

/* The lane was paused, or is not paused any more. */
extern void dw_ready_obey_pause(DwDatabase *db, DwLane *lane);

/* Nothing is ready.  Under the table lock and the ready lock. */
extern void dw_ready_reset(DwDatabase *db);

#endif							/* DW_READY_H */
