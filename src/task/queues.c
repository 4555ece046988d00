/*-------------------------------------------------------------------------
 *
 * queues.c
 *	  Queues: who may use them, and what is common to their tasks; pauses.
 *
 * The tables delay_wheel.queue and delay_wheel.pause are the truth; declare.c
 * changes them.  Each change that commits raises db->control, by which all
 * who keep something of it in memory notice:
 *
 * backends		keep the queues that they scheduled into last
 * timers		keep dw_queues in shared memory, and what lanes are paused,
 *				for pausing and limits where tasks are handed out
 * executors	keep what is paused, and ask after each claim, since the timer
 *				may not know yet: no task is started after the commit of a
 *				pause
 *
 * A lane of a queue that is not (yet) in dw_queues is paused: it must not run
 * without the limits that may be declared for it.
 *
 * Scheduling locks its queue, by an object lock of the lock manager (no row
 * lock: a busy queue would have its row rewritten all the time), so that it
 * is not dropped meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup.h"
#include "access/htup_details.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/pg_collation.h"
#include "datatype/timestamp.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/settings.h"
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/queue_limits.h"
#include "../shmem/ready.h"
#include "../shmem/shared.h"
#include "my_session.h"
#include "queues.h"
#include "touched.h"

DwQueueTables dw_queue_tables;

/* This process is the one that keeps dw_queues. */

/* A column, or what stands for null in it. */
static Datum
column_or(Relation rel, HeapTuple tuple, AttrNumber attnum, Datum otherwise)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, attnum, RelationGetDescr(rel), &isnull);

	return isnull ? otherwise : value;
}

static int64
interval_column(Relation rel, HeapTuple tuple, AttrNumber attnum, int64 otherwise)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, attnum, RelationGetDescr(rel), &isnull);

	return isnull ? otherwise : dw_interval_us(DatumGetIntervalP(value));
}

static DwHistoryLevel
history_column(Relation rel, HeapTuple tuple)
{
	Datum		level = column_or(rel, tuple, Anum_queue_history, (Datum) 0);

	return DatumGetPointer(level) == NULL ? DW_HISTORY_UNSET : dw_history_level(TextDatumGetCString(level));
}

/*---- Finding a queue to schedule into ----*/

#define MAX_FOUND	8

typedef struct Found
{
	bool		is_valid;
	uint32		control;
	char		name[NAMEDATALEN];
	DwQueueForTask queue;
	Oid			owner;
	int			nusers;
	Oid		   *users;
} Found;

/* The queues that this session has found last, and the one in question. */
static Found last_found[MAX_FOUND];
static Found *found = last_found;

/* The place of a queue that was found, or one for it. */
static void
choose_found(const char *name)
{
	static int	next = 0;

	for (int i = 0; i < MAX_FOUND; i++)
		if (strcmp(last_found[i].name, name) == 0)
		{
			found = &last_found[i];
			return;
		}
	found = &last_found[next];
	next = (next + 1) % MAX_FOUND;
}

/* The row of a queue, as it is now, or NULL. */
HeapTuple
dw_queue_row(Relation rel, const char *name)
{
	ScanKeyData key;

	ScanKeyEntryInitialize(&key, 0, Anum_queue_name, BTEqualStrategyNumber, InvalidOid,
						   C_COLLATION_OID, F_TEXTEQ, CStringGetTextDatum(name));
	return dw_find_now(rel, dw_catalog()->queue_name_key, &key);
}

/* Locks a queue, or the pause of a role, until the end of the transaction. */
LockAcquireResult
dw_queue_lock(Oid table, Oid id, LOCKMODE mode, bool wait)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, table, id, 0);
	return LockAcquire(&tag, mode, false, !wait);
}

/* Who has the lock, to schedule into the queue, relies on that it exists. */
static void
unlock_queue(Oid table, int16 id)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, table, id, 0);
	(void) LockRelease(&tag, AccessShareLock, false);
}

static int16
id_of_row(Relation rel, HeapTuple tuple)
{
	return DatumGetInt16(column_or(rel, tuple, Anum_queue_id, 0));
}

/* Takes over what the row says, in memory that lasts. */
static void
remember_found(Relation rel, HeapTuple tuple, const char *name)
{
	Datum		users = column_or(rel, tuple, Anum_queue_users, (Datum) 0);

	found->is_valid = false;
	strlcpy(found->name, name, sizeof(found->name));
	found->queue.id = id_of_row(rel, tuple);
	found->queue.priority = DatumGetInt16(column_or(rel, tuple, Anum_queue_priority, 0));
	found->queue.spread = interval_column(rel, tuple, Anum_queue_spread, 0);
	found->owner = DatumGetObjectId(column_or(rel, tuple, Anum_queue_owner, InvalidOid));
	found->nusers = 0;
	if (found->users)
		pfree(found->users);
	found->users = NULL;
	if (DatumGetPointer(users) != NULL)
	{
		ArrayType  *array = DatumGetArrayTypeP(users);
		int			n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));

		if (n > 0 && !ARR_HASNULL(array))
		{
			found->users = MemoryContextAlloc(TopMemoryContext, n * sizeof(Oid));
			memcpy(found->users, ARR_DATA_PTR(array), n * sizeof(Oid));
			found->nusers = n;
		}
	}
}

