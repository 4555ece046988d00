/*-------------------------------------------------------------------------
 *
 * plan_check.h
 *	  Looks names, types and rights of a task's SQL up when the task is scheduled.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PLAN_CHECK_H
#define DW_PLAN_CHECK_H

#include "postgres.h"

extern void dw_check_plan(const text *sql, Datum args, bool args_null,
						  Datum types, bool types_null);

#endif							/* DW_PLAN_CHECK_H */
