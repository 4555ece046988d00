/*-------------------------------------------------------------------------
 *
 * outcome.h
 *	  How a task ends, or an attempt to run it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_OUTCOME_H
#define DW_OUTCOME_H

/* How a task, or an attempt, has ended. */
typedef enum DwOutcome
{
	DW_NOT_ENDED = 0,			/* the task is pending, or runs */
	DW_DONE,					/* its SQL has run, and was committed */
	DW_FAILED,					/* the last attempt failed, and the task was recorded as
								 * failed */
	DW_RETRIED,					/* an attempt failed, and the task was put back for another
								 * one */
	DW_SKIPPED,					/* not run, since it was too late for it */
	DW_CANCELLED				/* cancelled, and not run */
} DwOutcome;

/* Names of outcomes for users; NULL for DW_NOT_ENDED. */
extern const char *const dw_outcome_names[];

#endif							/* DW_OUTCOME_H */
