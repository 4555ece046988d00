/*-------------------------------------------------------------------------
 *
 * failed.c
 *	  Failed tasks: tried again, and removed when they are old.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "failed.h"

TimestampTz
dw_failed_trim(bool *more)
{
	*more = false;
	return DW_NEVER;
}
