/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The settings of delay_wheel.
 *
 * Run by the postmaster when the library is preloaded.  All processes read the values.  settings.h
 * gives their units.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"
#include "utils/varlena.h"

#include "settings.h"

int			dw_slots = 3600;
int			dw_tick = 1000;
int			dw_turns_ahead = 2;
int			dw_ring_memory = 32 * 1024;
int			dw_inbox_size = 1024;
int			dw_max_lanes = 16384;
int			dw_max_groups = 10000;
int			dw_max_databases = 64;
int			dw_max_queues = 1024;
int			dw_max_executors = 4;
int			dw_executor_idle_timeout = 60 * 1000;
int			dw_timer_idle_timeout = 10 * 60 * 1000;
int			dw_batch_tasks = 100;
int			dw_batch_time = 5;
#ifdef DW_INJECTION
int			dw_fail_batches = 0;
#endif
int			dw_plan_cache = 4 * 1024;
bool		dw_enabled = true;
bool		dw_superuser_tasks = true;
char	   *dw_traceparent = NULL;
char	   *dw_snoozed_until = "";
int			dw_start_after_recovery = DW_START_ON;
int			dw_default_timeout = 0;
int			dw_log_min_duration = -1;
int			dw_max_task_log = 10 * 1024;
int			dw_executor_memory = 256 * 1024;
int			dw_check_sql_text = DW_CHECK_ON;
char	   *dw_keep_settings = "";
int			dw_max_pending = -1;
int			dw_max_await = -1;
int			dw_failed_max_age = 90 * 24 * 60;
int			dw_failed_max_count = 1000000;
int			dw_history = DW_HISTORY_ERRORS;
double		dw_history_sample = 0.01;
int			dw_history_result = 0;
int			dw_history_max_age = 7 * 24 * 60;
int			dw_history_max_size = 1024 * 1024;
int			dw_audit = DW_AUDIT_OFF;
int			dw_audit_max_age = 90 * 24 * 60;

/*
 * Other spellings of on and off are accepted but hidden (third column), as in PostgreSQL's own
 * enums: tools that store settings in YAML write 'True' for on.
 */
#define SPELLINGS_OF_ON(value)	{"true", value, true}, {"yes", value, true}, {"1", value, true}
#define SPELLINGS_OF_OFF(value) {"false", value, true}, {"no", value, true}, {"0", value, true}

static const struct config_enum_entry start_after_recovery_options[] = {
	{"on", DW_START_ON, false},
	{"hold", DW_START_HOLD, false},
	SPELLINGS_OF_ON(DW_START_ON),
	{NULL, 0, false}
};

static const struct config_enum_entry history_options[] = {
	{"off", DW_HISTORY_OFF, false},
	{"errors", DW_HISTORY_ERRORS, false},
	{"sample", DW_HISTORY_SAMPLE, false},
	{"all", DW_HISTORY_ALL, false},
	SPELLINGS_OF_OFF(DW_HISTORY_OFF),
	{NULL, 0, false}
};

static const struct config_enum_entry audit_options[] = {
	{"off", DW_AUDIT_OFF, false},
	{"control", DW_AUDIT_CONTROL, false},
	{"all", DW_AUDIT_ALL, false},
	SPELLINGS_OF_OFF(DW_AUDIT_OFF),
	{NULL, 0, false}
};

static const struct config_enum_entry check_options[] = {
	{"off", DW_CHECK_OFF, false},
	{"on", DW_CHECK_ON, false},
	{"plan", DW_CHECK_PLAN, false},
	SPELLINGS_OF_ON(DW_CHECK_ON),
	SPELLINGS_OF_OFF(DW_CHECK_OFF),
	{NULL, 0, false}
};

