/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  The settings of delay_wheel, and values that are computed from them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SETTINGS_H
#define DW_SETTINGS_H

#include "postgres.h"

/* The ends of tasks that the history records */
typedef enum DwHistoryLevel
{
	DW_HISTORY_UNSET = -1,		/* the queue has no level, so delay_wheel.history is used */
	DW_HISTORY_OFF,
	DW_HISTORY_ERRORS,			/* failed and skipped tasks, and failed attempts */
	DW_HISTORY_SAMPLE,			/* errors, and a share of the tasks that are done or cancelled */
	DW_HISTORY_ALL				/* errors, and all tasks that are done or cancelled */
} DwHistoryLevel;

/* The actions that the audit records */
typedef enum DwAuditLevel
{
	DW_AUDIT_OFF,
	DW_AUDIT_CONTROL,			/* all actions except scheduling and sending */
	DW_AUDIT_ALL
} DwAuditLevel;

/* How the SQL of a task is checked when the task is scheduled */
typedef enum DwCheck
{
	DW_CHECK_OFF,				/* not at all */
	DW_CHECK_ON,				/* it is parsed */
	DW_CHECK_PLAN				/* it is planned, too */
} DwCheck;

/* Values of delay_wheel.start_after_recovery */
typedef enum DwStartAfterRecovery
{
	DW_START_ON,				/* tasks run after a promotion */
	DW_START_HOLD				/* no task runs after a promotion until the setting is on */
} DwStartAfterRecovery;

/* The variable dw_slots has the value of delay_wheel.slots, and so on.  See settings.c. */
extern int	dw_slots;
extern int	dw_tick;			/* ms */
extern int	dw_turns_ahead;
extern int	dw_ring_memory;		/* kB */
extern int	dw_inbox_size;
extern int	dw_max_lanes;
extern int	dw_max_groups;
extern int	dw_max_databases;
extern int	dw_max_queues;
extern int	dw_max_executors;
extern int	dw_executor_idle_timeout;	/* ms */
extern int	dw_timer_idle_timeout;	/* ms, -1 = never */
extern int	dw_batch_tasks;
extern int	dw_batch_time;		/* ms */
#ifdef DW_INJECTION
extern int	dw_fail_batches;	/* one of this many batches fails, 0 = none */
#endif
extern int	dw_plan_cache;		/* kB, 0 = none */
extern bool dw_enabled;
extern bool dw_superuser_tasks;

/* The setting that contains the trace context of the running task. */
#define DW_TRACEPARENT	"delay_wheel.traceparent"
extern char *dw_traceparent;

/* The time at which the running task asks to run again: a TimestampTz in microseconds, or empty. */
#define DW_SNOOZED_UNTIL "delay_wheel.snoozed_until"
extern char *dw_snoozed_until;
extern int	dw_start_after_recovery;	/* DwStartAfterRecovery */
extern int	dw_default_timeout;		/* ms, 0 = none */
extern int	dw_log_min_duration;	/* ms, -1 = off */
extern int	dw_max_task_log;	/* kB, -1 = no limit */
extern int	dw_executor_memory; /* kB, -1 = no limit */
extern int	dw_check_sql_text;	/* DwCheck */
extern char *dw_keep_settings;
extern int	dw_max_pending;
extern int	dw_max_await;		/* ms, -1 = no limit */
extern int	dw_failed_max_age;	/* minutes, -1 = for ever */
extern int	dw_failed_max_count;	/* -1 = no limit */
extern int	dw_history;			/* DwHistoryLevel */
extern double dw_history_sample;	/* share, 0 to 1 */
extern int	dw_history_result;	/* bytes, 0 = none */
extern int	dw_history_max_age; /* minutes */
extern int	dw_history_max_size;	/* kB */
extern int	dw_audit;			/* DwAuditLevel */
extern int	dw_audit_max_age;	/* minutes, -1 = for ever */

/* Width of a slot of the ring, in microseconds */
#define dw_tick_us()	((int64) dw_tick * 1000)

/*
 * The window, in microseconds: the timer loads tasks that are due within this time from now.
 *
 * After a change of turns_ahead, processes may use different values for a while, which is harmless.
 * A session that commits a far task only asks the timer to wake half a window before the due time.
 * The timer then uses its own value.
 */
#define dw_window_us()	(dw_tick_us() * dw_slots * dw_turns_ahead)

/* Upper limit of delay_wheel.batch_tasks, in tasks */
#define DW_BATCH_MAX	256

extern void dw_define_settings(void);
extern bool dw_retention_changed(void);
extern DwHistoryLevel dw_history_level(const char *text);
extern bool dw_check_named(const char *name, DwCheck *check);

#endif							/* DW_SETTINGS_H */