static void
raise_unknown(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("queue \"%s\" does not exist", name),
			 errhint("Declare it with %s.", "delay_queue()")));
}

/*
 * Looks the queue up and locks it.  The lock may have had to wait for a drop,
 * so the row that counts is the one found under it.
 */
static void
lock_queue_by_name(const char *name)
{
	Oid			oid = dw_catalog()->queue;
	Relation	rel = table_open(oid, AccessShareLock);
	int16		locked = 0;

	for (;;)
	{
		HeapTuple	tuple = dw_queue_row(rel, name);

		if (tuple == NULL)
			raise_unknown(name);
		if (id_of_row(rel, tuple) == locked)
		{
			remember_found(rel, tuple, name);
			break;
		}
		if (locked != 0)
			unlock_queue(oid, locked);
		locked = id_of_row(rel, tuple);
		(void) dw_queue_lock(oid, locked, AccessShareLock, true);
		heap_freetuple(tuple);
	}
	table_close(rel, AccessShareLock);
}

static bool
may_use_found(void)
{
	if (has_privs_of_role(GetUserId(), found->owner))
		return true;
	for (int i = 0; i < found->nusers; i++)
		if (found->users[i] == InvalidOid || has_privs_of_role(GetUserId(), found->users[i]))
			return true;
	return false;
}

static bool
found_is_current(DwDatabase *db)
{
	return db != NULL && found->control == pg_atomic_read_u32(&db->control);
}

/*
 * Is what was found still true?  If so, locks it.  Whoever drops it raises
 * control before he gives his lock back.
 */
static bool
found_holds(DwDatabase *db, const char *name)
{
	if (!found->is_valid || strcmp(found->name, name) != 0 || !found_is_current(db) ||
		dw_control_is_touched())
		return false;
	return dw_queue_lock(dw_catalog()->queue, found->queue.id, AccessShareLock, true) ==
		LOCKACQUIRE_ALREADY_HELD || found_is_current(db);
}

/* May the current user schedule into the queue of this row? */
bool
dw_queue_is_usable(Relation rel, HeapTuple tuple)
{
	choose_found("");
	remember_found(rel, tuple, "");
	return may_use_found();
}

/*
 * Finds a queue by name, NULL for the default queue; an error if it does not
 * exist, or the current user may not schedule into it.  It cannot be dropped
 * before the end of the transaction.
 */
void
dw_queue_find(const char *name, DwQueueForTask *queue)
{
	DwDatabase *db;

	if (name == NULL || strcmp(name, "default") == 0)
	{
		memset(queue, 0, sizeof(DwQueueForTask));
		return;
	}
	db = dw_my_database();
	choose_found(name);
	if (!found_holds(db, name))
	{
		uint32		control = db ? pg_atomic_read_u32(&db->control) : 0;

		pg_read_barrier();
		lock_queue_by_name(name);
		found->control = control;
		/* not if our own changes are in it, which may be rolled back */
		found->is_valid = db != NULL && !dw_control_is_touched();
	}
	if (!may_use_found())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for queue \"%s\"", name),
				 errdetail("Only members of the role that owns the queue, roles that it was declared for, and superusers may schedule into it."),
				 errhint("Its owner can name users with %s.", "delay_queue()")));
	*queue = found->queue;
}

