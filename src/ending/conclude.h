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

#include "../rows/task_rows.h"
#include "../task/ended.h"

extern void dw_conclude(const DwEnded *ended);
extern void dw_conclude_row(Relation rel, HeapTuple tuple, const DwTaskKey *key, DwOutcome outcome,
							const ErrorData *error);

#endif							/* DW_CONCLUDE_H */
