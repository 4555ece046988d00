/*-------------------------------------------------------------------------
 *
 * sweeper.c
 *	  The process that removes rows of cancelled and of old failed tasks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "failed.h"
#include "sweeper.h"

/* For the time being the timer itself does it, slice by slice. */
TimestampTz
dw_sweeper_look(DwDatabase *db, bool changed)
{
	bool		more = true;

	while (dw_atomic_read(&db->failed_trim_at) <= dw_now())
	{
		(void) dw_atomic_take(&db->failed_trim_at);
		while (more)
			dw_atomic_lower(&db->failed_trim_at, dw_failed_trim(&more));
	}
	return dw_atomic_read(&db->failed_trim_at);
}
