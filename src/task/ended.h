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
	DW_END_FAILED,				/* given up, and recorded as failed */
	DW_END_RETRIED,				/* this attempt failed, and the task was put back */
	DW_END_SKIPPED,				/* it was too late to be run */
	DW_END_CANCELLED
} DwEnd;

/* How it ended.  The row is deleted; its columns are those of delay_wheel.task. */
typedef struct DwEnded
{
	const DwTaskKey *key;		/* due as it was, attempts before this one */
	const Datum *values;
	const bool *nulls;
	DwEnd		end;
	TimestampTz started;		/* 0: it was not run */
	DwSpiResult result;			/* of its last statement, if done */
	const ErrorData *error;		/* if failed or retried */
} DwEnded;

/* As they are called where people see them. */
extern const char *const dw_end_names[];

#endif							/* DW_ENDED_H */
