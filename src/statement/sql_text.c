/*-------------------------------------------------------------------------
 *
 * sql_text.c
 *	  Errors that point into the SQL text of a task.
 *
 * Run by sessions that schedule tasks, and by executors for tasks with a mode.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "sql_text.h"

/*
 * Error context callback; arg is a DwSqlText.  Error positions point into the task's text,
 * not into the statement that the client sent, so they are reported as those of an internal
 * query.
 */
void
dw_sql_text_callback(void *arg)
{
	const DwSqlText *text = (const DwSqlText *) arg;
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(text->sql);
	}
	if (text->option != NULL)
		errcontext("%s of a delayed task", text->option);
	else
		errcontext("SQL text of a delayed task");
}

/*
 * Like parser_errposition(), for a byte offset in the task's text.
 */
int
dw_sql_text_errposition(const char *sql, int location)
{
	return errposition(pg_mbstrlen_with_len(sql, location) + 1);
}
