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

extern void dw_task_log_install(void);

/* From here on, until the end, the SQL of a task runs. */
extern void dw_task_log_begin(void);
extern void dw_task_log_end(void);
extern void dw_task_log_resume(void);
extern bool dw_task_sql_runs(void);
extern void dw_task_log_check(void);
extern void dw_task_log_explain(ErrorData *error);
extern const char *dw_logged_sql(const char *sql);

#endif							/* DW_TASK_LOG_H */
