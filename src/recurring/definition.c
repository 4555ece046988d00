/*-------------------------------------------------------------------------
 *
 * definition.c
 *	  The definitions of recurring tasks, and the runs that they name.
 *
 * Run by sessions, executors, timers and the sweeper.  README.md describes definitions, their runs,
 * and the locks and their order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"

#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "recurring.h"

/* Maximum length of a definition's last_error, in bytes. */
#define MAX_ERROR		1000

/*---- Definitions ----*/

/* Returns an int8 column of a definition; 0 if it is null. */
int64
dw_definition_number(const DwDefinition *def, AttrNumber column)
{
	return def->nulls[column - 1] ? 0 : DatumGetInt64(def->values[column - 1]);
}

/* Returns a time of a definition; DT_NOBEGIN if it is null. */
TimestampTz
dw_definition_time(const DwDefinition *def, AttrNumber column)
{
	return def->nulls[column - 1] ? DT_NOBEGIN : DatumGetTimestampTz(def->values[column - 1]);
}

/* Sets a column of a definition in memory.  dw_definition_write() writes it to the table. */
void
dw_definition_set(DwDefinition *def, AttrNumber column, Datum value)
{
	def->values[column - 1] = value;
	def->nulls[column - 1] = false;
}

static void
add_one(DwDefinition *def, AttrNumber column)
{
	dw_definition_set(def, column, Int64GetDatum(dw_definition_number(def, column) + 1));
}

/* Returns true if the definition is paused, so that it gets no run before it is resumed. */
bool
dw_definition_is_paused(const DwDefinition *def)
{
	return DatumGetBool(def->values[Anum_recurring_paused - 1]);
}

/*
 * Pauses a definition whose runs crash the server, in memory, and logs this.  It gets no run before
 * a user resumes it.
 */
void
dw_definition_pause_for_crashes(DwDefinition *def)
{
	dw_definition_set(def, Anum_recurring_paused, BoolGetDatum(true));
	ereport(LOG,
			(errcode(DW_ERRCODE_CRASHED),
			 errmsg("delay_wheel recurring task \"%s\" is paused, since its runs crash the server",
					TextDatumGetCString(def->values[Anum_recurring_name - 1])),
			 errhint("When the cause is fixed, call delay_resume_recurring().")));
}

/* Returns true if missed runs are made up (catch_up = 'all'). */
static bool
catches_up(const DwDefinition *def)
{
	return strcmp(TextDatumGetCString(def->values[Anum_recurring_catch_up - 1]), "all") == 0;
}

/* Returns the role that owns a definition and its runs. */
Oid
dw_definition_owner(const DwDefinition *def)
{
	return DatumGetObjectId(def->values[Anum_recurring_owner - 1]);
}

/*
 * Returns true if the definition was written, or armed by delay_wheel.arm(), in this database of
 * this cluster.  A definition that came with a copy gets no run before it is armed.
 */
bool
dw_definition_is_armed(const DwDefinition *def)
{
	return dw_definition_number(def, Anum_recurring_origin) == dw_origin_stamp();
}

/* Fills in *def from a row.  Values may point into the row, which must live as long as *def. */
void
dw_definition_read(Relation rel, HeapTuple tuple, DwDefinition *def)
{
	def->tid = tuple->t_self;
	dw_deform(rel, tuple, &def->values, &def->nulls);
}

/*
 * Reads the newest committed version of the definition with this id.  Returns false if there is
 * none.
 */
bool
dw_definition_find(Relation rel, int64 id, DwDefinition *def)
{
	ScanKeyData key;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_recurring_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	tuple = dw_row_find(rel, dw_catalog()->recurring_pkey, &key, NULL);
	if (tuple != NULL)
		dw_definition_read(rel, tuple, def);
	return tuple != NULL;
}

/*
 * Locks the row of a definition, which the caller has read, for an update or a delete.  The caller
 * has locked the table (RowExclusiveLock).  Returns TM_Ok if that version is still the newest.
 * Other results: see dw_row_lock().
 */
TM_Result
dw_definition_lock(Relation rel, const DwDefinition *def, LockWaitPolicy wait)
{
	DW_INJECT("recurring-before-lock");
	return dw_row_lock(rel, def->tid, LockTupleExclusive, wait);
}

