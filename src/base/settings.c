/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The settings of delay_wheel.
 *
 * Run by the postmaster when the library is preloaded.  All processes read the
 * values; settings.h has their units.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"

#include "settings.h"

int			dw_slots = 3600;
int			dw_tick = 1000;
int			dw_turns_ahead = 2;
int			dw_ring_memory = 32 * 1024;
int			dw_inbox_size = 1024;
int			dw_max_lanes = 16384;
int			dw_max_databases = 64;
int			dw_max_queues = 1024;
int			dw_max_executors = 4;
int			dw_executor_idle_timeout = 60 * 1000;
int			dw_batch_tasks = 100;
int			dw_batch_time = 5;
#ifdef DW_INJECTION
int			dw_fail_batches = 0;
#endif
int			dw_plan_cache = 4 * 1024;
bool		dw_enabled = true;
int			dw_start_after_recovery = DW_START_ON;
int			dw_default_timeout = 0;
int			dw_log_min_duration = -1;
int			dw_max_task_log = 10 * 1024;
int			dw_executor_memory = 256 * 1024;
bool		dw_check_sql_text = true;
int			dw_max_pending = -1;
int			dw_failed_max_age = 90 * 24 * 60;
int			dw_failed_max_count = 1000000;
int			dw_history = DW_HISTORY_ERRORS;
int			dw_history_max_age = 7 * 24 * 60;
int			dw_history_max_size = 1024 * 1024;

/*
 * Other spellings of on and off are accepted but not listed (the third column,
 * hidden), as for PostgreSQL's own enums: tools that keep settings in YAML write
 * 'True' for on.
 */
static const struct config_enum_entry start_after_recovery_options[] = {
	{"on", DW_START_ON, false},
	{"hold", DW_START_HOLD, false},
	{"true", DW_START_ON, true},
	{"yes", DW_START_ON, true},
	{"1", DW_START_ON, true},
	{NULL, 0, false}
};

static const struct config_enum_entry history_options[] = {
	{"off", DW_HISTORY_OFF, false},
	{"errors", DW_HISTORY_ERRORS, false},
	{"all", DW_HISTORY_ALL, false},
	{"false", DW_HISTORY_OFF, true},
	{"no", DW_HISTORY_OFF, true},
	{"0", DW_HISTORY_OFF, true},
	{NULL, 0, false}
};

/* The names of history levels, from DW_HISTORY_OFF on */
static const char *const history_levels[] = {"off", "errors", "all"};