/* The name of a queue; NULL if there is none of this id. */
static char *
name_of(int16 id)
{
	Relation	rel = table_open(dw_catalog()->queue, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	char	   *name = NULL;

	ScanKeyInit(&key, Anum_queue_id, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(id));
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	if (tuple != NULL)
		name = TextDatumGetCString(column_or(rel, tuple, Anum_queue_name, (Datum) 0));
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return name;
}

/* The same for a queue known by its id. */
void
dw_queue_require(int16 id)
{
	DwQueueForTask queue;
	char	   *name;

	if (id == 0)
		return;
	name = name_of(id);
	if (name == NULL)
		raise_unknown(psprintf("%d", id));
	dw_queue_find(name, &queue);
}

/*
 * Does the queue exist?  If so, it cannot be dropped before the end of the
 * transaction, which puts a task back into it.
 */
bool
dw_queue_keep(int16 id)
{
	Oid			oid = dw_catalog()->queue;

	if (id == 0)
		return true;
	if (dw_queue_lock(oid, id, AccessShareLock, true) == LOCKACQUIRE_ALREADY_HELD &&
		!dw_control_is_touched())
		return true;
	if (name_of(id) != NULL)
		return true;
	unlock_queue(oid, id);
	return false;
}

/*
 * The number of a queue, for those who need no rights on it; an error if it
 * does not exist.
 */
int16
dw_queue_named(const char *name)
{
	Relation	rel;
	HeapTuple	tuple;
	int16		id;

	if (strcmp(name, "default") == 0)
		return 0;
	rel = table_open(dw_catalog()->queue, AccessShareLock);
	tuple = dw_queue_row(rel, name);
	if (tuple == NULL)
		raise_unknown(name);
	id = id_of_row(rel, tuple);
	table_close(rel, AccessShareLock);
	return id;
}

/*---- Reading the tables ----*/

static int
compare_declared(const void *a, const void *b)
{
	return (int) ((const DwDeclaredQueue *) a)->id - (int) ((const DwDeclaredQueue *) b)->id;
}

static int
compare_oids(const void *a, const void *b)
{
	Oid			x = *(const Oid *) a;
	Oid			y = *(const Oid *) b;

	return x < y ? -1 : x > y ? 1 : 0;
}

DwDeclaredQueue *
dw_queue_declared(int16 id)
{
	DwDeclaredQueue	key = {.id = id};

	if (dw_queue_tables.nqueues == 0)
		return NULL;
	return bsearch(&key, dw_queue_tables.queues, dw_queue_tables.nqueues, sizeof(DwDeclaredQueue), compare_declared);
}

bool
dw_owner_is_paused(Oid owner)
{
	return dw_queue_tables.nowners > 0 &&
		bsearch(&owner, dw_queue_tables.owners, dw_queue_tables.nowners, sizeof(Oid), compare_oids) != NULL;
}

static void
read_queue(Relation rel, HeapTuple tuple, DwDeclaredQueue *queue)
{
	queue->id = id_of_row(rel, tuple);
	queue->paused = DatumGetBool(column_or(rel, tuple, Anum_queue_paused, BoolGetDatum(false)));
	queue->batch = DatumGetBool(column_or(rel, tuple, Anum_queue_batch, BoolGetDatum(true)));
	queue->max_running = DatumGetInt32(column_or(rel, tuple, Anum_queue_max_running, 0));
	queue->rate = DatumGetInt32(column_or(rel, tuple, Anum_queue_rate, 0));
	queue->timeout = DatumGetInt32(column_or(rel, tuple, Anum_queue_timeout, Int32GetDatum(-1)));
	queue->max_attempts = DatumGetInt16(column_or(rel, tuple, Anum_queue_max_attempts, Int16GetDatum(1)));
	queue->retry_delay = interval_column(rel, tuple, Anum_queue_retry_delay, DW_DEFAULT_RETRY_DELAY);
	queue->history = history_column(rel, tuple);
	queue->place = DW_NO_QUEUE;
}

/* Room for one more. */
static void *
reserve_entry(void *array, int n, int *size, Size element)
{
	if (n < *size)
		return array;
	*size = Max(*size * 2, 16);
	return array == NULL ? MemoryContextAlloc(dw_queue_tables.context, *size * element) :
		repalloc(array, *size * element);
}

/* Caller has locked both tables. */
void
dw_queue_tables_read(Snapshot snapshot)
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			size = 0;

	if (dw_queue_tables.context == NULL)
		dw_queue_tables.context = AllocSetContextCreate(TopMemoryContext, "delay_wheel queues",
											   ALLOCSET_SMALL_SIZES);
	dw_queue_tables.is_valid = false;
	dw_queue_tables.nqueues = dw_queue_tables.nowners = 0;
	dw_queue_tables.queues = NULL;
	dw_queue_tables.owners = NULL;
	dw_queue_tables.database_paused = false;
	MemoryContextReset(dw_queue_tables.context);

	rel = table_open(dw_catalog()->queue, NoLock);
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		dw_queue_tables.queues = reserve_entry(dw_queue_tables.queues, dw_queue_tables.nqueues, &size, sizeof(DwDeclaredQueue));
		read_queue(rel, tuple, &dw_queue_tables.queues[dw_queue_tables.nqueues++]);
	}
	systable_endscan(scan);
	table_close(rel, NoLock);

	size = 0;
	rel = table_open(dw_catalog()->pause, NoLock);
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Oid			owner = DatumGetObjectId(column_or(rel, tuple, Anum_pause_owner, InvalidOid));

		dw_queue_tables.owners = reserve_entry(dw_queue_tables.owners, dw_queue_tables.nowners, &size, sizeof(Oid));
		dw_queue_tables.owners[dw_queue_tables.nowners++] = owner;
		if (owner == InvalidOid)
			dw_queue_tables.database_paused = true;
	}
	systable_endscan(scan);
	table_close(rel, NoLock);

	if (dw_queue_tables.nqueues > 0)
		qsort(dw_queue_tables.queues, dw_queue_tables.nqueues, sizeof(DwDeclaredQueue), compare_declared);
	if (dw_queue_tables.nowners > 0)
		qsort(dw_queue_tables.owners, dw_queue_tables.nowners, sizeof(Oid), compare_oids);
}