/* Writes a definition to the table.  The caller has locked its row. */
void
dw_definition_write(Relation rel, DwDefinition *def)
{
	dw_recurring_update(rel, &def->tid, def->values, def->nulls);
}

/* Deletes a definition.  The caller has locked its row. */
void
dw_definition_delete(Relation rel, const DwDefinition *def)
{
	ItemPointerData tid = def->tid;

	if (dw_heap_delete(rel, &tid, true) != TM_Ok)
		elog(ERROR, "could not delete a recurring task that is locked");
	CommandCounterIncrement();
}

/*---- The next run ----*/

/*
 * Reads a definition's interval or schedule.  Returns NULL, or a sentence with the reason if the
 * times cannot be computed (plain SQL wrote a wrong value, or the time zone does not exist).
 */
static const char *
read_recurrence(const DwDefinition *def, DwRecurrence *r)
{
	char	   *zone = TextDatumGetCString(def->values[Anum_recurring_time_zone - 1]);

	r->zone = pg_tzset(zone);
	if (r->zone == NULL)
		return psprintf("time zone \"%s\" not recognized", zone);
	r->starts = DatumGetTimestampTz(def->values[Anum_recurring_starts - 1]);
	if (TIMESTAMP_NOT_FINITE(r->starts))
		return "starts must not be infinite";
	r->is_cron = def->nulls[Anum_recurring_every - 1];
	if (r->is_cron)
	{
		const char *problem = "there is neither an interval nor a schedule";
		const char *hint;

		if (def->nulls[Anum_recurring_schedule - 1] ||
			!dw_cron_parse(TextDatumGetCString(def->values[Anum_recurring_schedule - 1]),
						   &r->cron, &problem, &hint))
			return psprintf("invalid schedule: %s", problem);
		return NULL;
	}
	r->every = *DatumGetIntervalP(def->values[Anum_recurring_every - 1]);
	if (!dw_interval_is_finite(&r->every) ||
		r->every.month < 0 || r->every.day < 0 || r->every.time < 0 ||
		(r->every.month == 0 && r->every.day == 0 && r->every.time < DW_MIN_EVERY_US))
		return "invalid interval";
	return NULL;
}

/*
 * Sets next_due, in memory, to the first ideal time after the given time.  Sets it to null if there
 * is no such time, or if the definition has ended (until, max_runs).  If the definition is invalid,
 * logs this, and sets next_due to null and last_error to the reason.
 */
static void
set_next_due(DwDefinition *def, TimestampTz after)
{
	DwRecurrence recurrence;
	const char *problem = read_recurrence(def, &recurrence);
	TimestampTz next;
	bool		found;

	found = problem == NULL && dw_recurrence_next(&recurrence, after, &next) &&
		(def->nulls[Anum_recurring_until - 1] ||
		 next <= DatumGetTimestampTz(def->values[Anum_recurring_until - 1])) &&
		(def->nulls[Anum_recurring_max_runs - 1] ||
		 dw_definition_number(def, Anum_recurring_runs) <
		 dw_definition_number(def, Anum_recurring_max_runs));
	if (found)
		dw_definition_set(def, Anum_recurring_next_due, TimestampTzGetDatum(next));
	else
		def->nulls[Anum_recurring_next_due - 1] = true;
	if (problem != NULL)
	{
		ereport(LOG,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("delay_wheel recurring task \"%s\" has no runs any more: %s",
						TextDatumGetCString(def->values[Anum_recurring_name - 1]), problem)));
		dw_definition_set(def, Anum_recurring_last_error, CStringGetTextDatum(problem));
	}
}

/*
 * Returns the latest ideal time whose run would now be skipped as too late (see ending/claim.c);
 * DT_NOBEGIN if the definition has no skip_after.  There may be millions of skipped times, so no
 * runs are inserted for them.
 */
static TimestampTz
too_late(const DwDefinition *def)
{
	int64		skip_after;

	if (!dw_more_number(def->values, def->nulls, Anum_recurring_more, DW_MORE_SKIP_AFTER, &skip_after))
		return DT_NOBEGIN;
	return dw_now() - Max(skip_after, 0) - 1;
}

