/*-------------------------------------------------------------------------
 *
 * pending.h
 *	  Taking the rows of pending tasks, and the lanes that new ones enter.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PENDING_H
#define DW_PENDING_H

#include "access/tableam.h"
#include "shared.h"
#include "task_rows.h"

/* What became of an attempt to take a task's row. */
typedef enum DwTaken
{
	DW_TAKEN,					/* its row is deleted, by this transaction */
	DW_RUNNING,					/* an executor has claimed it */
	DW_GONE						/* there is no such task, or not any more */
} DwTaken;

extern void dw_require_writable(const char *function);
extern DwLaneRef dw_require_lane(Oid owner, int16 queue, int16 priority);
extern DwLaneRef dw_lane_if_any(Oid owner, int16 queue, int16 priority);
extern DwTaken dw_take_pending(Relation rel, int64 id, HeapTuple *tuple, DwTaskKey *key,
							   DwHint *hint);

/*
 * One attempt at that, with a row that was just found.  If *again, it may have
 * been changed meanwhile: somebody was at it, who was waited for.
 */
extern DwTaken dw_take_found(Relation rel, HeapTuple tuple, const DwTaskKey *key, DwHint *hint,
							 bool *again);

/* One row, as it was just found; the table is open, locked for writing. */
extern TM_Result dw_row_delete(Relation rel, const DwTaskKey *key, DwHint *hint);
extern TM_Result dw_row_keep(Relation rel, const DwTaskKey *key);
extern bool dw_row_is_claimed(Relation rel, const DwTaskKey *key);
extern bool dw_row_is_locked_here(Relation rel, const DwTaskKey *key);
extern bool dw_row_wait(Relation rel, const DwTaskKey *key);

#endif							/* DW_PENDING_H */
