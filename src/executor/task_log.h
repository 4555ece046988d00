/*-------------------------------------------------------------------------
 *
 * task_log.h
 *	  What a task writes to the server's log, and the bound of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TASK_LOG_H
#define DW_TASK_LOG_H

#include "postgres.h"

/* Called once by the postmaster. */
extern void dw_task_log_install(void);

/* From here on, until the end, the SQL of a task runs. */
extern void dw_task_log_begin(void);
extern void dw_task_log_end(void);
/* It goes on. */
extern void dw_task_log_resume(void);

/* Does it run now? */
extern bool dw_task_sql_runs(void);

/* Raises an error if the task has exceeded the bound. */
extern void dw_task_log_check(void);

/* If it has, that is what the task's error is. */
extern void dw_task_log_explain(ErrorData *error);

/* The text that is logged, and shown, as the SQL of the task that runs. */
extern const char *dw_logged_sql(const char *sql);

#endif							/* DW_TASK_LOG_H */
