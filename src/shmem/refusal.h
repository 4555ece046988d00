/*-------------------------------------------------------------------------
 *
 * refusal.h
 *	  A start of a background worker that was refused, see starts.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_REFUSAL_H
#define DW_REFUSAL_H

#include "postgres.h"

#include "lib/ilist.h"

#include "process.h"

/* What lacks the worker. */
typedef enum DwStart
{
	DW_START_TIMER,				/* a database */
	DW_START_LOOK,				/* a look into a database that has no place */
	DW_START_EXECUTOR,			/* an owner without any executor */
	DW_START_SWEEPER			/* a database that has a timer */
} DwStart;

/* Part of what lacks the worker, and in the queue while that waits.  Starts lock. */
typedef struct DwRefusal
{
	/* set once */
	DwStart		start;
	Oid			database;
	DwProcess  *process;		/* tries the start: launcher or timer */

	dlist_node	link;			/* in the queue; next is NULL, also read without the lock, while it does
								 * not wait */
	int64		since;			/* when it began to wait.  Times are by dw_uptime() */
	int64		retry_at;		/* if it is the first one: when it is tried again */
	int64		pause;			/* before that; 0: none since a worker was free */
	int64		told_at;		/* when the log was last told; 0: never */
	bool		goes_first;		/* see dw_start_owner_first() */
} DwRefusal;

/* Nothing was refused so far. */
static inline void
dw_refusal_init(DwRefusal *refusal, DwStart start, Oid database, DwProcess *process)
{
	memset(refusal, 0, sizeof(DwRefusal));
	refusal->start = start;
	refusal->database = database;
	refusal->process = process;
}

/* True if it waits for a background worker.  Reads without the lock. */
static inline bool
dw_refusal_waits(const DwRefusal *refusal)
{
	return refusal->link.next != NULL;
}

#endif							/* DW_REFUSAL_H */
