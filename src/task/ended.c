/*-------------------------------------------------------------------------
 *
 * ended.c
 *	  The names of the ways in which a task can end.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "ended.h"

const char *const dw_end_names[] = {
	[DW_END_DONE] = "done",
	[DW_END_FAILED] = "failed",
	[DW_END_RETRIED] = "retried",
	[DW_END_SKIPPED] = "skipped",
	[DW_END_CANCELLED] = "cancelled"
};
