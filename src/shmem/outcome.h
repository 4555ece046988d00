/*-------------------------------------------------------------------------
 *
 * outcome.h
 *	  How a task ends, or an attempt to run it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_OUTCOME_H
#define DW_OUTCOME_H

typedef enum DwOutcome
{
	DW_NOT_ENDED = 0,			/* it is pending, or runs */
	DW_DONE,
	DW_FAILED,					/* given up, and recorded as failed */
	DW_RETRIED,					/* this attempt failed, and the task was put back */
	DW_SKIPPED,					/* not run: too late, and not to be run late */
	DW_CANCELLED				/* not run */
} DwOutcome;

/* The names of outcomes where people see them; NULL for DW_NOT_ENDED. */
extern const char *const dw_outcome_names[];

#endif							/* DW_OUTCOME_H */
