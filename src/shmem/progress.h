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

#include "storage/spin.h"

#include "shared.h"

struct DwDatabase;

#define DW_TOTAL_UNKNOWN	(-1)

typedef struct DwWorkTexts
{
	const char *name;
	const char *unit;			/* of what is counted */
	const char *activity;
} DwWorkTexts;
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
extern void dw_progress_show(DwWork work);
extern void dw_progress_leave(struct DwDatabase *db, DwWork first, DwWork last);
extern const DwWorkTexts dw_works[];
extern const char *const dw_phases[];
extern bool dw_progress_runs(const DwProgress *progress);

#endif							/* DW_PROGRESS_H */
