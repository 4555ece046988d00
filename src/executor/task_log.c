/*-------------------------------------------------------------------------
 *
 * task_log.c
 *	  The limit for a task's messages in the server's log.
 *
 * Run by executors.
 *
 * An executor has no client that gets notices, but a task can write to the server's log: by RAISE
 * WARNING or LOG, debug_print_plan, VERBOSE.  Messages beyond delay_wheel.max_task_log are left out
 * of the log, and the task is cancelled.  A task that catches the cancel fails at its end.  So no
 * work of a task takes effect without its messages, and auditing can rely on the messages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"

#include "../base/errors.h"
#include "../base/settings.h"
#include "executor.h"

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

/*
 * emit_log_hook: counts a message that is about to be written.  FATAL messages are not counted,
 * since they are the last messages of the process.
 */
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

/*
 * Begins to count.  The task's own code runs from now on, until dw_task_log_end() or
 * dw_task_error().
 */
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
 * Gives other extensions a chance to explain a cancel that they have sent.  Citus cancels a task in
 * a deadlock among nodes, but explains the error only in its emit_log_hook.  So the earlier hooks
 * get the error, as a message that must not be written to the log.
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

/*
 * For PG_CATCH: stops counting, and returns the current error of the task, in the current memory
 * context.  If the task has exceeded the limit, returns an error for this.  Otherwise another
 * extension may explain a cancel.
 */
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

/*
 * Returns the running task's SQL for the log and views, limited to DW_MAX_ERROR_TEXT bytes, in the
 * current memory context.
 */
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
