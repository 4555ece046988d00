/*-------------------------------------------------------------------------
 *
 * pending.h
 *	  Taking the rows of pending tasks, and the lanes that new ones enter.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PENDING_H
#define DW_PENDING_H

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
extern DwTaken dw_take_pending(Relation rel, int64 id, HeapTuple *tuple, DwTaskKey *key,
							   DwHint *hint);

#endif							/* DW_PENDING_H */
