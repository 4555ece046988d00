/*-------------------------------------------------------------------------
 *
 * progress.h
 *	  How far timers and sweepers have come with what takes long.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PROGRESS_H
#define DW_PROGRESS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/spin.h"

struct DwDatabase;

/* The first ones are the timer's, the others the sweeper's. */
typedef enum DwWork
{
	DW_WORK_LOAD = 0,
	DW_WORK_ORPHANS,
	DW_WORK_SWEEP,
	DW_WORK_FAILED,
	DW_WORK_HISTORY,
	DW_WORK_RECURRING
} DwWork;

#define DW_WORKS			(DW_WORK_RECURRING + 1)
#define DW_FIRST_OF_SWEEPER	DW_WORK_SWEEP

typedef enum DwPhase
{
	DW_PHASE_NONE = 0,			/* it was never done */
	DW_PHASE_LOOKING,			/* for lanes */
	DW_PHASE_LOADING,
	DW_PHASE_MOVING,
	DW_PHASE_SWEEPING,
	DW_PHASE_COUNTING,
	DW_PHASE_DELETING,
	DW_PHASE_EMPTYING,
	DW_PHASE_CHECKING,
	DW_PHASE_WAITING,			/* for others; the process may end meanwhile */
	DW_PHASE_DONE,				/* from here on it does not go on */
	DW_PHASE_INTERRUPTED
} DwPhase;

#define DW_TOTAL_UNKNOWN	(-1)

/* One kind of work in one database: what goes on, or how it was the last time. */
typedef struct DwProgress
{
	slock_t		lock;			/* one process writes, views read */
	DwPhase		phase;
	TimestampTz started;
	int64		began;			/* the same, by dw_uptime() */
	int64		ended;			/* by that, too */
	int64		done;
	int64		total;
	int32		steps;
	int32		steps_total;
	int64		times;			/* that it was begun */
} DwProgress;

extern void dw_progress_init(DwProgress *all);

/*
 * The work is begun, or goes on, in that phase; pg_stat_activity has it, too.
 */
extern void dw_progress_begin(struct DwDatabase *db, DwWork work, DwPhase phase);
extern bool dw_progress_is_active(struct DwDatabase *db, DwWork work);

/* These do nothing while the work does not go on. */
extern void dw_progress_phase(struct DwDatabase *db, DwWork work, DwPhase phase);
extern void dw_progress_add(struct DwDatabase *db, DwWork work, int64 done);
extern void dw_progress_set(struct DwDatabase *db, DwWork work, int64 done, int64 total);
extern void dw_progress_steps(struct DwDatabase *db, DwWork work, int32 steps, int32 total);
extern void dw_progress_end(struct DwDatabase *db, DwWork work);

/* pg_stat_activity has it that this process does such work now. */
extern void dw_progress_show(DwWork work);

/* The process that does some of the works ends: what goes on is cut off. */
extern void dw_progress_leave(struct DwDatabase *db, DwWork first, DwWork last);

#endif							/* DW_PROGRESS_H */
