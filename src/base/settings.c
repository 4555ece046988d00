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
	{"sample", DW_HISTORY_SAMPLE, false},
	{"all", DW_HISTORY_ALL, false},
	{"false", DW_HISTORY_OFF, true},
	{"no", DW_HISTORY_OFF, true},
	{"0", DW_HISTORY_OFF, true},
	{NULL, 0, false}
};

static const struct config_enum_entry audit_options[] = {
	{"off", DW_AUDIT_OFF, false},
	{"control", DW_AUDIT_CONTROL, false},
	{"all", DW_AUDIT_ALL, false},
	{"false", DW_AUDIT_OFF, true},
	{"no", DW_AUDIT_OFF, true},
	{"0", DW_AUDIT_OFF, true},
	{NULL, 0, false}
};

static const struct config_enum_entry check_options[] = {
	{"off", DW_CHECK_OFF, false},
	{"on", DW_CHECK_ON, false},
	{"plan", DW_CHECK_PLAN, false},
	{"true", DW_CHECK_ON, true},
	{"yes", DW_CHECK_ON, true},
	{"1", DW_CHECK_ON, true},
	{"false", DW_CHECK_OFF, true},
	{"no", DW_CHECK_OFF, true},
	{"0", DW_CHECK_OFF, true},
	{NULL, 0, false}
};

/* The names of history levels, from DW_HISTORY_OFF on */
static const char *const history_levels[] = {"off", "errors", "sample", "all"};

/*
 * The settings that are numbers.  The default of each is the value that its variable has
 * above.
 */
