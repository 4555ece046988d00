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

/* The shortest interval: executors and timers must come along. */
#define DW_MIN_EVERY_US	(100 * 1000)

/* A row of delay_wheel.recurring_task; what was read is not changed in place. */
typedef struct DwDefinition
{
	ItemPointerData tid;
	Datum	   *values;
	bool	   *nulls;
} DwDefinition;

/* What became of the current run of a definition that is to be changed. */
typedef struct DwRecurringRun
{
	int64		id;				/* 0: there was none yet */
	bool		running;		/* an executor has it, it is left alone */
	HeapTuple	taken;			/* its row, deleted by us, or NULL */
	DwTaskKey	key;
} DwRecurringRun;

/* Columns; a number that is null is 0. */
extern int64 dw_definition_number(const DwDefinition *def, AttrNumber column);
extern void dw_definition_set(DwDefinition *def, AttrNumber column, Datum value);
extern void dw_definition_set_null(DwDefinition *def, AttrNumber column);
extern void dw_definition_set_time(DwDefinition *def, AttrNumber column, TimestampTz value);
extern bool dw_definition_is_paused(const DwDefinition *def);

/* Each run would crash the server: there is none before it is resumed. */
extern void dw_definition_pause_for_crashes(DwDefinition *def);
extern bool dw_definition_is_armed(const DwDefinition *def);
extern Oid	dw_definition_owner(const DwDefinition *def);

/* What a run has of its definition as it stands there. */
#define DW_DEFINITION_AND_TASK	9
extern const AttrNumber dw_definition_and_task[DW_DEFINITION_AND_TASK][2];

/* Rows, in a table that is locked for writing.  The latter two: locked, too. */
extern void dw_definition_read(Relation rel, HeapTuple tuple, DwDefinition *def);
extern bool dw_definition_find(Relation rel, int64 id, DwDefinition *def);
extern TM_Result dw_definition_lock(Relation rel, const DwDefinition *def, LockWaitPolicy wait);
extern void dw_definition_write(Relation rel, DwDefinition *def);
extern void dw_definition_delete(Relation rel, const DwDefinition *def);

/*
 * Set the ideal time of the next run: the first one after a time; the first one
 * at all; the one after the run that has ended, of which notes are made before.
 * Null if there is none.
 */
extern void dw_definition_set_next(DwDefinition *def, TimestampTz after);
extern void dw_definition_set_first(DwDefinition *def);
extern void dw_definition_note_end(DwDefinition *def, const DwEnded *ended);
extern void dw_definition_advance(DwDefinition *def);
extern void dw_definition_insert_run(DwDefinition *def);

/*
 * The row of the task that it names, in a table that is open.  Plain SQL, or a
 * part of a dump, may have put the number of anybody's task there.
 */
typedef enum DwRunRow
{
	DW_RUN_NONE,
	DW_RUN_OF_IT,
	DW_RUN_OF_OTHERS
} DwRunRow;
extern DwRunRow dw_definition_find_run(Relation tasks, const DwDefinition *def);
extern bool dw_runs_without_row(int64 id);
extern void dw_recurring_ended(const DwEnded *ended);
extern bool dw_recurring_may_end(Relation rel, HeapTuple tuple);
extern bool dw_recurring_unarmed(void);
extern bool dw_recurring_uses_queue(int16 queue);

/*
 * A run may have got lost, or an owner: the sweeper is to look.  The first one
 * is for timers at their start, and asks only if there are any recurring tasks.
 */
extern void dw_recurring_begin(DwDatabase *db);
extern void dw_recurring_ask(DwDatabase *db);
extern bool dw_recurring_has_run(const DwDefinition *def);

#endif							/* DW_DEFINITION_H */
