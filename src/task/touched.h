/*-------------------------------------------------------------------------
 *
 * touched.h
 *	  What the current transaction did to tasks, and who hears of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TOUCHED_H
#define DW_TOUCHED_H

#include "postgres.h"

#include "access/htup.h"
#include "commands/trigger.h"

#include "../shmem/shared.h"
#include "../shmem/waiters.h"

extern void dw_touched_install(void);

/* This transaction wrote the row: tell the timer if it commits. */
extern void dw_touch_written(const DwHint *hint);

/* It locked the row as it was: tell the timer if it is rolled back. */
extern void dw_touch_locked(const DwHint *hint);

/* It ended a task: tell who waits for that, if it commits. */
extern void dw_touch_ended(int64 id, DwOutcome outcome);

/* It locked the row and leaves it: tell the timer at the end, if it is due. */
extern void dw_touch_kept(const DwHint *hint);

/* Whatever becomes of this transaction: look at the lane from due on. */
extern void dw_touch_lane(DwLaneRef lane, TimestampTz due);

/* Plain SQL may have written rows: look at everything afterwards. */
extern void dw_touch_all(void);

/* Queues, pauses or marks were changed: tell timer and executors, if it commits. */
extern void dw_touch_control(void);
/* Has this transaction done so, maybe in a subtransaction that was undone? */
extern bool dw_control_is_touched(void);

/* Rows of another origin were written; or those that are left are armed. */
extern void dw_touch_unarmed(bool left);

/* Roles were dropped: tell all timers, if it commits. */
extern void dw_touch_roles(void);

/* The extension was created: start a timer, if it commits. */
extern void dw_touch_extension(void);

/* This transaction ends a prepared one that left rows for that. */
extern void dw_touch_prepared(void);

/* The name under which this transaction is being prepared. */
extern void dw_touched_prepare_as(const char *gid);

/* Tells the timer at once; for callbacks and for executors. */
extern void dw_deliver(DwDatabase *db, const DwHint *hint);

/*
 * A row of task or failed_task is about to be written: notes it if that is
 * done by logical replication.  False if the row must not be written.
 */
extern bool dw_accept_replicated(TriggerData *trigger, HeapTuple row);
extern bool dw_lane_find_or_enter(Oid owner, int16 queue, int16 priority, DwLaneRef *lane);
extern const DwLaneRef dw_no_lane;
extern DwLaneRef dw_require_lane(Oid owner, int16 queue, int16 priority);
extern DwLaneRef dw_lane_if_any(Oid owner, int16 queue, int16 priority);

#endif							/* DW_TOUCHED_H */