/* The settings that are numbers.  Each default is the initial value of the setting's variable. */
static const struct
{
	const char *name;
	int		   *value;
	int			min;
	int			max;
	GucContext	context;
	int			flags;
	const char *what;
	const char *more;			/* second sentence, or NULL */
}			numbers[] = {
	/* the ring, and the sizes of shared memory */
	{"delay_wheel.slots", &dw_slots, 2, 1000000, PGC_POSTMASTER, 0,
		"Sets the number of slots in the ring of each database.",
		"One turn of the ring takes slots times delay_wheel.tick, an hour by default."},
	{"delay_wheel.tick", &dw_tick, 10, 3600 * 1000, PGC_POSTMASTER, GUC_UNIT_MS,
		"Sets the width of a slot of the ring.",
		"Inside a slot, tasks are ordered by microsecond, so the width does not limit precision."},
	{"delay_wheel.turns_ahead", &dw_turns_ahead, 1, 1000, PGC_SIGHUP, 0,
		"Sets how many turns of the ring before its due time a task is loaded into memory.",
		"Tasks that are due later use no memory."},
	{"delay_wheel.ring_memory", &dw_ring_memory, 16, 1024 * 1024 * 1024, PGC_POSTMASTER, GUC_UNIT_KB,
		"Sets the shared memory for tasks of the near future, for all databases together.",
		"Tasks that do not fit stay in their table until there is room."},
	{"delay_wheel.inbox_size", &dw_inbox_size, 1, 1024 * 1024, PGC_POSTMASTER, 0,
		"Sets how many newly committed tasks can wait for the timer of each database.",
		"If more tasks wait, the timer reads them from their table."},
	{"delay_wheel.max_lanes", &dw_max_lanes, 1, 65535, PGC_POSTMASTER, 0,
		"Sets the maximum number of lanes: combinations of owner, queue and priority that have pending tasks.",
		"It counts all databases together. Each lane takes less than 1 kB of shared memory."},
	{"delay_wheel.max_groups", &dw_max_groups, 1, 10000000, PGC_POSTMASTER, 0,
		"Sets the maximum number of groups that can wait for their turn at once.",
		"It counts all databases together. Each group takes less than 250 bytes of shared memory. Further groups take no turns: their tasks start in the order of their due times, within the limits of groups."},
	{"delay_wheel.max_databases", &dw_max_databases, 1, 10000, PGC_POSTMASTER, 0,
		"Sets the maximum number of databases that are served at once.",
		"Further databases accept tasks, which wait until a place is free."},
	{"delay_wheel.max_queues", &dw_max_queues, 1, 32767, PGC_POSTMASTER, 0,
		"Sets the maximum number of declared queues, in all databases together.",
		NULL},
	/* executors */
	{"delay_wheel.max_executors", &dw_max_executors, 1, 1024, PGC_SIGHUP, 0,
		"Sets the maximum number of executor processes of each database.",
		"One lane can use all but two, one owner all but one, so that others stay on time. If a task hangs in each executor, an owner without one gets an extra executor, up to twice the maximum in all."},
	{"delay_wheel.executor_idle_timeout", &dw_executor_idle_timeout, 100, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS,
		"Sets the time after which an idle executor ends.",
		NULL},
	{"delay_wheel.timer_idle_timeout", &dw_timer_idle_timeout, -1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS,
		"Sets the time after which an idle timer ends.",
		"A timer is idle if no task is near. It is started again before the next due time, or when a session needs it. If background workers are short, it ends sooner. -1 keeps it; 0 ends it at once."},
	{"delay_wheel.batch_tasks", &dw_batch_tasks, 1, DW_BATCH_MAX, PGC_SIGHUP, 0,
		"Sets how many tasks of a backlog can share a transaction.",
		"1 gives each task its own transaction. Only tasks of one statement that reads or writes rows share a transaction, and only if none of them fails."},
	{"delay_wheel.batch_time", &dw_batch_time, 1, 100, PGC_SIGHUP, GUC_UNIT_MS,
		"Sets the time after which no more tasks join a shared transaction.",
		NULL},
	{"delay_wheel.plan_cache", &dw_plan_cache, 0, 1024 * 1024, PGC_SIGHUP, GUC_UNIT_KB,
		"Sets the memory in which each executor keeps plans that several tasks use.",
		"0 keeps no plans."},
	{"delay_wheel.executor_memory", &dw_executor_memory, -1, INT_MAX, PGC_SIGHUP, GUC_UNIT_KB,
		"Sets the memory above which an executor ends after its task.",
		"-1 sets no limit. Shared memory does not count. Works on Linux only."},
	/* single tasks */
	{"delay_wheel.default_timeout", &dw_default_timeout, 0, INT_MAX, PGC_USERSET, GUC_UNIT_MS,
		"Sets the timeout of tasks for which neither the task nor its queue has one.",
		"0 sets no timeout. If statement_timeout is shorter, it is used instead."},
	{"delay_wheel.log_min_duration", &dw_log_min_duration, -1, INT_MAX, PGC_SUSET, GUC_UNIT_MS,
		"Sets the duration from which a task is logged.",
		"0 logs all tasks, -1 none."},
	{"delay_wheel.max_task_log", &dw_max_task_log, -1, INT_MAX, PGC_SUSET, GUC_UNIT_KB,
		"Sets the maximum size of the messages that one run of a task writes to the server's log.",
		"A task that writes more fails, and its further messages are not written. -1 sets no limit."},
	{"delay_wheel.max_pending", &dw_max_pending, -1, INT_MAX, PGC_SUSET, 0,
		"Sets the maximum number of pending tasks of the current user.",
		"At the limit, scheduling raises an error. -1 sets no limit. Superusers set it for a role with ALTER ROLE."},
	{"delay_wheel.max_await", &dw_max_await, -1, INT_MAX, PGC_SUSET, GUC_UNIT_MS,
		"Sets the maximum time that delay_await() waits.",
		"It then returns false, even if its caller asked for a longer time. -1 sets no limit. A waiting session keeps a connection, which a pooler may need. Superusers set it for a role with ALTER ROLE."},
	/* rows that are kept after the end of tasks */
	{"delay_wheel.failed_max_age", &dw_failed_max_age, -1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MIN,
		"Sets how long failed tasks are kept.",
		"-1 keeps them for ever."},
	{"delay_wheel.failed_max_count", &dw_failed_max_count, -1, INT_MAX, PGC_SIGHUP, 0,
		"Sets how many failed tasks are kept in each database.",
		"If there are more, the oldest ones of the roles with most failed tasks are removed. -1 sets no limit."},
	{"delay_wheel.history_result", &dw_history_result, 0, 4096, PGC_SUSET, GUC_UNIT_BYTE,
		"Sets the maximum size of results in the history.",
		"A result is the first row that a task returned, or the result of a message, as jsonb. 0 keeps none. Superusers set it for a role or a database."},
	{"delay_wheel.history_max_age", &dw_history_max_age, 1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MIN,
		"Sets how long the history of tasks is kept.",
		"A third of it is removed at a time."},
	{"delay_wheel.history_max_size", &dw_history_max_size, 1024, INT_MAX, PGC_SIGHUP, GUC_UNIT_KB,
		"Sets the maximum disk space of the history in each database.",
		"A quarter of it is freed at a time. Indexes that were added to its tables do not count."},
	{"delay_wheel.audit_max_age", &dw_audit_max_age, -1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MIN,
		"Sets how long rows of the audit are kept.",
		"-1 keeps them for ever."},
#ifdef DW_INJECTION
	{"delay_wheel.fail_batches", &dw_fail_batches, 0, INT_MAX, PGC_SIGHUP, GUC_NOT_IN_SAMPLE,
		"For tests: one batch of this many fails at its commit.",
		NULL},
#endif
};

