/*-------------------------------------------------------------------------
 *
 * conclude.h
 *	  What is to be done when a task, or an attempt of it, has ended.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CONCLUDE_H
#define DW_CONCLUDE_H

#include "postgres.h"

#include "../rows/task_rows.h"
#include "../task/ended.h"

/*
 * To be called once for each end of a task or of an attempt, in the very
 * transaction that has deleted its row, as one of the last things in it.  An
 * error undoes that transaction.
 */
extern void dw_conclude(const DwEnded *ended);

/* The same of a row that was just deleted, and not run; error may be NULL. */
extern void dw_conclude_row(Relation rel, HeapTuple tuple, const DwTaskKey *key, DwEnd end,
							const ErrorData *error);

#endif							/* DW_CONCLUDE_H */
