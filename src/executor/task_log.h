/*-------------------------------------------------------------------------
 *
 * task_log.h
 *	  The limit of what a task may write to the server's log.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TASK_LOG_H
#define DW_TASK_LOG_H

#include "postgres.h"

extern void dw_task_log_install(void);
extern void dw_task_log_begin(void);
extern void dw_task_log_end(void);
extern void dw_task_log_resume(void);
extern bool dw_task_sql_runs(void);
extern ErrorData *dw_task_error(void);
extern const char *dw_logged_sql(const char *sql);

#endif							/* DW_TASK_LOG_H */