/* Check hook: refuses a value that is no list of names. */
static bool
check_list(char **value, void **extra, GucSource source)
{
	List	   *names;
	bool		valid = SplitGUCList(pstrdup(*value), ',', &names);

	if (!valid)
		GUC_check_errdetail("List syntax is invalid.");
	list_free(names);
	return valid;
}

/* Defines all settings.  Called once, when the library is loaded. */
void
dw_define_settings(void)
{
	for (int i = 0; i < lengthof(numbers); i++)
		DefineCustomIntVariable(numbers[i].name, numbers[i].what, numbers[i].more,
								numbers[i].value, *numbers[i].value,
								numbers[i].min, numbers[i].max,
								numbers[i].context, numbers[i].flags, NULL, NULL, NULL);
	DefineCustomBoolVariable("delay_wheel.enabled",
							 "Runs tasks.",
							 "If it is off, tasks are still accepted, and running tasks go on to their end. Set it for the server, or for one database with ALTER DATABASE.",
							 &dw_enabled, true, PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("delay_wheel.superuser_tasks",
							 "Runs tasks of superusers.",
							 "If it is off, superusers cannot schedule tasks or run them by hand, and their pending tasks wait. Running tasks go on to their end.",
							 &dw_superuser_tasks, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("delay_wheel.start_after_recovery",
							 "Sets whether tasks run on a server that was promoted or came out of archive recovery.",
							 "With \"hold\", no task runs there until this is set to \"on\". Recovery after a crash does not count.",
							 &dw_start_after_recovery, DW_START_ON, start_after_recovery_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("delay_wheel.check_sql",
							 "Sets how the SQL of a task is checked when it is scheduled.",
							 "\"off\" checks nothing, so a syntax error shows only when the task runs. \"on\" parses the text. \"plan\" also plans it, so that a name that does not exist yet or a missing right is an error.",
							 &dw_check_sql_text, DW_CHECK_ON, check_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable(DW_TRACEPARENT,
							   "Shows the trace to which the running task belongs.",
							   "It is \"traceparent\" of the task's headers, in the format of W3C Trace Context. A session can set it, and store it with its tasks by keep_settings.",
							   &dw_traceparent, "",
							   PGC_USERSET, 0, NULL, NULL, NULL);
	/* dw_snooze() sets this setting for the running task */
	DefineCustomStringVariable(DW_SNOOZED_UNTIL,
							   "Holds the time to which delay_snooze() moves the running task; for internal use.",
							   NULL, &dw_snoozed_until, "",
							   PGC_INTERNAL, GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   NULL, NULL, NULL);
	DefineCustomStringVariable("delay_wheel.keep_settings",
							   "Sets which settings of a session are stored with each task that it schedules.",
							   "A list of names. The task runs with the values that the session has. The option keep_settings of a task or its queue takes precedence. Settings by which the text is read, such as search_path and TimeZone, need not be listed.",
							   &dw_keep_settings, "",
							   PGC_USERSET, GUC_LIST_INPUT, check_list, NULL, NULL);
	DefineCustomEnumVariable("delay_wheel.history",
							 "Sets which ends of tasks are recorded in the view delay_wheel.history.",
							 "\"errors\" records failed and retried attempts and skipped tasks; \"all\" also tasks that are done or cancelled; \"sample\" a share of the latter, delay_wheel.history_sample. The option history of a queue takes precedence. Superusers set it for a role or a database.",
							 &dw_history, DW_HISTORY_ERRORS, history_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("delay_wheel.history_sample",
							 "Sets the share of done and cancelled tasks that is recorded if delay_wheel.history is \"sample\".",
							 "Each task is recorded with this probability, which its row has in the column sample.",
							 &dw_history_sample, dw_history_sample, 0, 1,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("delay_wheel.audit",
							 "Sets which actions of roles are recorded in the view delay_wheel.audit.",
							 "\"control\" records changes of existing tasks, queues and rights, and plain SQL on the tables; \"all\" also scheduling and sending. Superusers set it for a role or a database.",
							 &dw_audit, DW_AUDIT_OFF, audit_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("delay_wheel");
}

/*
 * Returns true if a retention setting of failed tasks, the history or the audit has changed since
 * the last call in this process.  The first call only remembers the settings.
 */
bool
dw_retention_changed(void)
{
	static int	known[5] = {INT_MIN};
	const int	set[5] = {
		dw_failed_max_age, dw_failed_max_count, dw_history_max_age, dw_history_max_size,
		dw_audit_max_age
	};
	bool		changed = known[0] != INT_MIN && memcmp(known, set, sizeof(set)) != 0;

	memcpy(known, set, sizeof(set));
	return changed;
}

/* Returns the history level with this name, or DW_HISTORY_UNSET if no level has this name. */
DwHistoryLevel
dw_history_level(const char *text)
{
	for (const struct config_enum_entry *option = history_options; !option->hidden; option++)
		if (strcmp(text, option->name) == 0)
			return option->val;
	return DW_HISTORY_UNSET;
}

/* Sets *check to this value of delay_wheel.check_sql.  Returns false if the value is invalid. */
bool
dw_check_named(const char *name, DwCheck *check)
{
	for (const struct config_enum_entry *option = check_options; option->name != NULL; option++)
		if (pg_strcasecmp(option->name, name) == 0)
		{
			*check = option->val;
			return true;
		}
	return false;
}
