/*-------------------------------------------------------------------------
 *
 * task_finder.h
 *	  Finding rows of many tasks by their ids.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TASK_FINDER_H
#define DW_TASK_FINDER_H

#include "postgres.h"

#include "access/genam.h"
#include "access/htup.h"
#include "executor/tuptable.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/*
 * State of the searches of one transaction; all zero at first.  An abort of the transaction frees
 * the resources of this state.
 */
typedef struct DwTaskFinder
{
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
} DwTaskFinder;

extern bool dw_task_finder_has_seen(int64 id, ItemPointer tid);
extern HeapTuple dw_task_find_next(DwTaskFinder *finder, Relation rel, int64 id, Snapshot snapshot);
extern void dw_task_find_end(DwTaskFinder *finder);

#endif							/* DW_TASK_FINDER_H */
