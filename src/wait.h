/*-------------------------------------------------------------------------
 *
 * wait.h
 *	  Waiting for the outcome of a task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_WAIT_H
#define DW_WAIT_H

#include "shared.h"

/* How a task ended. */
typedef enum DwOutcome
{
	DW_NOT_ENDED = 0,
	DW_DONE,
	DW_FAILED,
	DW_CANCELLED,
	DW_SKIPPED
} DwOutcome;

extern Size dw_wait_size(void);
extern void dw_wait_attach(void);

/*
 * For callbacks: a task has ended, which those who wait return when they are
 * let go; or they are to look at their tasks' rows, since something concerns
 * many of them.
 */
extern void dw_tell_waiters(DwDatabase *db, int64 id, DwOutcome outcome);
extern void dw_let_waiters_go(DwDatabase *db, int64 id);
extern void dw_make_waiters_look(DwDatabase *db);

#endif							/* DW_WAIT_H */