static const struct
{
	const char *name;
	int		   *value;
	int			min;
	int			max;
	GucContext	context;
	int			flags;
	const char *what;
	const char *more;			/* or NULL */
}			numbers[] = {
	/* the ring, and limits of what fits into shared memory */
	{"delay_wheel.slots", &dw_slots, 2, 1000000, PGC_POSTMASTER, 0,
		"Number of slots in the ring of each database.",
		"A turn of the ring is slots times delay_wheel.tick: an hour by default."},
	{"delay_wheel.tick", &dw_tick, 10, 3600 * 1000, PGC_POSTMASTER, GUC_UNIT_MS,
		"Width of a slot of the ring.",
		"Tasks are ordered by microsecond inside a slot; the width does not limit precision."},
	{"delay_wheel.turns_ahead", &dw_turns_ahead, 1, 1000, PGC_SIGHUP, 0,
		"Turns of the ring that tasks are loaded into memory ahead of their due time.",
		"Tasks that are due later cost no memory."},
	{"delay_wheel.ring_memory", &dw_ring_memory, 16, 1024 * 1024 * 1024, PGC_POSTMASTER, GUC_UNIT_KB,
		"Shared memory for tasks of the near future, for all databases together.",
		"Tasks that do not fit stay in their table until there is room."},
	{"delay_wheel.inbox_size", &dw_inbox_size, 1, 1024 * 1024, PGC_POSTMASTER, 0,
		"Number of just committed tasks that can wait for each database's timer.",
		"When it is full, the timer reads further tasks from their table instead."},
	{"delay_wheel.max_lanes", &dw_max_lanes, 1, 65535, PGC_POSTMASTER, 0,
		"Number of combinations of owner, queue and priority that can have pending tasks at once.",
		"In all databases together; each takes less than 1 kB of shared memory."},
	{"delay_wheel.max_groups", &dw_max_groups, 1, 10000000, PGC_POSTMASTER, 0,
		"Number of groups that can wait for their turn at once.",
		"In all databases together; each takes less than 250 bytes of shared memory. Tasks of further groups begin in the order of their due times; limits of groups hold for them, too."},
	{"delay_wheel.max_databases", &dw_max_databases, 1, 10000, PGC_POSTMASTER, 0,
		"Number of databases that can be served at once.",
		"Tasks of further databases are accepted, and wait until a place is free."},
	{"delay_wheel.max_queues", &dw_max_queues, 1, 32767, PGC_POSTMASTER, 0,
		"Number of queues that can be declared, in all databases together.",
		NULL},
	/* executors */
	{"delay_wheel.max_executors", &dw_max_executors, 1, 1024, PGC_SIGHUP, 0,
		"Number of executor processes for each database.",
		"One lane gets all but two of them, and one owner all but one, so that others stay on time. If a task hangs in each, owners who have none get one more, up to twice the number."},
	{"delay_wheel.executor_idle_timeout", &dw_executor_idle_timeout, 100, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS,
		"Time after which an executor without work ends.",
		NULL},
	{"delay_wheel.timer_idle_timeout", &dw_timer_idle_timeout, -1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS,
		"Time after which the timer of a database in which nothing is near ends until it is needed.",
		"It is started again ahead of the next due time, or by what sessions do. If background workers are short it ends sooner. -1 keeps it, 0 lets it end at once."},
	{"delay_wheel.batch_tasks", &dw_batch_tasks, 1, DW_BATCH_MAX, PGC_SIGHUP, 0,
		"Number of tasks that may share a transaction when a queue has a backlog; with 1, each has its own.",
		"Only tasks of a single statement that reads or writes rows share one, and only while none of them fails."},
	{"delay_wheel.batch_time", &dw_batch_time, 1, 100, PGC_SIGHUP, GUC_UNIT_MS,
		"Time after which no other task joins a transaction of several tasks.",
		NULL},
	{"delay_wheel.plan_cache", &dw_plan_cache, 0, 1024 * 1024, PGC_SIGHUP, GUC_UNIT_KB,
		"Memory of each executor for plans of SQL that tasks have in common.",
		"0 keeps none."},
	{"delay_wheel.executor_memory", &dw_executor_memory, -1, INT_MAX, PGC_SIGHUP, GUC_UNIT_KB,
		"Memory above which an executor ends when its task has ended; -1 is no limit.",
		"Shared memory does not count. Only on Linux."},
	/* single tasks */
	{"delay_wheel.default_timeout", &dw_default_timeout, 0, INT_MAX, PGC_USERSET, GUC_UNIT_MS,
		"Time after which a task without a timeout of its own is cancelled.",
		"0 is no such limit. A statement_timeout that is shorter holds instead."},
	{"delay_wheel.log_min_duration", &dw_log_min_duration, -1, INT_MAX, PGC_SUSET, GUC_UNIT_MS,
		"Tasks that took at least this long are logged.",
		"0 logs all tasks, -1 none."},
	{"delay_wheel.max_task_log", &dw_max_task_log, -1, INT_MAX, PGC_SUSET, GUC_UNIT_KB,
		"Size of the messages up to which one run of a task may write to the server's log; -1 is no limit.",
		"A task that writes more fails, and what is beyond is not written."},
	{"delay_wheel.max_pending", &dw_max_pending, -1, INT_MAX, PGC_SUSET, 0,
		"Number of pending tasks up to which the current user may schedule more; -1 is no limit.",
		"To be set for a role by ALTER ROLE, by a superuser."},
	{"delay_wheel.max_await", &dw_max_await, -1, INT_MAX, PGC_SUSET, GUC_UNIT_MS,
		"Time after which delay_await() ends as if nothing had come, whatever its caller asks for; -1 is no limit.",
		"A session that waits keeps its connection, which behind a pooler others may need. To be set for a role by ALTER ROLE, by a superuser."},
	/* what is kept of tasks that have ended */
	{"delay_wheel.failed_max_age", &dw_failed_max_age, -1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MIN,
		"Time for which failed tasks are kept.",
		"-1 keeps them for ever."},
	{"delay_wheel.failed_max_count", &dw_failed_max_count, -1, INT_MAX, PGC_SIGHUP, 0,
		"Number of failed tasks that are kept in each database; the oldest ones of the roles that have most go.",
		"-1 is no limit."},
	{"delay_wheel.history_result", &dw_history_result, 0, 4096, PGC_SUSET, GUC_UNIT_BYTE,
		"Size up to which the history keeps the first row that a task has returned, or the result of a message; 0 keeps none.",
		"In bytes, as jsonb. To be set for a role or a database by a superuser."},
	{"delay_wheel.history_max_age", &dw_history_max_age, 1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MIN,
		"Time for which the history of tasks is kept; a third of it goes at a time.",
		NULL},
	{"delay_wheel.history_max_size", &dw_history_max_size, 1024, INT_MAX, PGC_SIGHUP, GUC_UNIT_KB,
		"Disk space for the history of tasks in each database; a quarter of it is given back at a time.",
		"Indexes that were added to its tables come on top."},
	{"delay_wheel.audit_max_age", &dw_audit_max_age, -1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MIN,
		"Time for which rows of the audit are kept.",
		"-1 keeps them for ever."},
#ifdef DW_INJECTION
	{"delay_wheel.fail_batches", &dw_fail_batches, 0, INT_MAX, PGC_SIGHUP, GUC_NOT_IN_SAMPLE,
		"For tests: one batch of this many fails at its commit.",
		NULL},
#endif
};

