/*-------------------------------------------------------------------------
 *
 * recurring.h
 *	  Recurring tasks: definitions, schedules, next runs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RECURRING_H
#define DW_RECURRING_H

#include "postgres.h"

#include "access/tableam.h"
#include "nodes/lockoptions.h"
#include "pgtime.h"

#include "../base/wing.h"
#include "../task/task.h"

/*---- cron.c: cron schedules ----*/

/* Maximum length of a schedule's text, in bytes. */
#define DW_MAX_CRON		1000

/*
 * A schedule.  Fields of integer types are sets: bit n is set if the value n matches.  The struct
 * has no pointers, so it can be copied by assignment.
 */
typedef struct DwCron
{
	uint64		seconds;
	uint64		minutes;
	uint32		hours;
	uint32		days;			/* days of the month, 1 to 31 */
	uint16		months;			/* 1 to 12 */
	uint8		weekdays;		/* weekdays that match in every week; 0 is Sunday */
	uint8		nth_weekdays[5];	/* weekdays that match as the first ([0]), second ([1]) ... of
									 * their month */
	uint8		last_weekdays;	/* weekdays that match as the last of their month */
	bool		last_day;		/* the last day of a month matches */
	bool		both_days;		/* day of month and weekday must match; false: one match is enough */
	bool		any_hour;		/* "hour" begins with *: a time that occurs twice is due twice */
} DwCron;

extern bool dw_cron_parse(const char *text, DwCron *cron, const char **problem, const char **hint);
extern bool dw_cron_next(const DwCron *cron, pg_tz *zone, TimestampTz after, TimestampTz *next);

/*---- commands.c: SQL functions ----*/

extern pg_tz *dw_time_zone(const char *name);

/* definition.c: the definitions of recurring tasks, and their runs */

/* Shortest interval of a recurring task, in us: timer and executors must keep up. */
#define DW_MIN_EVERY_US	(100 * 1000)

/*
 * A row of delay_wheel_data.recurring_task, and changes to it that are not written yet.
 * dw_definition_set() replaces a value; data that a value points to is never modified.
 */
typedef struct DwDefinition
{
	ItemPointerData tid;		/* the version of the row that was read */
	Datum	   *values;			/* the columns of the row; column Anum_recurring_x is at [x - 1] */
	bool	   *nulls;
} DwDefinition;

extern int64 dw_definition_number(const DwDefinition *def, AttrNumber column);
extern TimestampTz dw_definition_time(const DwDefinition *def, AttrNumber column);
extern void dw_definition_set(DwDefinition *def, AttrNumber column, Datum value);
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

extern TimestampTz dw_definition_clock_shown(const DwDefinition *def);
extern bool dw_definition_follow_clock(DwDefinition *def, TimestampTz shown, bool with_start);
extern void dw_definition_set_first(DwDefinition *def, bool resumed);
extern void dw_definition_note_end(DwDefinition *def, const DwEnded *ended);
extern void dw_definition_advance(DwDefinition *def);
extern void dw_definition_insert_run(DwDefinition *def);

extern bool dw_definition_has_task(const DwDefinition *def, Relation tasks, HeapTuple tuple);
extern bool dw_runs_without_row(int64 id);
extern bool dw_recurring_has_run(const DwDefinition *def);

/*---- recurrence.c: the ideal times of a recurring task ----*/

/* The rule for ideal times: an interval counted from a first time, or a cron schedule. */
typedef struct DwRecurrence
{
	pg_tz	   *zone;			/* time zone for the schedule, and for months and days of the
								 * interval */
	TimestampTz starts;			/* lower limit of ideal times; for an interval, the first ideal time */
	bool		is_cron;		/* cron is set; false: every is set */
	Interval	every;			/* the interval; positive */
	DwCron		cron;
} DwRecurrence;

extern bool dw_recurrence_next(const DwRecurrence *recurrence, TimestampTz after,
							   TimestampTz *next);
extern int64 dw_recurrence_pause(const DwRecurrence *recurrence, TimestampTz due);
extern void dw_recurrence_begin_by(DwRecurrence *recurrence, TimestampTz at);
extern bool dw_intervals_after(TimestampTz from, int64 n, const Interval *every, pg_tz *zone,
							   TimestampTz *result);

/*---- repair.c: lost runs ----*/

extern TimestampTz dw_recurring_repair(DwDatabase *db);

/*---- local_times.c: tasks that are due at a local time ----*/

extern TimestampTz dw_local_times_follow(DwDatabase *db);

extern const DwWing dw_recurring_wing;

#endif							/* DW_RECURRING_H */
