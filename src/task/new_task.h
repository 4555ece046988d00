/*-------------------------------------------------------------------------
 *
 * new_task.h
 *	  One new task: its due time, its checks, and its row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_NEW_TASK_H
#define DW_NEW_TASK_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/array.h"

#include "../base/settings.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/shared.h"

/* Stands for a priority that was not given. */
#define DW_NO_PRIORITY	PG_INT16_MIN
/* Stands for a number of arguments: the SQL was checked when it was stored. */
#define DW_SQL_CHECKED	(-1)

/* What became of a task that was to be scheduled. */
typedef enum DwScheduled
{
	DW_NEW,						/* it is pending */
	DW_REPLACED,				/* it is pending, in place of another one of its key */
	DW_KEPT,					/* one of its key was pending, and stays as it was */
	DW_MOVED,					/* one of its key was pending, and has got its due time */
	DW_REFUSED					/* the period of another one of its key lasts (unique_for) */
} DwScheduled;

/*
 * A task that is to be scheduled.  values and nulls are the columns of its row; those
 * that have a member of their own here, the id and the origin are filled in last.
 */
typedef struct DwNewTask
{
	Oid			owner;
	TimestampTz due;
	int16		queue;
	int16		priority;
	int64		spread;			/* the due time is moved by less than this, in us */
	DwIfExists	if_exists;		/* if the task has a key */
	DwCheck		check;			/* how its SQL is checked */
	ArrayType  *keep_settings;	/* names of the settings whose values are kept; NULL: those of
								 * delay_wheel.keep_settings */
	int64		unique_for;		/* no other task of the key for so long, in us; 0: not given */
	DwScheduled outcome;		/* set when it is scheduled; due is then that of the task
								 * that is pending */
	Datum		values[Natts_task];
	bool		nulls[Natts_task];
} DwNewTask;

extern void dw_check_expires(TimestampTz due, Datum expires);
extern void dw_new_task_init(DwNewTask *task, text *sql);
extern void dw_new_task_set(DwNewTask *task, AttrNumber column, Datum value, bool isnull);
extern TimestampTz dw_new_task_due(const DwNewTask *task, int64 id);
extern void dw_new_task_check(DwNewTask *task, int nargs);
extern void dw_new_task_keep(DwNewTask *task);
extern const char *dw_new_task_reads_otherwise(const DwNewTask *task);
extern int64 dw_new_task_insert(Relation rel, DwNewTask *task, DwLaneRef lane);
extern int64 dw_schedule_successor(DwNewTask *task);
extern TimestampTz dw_schedule_now(void);
extern TimestampTz dw_due_after(const Interval *delay);
extern TimestampTz dw_due_after_text(const text *delay);
extern TimestampTz dw_finite_due(TimestampTz due);

#endif							/* DW_NEW_TASK_H */
