/*-------------------------------------------------------------------------
 *
 * ended.h
 *	  A task that has ended, as the code that ends it passes it on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ENDED_H
#define DW_ENDED_H

#include "postgres.h"

#include "../rows/task_rows.h"
#include "../shmem/outcome.h"
#include "../statement/spi_run.h"

/* A task that has ended.  Its row is deleted already; values and nulls are its columns. */
typedef struct DwEnded
{
	const DwTaskKey *key;		/* from the row: the former due time, attempts before this one */
	const Datum *values;		/* columns of delay_wheel_data.task */
	const bool *nulls;
	DwOutcome	outcome;
	TimestampTz started;		/* start of the last attempt; 0 if the task was not run */
	DwSpiResult result;			/* result of the last statement; valid for DW_DONE */
	text	   *reply;			/* what the receiver of a message gave as its result, jsonb as
								 * text; NULL is none */
	const ErrorData *error;		/* set for DW_FAILED and DW_RETRIED */
} DwEnded;

#endif							/* DW_ENDED_H */