/* What the tables say. */
static DwPause
pause_of(Oid owner, int16 queue)
{
	DwDeclaredQueue   *declared = queue != 0 ? dw_queue_declared(queue) : NULL;

	if (dw_queue_tables.database_paused)
		return DW_PAUSED_DATABASE;
	if (dw_owner_is_paused(owner))
		return DW_PAUSED_OWNER;
	return declared != NULL && declared->paused ? DW_PAUSED_QUEUE : DW_NOT_PAUSED;
}

/*---- The timer keeps shared memory up to date ----*/

DwPause
dw_pause_of_lane(const DwLane *lane)
{
	DwPause		paused = pause_of(lane->owner, lane->queue);
	DwDeclaredQueue   *queue;

	if (paused != DW_NOT_PAUSED || lane->queue == 0)
		return paused;
	queue = dw_queue_declared(lane->queue);
	if (queue == NULL)
		return DW_PAUSED_NO_QUEUE;
	return queue->place == DW_NO_QUEUE ? DW_PAUSED_NO_PLACE : DW_NOT_PAUSED;
}

/*---- Executors ----*/

/* With locks that are not kept: a long task is to be in nobody's way. */
static void
read_tables_now(void)
{
	Oid			queue = dw_catalog()->queue;
	Oid			pause = dw_catalog()->pause;
	Snapshot	snapshot;

	LockRelationOid(queue, AccessShareLock);
	LockRelationOid(pause, AccessShareLock);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	dw_queue_tables_read(snapshot);
	UnregisterSnapshot(snapshot);
	UnlockRelationOid(pause, AccessShareLock);
	UnlockRelationOid(queue, AccessShareLock);
}

/* Reads the tables again, if they may have been changed. */
static void
keep_tables_current(DwDatabase *db)
{
	uint32		control;

	/* a pause is visible before control is raised, and that before it returns */
	pg_memory_barrier();
	control = db ? pg_atomic_read_u32(&db->control) : 0;
	if (!dw_queue_tables.is_valid || dw_queue_tables.control != control || dw_control_is_touched())
	{
		pg_memory_barrier();
		read_tables_now();
		dw_queue_tables.control = control;
		/* not if our own changes are in it, which may be rolled back */
		dw_queue_tables.is_valid = db != NULL && !dw_control_is_touched();
	}
}

/*
 * Are the tasks of this owner and queue paused?  As of now, committed pauses
 * of which the timer has not heard yet included.
 */
bool
dw_is_paused(DwDatabase *db, Oid owner, int16 queue)
{
	keep_tables_current(db);
	return pause_of(owner, queue) != DW_NOT_PAUSED;
}

/* What the queue says of the history of its tasks; the database may be NULL. */
DwHistoryLevel
dw_queue_history(DwDatabase *db, int16 queue)
{
	DwDeclaredQueue   *declared;

	keep_tables_current(db);
	declared = dw_queue_declared(queue);
	return declared ? declared->history : DW_HISTORY_UNSET;
}

/*
 * A task was claimed in spite of a pause, and the claim is undone.
 *
 * The lane is paused now, of which the timer may not have heard, or which it
 * did not know when the lane was entered: the next executor would come here,
 * too.  If something was changed since we looked, the timer is about to look.
 * The tasks are read again from this one on, to keep their order.
 */
void
dw_queue_put_back(DwDatabase *db, const DwEntry *entry)
{
	DwLane	   *lane = &dw_lanes[entry->lane];

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	if (lane->paused == DW_NOT_PAUSED && dw_queue_tables.is_valid &&
		pg_atomic_read_u32(&db->control) == dw_queue_tables.control)
	{
		lane->paused = pause_of(lane->owner, lane->queue);
		dw_ready_obey_pause(db, lane);
	}
	LWLockRelease(dw_ready_lock(db));

	/* the lane is not given back while we are on it */
	dw_atomic_lower(&lane->reload_from, entry->due);
	dw_lane_dirty(db, lane);
	dw_wake_timer(db, DW_AWAKE);
}
