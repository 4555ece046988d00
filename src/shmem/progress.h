/*-------------------------------------------------------------------------
 *
 * progress.h
 *	  How far timers and sweepers have come with long work.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PROGRESS_H
#define DW_PROGRESS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/spin.h"

/*
 * Kinds of long work.  The timer does those before DW_FIRST_OF_SWEEPER, the sweeper the
 * others.
 */
typedef enum DwWork
{
	DW_WORK_LOAD = 0,			/* read tasks of the near future into memory */
	DW_WORK_ORPHANS,			/* move the tasks of dropped roles to the failed ones */
	DW_WORK_SWEEP,				/* delete rows that delay_cancel_all() has marked */
	DW_WORK_FAILED,				/* delete old rows of failed tasks */
	DW_WORK_HISTORY,			/* empty the oldest table of the history */
	DW_WORK_RECURRING			/* check that each recurring task has its next run */
} DwWork;

#define DW_WORKS			(DW_WORK_RECURRING + 1)
#define DW_FIRST_OF_SWEEPER	DW_WORK_SWEEP

/* The state of such work.  Before DW_PHASE_DONE, but for NONE, the work goes on. */
typedef enum DwPhase
{
	DW_PHASE_NONE = 0,			/* this work was never done */
	DW_PHASE_LOOKING,			/* searching for lanes that need the work */
	DW_PHASE_LOADING,
	DW_PHASE_MOVING,
	DW_PHASE_SWEEPING,
	DW_PHASE_COUNTING,
	DW_PHASE_DELETING,
	DW_PHASE_EMPTYING,
	DW_PHASE_CHECKING,
	DW_PHASE_WAITING,			/* for other transactions; the process may end meanwhile */
	DW_PHASE_DONE,				/* the work has ended */
	DW_PHASE_INTERRUPTED		/* the process ended before the work did */
} DwPhase;

/* The present run of one kind of work in one database, or its last run. */
typedef struct DwProgress
{
	slock_t		lock;			/* one process writes, views read */
	DwPhase		phase;
	TimestampTz started;		/* wall clock, for views */
	int64		began;			/* the same moment, by dw_uptime() */
	int64		ended;			/* end of the last run, by dw_uptime() */
	int64		done;			/* tasks, rows or pages that were worked on */
	int64		total;			/* of how many; DW_TOTAL_UNKNOWN if not known */
	int32		steps;			/* parts of the work that are complete */
	int32		steps_total;	/* of how many; DW_TOTAL_UNKNOWN if not known */
	int64		times;			/* number of runs that were begun */
} DwProgress;

/* The total number of tasks, rows or steps is not known. */
#define DW_TOTAL_UNKNOWN	(-1)

/* The texts by which users know a kind of work. */
typedef struct DwWorkTexts
{
	const char *name;
	const char *unit;			/* what "done" and "total" count */
	const char *activity;		/* for pg_stat_activity */
} DwWorkTexts;

extern void dw_progress_init(DwProgress *all);

extern void dw_progress_begin(DwProgress *all, DwWork work, DwPhase phase);
extern bool dw_progress_is_active(DwProgress *all, DwWork work);

extern void dw_progress_phase(DwProgress *all, DwWork work, DwPhase phase);
extern void dw_progress_add(DwProgress *all, DwWork work, int64 done);
extern void dw_progress_set(DwProgress *all, DwWork work, int64 done, int64 total);
extern void dw_progress_steps(DwProgress *all, DwWork work, int32 steps, int32 total);
extern void dw_progress_end(DwProgress *all, DwWork work);
extern void dw_progress_show(DwWork work);
extern void dw_progress_leave(DwProgress *all, DwWork first, DwWork last);

/* By DwWork, and by DwPhase. */
extern const DwWorkTexts dw_works[];
extern const char *const dw_phases[];
extern void dw_progress_copy(DwProgress *all, DwWork work, DwProgress *copy);
extern bool dw_progress_runs(const DwProgress *progress);

#endif							/* DW_PROGRESS_H */
