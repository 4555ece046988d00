/*-------------------------------------------------------------------------
 *
 * recurring.h
 *	  Recurring tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RECURRING_H
#define DW_RECURRING_H

#include "postgres.h"

#include "access/htup.h"
#include "conclude.h"
#include "shared.h"
#include "utils/relcache.h"

/*
 * For dw_conclude: if the task is the current run of a recurring task,
 * schedules the next one.  Waits for who changes that task.
 */
extern void dw_recurring_ended(const DwEnded *ended);

/*
 * For the sweeper, which must not wait: true if it may delete the row of a
 * task, to be concluded then, which may be a run of a recurring task.  It has
 * locked the table of recurring tasks for writing.
 */
extern bool dw_recurring_may_end(Relation rel, HeapTuple tuple);

/* For delay_arm(), after the tasks; *left is set if some are not armed. */
extern void dw_recurring_arm(bool *left);

/*
 * For the timer, which must not wait: is there one of another origin, which may
 * have no pending run?  Only the first ones are looked at, as copies bring them.
 */
extern bool dw_recurring_unarmed(void);

/* Does the definition of a recurring task name this queue? */
extern bool dw_recurring_uses_queue(int16 queue);

/*
 * A run may have got lost, or an owner: the sweeper is to look.  The first one
 * is for timers at their start, and asks only if there are any recurring tasks.
 */
extern void dw_recurring_begin(DwDatabase *db);
extern void dw_recurring_ask(DwDatabase *db);

/*
 * For the sweeper: looks at all of them, a slice at a time, in transactions of
 * its own.  Returns when to go on; DW_NEVER if that was all.
 */
extern TimestampTz dw_recurring_repair(DwDatabase *db);

#endif							/* DW_RECURRING_H */
