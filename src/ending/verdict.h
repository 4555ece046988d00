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
	DW_DROP,					/* a mark has cancelled it: the claim is undone, and the
								 * sweeper removes the row */
	DW_PUT_BACK,				/* its queue or owner is paused: the claim is undone */
	DW_REFUSE,					/* it is recorded as failed */
	DW_SKIP						/* it is too late, and is to be skipped then */
} DwVerdict;
extern DwVerdict dw_judge_lateness(const DwTaskKey *key, const Datum *values, const bool *nulls,
								   int *sqlstate, const char **reason);
extern DwVerdict dw_judge(DwDatabase *db, Relation rel, HeapTuple tuple, const DwTaskKey *key,
						  const Datum *values, const bool *nulls,
						  int *sqlstate, const char **reason);

#endif							/* DW_VERDICT_H */
