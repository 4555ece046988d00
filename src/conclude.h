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

#include "claim.h"
#include "spi_run.h"
#include "task_rows.h"

typedef enum DwEnd
{
	DW_END_DONE,
	DW_END_FAILED,				/* given up, and recorded as failed */
	DW_END_RETRIED,				/* this attempt failed, and the task was put back */
	DW_END_SKIPPED,				/* it was too late to be run */
	DW_END_CANCELLED
} DwEnd;

/* As they are called where people see them. */
extern const char *const dw_end_names[];

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

/*
 * To be called once for each end of a task or of an attempt, in the very
 * transaction that has deleted its row, as one of the last things in it.  An
 * error undoes that transaction.
 */
extern void dw_conclude(const DwEnded *ended);

/* The same of a row that was just deleted, and not run; error may be NULL. */
extern void dw_conclude_row(Relation rel, HeapTuple tuple, const DwTaskKey *key, DwEnd end,
							const ErrorData *error);

/* The same of a claimed task; result and error may be NULL. */
extern void dw_conclude_claim(const DwClaim *claim, DwEnd end, TimestampTz started,
							  const DwSpiResult *result, const ErrorData *error);

#endif							/* DW_CONCLUDE_H */
