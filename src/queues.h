/*-------------------------------------------------------------------------
 *
 * queues.h
 *	  Queues: who may use them, and what is common to their tasks; pauses.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_QUEUES_H
#define DW_QUEUES_H

#include "postgres.h"

#include "access/htup.h"
#include "datatype/timestamp.h"
#include "history.h"
#include "shared.h"
#include "storage/lock.h"
#include "utils/relcache.h"

/* What scheduling needs to know of a queue. */
typedef struct DwQueueForTask
{
	int16		id;
	int16		priority;		/* of tasks that say none */
	int64		spread;			/* due times are spread over so many us */
} DwQueueForTask;

/* What running needs to know of it: what holds for tasks that say nothing. */
typedef struct DwQueueDefaults
{
	int32		timeout;		/* ms, -1: none */
	int16		max_attempts;
	int64		retry_delay;	/* us */
} DwQueueDefaults;

/*---- For backends ----*/

/*
 * Finds a queue by name, NULL for the default queue; an error if it does not
 * exist, or the current user may not schedule into it.  It cannot be dropped
 * before the end of the transaction.
 */
extern void dw_queue_find(const char *name, DwQueueForTask *queue);

/* The same for a queue known by its id. */
extern void dw_queue_require(int16 id);

/*
 * Does the queue exist?  If so, it cannot be dropped before the end of the
 * transaction, which puts a task back into it.
 */
extern bool dw_queue_keep(int16 id);

/*
 * The number of a queue, for those who need no rights on it; an error if it
 * does not exist.
 */
extern int16 dw_queue_named(const char *name);

/* The row of a queue, as it is now, or NULL. */
extern HeapTuple dw_queue_row(Relation rel, const char *name);

/* May the current user schedule into the queue of this row? */
extern bool dw_queue_is_usable(Relation rel, HeapTuple tuple);

/* Locks a queue, or the pause of a role, until the end of the transaction. */
extern LockAcquireResult dw_queue_lock(Oid table, Oid id, LOCKMODE mode, bool wait);

/*---- For timers ----*/

/*
 * Brings queues and pauses in shared memory up to date, if they were changed.
 * Returns when it wants to be called again.
 */
extern TimestampTz dw_queues_look(DwDatabase *db, bool changed);

/*---- For executors ----*/

extern void dw_queue_defaults(DwDatabase *db, int16 queue, DwQueueDefaults *defaults);

/*
 * Are the tasks of this owner and queue paused?  As of now, committed pauses
 * of which the timer has not heard yet included.
 */
extern bool dw_is_paused(DwDatabase *db, Oid owner, int16 queue);

/* What the queue says of the history of its tasks; the database may be NULL. */
extern DwHistoryLevel dw_queue_history(DwDatabase *db, int16 queue);

/* A task was claimed in spite of a pause, and the claim is undone. */
extern void dw_queue_put_back(DwDatabase *db, const DwEntry *entry);

/*---- Shared memory ----*/

extern void dw_queues_init(void);
extern void dw_queues_leave(Oid database);

/* A lane is entered; under the table lock. */
extern void dw_queue_attach_lane(DwDatabase *db, DwLane *lane);

/* For the timer: pauses a lane that it has just entered, if its owner's tasks are paused. */
extern void dw_queues_attach_new_lane(DwDatabase *db, DwLane *lane);

extern const char *dw_pause_text(DwPause reason);

#endif							/* DW_QUEUES_H */
