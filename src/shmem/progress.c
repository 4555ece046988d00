/*-------------------------------------------------------------------------
 *
 * progress.c
 *	  How far timers and sweepers have come with long work, for the view
 *	  delay_wheel.progress.
 *
 * Run by timers and sweepers, which write; sessions read.
 *
 * Each database has one DwProgress for each kind of work, which also keeps the last
 * run.  The one process that does the work writes after each slice of it, which takes
 * some milliseconds.  So all it costs is a spinlock that is almost never waited for.
 * Running a task does none of this.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/spin.h"

#include "../base/clock.h"
#include "../base/worker.h"
#include "progress.h"

const DwWorkTexts dw_works[] =
{
	{"load", "tasks", "delay_wheel: loading tasks of the near future"},
	{"dropped roles", "tasks", "delay_wheel: moving tasks of dropped roles to the failed ones"},
	{"cancel", "tasks", "delay_wheel: removing rows of cancelled tasks"},
	{"failed", "rows", "delay_wheel: removing old rows of failed tasks"},
	{"history", "pages", "delay_wheel: emptying the oldest table of the history"},
	{"recurring", "recurring tasks",
	"delay_wheel: looking whether recurring tasks have their runs"},
};

const char *const dw_phases[] = {
	"none", "looking for lanes", "loading", "moving", "sweeping", "counting", "deleting",
	"emptying", "checking", "waiting", "done", "interrupted"
};

StaticAssertDecl(lengthof(dw_works) == DW_WORKS, "a work has no name");
StaticAssertDecl(lengthof(dw_phases) == DW_PHASE_INTERRUPTED + 1, "a phase has no name");

/* Initializes all kinds of work of a database. */
void
dw_progress_init(DwProgress *all)
{
	memset(all, 0, sizeof(DwProgress) * DW_WORKS);
	for (int i = 0; i < DW_WORKS; i++)
		SpinLockInit(&all[i].lock);
}

/*---- For the process that does the work ----*/

/* True if the work goes on.  Views call this on a copy. */
bool
dw_progress_runs(const DwProgress *progress)
{
	return progress->phase != DW_PHASE_NONE && progress->phase < DW_PHASE_DONE;
}

/*
 * True if the work goes on.  Only for the process that does the work: it reads without
 * the lock.
 */
bool
dw_progress_is_active(DwProgress *all, DwWork work)
{
	return dw_progress_runs(&all[work]);
}

/* Shows in pg_stat_activity that this process does such work now. */
void
dw_progress_show(DwWork work)
{
	dw_worker_activity(STATE_RUNNING, dw_works[work].activity);
}

/* Sets the phase, and the end of the run if the phase ends it. */
static void
set_phase(DwProgress *progress, DwPhase phase)
{
	SpinLockAcquire(&progress->lock);
	progress->phase = phase;
	if (phase >= DW_PHASE_DONE)
		progress->ended = dw_uptime();
	SpinLockRelease(&progress->lock);
}

/*
 * Begins a run of the work in that phase, or sets the phase of the run that goes on.
 * Shows it in pg_stat_activity, too.
 */
void
dw_progress_begin(DwProgress *all, DwWork work, DwPhase phase)
{
	DwProgress *progress = &all[work];

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
	dw_progress_phase(all, work, phase);
}

/*
 * Sets the phase of the run that goes on, if any.  Shows it in pg_stat_activity, too,
 * except for DW_PHASE_WAITING.
 */
void
dw_progress_phase(DwProgress *all, DwWork work, DwPhase phase)
{
	DwProgress *progress = &all[work];

	if (!dw_progress_runs(progress))
		return;
	if (progress->phase != phase)
		set_phase(progress, phase);
	if (phase != DW_PHASE_WAITING)
		dw_progress_show(work);
}

/* Adds to the number of tasks or rows done in the run that goes on, if any. */
void
dw_progress_add(DwProgress *all, DwWork work, int64 done)
{
	DwProgress *progress = &all[work];

	if (done == 0 || !dw_progress_runs(progress))
		return;
	SpinLockAcquire(&progress->lock);
	progress->done += done;
	SpinLockRelease(&progress->lock);
}

/* Sets that number, and the total. */
void
dw_progress_set(DwProgress *all, DwWork work, int64 done, int64 total)
{
	DwProgress *progress = &all[work];

	if (!dw_progress_runs(progress))
		return;
	SpinLockAcquire(&progress->lock);
	progress->done = done;
	progress->total = total;
	SpinLockRelease(&progress->lock);
}

/* Sets the number of complete steps, and the total of steps. */
void
dw_progress_steps(DwProgress *all, DwWork work, int32 steps, int32 total)
{
	DwProgress *progress = &all[work];

	if (!dw_progress_runs(progress))
		return;
	SpinLockAcquire(&progress->lock);
	progress->steps = steps;
	progress->steps_total = total;
	SpinLockRelease(&progress->lock);
}

/* Ends the run that goes on, if any. */
void
dw_progress_end(DwProgress *all, DwWork work)
{
	DwProgress *progress = &all[work];

	if (dw_progress_runs(progress))
		set_phase(progress, DW_PHASE_DONE);
}

/*
 * Marks runs of the works from first to last as interrupted, since their process ends.
 *
 * A run that waits stays as it is: the next process goes on with it.
 */
void
dw_progress_leave(DwProgress *all, DwWork first, DwWork last)
{
	for (int work = first; work <= (int) last; work++)
	{
		DwProgress *progress = &all[work];

		if (dw_progress_runs(progress) && progress->phase != DW_PHASE_WAITING)
			set_phase(progress, DW_PHASE_INTERRUPTED);
	}
}

/* Copies what is known of a kind of work, for a view. */
void
dw_progress_copy(DwProgress *all, DwWork work, DwProgress *copy)
{
	SpinLockAcquire(&all[work].lock);
	*copy = all[work];
	SpinLockRelease(&all[work].lock);
}