/* Check hook: refuses what is no list of names. */
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

/* Defines all settings; called once, when the library is loaded. */
void
dw_define_settings(void)
{
	for (int i = 0; i < lengthof(numbers); i++)
		DefineCustomIntVariable(numbers[i].name, numbers[i].what, numbers[i].more,
								numbers[i].value, *numbers[i].value,
								numbers[i].min, numbers[i].max,
								numbers[i].context, numbers[i].flags, NULL, NULL, NULL);
	DefineCustomBoolVariable("delay_wheel.enabled",
							 "Run tasks.",
							 "For the whole server, or for one database by ALTER DATABASE. When it is off tasks are still accepted; those that run go on to their end.",
							 &dw_enabled, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("delay_wheel.superuser_tasks",
							 "Run tasks of superusers.",
							 "When it is off superusers cannot schedule any, nor run them themselves, and those that are pending wait; one that runs goes on to its end.",
							 &dw_superuser_tasks, true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("delay_wheel.start_after_recovery",
							 "Whether tasks run on a server that was promoted or came out of archive recovery.",
							 "With \"hold\", none runs there before this is set to \"on\". A recovery after a crash does not count.",
							 &dw_start_after_recovery, DW_START_ON, start_after_recovery_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("delay_wheel.check_sql",
							 "How the SQL of a task is checked when it is scheduled.",
							 "\"on\" parses it. With \"plan\" names, types and rights are looked up, too, as a prepared statement would; what is not there yet is an error then. When it is \"off\", syntax errors and the like show only when the task runs.",
							 &dw_check_sql_text, DW_CHECK_ON, check_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable(DW_TRACEPARENT,
							   "The trace that a task belongs to, while it runs.",
							   "It is the text traceparent of its headers, as the W3C's Trace Context has it. A session may set it, and keep it with tasks by keep_settings.",
							   &dw_traceparent, "",
							   PGC_USERSET, 0, NULL, NULL, NULL);
	/* how a task says it, see dw_snooze() */
	DefineCustomStringVariable(DW_SNOOZED_UNTIL,
							   "When the running task is to be run again, after delay_snooze(); for internal use.",
							   NULL, &dw_snoozed_until, "",
							   PGC_INTERNAL, GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   NULL, NULL, NULL);
	DefineCustomStringVariable("delay_wheel.keep_settings",
							   "Settings of a session that are kept with each task that it schedules.",
							   "Their values hold while the task runs, as those of its option keep_settings, which takes precedence, and so does that of its queue. How its text is read (search_path, TimeZone and others) is kept without this, where it is not what a new session of its owner has.",
							   &dw_keep_settings, "",
							   PGC_USERSET, GUC_LIST_INPUT, check_list, NULL, NULL);
	DefineCustomEnumVariable("delay_wheel.history",
							 "Which ends of tasks are recorded in the view of that name.",
							 "\"errors\" are failed and skipped tasks and attempts that are followed by another one; \"all\" are these and tasks that are done or cancelled; \"sample\" are the errors, and of the others the share delay_wheel.history_sample. A queue's own setting takes precedence. To be set for a role or a database by a superuser.",
							 &dw_history, DW_HISTORY_ERRORS, history_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("delay_wheel.history_sample",
							 "Share of the tasks that are done or cancelled that the history records where it is \"sample\".",
							 "Each is drawn by itself, with this probability; the column of that name has it in each row that was drawn.",
							 &dw_history_sample, dw_history_sample, 0, 1,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("delay_wheel.audit",
							 "Which actions of roles are recorded in the view of that name.",
							 "\"control\" is what is done to tasks and queues that are there: cancelling, moving, changing, running by hand, putting back, discarding, pausing, declaring, and plain SQL; \"all\" is this, and scheduling and sending. To be set for a role or a database by a superuser.",
							 &dw_audit, DW_AUDIT_OFF, audit_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("delay_wheel");
}

/* Fills settings with those that say how long failed tasks, the history and the audit are kept. */
void
dw_retention_settings(int settings[DW_RETENTION_SETTINGS])
{
	settings[0] = dw_failed_max_age;
	settings[1] = dw_failed_max_count;
	settings[2] = dw_history_max_age;
	settings[3] = dw_history_max_size;
	settings[4] = dw_audit_max_age;
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

/* Sets *check to the value of delay_wheel.check_sql of that name; false if there is none. */
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
