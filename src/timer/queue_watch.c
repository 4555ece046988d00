/*-------------------------------------------------------------------------
 *
 * queue_watch.c
 *	  Updates queues and pauses in shared memory from the tables.
 *
 * Run by the timer.  When a transaction has changed queues or pauses, the timer reads their tables,
 * gives each declared queue a place (an element of the array dw_queues), and pauses or resumes
 * lanes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"

#include "../shmem/groups.h"
#include "../shmem/queue_limits.h"
#include "../shmem/shared.h"
#include "timer.h"

/* Microseconds before the next try after an error. */
#define RETRY_US		USECS_PER_SEC
/* Microseconds before the next try if a table is locked. */
#define LOCKED_RETRY_US (100 * 1000)

/* True if this timer has read the tables of queues. */
static bool looked = false;

/* True if this timer has logged that more queues are declared than places exist. */
static bool missing_announced = false;

/* Copies the options of a declared queue to its place. */
static void
set_queue(DwQueue *place, const DwDeclaredQueue *queue)
{
	place->pause = queue->pause;
	place->batch = queue->batch;
	place->max_running = queue->max_running;
	place->rate = queue->rate;
	place->groups = queue->groups;
	place->group_max_running = queue->group_max_running;
	place->group_rate = queue->group_rate;
	place->group_order = queue->group_order != DW_ORDER_NONE;
	place->defaults = queue->defaults;
	place->external = queue->external;
	place->receive_timeout = queue->receive_timeout;
	place->notifies = queue->notify_channel != NULL;
	/* attach_lane() counts running tasks again */
	place->running = 0;
}

/* Gives places to declared queues, and frees those of dropped queues.  True if one was freed. */
static bool
place_queues(DwDatabase *db)
{
	bool		left = false;
	int			next = 0;

	for (int i = 0; i < dw_max_queues; i++)
	{
		DwDeclaredQueue   *queue;

		if (dw_queues[i].database != db->oid)
			continue;
		queue = dw_queue_declared(dw_queues[i].id);
		if (queue != NULL)
			queue->place = i;
		else
		{
			dw_queues[i].database = InvalidOid;
			left = true;
		}
	}

	/* a timer that has gone to rest has written this log line */
	if (!looked)
		missing_announced = dw_process_follows_rest(&db->timer) && db->queues_missing;
	looked = true;
	db->queues_missing = false;
	db->queue_places = 0;
	for (int i = 0; i < dw_queue_tables.nqueues; i++)
	{
		DwDeclaredQueue   *queue = &dw_queue_tables.queues[i];

		if (queue->place == DW_NO_QUEUE)
		{
			while (next < dw_max_queues && OidIsValid(dw_queues[next].database))
				next++;
			if (next == dw_max_queues)
			{
				db->queues_missing = true;
				continue;
			}
			dw_queue_enter(db, &dw_queues[next], queue->id);
			queue->place = next;
		}
		set_queue(&dw_queues[queue->place], queue);
		db->queue_places = Max(db->queue_places, queue->place + 1);
	}
	return left;
}

/*
 * Sets the lane's queue_place, and counts the lane's executors for its queue.  If the queue has got
 * or lost groups, cuts the lane, since entries with and without groups differ.  The caller has
 * removed lanes of external queues from their lists.
 */
static void
attach_lane(DwDatabase *db, DwLane *lane)
{
	DwDeclaredQueue   *queue = lane->queue != 0 ? dw_queue_declared(lane->queue) : NULL;

	lane->queue_place = queue ? queue->place : DW_NO_QUEUE;
	if (lane->queue_place != DW_NO_QUEUE && queue->external && !lane->external)
		dw_ready_unlist(db, lane);
	lane->external = lane->queue_place != DW_NO_QUEUE && queue->external;
	if (lane->grouped != (lane->queue_place != DW_NO_QUEUE && queue->groups))
	{
		lane->grouped = !lane->grouped;
		dw_near_cut(lane, PG_INT64_MIN, PG_INT64_MIN);
	}
	dw_groups_obey_limits(lane);
	if (lane->queue_place != DW_NO_QUEUE)
		dw_queues[lane->queue_place].running += lane->running;
}

