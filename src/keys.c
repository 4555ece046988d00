/*-------------------------------------------------------------------------
 *
 * keys.c
 *	  Keys: at most one pending task for each owner, queue and key.
 *
 * Run by backends that schedule, and by executors.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "keys.h"

bool
dw_task_is_superseded(Relation rel, HeapTuple tuple)
{
	return false;
}

int64
dw_key_newer(Relation rel, HeapTuple tuple)
{
	return 0;
}
