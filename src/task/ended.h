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
#include "../statement/spi_run.h"

typedef enum DwEnd
{
	DW_END_DONE,
	DW_END_FAILED,				/* given up, and recorded in failed_task */
	DW_END_RETRIED,				/* this attempt failed; the task was put back for another */
	DW_END_SKIPPED,				/* not run, being later than its option skip_after allows */
	DW_END_CANCELLED
} DwEnd;

/* A task that has ended.  Its row is deleted already; values and nulls are its columns. */
typedef struct DwEnded
{
	const DwTaskKey *key;		/* from the row: the former due time, attempts before this one */
	const Datum *values;		/* columns of delay_wheel.task */
	const bool *nulls;
	DwEnd		end;
	TimestampTz started;		/* start of the last attempt; 0 if the task was not run */
	DwSpiResult result;			/* result of the last statement; valid for DW_END_DONE */
	const ErrorData *error;		/* set for DW_END_FAILED and DW_END_RETRIED */
} DwEnded;

/* The words for DwEnd that users see, in delay_wheel.history and elsewhere; index: DwEnd. */
extern const char *const dw_end_names[];

#endif							/* DW_ENDED_H */
