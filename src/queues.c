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

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "lanes.h"
#include "limits.h"
#include "load.h"
#include "queues.h"
#include "settings.h"
#include "task_rows.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

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

/* Temporary: a look for tests of limits. */
static int64
column(Relation rel, HeapTuple tuple, int column)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, column, RelationGetDescr(rel), &isnull);

	return isnull ? 0 : column == 4 ? DatumGetBool(value) : column == 1 ? DatumGetInt16(value) :
		DatumGetInt32(value);
}

TimestampTz
dw_queues_look(DwDatabase *db, bool changed)
{
	Relation	task = dw_read_begin();
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			n = 0;

	if (task == NULL)
	{
		dw_read_end(task);
		return dw_extension_gone ? DW_NEVER : dw_now() + 100000;
	}
	rel = table_open(dw_catalog()->queue, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		DwQueue    *q = &dw_queues[n++];

		q->database = db->oid;
		q->id = column(rel, tuple, 1);
		q->paused = column(rel, tuple, 4);
		q->max_running = column(rel, tuple, 5);
		q->rate = column(rel, tuple, 6);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	dw_read_end(task);
	for (; n < dw_max_queues; n++)
		dw_queues[n].database = InvalidOid;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (int i = 0; i < dw_max_queues; i++)
		dw_queues[i].running = 0;
	for (int32 i = db->lanes; i != DW_NO_LANE; i = dw_lanes[i].next)
	{
		DwQueue    *q;

		dw_lanes[i].queue_place = dw_queue_place(db->oid, dw_lanes[i].queue);
		q = dw_lane_queue(&dw_lanes[i]);
		dw_lanes[i].paused = q != NULL && q->paused;
		if (q)
			q->running += dw_lanes[i].running;
	}
	LWLockRelease(dw_ready_lock(db));
	LWLockRelease(dw_shared->table_lock);
	/* for want of news of changes */
	return dw_now() + 200000;
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
