/*-------------------------------------------------------------------------
 *
 * silence.h
 *	  Which of our processes do not answer.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SILENCE_H
#define DW_SILENCE_H

#include "postgres.h"

#include "shared.h"

/* A process that does not answer. */
typedef struct DwSilent
{
	const char *kind;			/* "executor", "timer", "sweeper" or "launcher" */
	pid_t		pid;			/* 0 if it has not come up */
	int64		silent_for;		/* in us */
	pg_atomic_uint64 *told;		/* when the log was last told of one of this kind */
} DwSilent;

extern bool dw_silent_next(DwDatabase *db, uint32 *position, DwSilent *found);
extern void dw_silence_report(DwDatabase *db);
extern void dw_silence_report_timer(DwDatabase *db);

#endif							/* DW_SILENCE_H */
