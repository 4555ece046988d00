/*-------------------------------------------------------------------------
 *
 * marks.c
 *	  Cancelling many tasks by one mark.
 *
 * Run by backends, executors and the sweeper.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "marks.h"

bool
dw_task_is_cancelled(Relation rel, HeapTuple tuple)
{
	return false;
}
