/*-------------------------------------------------------------------------
 *
 * ended.h
 *	  How a task ended.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ENDED_H
#define DW_ENDED_H

#include "postgres.h"

#include "../rows/task_rows.h"
#include "../shmem/outcome.h"
#include "../statement/spi_run.h"

/* How it ended.  The row is deleted; its columns are those of delay_wheel.task. */
typedef struct DwEnded
{
	const DwTaskKey *key;		/* due as it was, attempts before this one */
	const Datum *values;
	const bool *nulls;
	DwOutcome outcome;
	TimestampTz started;		/* 0: it was not run */
	DwSpiResult result;			/* of its last statement, if done */
	const ErrorData *error;		/* if failed or retried */
} DwEnded;

#endif							/* DW_ENDED_H */
