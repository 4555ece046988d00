/*-------------------------------------------------------------------------
 *
 * starts.h
 *	  Decides which process may start the next background worker if too few are free.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_STARTS_H
#define DW_STARTS_H

#include "postgres.h"

#include "lack.h"
#include "shared.h"

extern void dw_lack_note(DwLack *lack, int64 since);
extern void dw_lack_ends(DwLack *lack);
extern bool dw_start_may_be_tried(DwLack *lack, DwStart start);
extern void dw_start_refused(DwLack *lack, DwStart start, Oid database);
extern int64 dw_start_wait(const DwLack *lack, DwStart start);
extern bool dw_starts_are_awaited(void);
extern bool dw_turn_is_over(int64 began);
extern void dw_worker_leaves(void);
extern void dw_timers_make_way(bool lacking);

/*---- silence.c: processes of delay_wheel that do not answer ----*/

/* A process that does not answer. */
typedef struct DwSilent
{
	const char *kind;			/* "executor", "timer", "sweeper" or "launcher" */
	pid_t		pid;			/* 0 if the process has not started */
	int64		silent_for;		/* in us */
	pg_atomic_uint64 *told;		/* time of the last log line about a process of this kind */
} DwSilent;

extern bool dw_silent_next(DwDatabase *db, uint32 *position, DwSilent *found);
extern void dw_silence_report(DwDatabase *db);
extern void dw_silence_report_timer(DwDatabase *db);

#endif							/* DW_STARTS_H */
