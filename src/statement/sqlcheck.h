/*-------------------------------------------------------------------------
 *
 * sqlcheck.h
 *	  Refuses SQL that can never run as a task, when the task is scheduled.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SQLCHECK_H
#define DW_SQLCHECK_H

#include "postgres.h"

extern void dw_check_sql(const text *sql, int nargs);
extern void dw_check_follow_up(const text *sql, const char *option, int nargs);
extern void dw_check_sql_autonomous(const text *sql, int nargs);

#endif							/* DW_SQLCHECK_H */
