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

#include "storage/spin.h"

#include "shared.h"

struct DwDatabase;

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

extern void dw_progress_begin(struct DwDatabase *db, DwWork work, DwPhase phase);
extern bool dw_progress_is_active(struct DwDatabase *db, DwWork work);

extern void dw_progress_phase(struct DwDatabase *db, DwWork work, DwPhase phase);
extern void dw_progress_add(struct DwDatabase *db, DwWork work, int64 done);
extern void dw_progress_set(struct DwDatabase *db, DwWork work, int64 done, int64 total);
extern void dw_progress_steps(struct DwDatabase *db, DwWork work, int32 steps, int32 total);
extern void dw_progress_end(struct DwDatabase *db, DwWork work);
extern void dw_progress_show(DwWork work);
extern void dw_progress_leave(struct DwDatabase *db, DwWork first, DwWork last);

/* By DwWork, and by DwPhase. */
extern const DwWorkTexts dw_works[];
extern const char *const dw_phases[];
extern bool dw_progress_runs(const DwProgress *progress);

#endif							/* DW_PROGRESS_H */
