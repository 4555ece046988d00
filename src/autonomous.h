/*-------------------------------------------------------------------------
 *
 * autonomous.h
 *	  Tasks whose statement cannot run in a transaction block.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_AUTONOMOUS_H
#define DW_AUTONOMOUS_H

#include "postgres.h"

#include "claim.h"
#include "keys.h"
#include "shared.h"
#include "spi_run.h"
#include "utils/relcache.h"

/* The option mode. */
typedef enum DwMode
{
	DW_IN_TRANSACTION,			/* as ordinary tasks */
	DW_AT_MOST_ONCE,
	DW_AT_LEAST_ONCE
} DwMode;

/* By the columns of a row of delay_wheel.task. */
extern DwMode dw_mode(const Datum *values, const bool *nulls);

/* By its name; an error if there is none of that name. */
extern DwMode dw_mode_named(const char *name);

/*
 * Who deletes the row of a task that may have a mode, and is not the executor
 * that runs it, does so in between.  False if an executor runs it: then the
 * row is to be left alone, and there is nothing to leave.  Without wait, also
 * if somebody else is at it.
 */
extern bool dw_autonomous_enter(int64 id, bool wait);
extern void dw_autonomous_leave(int64 id);

/* Does an executor run a task of this key whose row is gone? */
extern bool dw_autonomous_has_key(const DwKey *key);

/* What an executor knows of a task that it runs so, beyond its transactions. */
typedef struct DwAutonomous
{
	DwMode		mode;
	Oid			table;			/* that it is of: it may drop the extension */
	HeapTuple	row;			/* a copy of the task's, nothing of it out of line */
	TimestampTz begun_at;
} DwAutonomous;

/*
 * In the transaction of a claim, which it ends: from here on the task runs, and
 * task->mode is set.  The claim comes to be in the current memory context.
 */
extern void dw_autonomous_begin(DwExecutor *me, DwClaim *claim, DwMode mode,
								DwAutonomous *task);

/*
 * Runs its statement, from the beginning of a transaction; the last one is
 * left to the caller to end.  The current memory context is to last.
 */
extern DwSpiResult dw_autonomous_run(const DwClaim *claim, const char *sql);

/*
 * In the transaction that settles it: the task is claimed again.  False if its
 * row was deleted meanwhile, or the whole extension.
 */
extern bool dw_autonomous_reclaim(DwDatabase *db, DwExecutor *me, const DwAutonomous *task,
								  DwClaim *claim);

/* That transaction, or the claim's, was undone; or the task has ended. */
extern void dw_autonomous_undone(DwDatabase *db, DwExecutor *me, const DwAutonomous *task);
extern void dw_autonomous_end(DwDatabase *db, DwExecutor *me);

/* If the executor ended now, would its task be gone, and nobody know how it ended? */
extern bool dw_autonomous_is_lost(DwExecutor *me);

/*
 * Changes when a task has ended, or was put back, whose row was gone while it
 * ran: who finds no row, nor an executor that runs the task, looks again then.
 */
extern uint32 dw_autonomous_ended(void);

#endif							/* DW_AUTONOMOUS_H */
