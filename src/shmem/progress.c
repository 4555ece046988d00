/*-------------------------------------------------------------------------
 *
 * progress.c
 *	  How far timers and sweepers have come with what takes long, for the
 *	  view delay_wheel.progress.
 *
 * For each database and kind of work there is one place in shared memory, which
 * keeps how it was the last time, too.  The one process that does the work
 * writes there after each slice of it, which is some milliseconds; so a spinlock
 * that is almost never waited for is all it costs.  Nothing of this is on the
 * way of a task.
 *
 * Written by timers and sweepers, read by backends.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "datatype/timestamp.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/spin.h"

#include "../base/clock.h"
#include "../base/worker.h"
#include "progress.h"
#include "shared.h"

const DwWorkTexts dw_works[] =
{
	{"load", "tasks", "delay_wheel: loading tasks of the near future"},
	{"dropped roles", "tasks", "delay_wheel: moving tasks of dropped roles to the failed ones"},
	{"cancel", "tasks", "delay_wheel: removing rows of cancelled tasks"},
	{"failed", "rows", "delay_wheel: removing old rows of failed tasks"},
	{"history", "pages", "delay_wheel: emptying the oldest table of the history"},
	{"recurring", "recurring tasks", "delay_wheel: looking whether recurring tasks have their runs"},
};

const char *const dw_phases[] = {
	"none", "looking for lanes", "loading", "moving", "sweeping", "counting", "deleting",
	"emptying", "checking", "waiting", "done", "interrupted"
};

StaticAssertDecl(lengthof(dw_works) == DW_WORKS, "a work has no name");
StaticAssertDecl(lengthof(dw_phases) == DW_PHASE_INTERRUPTED + 1, "a phase has no name");

void
dw_progress_init(DwProgress *all)
{
	memset(all, 0, sizeof(DwProgress) * DW_WORKS);
	for (int i = 0; i < DW_WORKS; i++)
		SpinLockInit(&all[i].lock);
}

/*---- Those who work ----*/

bool
dw_progress_runs(const DwProgress *progress)
{
	return progress->phase != DW_PHASE_NONE && progress->phase < DW_PHASE_DONE;
}

/* For who does the work, and nobody else: others write nothing. */
bool
dw_progress_is_active(DwDatabase *db, DwWork work)
{
	return dw_progress_runs(&db->progress[work]);
}

/* pg_stat_activity has it that this process does such work now. */
void
dw_progress_show(DwWork work)
{
	dw_worker_activity(STATE_RUNNING, dw_works[work].activity);
}

static void
set_phase(DwProgress *progress, DwPhase phase)
{
	SpinLockAcquire(&progress->lock);
	progress->phase = phase;
	if (phase >= DW_PHASE_DONE)
		progress->ended = dw_uptime();
	SpinLockRelease(&progress->lock);
}

void
dw_progress_begin(DwDatabase *db, DwWork work, DwPhase phase)
{
	DwProgress *progress = &db->progress[work];

	if (!dw_progress_runs(progress))
	{
		TimestampTz now = dw_now();
		int64		began = dw_uptime();

		SpinLockAcquire(&progress->lock);
		progress->phase = phase;
		progress->started = now;
		progress->began = began;
		progress->done = 0;
		progress->total = DW_TOTAL_UNKNOWN;
		progress->steps = progress->steps_total = DW_TOTAL_UNKNOWN;
		progress->times++;
		SpinLockRelease(&progress->lock);
	}
	dw_progress_phase(db, work, phase);
}

void
dw_progress_phase(DwDatabase *db, DwWork work, DwPhase phase)
{
	DwProgress *progress = &db->progress[work];

	if (!dw_progress_runs(progress))
		return;
	if (progress->phase != phase)
		set_phase(progress, phase);
	if (phase != DW_PHASE_WAITING)
		dw_progress_show(work);
}

void
dw_progress_add(DwDatabase *db, DwWork work, int64 done)
{
	DwProgress *progress = &db->progress[work];

	if (done == 0 || !dw_progress_runs(progress))
		return;
	SpinLockAcquire(&progress->lock);
	progress->done += done;
	SpinLockRelease(&progress->lock);
}

void
dw_progress_set(DwDatabase *db, DwWork work, int64 done, int64 total)
{
	DwProgress *progress = &db->progress[work];

	if (!dw_progress_runs(progress))
		return;
	SpinLockAcquire(&progress->lock);
	progress->done = done;
	progress->total = total;
	SpinLockRelease(&progress->lock);
}

void
dw_progress_steps(DwDatabase *db, DwWork work, int32 steps, int32 total)
{
	DwProgress *progress = &db->progress[work];

	if (!dw_progress_runs(progress))
		return;
	SpinLockAcquire(&progress->lock);
	progress->steps = steps;
	progress->steps_total = total;
	SpinLockRelease(&progress->lock);
}

void
dw_progress_end(DwDatabase *db, DwWork work)
{
	DwProgress *progress = &db->progress[work];

	if (dw_progress_runs(progress))
		set_phase(progress, DW_PHASE_DONE);
}

/*
 * The process that does some of the works ends: what goes on is cut off.
 *
 * What waits is taken up by the next process.
 */
void
dw_progress_leave(DwDatabase *db, DwWork first, DwWork last)
{
	for (int work = first; work <= (int) last; work++)
	{
		DwProgress *progress = &db->progress[work];

		if (dw_progress_runs(progress) && progress->phase != DW_PHASE_WAITING)
			set_phase(progress, DW_PHASE_INTERRUPTED);
	}
}
