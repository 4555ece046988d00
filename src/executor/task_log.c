/*-------------------------------------------------------------------------
 *
 * task_log.c
 *	  What a task writes to the server's log, and the bound of it.
 *
 * Run by executors.
 *
 * There is no client that notices would go to, but a task can write to the
 * log: by RAISE WARNING or LOG, debug_print_plan, VERBOSE.  What comes
 * beyond delay_wheel.max_task_log is left out, and the task is cancelled.  If it
 * catches the cancel it fails at its end nevertheless: so what is not in the
 * log, which others may rely on, has no effect either.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"

#include "../base/errors.h"
#include "../base/settings.h"
#include "task_log.h"

static emit_log_hook_type prev_hook = NULL;
static bool counting = false;
static bool exceeded = false;
static uint64 written = 0;

static uint64
length_of(const char *text)
{
	return text == NULL ? 0 : strlen(text);
}

/* Without the prefixes of lines. */
static uint64
size_of(const ErrorData *error)
{
	return length_of(error->message) + length_of(error->detail) + length_of(error->detail_log) +
		length_of(error->hint) + length_of(error->internalquery) +
		(error->hide_ctx ? 0 : length_of(error->context)) +
		(error->hide_stmt ? 0 : length_of(debug_query_string));
}

/* A message is about to be written.  FATAL ones are the last. */
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

void
dw_task_log_begin(void)
{
	counting = true;
	exceeded = false;
	written = 0;
}

/* It goes on. */
void
dw_task_log_resume(void)
{
	counting = true;
}

void
dw_task_log_end(void)
{
	counting = false;
}

/* Does it run now? */
bool
dw_task_sql_runs(void)
{
	return counting;
}

/* Raises an error if the task has exceeded the bound. */
void
dw_task_log_check(void)
{
	if (exceeded)
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("task wrote too much to the server's log")));
}

/*
 * A cancel may have a reason that only who sent it knows: one that finds a
 * deadlock among several nodes says so when the error is about to be reported.
 * So the hooks that were there before ours are shown it, as something that is not
 * to be written.
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

/* If it has, that is what the task's error is. */
void
dw_task_log_explain(ErrorData *error)
{
	if (!exceeded)
	{
		ask_for_reason(error);
		return;
	}
	exceeded = false;
	error->sqlerrcode = ERRCODE_CONFIGURATION_LIMIT_EXCEEDED;
	error->message = psprintf("task wrote more than %d kB to the server's log", dw_max_task_log);
	error->hint = pstrdup("The limit is the setting \"delay_wheel.max_task_log\".");
}

/* The text that is logged, and shown, as the SQL of the task that runs. */
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
