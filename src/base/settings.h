/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  The settings of delay_wheel, and what follows from them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SETTINGS_H
#define DW_SETTINGS_H

#include "postgres.h"

/* Which ends are recorded. */
typedef enum DwHistoryLevel
{
	DW_HISTORY_UNSET = -1,		/* of a queue: as the setting says */
	DW_HISTORY_OFF,
	DW_HISTORY_ERRORS,
	DW_HISTORY_ALL
} DwHistoryLevel;

/* Values of delay_wheel.start_after_recovery. */
typedef enum DwStartAfterRecovery
{
	DW_START_ON,
	DW_START_HOLD
} DwStartAfterRecovery;
extern int	dw_slots;
extern int	dw_tick;			/* ms */
extern int	dw_turns_ahead;
extern int	dw_ring_memory;		/* kB */
extern int	dw_inbox_size;
extern int	dw_max_lanes;
extern int	dw_max_databases;
extern int	dw_max_queues;
extern int	dw_max_executors;
extern int	dw_executor_idle_timeout;	/* ms */
extern int	dw_batch_tasks;
extern int	dw_batch_time;		/* ms */
#ifdef DW_INJECTION
extern int	dw_fail_batches;	/* one of so many, 0 = none */
#endif
extern int	dw_plan_cache;		/* kB, 0 = none */
extern bool dw_enabled;
extern int	dw_start_after_recovery;	/* DwStartAfterRecovery */
extern int	dw_default_timeout;		/* ms, 0 = none */
extern int	dw_log_min_duration;	/* ms, -1 = off */
extern int	dw_max_task_log;	/* kB, -1 = no limit */
extern int	dw_executor_memory; /* kB, -1 = no limit */
extern bool dw_check_sql_text;
extern int	dw_max_pending;
extern int	dw_failed_max_age;	/* minutes, -1 = for ever */
extern int	dw_failed_max_count;	/* -1 = no limit */
extern int	dw_history;			/* DwHistoryLevel */
extern int	dw_history_max_age; /* minutes */
extern int	dw_history_max_size;	/* kB */

/* Width of a slot, and how far ahead of now tasks are loaded, in us. */
#define dw_tick_us()	((int64) dw_tick * 1000)
/*
 * A reload of turns_ahead reaches processes one by one.  That is harmless: a
 * committer uses the window only to ask for the timer at a due time of the far
 * future, less half a window, which is never after the due time.  And woken
 * for whatever reason, the timer goes by its own window.
 */
#define dw_window_us()	(dw_tick_us() * dw_slots * dw_turns_ahead)

/* What delay_wheel.batch_tasks can be at most. */
#define DW_BATCH_MAX	256

extern void dw_define_settings(void);
extern DwHistoryLevel dw_history_level(const char *text);

#endif							/* DW_SETTINGS_H */