/* Reports that places for queues are lacking, again only after all queues have had places. */
static void
report_missing(DwDatabase *db)
{
	if (!db->queues_missing)
		missing_announced = false;
	else if (!missing_announced)
	{
		missing_announced = true;
		ereport(LOG,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many queues are declared: the limit of %d is reached", dw_max_queues),
				 errdetail("Tasks of some queues are not run."),
				 errhint("Increase \"%s\" and restart the server.", "delay_wheel.max_queues")));
		dw_problem(&db->problem, "too many queues are declared: tasks of some queues are not run");
	}
}

/*
 * Brings shared memory up to date with the tables of queues and pauses, which were just read.
 *
 * A resumed lane is cut and read again, since its ready list may be out of order: during the pause
 * tasks have arrived, and executors have put tasks back.  If a queue was dropped, its lanes are
 * cut, too, since their tasks in memory may be cancelled.
 */
static void
apply_tables(DwDatabase *db)
{
	bool		left;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	/* lanes of external queues are in the list of the queue's place, which another queue may get */
	dw_each_lane(lane, db)
		if (lane->external)
			dw_ready_unlist(db, lane);
	left = place_queues(db);
	db->paused = dw_owner_is_paused(InvalidOid);
	db->notifying = 0;
	for (int i = 0; i < dw_queue_tables.nqueues; i++)
		if (dw_queue_tables.queues[i].notify_channel != NULL)
			db->notifying++;
	dw_each_lane(lane, db)
	{
		DwPause		paused;

		attach_lane(db, lane);
		paused = dw_pause_of_lane(lane);
		if (paused == DW_NOT_PAUSED ? lane->paused != DW_NOT_PAUSED :
			paused == DW_PAUSED_NO_QUEUE && lane->paused != paused)
			dw_near_cut(lane, PG_INT64_MIN, PG_INT64_MIN);
		if (paused != DW_NOT_PAUSED)
		{
			lane->paused = paused;
			dw_ready_obey_pause(db, lane);
		}
	}
	LWLockRelease(dw_ready_lock(db));
	LWLockRelease(dw_shared->table_lock);

	dw_near_apply_cuts();
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_each_lane(lane, db)
	{
		lane->paused = dw_pause_of_lane(lane);
		dw_ready_obey_pause(db, lane);
	}
	/* queues, or the receivers of queues, may have changed */
	dw_await_wake_all(db);
	LWLockRelease(dw_ready_lock(db));

	if (left)
		dw_tell_queues_without_place();
	report_missing(db);
}

/* Pauses a lane that the timer has just entered, if all tasks of its owner are paused. */
void
dw_queues_attach_new_lane(DwDatabase *db, DwLane *lane)
{
	if (!dw_owner_is_paused(lane->owner))
		return;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	lane->paused = dw_pause_of_lane(lane);
	dw_ready_obey_pause(db, lane);
	LWLockRelease(dw_ready_lock(db));
}

/* Returns true if the role exists.  *known caches the last existing role. */
static bool
role_exists(Oid role, Oid *known)
{
	if (role == InvalidOid || role == *known)
		return true;
	if (!dw_role_exists(role))
		return false;
	*known = role;
	return true;
}

