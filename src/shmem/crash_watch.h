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

extern void dw_crashes_install(void);
extern void dw_crashes_init(void);

extern void dw_crashes_watch_signals(void);
extern void dw_crashes_watch_panics(void);

#endif							/* DW_CRASH_WATCH_H */
