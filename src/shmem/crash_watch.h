/*-------------------------------------------------------------------------
 *
 * crash_watch.h
 *	  How a process ends: told to quit, or crashed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CRASH_WATCH_H
#define DW_CRASH_WATCH_H

#include "postgres.h"

#include "executors.h"

/* Called once by the postmaster. */
extern void dw_crashes_install(void);
extern void dw_crashes_init(void);

/*
 * For each of our workers: notices that the postmaster tells it to quit.  For
 * executors: a crash for want of disk or memory is not the task's fault.
 */
extern void dw_crashes_watch_signals(void);
extern void dw_crashes_watch_panics(void);
extern void dw_crashes_exited(const DwExecutor *me);

#endif							/* DW_CRASH_WATCH_H */
