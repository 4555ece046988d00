/*-------------------------------------------------------------------------
 *
 * pending.h
 *	  Taking the row of a pending task, and burying older tasks of its key.
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

/* The result of an attempt to take a task. */
typedef enum DwTakeResult
{
	DW_TAKEN,					/* this transaction has deleted its row */
	DW_RUNNING,					/* an executor has claimed it */
	DW_GONE						/* no such task is pending */
} DwTakeResult;

extern void dw_pending_rewrite(Relation rel, Datum *values, bool *nulls, DwLaneRef lane);
extern void dw_pending_move(Relation rel, HeapTuple old, const DwTaskKey *key, TimestampTz due);
extern bool dw_key_claimed(Relation rel, HeapTuple tuple);
extern DwTakeResult dw_take_pending(Relation rel, int64 id, HeapTuple *tuple, DwTaskKey *key);
extern DwTakeResult dw_take_found(Relation rel, HeapTuple tuple, const DwTaskKey *key, bool *again);

#endif							/* DW_PENDING_H */