/* Settings of the ring, and limits of what fits into shared memory */
static void
define_memory_settings(void)
{
	DefineCustomIntVariable("delay_wheel.slots",
							"Number of slots in the ring of each database.",
							"A turn of the ring is slots times delay_wheel.tick: an hour by default.", &dw_slots, 3600, 2, 1000000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.tick",
							"Width of a slot of the ring.",
							"Tasks are ordered by microsecond inside a slot; the width does not limit precision.",
							&dw_tick, 1000, 10, 3600 * 1000,
							PGC_POSTMASTER, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.turns_ahead",
							"Turns of the ring that tasks are loaded into memory ahead of their due time.",
							"Tasks that are due later cost no memory.", &dw_turns_ahead, 2, 1, 1000,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.ring_memory",
							"Shared memory for tasks of the near future, for all databases together.",
							"Tasks that do not fit stay in their table until there is room.",
							&dw_ring_memory, 32 * 1024, 16, 1024 * 1024 * 1024,
							PGC_POSTMASTER, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.inbox_size",
							"Number of just committed tasks that can wait for each database's timer.",
							"When it is full, the timer reads further tasks from their table instead.",
							&dw_inbox_size, 1024, 1, 1024 * 1024,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.max_lanes",
							"Number of combinations of owner, queue and priority that can have pending tasks at once.",
							"In all databases together; each takes less than 1 kB of shared memory.", &dw_max_lanes, 16384, 1, 65535,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.max_databases",
							"Number of databases that can be served at once.",
							"Tasks of further databases are accepted, and wait until a place is free.", &dw_max_databases, 64, 1, 10000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.max_queues",
							"Number of queues that can be declared, in all databases together.",
							NULL, &dw_max_queues, 1024, 1, 32767,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
}

/* Settings of the executors, and of whether tasks run at all */
static void
define_executor_settings(void)
{
	DefineCustomIntVariable("delay_wheel.max_executors",
							"Number of executor processes for each database.",
							"One lane gets all but two of them, and one owner all but one, so that others stay on time. If a task hangs in each, owners who have none get one more, up to twice the number.",
							&dw_max_executors, 4, 1, 1024,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.executor_idle_timeout",
							"Time after which an executor without work ends.",
							NULL, &dw_executor_idle_timeout, 60 * 1000, 100, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.batch_tasks",
							"Number of tasks that may share a transaction when a queue has a backlog; with 1, each has its own.",
							"Only tasks of a single statement that reads or writes rows share one, and only while none of them fails.",
							&dw_batch_tasks, 100, 1, DW_BATCH_MAX,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.batch_time",
							"Time after which no other task joins a transaction of several tasks.",
							NULL, &dw_batch_time, 5, 1, 100,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.plan_cache",
							"Memory of each executor for plans of SQL that tasks have in common.",
							"0 keeps none.",
							&dw_plan_cache, 4 * 1024, 0, 1024 * 1024,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomBoolVariable("delay_wheel.enabled",
							 "Run tasks.",
							 "For the whole server, or for one database by ALTER DATABASE. When it is off tasks are still accepted; those that run go on to their end.",
							 &dw_enabled, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("delay_wheel.start_after_recovery",
							 "Whether tasks run on a server that was promoted or came out of archive recovery.",
							 "With \"hold\", none runs there before this is set to \"on\". A recovery after a crash does not count.",
							 &dw_start_after_recovery, DW_START_ON, start_after_recovery_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.executor_memory",
							"Memory above which an executor ends when its task has ended; -1 is no limit.",
							"Shared memory does not count. Only on Linux.",
							&dw_executor_memory, 256 * 1024, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
}

/* Settings that hold for each single task */
static void
define_task_settings(void)
{
	DefineCustomIntVariable("delay_wheel.default_timeout",
							"Time after which a task without a timeout of its own is cancelled.",
							"0 is no such limit. A statement_timeout that is shorter holds instead.",
							&dw_default_timeout, 0, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.log_min_duration",
							"Tasks that took at least this long are logged.",
							"0 logs all tasks, -1 none.",
							&dw_log_min_duration, -1, -1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.max_task_log",
							"Size of the messages up to which one run of a task may write to the server's log; -1 is no limit.",
							"A task that writes more fails, and what is beyond is not written.",
							&dw_max_task_log, 10 * 1024, -1, INT_MAX,
							PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomBoolVariable("delay_wheel.check_sql",
							 "Parse the SQL of a task when it is scheduled.",
							 "When it is off, syntax errors and the like show only when the task runs.", &dw_check_sql_text, true,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.max_pending",
							"Number of pending tasks up to which the current user may schedule more; -1 is no limit.",
							"To be set for a role by ALTER ROLE, by a superuser.",
							&dw_max_pending, -1, -1, INT_MAX,
							PGC_SUSET, 0, NULL, NULL, NULL);
}

/* Settings for what is kept of tasks that have ended */
static void
define_retention_settings(void)
{
	DefineCustomIntVariable("delay_wheel.failed_max_age",
							"Time for which failed tasks are kept.",
							"-1 keeps them for ever.",
							&dw_failed_max_age, 90 * 24 * 60, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MIN, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.failed_max_count",
							"Number of failed tasks that are kept in each database; the oldest ones of the roles that have most go.",
							"-1 is no limit.",
							&dw_failed_max_count, 1000000, -1, INT_MAX,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("delay_wheel.history",
							 "Which ends of tasks are recorded in the view of that name.",
							 "\"errors\" are failed and skipped tasks and attempts that are followed by another one; \"all\" are these and tasks that are done. A queue's own setting takes precedence. To be set for a role or a database by a superuser.",
							 &dw_history, DW_HISTORY_ERRORS, history_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.history_max_age",
							"Time for which the history of tasks is kept; a third of it goes at a time.",
							NULL, &dw_history_max_age, 7 * 24 * 60, 1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MIN, NULL, NULL, NULL);
	DefineCustomIntVariable("delay_wheel.history_max_size",
							"Disk space for the history of tasks in each database; a quarter of it is given back at a time.",
							"Indexes that were added to its tables come on top.",
							&dw_history_max_size, 1024 * 1024, 1024, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
}

/* Defines all settings; called once, when the library is loaded. */
void
dw_define_settings(void)
{
	define_memory_settings();
	define_executor_settings();
	define_task_settings();
	define_retention_settings();
#ifdef DW_INJECTION
	DefineCustomIntVariable("delay_wheel.fail_batches",
							"For tests: one batch of this many fails at its commit.",
							NULL, &dw_fail_batches, 0, 0, INT_MAX,
							PGC_SIGHUP, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
#endif
	MarkGUCPrefixReserved("delay_wheel");
}

/* Returns the history level of that name, or DW_HISTORY_UNSET if there is none. */
DwHistoryLevel
dw_history_level(const char *text)
{
	for (int i = DW_HISTORY_OFF; i <= DW_HISTORY_ALL; i++)
		if (strcmp(text, history_levels[i]) == 0)
			return i;
	return DW_HISTORY_UNSET;
}
