/*-------------------------------------------------------------------------
 *
 * queues.h
 *	  Queues: who may use them, and what is common to their tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_QUEUES_H
#define DW_QUEUES_H

#include "postgres.h"

#include "shared.h"

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

/*
 * Finds a queue by name, NULL for the default queue; an error if it does not
 * exist, or the current user may not schedule into it.
 */
extern void dw_queue_find(const char *name, DwQueueForTask *queue);

/*
 * For timers: brings queues and pauses in shared memory up to date, if they
 * were changed.  Returns when it wants to be called again.
 */
extern TimestampTz dw_queues_look(DwDatabase *db, bool changed);

extern void dw_queue_defaults(DwDatabase *db, int16 queue, DwQueueDefaults *defaults);

/*
 * Are the tasks of this owner and queue paused?  As of now, committed pauses
 * of which the timer has not heard yet included.
 */
extern bool dw_is_paused(DwDatabase *db, Oid owner, int16 queue);

#endif							/* DW_QUEUES_H */