/*---- A clock that was set back ----*/

/* Returns the latest time of the clock noted in the definition; DT_NOBEGIN if it had no run. */
TimestampTz
dw_definition_clock_shown(const DwDefinition *def)
{
	return Max(dw_definition_time(def, Anum_recurring_last_started),
			   dw_definition_time(def, Anum_recurring_last_ended));
}

/*
 * If the clock was set back, moves next_due forward, in memory, to the first ideal time from now
 * on.  Returns false if next_due does not change.  shown: the latest known time of the clock.
 * with_start: also moves back a start that is later than now.
 *
 * next_due changes only if it is further away than twice the schedule's pause before it.  So a
 * passed time of day does not recur when the clock is set back by some hours, and a run that
 * delay_run() executed early is not repeated.  next_due does not change if the definition catches
 * up, since then each ideal time occurs once.
 */
bool
dw_definition_follow_clock(DwDefinition *def, TimestampTz shown, bool with_start)
{
	TimestampTz now = dw_now();
	DwRecurrence recurrence;
	TimestampTz due = dw_definition_time(def, Anum_recurring_next_due);
	TimestampTz next;
	int64		pause;

	if (shown <= now || def->nulls[Anum_recurring_next_due - 1] || catches_up(def) ||
		read_recurrence(def, &recurrence) != NULL)
		return false;
	if (with_start)
		dw_recurrence_begin_by(&recurrence, now);
	if (due <= now || !dw_recurrence_next(&recurrence, now, &next) || next >= due)
		return false;
	pause = dw_recurrence_pause(&recurrence, due);
	if (due - now <= dw_time_add(pause, pause) || due - pause > shown)
		return false;
	dw_definition_set(def, Anum_recurring_starts, TimestampTzGetDatum(recurrence.starts));
	dw_definition_set(def, Anum_recurring_next_due, TimestampTzGetDatum(next));
	return true;
}

/*
 * Sets next_due, in memory, for a definition that is new, changed or resumed.  Skips ideal times
 * that had a run.  Unless the definition catches up and is not resumed, also skips ideal times in
 * the past.
 */
void
dw_definition_set_first(DwDefinition *def, bool resumed)
{
	TimestampTz after = dw_schedule_now() - 1;

	if (!resumed && catches_up(def))
	{
		after = dw_definition_time(def, Anum_recurring_starts) - 1;
		after = Max(after, too_late(def));
	}
	set_next_due(def, Max(after, dw_definition_time(def, Anum_recurring_last_due)));
	(void) dw_definition_follow_clock(def, dw_definition_clock_shown(def), resumed);
}

const AttrNumber dw_definition_and_task[DW_DEFINITION_AND_TASK][2] = {
	{Anum_recurring_timeout, Anum_task_timeout},
	{Anum_recurring_max_attempts, Anum_task_max_attempts},
	{Anum_recurring_retry_delay, Anum_task_retry_delay},
	{Anum_recurring_sql, Anum_task_sql},
	{Anum_recurring_args, Anum_task_args},
	{Anum_recurring_arg_types, Anum_task_arg_types},
	{Anum_recurring_search_path, Anum_task_search_path},
	{Anum_recurring_tag, Anum_task_tag},
	{Anum_recurring_more, Anum_task_more},
	{Anum_recurring_group_key, Anum_task_group_key},
};

/*
 * Inserts the task of the next run, and sets the definition's column "task" to its id, in memory.
 * If there is no next time, or the definition is paused or not armed, inserts no task and sets the
 * column to null.
 */
