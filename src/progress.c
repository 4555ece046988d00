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

#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "progress.h"
#include "settings.h"
#include "shared.h"
#include "signature.h"
#include "utils/builtins.h"
#include "views.h"
#include "worker.h"

PG_FUNCTION_INFO_V1(dw_get_progress);

#define PROGRESS_COLUMNS	14

typedef struct DwWorkTexts
{
	const char *name;
	const char *unit;			/* of what is counted */
	const char *activity;
} DwWorkTexts;

static const DwWorkTexts works[] =
{
	{"load", "tasks", "delay_wheel: loading tasks of the near future"},
	{"dropped roles", "tasks", "delay_wheel: moving tasks of dropped roles to the failed ones"},
	{"cancel", "tasks", "delay_wheel: removing rows of cancelled tasks"},
	{"failed", "rows", "delay_wheel: removing old rows of failed tasks"},
	{"history", "pages", "delay_wheel: emptying the oldest table of the history"},
	{"recurring", "recurring tasks", "delay_wheel: looking whether recurring tasks have their runs"},
};

static const char *const phases[] = {
	"none", "looking for lanes", "loading", "moving", "sweeping", "counting", "deleting",
	"emptying", "checking", "waiting", "done", "interrupted"
};

StaticAssertDecl(lengthof(works) == DW_WORKS, "a work has no name");
StaticAssertDecl(lengthof(phases) == DW_PHASE_INTERRUPTED + 1, "a phase has no name");

void
dw_progress_init(DwProgress *all)
{
	memset(all, 0, sizeof(DwProgress) * DW_WORKS);
	for (int i = 0; i < DW_WORKS; i++)
		SpinLockInit(&all[i].lock);
}

/*---- Those who work ----*/

static bool
is_active(const DwProgress *progress)
{
	return progress->phase != DW_PHASE_NONE && progress->phase < DW_PHASE_DONE;
}

/* For who does the work, and nobody else: others write nothing. */
bool
dw_progress_is_active(DwDatabase *db, DwWork work)
{
	return is_active(&db->progress[work]);
}

void
dw_progress_show(DwWork work)
{
	dw_worker_activity(STATE_RUNNING, works[work].activity);
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

	if (!is_active(progress))
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

	if (!is_active(progress))
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

	if (done == 0 || !is_active(progress))
		return;
	SpinLockAcquire(&progress->lock);
	progress->done += done;
	SpinLockRelease(&progress->lock);
}

void
dw_progress_set(DwDatabase *db, DwWork work, int64 done, int64 total)
{
	DwProgress *progress = &db->progress[work];

	if (!is_active(progress))
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

	if (!is_active(progress))
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

	if (is_active(progress))
		set_phase(progress, DW_PHASE_DONE);
}

/* What waits is taken up by the next process. */
void
dw_progress_leave(DwDatabase *db, DwWork first, DwWork last)
{
	for (int work = first; work <= (int) last; work++)
	{
		DwProgress *progress = &db->progress[work];

		if (is_active(progress) && progress->phase != DW_PHASE_WAITING)
			set_phase(progress, DW_PHASE_INTERRUPTED);
	}
}

/*---- Those who look ----*/

/* Of a database that the user may see: a copy of what is known, and by whom. */
static bool
copy_progress(int number, Oid *database, DwProgress *copy, pid_t *pids)
{
	DwDatabase *db = dw_database(number);

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	*database = db->oid;
	for (int i = 0; i < DW_WORKS && OidIsValid(db->oid); i++)
	{
		SpinLockAcquire(&db->progress[i].lock);
		copy[i] = db->progress[i];
		SpinLockRelease(&db->progress[i].lock);
		pids[i] = i < DW_FIRST_OF_SWEEPER ? db->timer_pid : db->sweeper_pid;
	}
	LWLockRelease(dw_shared->table_lock);
	return dw_may_see_database(db);
}

static void
put_count(Datum *value, bool *isnull, int64 count)
{
	*isnull = count == DW_TOTAL_UNKNOWN;
	*value = Int64GetDatum(count);
}

static void
put_progress(ReturnSetInfo *result, const char *name, DwWork work, const DwProgress *progress,
			 pid_t pid)
{
	bool		active = is_active(progress);
	int64		took = Max((active ? dw_uptime() : progress->ended) - progress->began, 0);
	Interval   *duration = palloc0(sizeof(Interval));
	Datum		values[PROGRESS_COLUMNS] = {0};
	bool		nulls[PROGRESS_COLUMNS] = {0};
	NameData	database;

	namestrcpy(&database, name);
	duration->time = took;
	values[0] = NameGetDatum(&database);
	values[1] = CStringGetTextDatum(works[work].name);
	values[2] = CStringGetTextDatum(phases[progress->phase]);
	values[3] = BoolGetDatum(active);
	nulls[4] = !active || pid == 0;
	values[4] = Int32GetDatum((int32) pid);
	values[5] = TimestampTzGetDatum(progress->started);
	values[6] = IntervalPGetDatum(duration);
	values[7] = CStringGetTextDatum(works[work].unit);
	values[8] = Int64GetDatum(progress->done);
	put_count(&values[9], &nulls[9], progress->total);
	nulls[10] = took == 0;
	values[10] = Float8GetDatum(took == 0 ? 0 : progress->done * 1e6 / took);
	put_count(&values[11], &nulls[11], progress->steps);
	put_count(&values[12], &nulls[12], progress->steps_total);
	values[13] = Int64GetDatum(progress->times);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

Datum
dw_get_progress(PG_FUNCTION_ARGS)
{
	static const Oid columns[PROGRESS_COLUMNS] = {
		NAMEOID, TEXTOID, TEXTOID, BOOLOID, INT4OID, TIMESTAMPTZOID, INTERVALOID,
		TEXTOID, INT8OID, INT8OID, FLOAT8OID, INT8OID, INT8OID, INT8OID
	};
	ReturnSetInfo *result = dw_begin_rows(fcinfo, lengthof(columns), columns);

	dw_require_shared();
	for (int i = 0; i < dw_max_databases; i++)
	{
		DwProgress	progress[DW_WORKS];
		pid_t		pids[DW_WORKS];
		Oid			database;
		char	   *name;

		if (!copy_progress(i, &database, progress, pids))
			continue;
		name = get_database_name(database);
		for (int work = 0; work < DW_WORKS && name != NULL; work++)
			if (progress[work].phase != DW_PHASE_NONE)
				put_progress(result, name, work, &progress[work], pids[work]);
	}
	return (Datum) 0;
}
