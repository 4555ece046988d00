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

/* Would that find a queue known by its id, of a task that is to be put back? */
extern bool dw_queue_may_use(int16 id);

/* The row of a queue, as it is now, or NULL. */
extern HeapTuple dw_queue_row(Relation rel, const char *name);

/* Locks a queue until the end of the transaction; false if it would wait. */
extern LockAcquireResult dw_queue_lock(Oid table, Oid id, LOCKMODE mode, bool wait);

/* Months have 30 days; what is too long is cut. */
extern int64 dw_interval_us(const Interval *interval);

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

/* A task was claimed in spite of a pause, and the claim is undone. */
extern void dw_queue_put_back(DwDatabase *db, const DwEntry *entry);

/*---- Shared memory ----*/

extern void dw_queues_init(void);
extern void dw_queues_leave(Oid database);

/* A lane is entered; under the table lock. */
extern void dw_queue_attach_lane(DwDatabase *db, DwLane *lane);

extern const char *dw_pause_text(DwPause reason);

#endif							/* DW_QUEUES_H */
