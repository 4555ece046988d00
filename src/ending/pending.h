/*-------------------------------------------------------------------------
 *
 * pending.h
 *	  A pending task is taken by a session, and older ones of its key are given up.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PENDING_H
#define DW_PENDING_H

#include "postgres.h"

#include "access/htup.h"
#include "utils/relcache.h"

#include "../rows/task_rows.h"
#include "../shmem/shared.h"

/* What became of an attempt to take a task's row. */
typedef enum DwTaken
{
	DW_TAKEN,					/* its row is deleted, by this transaction */
	DW_RUNNING,					/* an executor has claimed it */
	DW_GONE						/* there is no such task, or not any more */
} DwTaken;

/*
 * For executors, in between: false if the task is superseded.  Else older ones
 * of its key go to the failed tasks.
 */
extern bool dw_key_claimed(Relation rel, HeapTuple tuple);
extern DwTaken dw_take_pending(Relation rel, int64 id, HeapTuple *tuple, DwTaskKey *key,
							   DwHint *hint);
extern DwTaken dw_take_found(Relation rel, HeapTuple tuple, const DwTaskKey *key, DwHint *hint,
							 bool *again);

#endif							/* DW_PENDING_H */
