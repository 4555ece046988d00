/*-------------------------------------------------------------------------
 *
 * verdict.h
 *	  Whether a task that was claimed is run.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_VERDICT_H
#define DW_VERDICT_H

#include "postgres.h"

#include "../rows/task_rows.h"
#include "../shmem/shared.h"

typedef enum DwVerdict
{
	DW_RUN,
	DW_DROP,					/* it was cancelled: the claim is undone, the row
								 * is the sweeper's */
	DW_PUT_BACK,				/* it is paused: the claim is undone */
	DW_REFUSE,					/* it goes to the failed ones */
	DW_SKIP						/* it came too late: only its row goes */
} DwVerdict;
extern DwVerdict dw_judge(DwDatabase *db, Relation rel, HeapTuple tuple, const DwTaskKey *key,
						  const Datum *values, const bool *nulls,
						  int *sqlstate, const char **reason);

#endif							/* DW_VERDICT_H */
