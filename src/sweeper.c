/*-------------------------------------------------------------------------
 *
 * sweeper.c
 *	  The process that removes rows of cancelled and of old failed tasks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sweeper.h"

TimestampTz
dw_sweeper_look(DwDatabase *db, bool changed)
{
	return DW_NEVER;
}
