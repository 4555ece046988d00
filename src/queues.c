/*-------------------------------------------------------------------------
 *
 * queues.c
 *	  Queues: who may use them, and what is common to their tasks.
 *
 * Run by backends, executors and timers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "queues.h"

void
dw_queue_find(const char *name, DwQueueForTask *queue)
{
	if (name != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("queue \"%s\" does not exist", name)));
	queue->id = 0;
	queue->priority = 0;
	queue->spread = 0;
}

TimestampTz
dw_queues_look(DwDatabase *db, bool changed)
{
	return DW_NEVER;
}

void
dw_queue_defaults(DwDatabase *db, int16 queue, DwQueueDefaults *defaults)
{
	defaults->timeout = -1;
	defaults->max_attempts = 1;
	defaults->retry_delay = 10 * USECS_PER_SEC;
}

bool
dw_is_paused(DwDatabase *db, Oid owner, int16 queue)
{
	return false;
}
