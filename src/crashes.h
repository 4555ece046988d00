/*-------------------------------------------------------------------------
 *
 * crashes.h
 *	  Tasks that crash the server: who is suspected, and set aside.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CRASHES_H
#define DW_CRASHES_H

#include "shared.h"

/* After so many crashes a task is set aside: the first, and two on trial. */
#define DW_MAX_CRASHES	3

/* One more, while that was done: its row cannot be read, say, and is left alone. */
#define DW_CRASHES_LEFT_ALONE	(DW_MAX_CRASHES + 1)

/* Called once by the postmaster. */
extern void dw_crashes_install(void);

/* Set-up; the latter by the postmaster also reads what an earlier one has left. */
extern Size dw_crashes_size(void);
extern void dw_crashes_attach(void);
extern void dw_crashes_init(void);

/*
 * For each of our workers: notices that the postmaster tells it to quit.  For
 * executors: a crash for want of disk or memory is not the task's fault.
 */
extern void dw_crashes_watch_signals(void);
extern void dw_crashes_watch_panics(void);

/* An executor's task has called exit(). */
extern void dw_crashes_exited(const DwExecutor *me);

/* How often the process of a task has crashed; 0 is never, which is cheap to say. */
extern int	dw_crashes_of(Oid database, int64 id);

/* How many tasks of a database are suspected, or were set aside and not forgotten. */
extern int	dw_crashes_suspects(Oid database);

/*
 * A suspect is to be run by another executor.  False if it was put off too
 * often: tasks of other lanes may come before it each time.
 */
extern bool dw_crashes_put_off(Oid database, int64 id);

/* Some batch was crashed lately: none is to be begun for a while. */
extern bool dw_crashes_forbid_batches(void);

/* The task has ended, or another one of the same id may come. */
extern void dw_crashes_forget(Oid database, int64 id);
extern void dw_crashes_forget_database(Oid database);

/* There is no row of it any more, whoever has removed that. */
extern void dw_crashes_gone(Oid database, int64 id);

/* A run of a recurring task was lost or left out, and another one takes its place; 0: none does. */
extern void dw_crashes_pass_on(Oid database, int64 from, int64 to);

/* For a new timer: forgets tasks that are gone. */
extern void dw_crashes_tidy(DwDatabase *db);

/* For the launcher: writes down what has changed. */
extern void dw_crashes_save(void);

#endif							/* DW_CRASHES_H */
