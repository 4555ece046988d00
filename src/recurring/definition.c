/*-------------------------------------------------------------------------
 *
 * definition.c
 *	  The definitions of recurring tasks, and the runs that they name.
 *
 * Run by sessions, executors, timers and the sweeper.
 *
 * A definition is a row of delay_wheel_data.recurring_task, which describes the task and its times.
 * A run is an ordinary task that names its definition.  The definition names its current run, which
 * is pending or running.  Ideal times are the times of the interval or the cron schedule.  next_due
 * is the ideal time of the current run.
 *
 * This file finds, locks and writes definitions, computes next_due, and inserts the next
 * run when a run ends.  README.md describes the locks and their order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/lockoptions.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/outcome.h"
#include "../shmem/shared.h"
#include "../task/task.h"
#include "recurring.h"

/* Maximum length of a definition's last_error, in bytes. */
#define MAX_ERROR		1000

/* Maximum number of rows that the timer reads to find a row of another origin. */
#define UNARMED_LOOK	1000

/*---- Definitions ----*/

/* Returns an int8 column of a definition; 0 if it is null. */
int64
dw_definition_number(const DwDefinition *def, AttrNumber column)
{
	return def->nulls[column - 1] ? 0 : DatumGetInt64(def->values[column - 1]);
}

/* Sets a column of a definition in memory.  dw_definition_write() writes it to the table. */
void
dw_definition_set(DwDefinition *def, AttrNumber column, Datum value)
{
	def->values[column - 1] = value;
	def->nulls[column - 1] = false;
}

/* Sets a column of a definition to null, in memory. */
void
dw_definition_set_null(DwDefinition *def, AttrNumber column)
{
	def->nulls[column - 1] = true;
}

