/*-------------------------------------------------------------------------
 *
 * outcome.c
 *	  How a task ends, or an attempt to run it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "outcome.h"

const char *const dw_outcome_names[] = {
	[DW_DONE] = "done",
	[DW_FAILED] = "failed",
	[DW_RETRIED] = "retried",
	[DW_SKIPPED] = "skipped",
	[DW_CANCELLED] = "cancelled"
};