/* Returns the roles of this array that exist, or NULL if all exist. */
static ArrayType *
roles_that_exist(Datum all, Oid *known)
{
	ArrayType  *array = DatumGetArrayTypeP(all);
	Datum	   *roles;
	bool	   *nulls;
	int			n;
	int			left = 0;

	deconstruct_array(array, REGROLEOID, sizeof(Oid), true, TYPALIGN_INT, &roles, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (!nulls[i] && role_exists(DatumGetObjectId(roles[i]), known))
			roles[left++] = roles[i];
	if (left == n)
		return NULL;
	return construct_array(roles, left, REGROLEOID, sizeof(Oid), true, TYPALIGN_INT);
}

/* Replaces dropped roles in this row.  Returns true if the row was changed. */
static bool
adopt_queue(Relation rel, HeapTuple tuple, Oid *known)
{
	static const AttrNumber columns[] = {Anum_queue_users, Anum_queue_receivers};
	Datum	   *values;
	bool	   *nulls;
	bool		changed = false;
	Oid			owner;

	dw_deform(rel, tuple, &values, &nulls);
	owner = DatumGetObjectId(values[Anum_queue_owner - 1]);
	for (int i = 0; i < lengthof(columns); i++)
	{
		ArrayType  *left = nulls[columns[i] - 1] ? NULL : roles_that_exist(values[columns[i] - 1], known);

		if (left == NULL)
			continue;
		values[columns[i] - 1] = PointerGetDatum(left);
		changed = true;
	}
	if (!changed && role_exists(owner, known))
		return false;
	/* if another transaction changes the row, the timer looks again after its commit */
	if (dw_heap_delete(rel, &tuple->t_self, false) != TM_Ok)
		return false;

	if (!role_exists(owner, known))
	{
		ereport(LOG,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("queue \"%s\" was owned by a dropped role with OID %u; it is given to role \"%s\"",
						TextDatumGetCString(values[Anum_queue_name - 1]), owner,
						GetUserNameFromId(BOOTSTRAP_SUPERUSERID, false))));
		values[Anum_queue_owner - 1] = ObjectIdGetDatum(BOOTSTRAP_SUPERUSERID);
	}
	dw_table_insert(dw_catalog()->queue, values, nulls, Natts_queue);
	return true;
}

/*
 * Gives queues of dropped roles to the bootstrap superuser, and removes dropped roles from users
 * and receivers.  Otherwise a dump would contain the OID of the role, which may belong to another
 * role on another server.  Does nothing if a table is locked.  Returns true if a row was changed.
 */
static bool
adopt_queues(void)
{
	Oid			known = InvalidOid;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		any = false;

	if (dw_queue_tables.nqueues == 0 ||
		!ConditionalLockRelationOid(AuthIdRelationId, AccessShareLock) ||
		!ConditionalLockRelationOid(dw_catalog()->queue, RowExclusiveLock))
		return false;
	rel = table_open(dw_catalog()->queue, NoLock);
	scan = systable_beginscan(rel, InvalidOid, false, GetActiveSnapshot(), 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
		any |= adopt_queue(rel, tuple, &known);
	systable_endscan(scan);
	table_close(rel, NoLock);
	return any;
}

/* For dw_read(): reads the tables.  Sets *arg to true if a queue was changed. */
static bool
read_queue_rows(Relation rel, void *arg)
{
	bool	   *adopted = arg;

	if (!dw_read_also(dw_catalog()->queue) || !dw_read_also(dw_catalog()->pause))
		return false;
	dw_queue_tables_read(GetActiveSnapshot());
	*adopted = adopt_queues();
	return true;
}

/* Updates queues and pauses in shared memory.  "changed": their tables may have changed. */
TimestampTz
dw_queues_look(DwDatabase *db, bool changed)
{
	static TimestampTz look_at = DW_NEVER;
	bool		adopted = false;
	DwRead		result;

	if (!changed && dw_now() < look_at)
		return look_at;
	look_at = DW_NEVER;
	result = dw_read(db, "read queues", read_queue_rows, &adopted);
	if (result == DW_READ_DONE)
	{
		apply_tables(db);
		if (adopted)
			dw_control_raise(&db->timer_news);
	}
	else if (!dw_extension_gone)
		look_at = dw_now() + (result == DW_READ_LOCKED ? LOCKED_RETRY_US : RETRY_US);
	return look_at;
}
