/*-------------------------------------------------------------------------
 *
 * task_limits.c
 *	  The limits of a run: its messages in the server's log, and its timeout.
 *
 * Run by executors.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "executor.h"

/*---- Messages in the log ----*/

/*
 * An executor has no client that gets notices, but a task can write to the server's log: by RAISE
 * WARNING or LOG, debug_print_plan, VERBOSE.  Messages beyond delay_wheel.max_task_log are left out
 * of the log, and the task is cancelled.  A task that catches the cancel fails at its end.  So no
 * work of a task takes effect without its messages, and auditing can rely on the messages.
 */

static emit_log_hook_type prev_hook = NULL;
static bool counting = false;	/* true while the task's own code runs */
static bool exceeded = false;	/* true if the task has exceeded the limit */
static uint64 written = 0;		/* bytes that the task has written */

static uint64
length_of(const char *text)
{
	return text == NULL ? 0 : strlen(text);
}

/* Size of a message in the log, in bytes, without log_line_prefix. */
static uint64
size_of(const ErrorData *error)
{
	return length_of(error->message) + length_of(error->detail) + length_of(error->detail_log) +
		length_of(error->hint) + length_of(error->internalquery) +
		(error->hide_ctx ? 0 : length_of(error->context)) +
		(error->hide_stmt ? 0 : length_of(debug_query_string));
}

/* emit_log_hook: counts a message, but not FATAL, the last message of the process. */
static void
count_message(ErrorData *error)
{
	if (counting && error->elevel < FATAL)
	{
		written += size_of(error);
		if (dw_max_task_log >= 0 && written > (uint64) dw_max_task_log * 1024)
		{
			exceeded = true;
			error->output_to_server = false;
			QueryCancelPending = true;
			InterruptPending = true;
			return;
		}
	}
	if (prev_hook)
		prev_hook(error);
}

/* Called once by the postmaster. */
void
dw_task_log_install(void)
{
	prev_hook = emit_log_hook;
	emit_log_hook = count_message;
}

/* Begins to count: the task's own code runs, until dw_task_log_end() or dw_task_error(). */
void
dw_task_log_begin(void)
{
	counting = true;
	exceeded = false;
	written = 0;
}

/* Counts again for the same task, after dw_task_log_end(). */
void
dw_task_log_resume(void)
{
	counting = true;
}

/* Stops counting.  Raises an error if the task has exceeded the limit. */
void
dw_task_log_end(void)
{
	counting = false;
	if (exceeded)
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("task wrote too much to the server's log")));
}

/* Returns true if a task's own code runs now in this process. */
bool
dw_task_sql_runs(void)
{
	return counting;
}

/*
 * Citus cancels a task in a deadlock among nodes, but explains the error only in its emit_log_hook.
 * So the earlier hooks get the error, as a message that must not be written to the log.
 */
static void
ask_for_reason(ErrorData *error)
{
	bool		output = error->output_to_server;

	if (prev_hook == NULL || error->sqlerrcode != ERRCODE_QUERY_CANCELED)
		return;
	error->output_to_server = false;
	prev_hook(error);
	error->output_to_server = output;
}

/* For PG_CATCH: stops counting, and returns the task's error, perhaps that of the limit. */
ErrorData *
dw_task_error(void)
{
	ErrorData  *error = dw_take_error();

	counting = false;
	if (exceeded)
	{
		exceeded = false;
		error->sqlerrcode = ERRCODE_CONFIGURATION_LIMIT_EXCEEDED;
		error->message = psprintf("task wrote more than %d kB to the server's log", dw_max_task_log);
		error->hint = pstrdup("The limit is the setting \"delay_wheel.max_task_log\".");
	}
	else
		ask_for_reason(error);
	return error;
}

/* Returns SQL for log and views, cut to DW_MAX_ERROR_TEXT bytes, in this memory context. */
const char *
dw_logged_sql(const char *sql)
{
	size_t		length = strlen(sql);
	char	   *begin;

	if (length <= DW_MAX_ERROR_TEXT)
		return sql;
	length = pg_mbcliplen(sql, length, DW_MAX_ERROR_TEXT);
	begin = palloc(length + 4);
	memcpy(begin, sql, length);
	strcpy(begin + length, "...");
	return begin;
}

/*---- The timeout of a task or a batch ----*/

/*
 * PostgreSQL does not use the timer of statement_timeout in background workers, so this file can
 * use it.
 *
 * A timeout sends one cancel.  SQL can catch the cancel (WHEN query_canceled) and continue forever.
 * So if the task has not ended GRACE_MS after its timeout, the process ends itself.  While the
 * cancel is still pending, the process does not end itself: the task is in code that cannot be
 * interrupted, and the cancel takes effect after this code.
 */

/* Time in ms from the timeout until the process ends itself, if the task continues. */
#define GRACE_MS		5000

static bool armed = false;
static volatile sig_atomic_t ends_process = false;

/* Timeout handler: terminates this process, unless the cancel is still pending. */
static void
end_process(void)
{
	if (QueryCancelPending)
		return;
	ends_process = true;
	ProcDiePending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
}

/* Returns the id of the timeout that ends the process.  The first call registers the timeout. */
static TimeoutId
end_timeout(void)
{
	static TimeoutId id = MAX_TIMEOUTS;

	if (id == MAX_TIMEOUTS)
		id = RegisterTimeout(USER_TIMEOUT, end_process);
	return id;
}

/* Begins a timeout, which cancels this process's work after ms milliseconds.  0: no timeout. */
void
dw_timeout_arm(int ms)
{
	EnableTimeoutParams both[2] = {
		{.id = STATEMENT_TIMEOUT, .type = TMPARAM_AFTER, .delay_ms = ms},
		{.type = TMPARAM_EVERY, .delay_ms = (int) Min((int64) ms + GRACE_MS, PG_INT32_MAX)}
	};

	armed = ms > 0;
	if (!armed)
		return;
	both[1].id = end_timeout();
	enable_timeouts(both, lengthof(both));
}

/* Disables the timeout, if dw_timeout_arm() has enabled it. */
void
dw_timeout_disarm(void)
{
	if (armed)
	{
		DisableTimeoutParams both[2] = {{.id = STATEMENT_TIMEOUT}, {.id = end_timeout()}};

		disable_timeouts(both, lengthof(both));
	}
	armed = false;
}

/* Returns true if the timeout was armed and has expired.  To be called before it is disarmed. */
bool
dw_timeout_struck(void)
{
	return armed && !get_timeout_active(STATEMENT_TIMEOUT);
}

/* Returns true if this process ends because a task went on after its timeout. */
bool
dw_timeout_ends_process(void)
{
	return ends_process;
}