/* Sets a timestamptz column of a definition, in memory. */
void
dw_definition_set_time(DwDefinition *def, AttrNumber column, TimestampTz value)
{
	dw_definition_set(def, column, TimestampTzGetDatum(value));
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
 * With LockWaitSkip, returns TM_WouldBlock if another transaction has locked the row.  See
 * heap_lock_tuple() for other results.
 */
TM_Result
dw_definition_lock(Relation rel, const DwDefinition *def, LockWaitPolicy wait)
{
	HeapTupleData tuple = {.t_self = def->tid};
	TM_FailureData failure;
	Buffer		buffer;
	TM_Result	result;

	DW_INJECT("recurring-before-lock");
	result = heap_lock_tuple(rel, &tuple, GetCurrentCommandId(true), LockTupleExclusive,
							 wait, false, &buffer, &failure);
	ReleaseBuffer(buffer);
	return result;
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
void
dw_definition_set_next(DwDefinition *def, TimestampTz after)
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
		dw_definition_set_time(def, Anum_recurring_next_due, next);
	else
		dw_definition_set_null(def, Anum_recurring_next_due);
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
	TimestampTz shown = DT_NOBEGIN;

	if (!def->nulls[Anum_recurring_last_started - 1])
		shown = DatumGetTimestampTz(def->values[Anum_recurring_last_started - 1]);
	if (!def->nulls[Anum_recurring_last_ended - 1])
		shown = Max(shown, DatumGetTimestampTz(def->values[Anum_recurring_last_ended - 1]));
	return shown;
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
	TimestampTz due;
	TimestampTz next;
	int64		pause;

	if (shown <= now || def->nulls[Anum_recurring_next_due - 1] || catches_up(def) ||
		read_recurrence(def, &recurrence) != NULL)
		return false;
	due = DatumGetTimestampTz(def->values[Anum_recurring_next_due - 1]);
	if (with_start)
		dw_recurrence_begin_by(&recurrence, now);
	if (due <= now || !dw_recurrence_next(&recurrence, now, &next) || next >= due)
		return false;
	pause = dw_recurrence_pause(&recurrence, due);
	if (due - now <= dw_time_add(pause, pause) || due - pause > shown)
		return false;
	dw_definition_set_time(def, Anum_recurring_starts, recurrence.starts);
	dw_definition_set_time(def, Anum_recurring_next_due, next);
	return true;
}

/* The first and the next run */

/*
 * Sets next_due, in memory, for a definition that is new, changed or resumed.  Skips ideal times
 * that had a run.  Unless the definition catches up, also skips ideal times in the past.
 */
void
dw_definition_set_first(DwDefinition *def)
{
	TimestampTz after = dw_schedule_now() - 1;

	if (catches_up(def))
	{
		after = DatumGetTimestampTz(def->values[Anum_recurring_starts - 1]) - 1;
		after = Max(after, too_late(def));
	}
	if (!def->nulls[Anum_recurring_last_due - 1])
		after = Max(after, DatumGetTimestampTz(def->values[Anum_recurring_last_due - 1]));
	dw_definition_set_next(def, after);
	(void) dw_definition_follow_clock(def, dw_definition_clock_shown(def), false);
}

/* See recurring.h. */
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

	dw_definition_set_null(def, Anum_recurring_task);
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
 * Finds the current row of the task that a definition names as its run.  The caller has locked the
 * table of tasks.
 */
DwRunRow
dw_definition_find_run(Relation tasks, const DwDefinition *def)
{
	HeapTuple	tuple = dw_task_find(tasks, dw_definition_number(def, Anum_recurring_task), NULL);
	Datum	   *values;
	bool	   *nulls;
	int64		id;

	if (tuple == NULL)
		return DW_RUN_NONE;
	dw_deform(tasks, tuple, &values, &nulls);
	return dw_more_number(values, nulls, Anum_task_more, DW_MORE_RECURRING, &id) &&
		id == dw_definition_number(def, Anum_recurring_id) &&
		DatumGetObjectId(values[Anum_task_owner - 1]) == dw_definition_owner(def) ?
		DW_RUN_OF_IT : DW_RUN_OF_OTHERS;
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
	dw_definition_set_time(def, Anum_recurring_last_started, ended->started);
	if (ended->started == 0)
		dw_definition_set_null(def, Anum_recurring_last_started);
	dw_definition_set_time(def, Anum_recurring_last_ended, dw_now());
	dw_definition_set(def, Anum_recurring_last_outcome, CStringGetTextDatum(dw_outcome_names[ended->outcome]));
	dw_definition_set_null(def, Anum_recurring_last_error);
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

	if (!def->nulls[Anum_recurring_next_due - 1])
	{
		TimestampTz due = DatumGetTimestampTz(def->values[Anum_recurring_next_due - 1]);

		after = Max(due, catches_up(def) ? too_late(def) : after);
	}
	dw_definition_set_next(def, after);
}

/*
 * Returns true if an executor of this database runs the task with this id.  An executor that runs a
 * task outside of a transaction may already have deleted its row, see executor/autonomous.c.  Takes
 * the ready lock.
 */
bool
dw_runs_without_row(int64 id)
{
	DwDatabase *db = dw_my_database();
	bool		found = false;

	if (db == NULL)
		return false;
	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	for (uint32 i = 0; i < dw_shared->nexecutors && !found; i++)
		found = dw_executors[i].database == MyDatabaseId &&
			dw_executors[i].state == DW_EXECUTOR_BUSY && dw_executors[i].current.id == id;
	LWLockRelease(dw_ready_lock(db));
	return found;
}

/* Returns the id of the definition that a task's row names, or 0. */
static int64
definition_of(const Datum *values, const bool *nulls)
{
	int64		id;

	return dw_more_number(values, nulls, Anum_task_more, DW_MORE_RECURRING, &id) ? id : 0;
}

/*
 * Finds the newest version of a definition and locks its row, if the task is its current run;
 * otherwise returns false.  With LockWaitSkip, if another transaction has locked the row, returns
 * false and sets *busy to true.
 */
static bool
lock_of_run(Relation rel, int64 id, const DwTaskKey *task, LockWaitPolicy wait, DwDefinition *def,
			bool *busy)
{
	*busy = false;
	for (;;)
	{
		TM_Result	result;

		CHECK_FOR_INTERRUPTS();
		/* compare owners, since plain SQL can write any definition's id into a task */
		if (!dw_definition_find(rel, id, def) ||
			dw_definition_number(def, Anum_recurring_task) != task->id ||
			dw_definition_owner(def) != task->owner)
			return false;
		result = dw_definition_lock(rel, def, wait);
		if (result == TM_Ok)
			return true;
		if (result == TM_WouldBlock)
		{
			*busy = true;
			return false;
		}
		/* plain SQL in the current command has deleted the row */
		if (result == TM_SelfModified || result == TM_Invisible)
			return false;
	}
}

/*
 * Locks the definition as lock_of_run() does, but waits for a transaction that changes it.
 *
 * If the run has succeeded in this transaction, a cancel interrupts the wait and undoes the run.
 * If the run has failed, or has committed its work (a run with a mode), a cancel does not interrupt
 * the wait, since the end of the run must be recorded.
 */
static bool
wait_for_definition(Relation rel, int64 id, const DwEnded *ended, DwDefinition *def)
{
	bool		cancellable = QueryCancelHoldoffCount > 0 && ended->outcome == DW_DONE &&
		!dw_more_has(ended->values, ended->nulls, Anum_task_more, DW_MORE_MODE);
	bool		found;
	bool		busy;

	if (cancellable)
		RESUME_CANCEL_INTERRUPTS();
	found = lock_of_run(rel, id, ended->key, LockWaitBlock, def, &busy);
	if (cancellable)
		HOLD_CANCEL_INTERRUPTS();
	return found;
}

/*
 * Notes the end of a run in its definition and inserts the next run, if the task is the
 * definition's current run.
 */
static void
end_run(int64 id, const DwEnded *ended)
{
	Relation	rel = table_open(dw_catalog()->recurring, RowExclusiveLock);
	DwDefinition def;

	if (wait_for_definition(rel, id, ended, &def))
	{
		TimestampTz shown = Max(ended->started, dw_definition_clock_shown(&def));
		int64		next;

		dw_definition_note_end(&def, ended);
		if (ended->error != NULL && ended->error->sqlerrcode == DW_ERRCODE_CRASHED)
			dw_definition_pause_for_crashes(&def);
		dw_definition_advance(&def);
		(void) dw_definition_follow_clock(&def, shown, true);
		dw_definition_insert_run(&def);
		dw_definition_write(rel, &def);
		next = dw_definition_number(&def, Anum_recurring_task);
		/* after a skipped run, the next run is the suspect: otherwise runs could crash forever */
		if (ended->started == 0 && ended->outcome != DW_CANCELLED && next != 0)
			dw_crashes_end(MyDatabaseId, ended->key->id, next);
	}
	table_close(rel, NoLock);
}

/*
 * Called for each task that ends, by dw_conclude(): if the task is the current run of a recurring
 * task, inserts the next run.  Waits for transactions that change the definition.
 *
 * If an executor ends its own task, lock_timeout does not limit this wait, since the task's SQL has
 * ended.
 */
void
dw_recurring_ended(const DwEnded *ended)
{
	int64		id = ended->outcome == DW_RETRIED ? 0 :
		definition_of(ended->values, ended->nulls);
	int			lock_timeout = LockTimeout;

	if (id == 0)
		return;
	if (dw_this_executor != NULL && QueryCancelHoldoffCount > 0)
		LockTimeout = 0;
	PG_TRY();
	{
		end_run(id, ended);
	}
	PG_FINALLY();
	{
		LockTimeout = lock_timeout;
	}
	PG_END_TRY();
}

/*
 * Returns true if the sweeper can delete the row of a task, and conclude the task, without waiting
 * for the lock of a definition.  If the task is a current run, locks its definition.  Returns false
 * if another transaction has this lock.  The caller has locked the table of recurring tasks
 * (RowExclusiveLock).
 */
bool
dw_recurring_may_end(Relation rel, HeapTuple tuple)
{
	Datum	   *values;
	bool	   *nulls;
	int64		id;
	Relation	recurring;
	DwTaskKey	key;
	DwDefinition def;
	bool		busy;

	if (heap_attisnull(tuple, Anum_task_more, RelationGetDescr(rel)))
		return true;
	dw_deform(rel, tuple, &values, &nulls);
	id = definition_of(values, nulls);
	if (id == 0)
		return true;
	dw_task_key(rel, tuple, &key);
	recurring = table_open(dw_catalog()->recurring, NoLock);
	(void) lock_of_run(recurring, id, &key, LockWaitSkip, &def, &busy);
	table_close(recurring, NoLock);
	return !busy;
}

/* Returns true if the task that the definition names exists, and is a run of this definition. */
bool
dw_recurring_has_run(const DwDefinition *def)
{
	Relation	rel = table_open(dw_catalog()->task, AccessShareLock);
	DwRunRow	run = dw_definition_find_run(rel, def);

	table_close(rel, NoLock);
	return run == DW_RUN_OF_IT;
}

/*---- All definitions ----*/

/*
 * Returns true if a definition that came with a copy has a next time, but gets no run before
 * delay_wheel.arm().  Reads only the first rows of the table, where a copy puts such definitions.
 *
 * Run by the timer, which does not wait: returns false if the table is locked.
 */
bool
dw_recurring_unarmed(void)
{
	Oid			oid = dw_catalog()->recurring;
	int64		origin = dw_origin_stamp();
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	if (!ConditionalLockRelationOid(oid, AccessShareLock))
		return false;
	rel = table_open(oid, NoLock);
	scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	for (int n = 0; !found && n < UNARMED_LOOK && (tuple = systable_getnext(scan)) != NULL; n++)
	{
		TupleDesc	desc = RelationGetDescr(rel);
		bool		isnull;

		found = DatumGetInt64(heap_getattr(tuple, Anum_recurring_origin, desc, &isnull)) != origin &&
			!heap_attisnull(tuple, Anum_recurring_next_due, desc);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/* Raises an error if the definition of a recurring task names this queue. */
void
dw_recurring_require_unused(int16 queue, const char *name)
{
	Relation	rel = table_open(dw_catalog()->recurring, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;
	bool		found = false;

	while (!found && (tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;

		found = queue == DatumGetInt16(heap_getattr(tuple, Anum_recurring_queue,
													RelationGetDescr(rel), &isnull));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	if (found)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("queue \"%s\" has recurring tasks", name),
				 errhint("Give them another queue with %s, or remove them with %s.",
						 "delay_every()", "delay_unschedule()")));
}

/* Asks the sweeper to look for lost runs and for definitions of dropped roles. */
void
dw_recurring_ask(DwDatabase *db)
{
	dw_sweeper_tell(&db->sweeper_news, DW_LOOK_AT_RECURRING);
	/* the timer notices the request when control has changed, and calls the sweeper */
	dw_control_raise(&db->timer_news);
	dw_wake_timer(db, DW_AWAKE);
}

/*
 * Calls dw_recurring_ask() if there may be recurring tasks.  Run by the timer, outside of a
 * transaction, after a scan of all tasks (at its start, and after plain SQL), and after a role was
 * dropped.
 */
void
dw_recurring_begin(DwDatabase *db)
{
	if (dw_any_may_have_rows(offsetof(DwCatalog, recurring), 1))
		dw_recurring_ask(db);
}

/*---- delay_wheel.arm() ----*/

/*
 * Arms the definitions of all recurring tasks.  Sets *left to true if a definition stays unarmed,
 * since the current user lacks the owner's rights, or the owner does not exist.
 */
void
dw_recurring_arm(bool *left)
{
	Relation	rel = table_open(dw_catalog()->recurring, RowExclusiveLock);
	bool		changed;

	do
	{
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
		SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
		HeapTuple	tuple;

		changed = false;
		while ((tuple = systable_getnext(scan)) != NULL)
		{
			DwDefinition def;

			CHECK_FOR_INTERRUPTS();
			dw_definition_read(rel, heap_copytuple(tuple), &def);
			if (dw_definition_is_armed(&def))
				continue;
			if (!has_privs_of_role(GetUserId(), dw_definition_owner(&def)) ||
				!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(dw_definition_owner(&def))))
			{
				*left = true;
				continue;
			}
			/* another transaction has changed the definition since it was read */
			if (dw_definition_lock(rel, &def, LockWaitBlock) != TM_Ok)
			{
				changed = true;
				continue;
			}
			dw_definition_set(&def, Anum_recurring_origin, Int64GetDatum(dw_origin_stamp()));
			if (!dw_recurring_has_run(&def))
				dw_definition_insert_run(&def);
			dw_definition_write(rel, &def);
		}
		systable_endscan(scan);
		UnregisterSnapshot(snapshot);
	} while (changed);
	table_close(rel, NoLock);
}
