/*-------------------------------------------------------------------------
 *
 * conclude.h
 *	  Concluding a task: all that follows from its end, or from that of an attempt.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CONCLUDE_H
#define DW_CONCLUDE_H

#include "postgres.h"

#include "../ring/ring.h"
#include "../rows/task_rows.h"
#include "../shmem/shared.h"
#include "../task/ended.h"

extern void dw_task_was_cancelled(DwDatabase *db, const DwEntry *entry);
extern void dw_conclude(const DwEnded *ended);
extern void dw_conclude_row(Relation rel, HeapTuple tuple, const DwTaskKey *key, DwOutcome outcome,
							const ErrorData *error);

#endif							/* DW_CONCLUDE_H */
