/*-------------------------------------------------------------------------
 *
 * definition.h
 *	  The definitions of recurring tasks, and the runs that they name.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_DEFINITION_H
#define DW_DEFINITION_H

#include "postgres.h"

#include "access/htup.h"
#include "access/tableam.h"
#include "nodes/lockoptions.h"
#include "utils/relcache.h"

#include "../rows/task_rows.h"
#include "../shmem/shared.h"
#include "../task/ended.h"

/* Shortest interval of a recurring task, in us: timer and executors must keep up. */
#define DW_MIN_EVERY_US	(100 * 1000)

/*
 * A row of delay_wheel_data.recurring_task, and changes to it that are not written yet.
 * dw_definition_set() replaces a value; data that a value points to is never modified.
 */
typedef struct DwDefinition
{
	ItemPointerData tid;		/* the version of the row that was read */
	Datum	   *values;			/* its columns; the column Anum_recurring_x is at [x - 1] */
	bool	   *nulls;
} DwDefinition;

/*
 * The current run of a definition that a session wants to change.  The session has
 * deleted the row of the run, unless an executor has the run.
 */
typedef struct DwRecurringRun
{
	int64		id;				/* task id of the run; 0: the definition has no run */
	bool		running;		/* an executor has the run; the session leaves it alone */
	HeapTuple	taken;			/* row of the run if this session has deleted it; else NULL */
	DwTaskKey	key;			/* from that row */
} DwRecurringRun;

extern int64 dw_definition_number(const DwDefinition *def, AttrNumber column);
extern void dw_definition_set(DwDefinition *def, AttrNumber column, Datum value);
extern void dw_definition_set_null(DwDefinition *def, AttrNumber column);
extern void dw_definition_set_time(DwDefinition *def, AttrNumber column, TimestampTz value);
extern bool dw_definition_is_paused(const DwDefinition *def);
extern void dw_definition_pause_for_crashes(DwDefinition *def);
extern bool dw_definition_is_armed(const DwDefinition *def);
extern Oid	dw_definition_owner(const DwDefinition *def);

/*
 * Columns that a run takes from its definition unchanged: pairs of the column's number in
 * recurring_task and its number in task.
 */
#define DW_DEFINITION_AND_TASK	10
extern const AttrNumber dw_definition_and_task[DW_DEFINITION_AND_TASK][2];

extern void dw_definition_read(Relation rel, HeapTuple tuple, DwDefinition *def);
extern bool dw_definition_find(Relation rel, int64 id, DwDefinition *def);
extern TM_Result dw_definition_lock(Relation rel, const DwDefinition *def, LockWaitPolicy wait);
extern void dw_definition_write(Relation rel, DwDefinition *def);
extern void dw_definition_delete(Relation rel, const DwDefinition *def);

extern void dw_definition_set_next(DwDefinition *def, TimestampTz after);
extern TimestampTz dw_definition_clock_shown(const DwDefinition *def);
extern bool dw_definition_follow_clock(DwDefinition *def, TimestampTz shown, bool with_start);
extern void dw_definition_set_first(DwDefinition *def);
extern void dw_definition_note_end(DwDefinition *def, const DwEnded *ended);
extern void dw_definition_advance(DwDefinition *def);
extern void dw_definition_insert_run(DwDefinition *def);

/* Result of dw_definition_find_run(): what a definition's current run turns out to be. */
typedef enum DwRunRow
{
	DW_RUN_NONE,				/* there is no row of such a task */
	DW_RUN_OF_IT,				/* the task is a run of this definition */
	DW_RUN_OF_OTHERS			/* the task is something else: plain SQL, or a partly
								 * restored dump, has put a wrong id into the definition */
} DwRunRow;

extern DwRunRow dw_definition_find_run(Relation tasks, const DwDefinition *def);
extern bool dw_runs_without_row(int64 id);
extern void dw_recurring_ended(const DwEnded *ended);
extern bool dw_recurring_may_end(Relation rel, HeapTuple tuple);
extern bool dw_recurring_unarmed(void);
extern bool dw_recurring_uses_queue(int16 queue);
extern void dw_recurring_begin(DwDatabase *db);
extern void dw_recurring_ask(DwDatabase *db);
extern bool dw_recurring_has_run(const DwDefinition *def);

#endif							/* DW_DEFINITION_H */