void
dw_definition_insert_run(DwDefinition *def)
{
	DwNewTask	task;

	def->nulls[Anum_recurring_task - 1] = true;
	if (def->nulls[Anum_recurring_next_due - 1] || dw_definition_is_paused(def) ||
		!dw_definition_is_armed(def))
		return;
	memset(&task, 0, sizeof(task));
	memset(task.nulls, true, sizeof(task.nulls));
	task.owner = dw_definition_owner(def);
	task.due = DatumGetTimestampTz(def->values[Anum_recurring_next_due - 1]);
	task.queue = DatumGetInt16(def->values[Anum_recurring_queue - 1]);
	task.priority = DatumGetInt16(def->values[Anum_recurring_priority - 1]);
	for (int i = 0; i < DW_DEFINITION_AND_TASK; i++)
	{
		task.values[dw_definition_and_task[i][1] - 1] = def->values[dw_definition_and_task[i][0] - 1];
		task.nulls[dw_definition_and_task[i][1] - 1] = def->nulls[dw_definition_and_task[i][0] - 1];
	}
	dw_more_set_number(task.values, task.nulls, Anum_task_more, DW_MORE_RECURRING,
					   dw_definition_number(def, Anum_recurring_id));
	dw_definition_set(def, Anum_recurring_task, Int64GetDatum(dw_schedule_successor(&task)));
}

/*
 * Returns true if the task of this row is a run of the definition.  If not, plain SQL or a partial
 * restore has written the task's id into the definition.
 */
bool
dw_definition_has_task(const DwDefinition *def, Relation tasks, HeapTuple tuple)
{
	Datum	   *values;
	bool	   *nulls;
	int64		id;

	dw_deform(tasks, tuple, &values, &nulls);
	return dw_more_number(values, nulls, Anum_task_more, DW_MORE_RECURRING, &id) &&
		id == dw_definition_number(def, Anum_recurring_id) &&
		DatumGetObjectId(values[Anum_task_owner - 1]) == dw_definition_owner(def);
}

/*---- The end of a run ----*/

/*
 * Notes the end of the current run in the definition, in memory: in its last_* columns and its
 * counters.  The caller then calls dw_definition_advance().
 */
void
dw_definition_note_end(DwDefinition *def, const DwEnded *ended)
{
	def->values[Anum_recurring_last_due - 1] = def->values[Anum_recurring_next_due - 1];
	def->nulls[Anum_recurring_last_due - 1] = def->nulls[Anum_recurring_next_due - 1];
	dw_definition_set(def, Anum_recurring_last_started, TimestampTzGetDatum(ended->started));
	if (ended->started == 0)
		def->nulls[Anum_recurring_last_started - 1] = true;
	dw_definition_set(def, Anum_recurring_last_ended, TimestampTzGetDatum(dw_now()));
	dw_definition_set(def, Anum_recurring_last_outcome, CStringGetTextDatum(dw_outcome_names[ended->outcome]));
	def->nulls[Anum_recurring_last_error - 1] = true;
	if (ended->error != NULL && ended->error->message != NULL)
	{
		const char *text = ended->error->message;

		dw_definition_set(def, Anum_recurring_last_error,
						  dw_clipped_text(text, strlen(text), MAX_ERROR));
	}
	if (ended->outcome == DW_DONE || ended->outcome == DW_FAILED)
		add_one(def, Anum_recurring_runs);
	else
		add_one(def, Anum_recurring_skipped);
	if (ended->outcome == DW_FAILED)
		add_one(def, Anum_recurring_failures);
}

/*
 * Sets next_due, in memory, to the next ideal time after the run that has ended.  Skips ideal times
 * that have passed, unless the definition catches up.
 */
void
dw_definition_advance(DwDefinition *def)
{
	TimestampTz after = dw_now();
	TimestampTz due = dw_definition_time(def, Anum_recurring_next_due);

	if (due != DT_NOBEGIN)
		after = Max(due, catches_up(def) ? too_late(def) : after);
	set_next_due(def, after);
}

/*
 * Returns true if an executor of this database runs the run with this id.  An executor that runs a
 * task outside of a transaction may already have deleted its row, see executor/autonomous.c.  Takes
 * the ready lock.
 */
bool
dw_runs_without_row(int64 id)
{
	DwDatabase *db = dw_my_database();

	return db != NULL && dw_executor_since(db, id) != 0;
}

/* Returns true if the task that the definition names exists, and is a run of this definition. */
bool
dw_recurring_has_run(const DwDefinition *def)
{
	Relation	rel = table_open(dw_catalog()->task, AccessShareLock);
	HeapTuple	tuple = dw_task_find(rel, dw_definition_number(def, Anum_recurring_task), NULL);
	bool		found = tuple != NULL && dw_definition_has_task(def, rel, tuple);

	table_close(rel, NoLock);
	return found;
}
