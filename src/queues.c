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
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "attempts.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "lanes.h"
#include "load.h"
#include "miscadmin.h"
#include "my_session.h"
#include "near.h"
#include "orphans.h"
#include "queues.h"
#include "settings.h"
#include "storage/lmgr.h"
#include "task_rows.h"
#include "touched.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#define DEFAULT_RETRY_DELAY	(10 * USECS_PER_SEC)
/* after an error, or when the tables are locked */
#define RETRY_US		USECS_PER_SEC
#define LOCKED_RETRY_US (100 * 1000)

/* A queue as declared. */
typedef struct Declared
{
	int16		id;
	bool		paused;
	bool		batch;
	int32		max_running;
	int32		rate;
	int32		timeout;
	int16		max_attempts;
	int64		retry_delay;
	DwHistoryLevel history;
	int32		place;			/* in dw_queues; timers only */
} Declared;

/* What timer and executors have read of the tables, in order. */
typedef struct Tables
{
	MemoryContext context;
	uint32		control;		/* executors: as of when it is valid */
	bool		is_valid;
	int			nqueues;
	Declared   *queues;
	int			nowners;
	Oid		   *owners;			/* whose tasks are paused */
	bool		database_paused;
} Tables;

static Tables tables;

/* This process is the one that keeps dw_queues. */

/* The log has it that there are more queues than places. */
static bool missing_announced = false;

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

HeapTuple
dw_queue_row(Relation rel, const char *name)
{
	ScanKeyData key;

	ScanKeyEntryInitialize(&key, 0, Anum_queue_name, BTEqualStrategyNumber, InvalidOid,
						   C_COLLATION_OID, F_TEXTEQ, CStringGetTextDatum(name));
	return dw_find_now(rel, dw_catalog()->queue_name_key, &key);
}

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
look_up(const char *name)
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

bool
dw_queue_is_usable(Relation rel, HeapTuple tuple)
{
	choose_found("");
	remember_found(rel, tuple, "");
	return may_use_found();
}

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
		look_up(name);
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
	return (int) ((const Declared *) a)->id - (int) ((const Declared *) b)->id;
}

static int
compare_oids(const void *a, const void *b)
{
	Oid			x = *(const Oid *) a;
	Oid			y = *(const Oid *) b;

	return x < y ? -1 : x > y ? 1 : 0;
}

static Declared *
find_declared(int16 id)
{
	Declared	key = {.id = id};

	if (tables.nqueues == 0)
		return NULL;
	return bsearch(&key, tables.queues, tables.nqueues, sizeof(Declared), compare_declared);
}

static bool
owner_is_paused(Oid owner)
{
	return tables.nowners > 0 &&
		bsearch(&owner, tables.owners, tables.nowners, sizeof(Oid), compare_oids) != NULL;
}

static void
read_queue(Relation rel, HeapTuple tuple, Declared *queue)
{
	queue->id = id_of_row(rel, tuple);
	queue->paused = DatumGetBool(column_or(rel, tuple, Anum_queue_paused, BoolGetDatum(false)));
	queue->batch = DatumGetBool(column_or(rel, tuple, Anum_queue_batch, BoolGetDatum(true)));
	queue->max_running = DatumGetInt32(column_or(rel, tuple, Anum_queue_max_running, 0));
	queue->rate = DatumGetInt32(column_or(rel, tuple, Anum_queue_rate, 0));
	queue->timeout = DatumGetInt32(column_or(rel, tuple, Anum_queue_timeout, Int32GetDatum(-1)));
	queue->max_attempts = DatumGetInt16(column_or(rel, tuple, Anum_queue_max_attempts, Int16GetDatum(1)));
	queue->retry_delay = interval_column(rel, tuple, Anum_queue_retry_delay, DEFAULT_RETRY_DELAY);
	queue->history = history_column(rel, tuple);
	queue->place = DW_NO_QUEUE;
}

/* Room for one more. */
static void *
reserve(void *array, int n, int *size, Size element)
{
	if (n < *size)
		return array;
	*size = Max(*size * 2, 16);
	return array == NULL ? MemoryContextAlloc(tables.context, *size * element) :
		repalloc(array, *size * element);
}

/* Caller has locked both tables. */
static void
read_tables(Snapshot snapshot)
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			size = 0;

	if (tables.context == NULL)
		tables.context = AllocSetContextCreate(TopMemoryContext, "delay_wheel queues",
											   ALLOCSET_SMALL_SIZES);
	tables.is_valid = false;
	tables.nqueues = tables.nowners = 0;
	tables.queues = NULL;
	tables.owners = NULL;
	tables.database_paused = false;
	MemoryContextReset(tables.context);

	rel = table_open(dw_catalog()->queue, NoLock);
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		tables.queues = reserve(tables.queues, tables.nqueues, &size, sizeof(Declared));
		read_queue(rel, tuple, &tables.queues[tables.nqueues++]);
	}
	systable_endscan(scan);
	table_close(rel, NoLock);

	size = 0;
	rel = table_open(dw_catalog()->pause, NoLock);
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Oid			owner = DatumGetObjectId(column_or(rel, tuple, Anum_pause_owner, InvalidOid));

		tables.owners = reserve(tables.owners, tables.nowners, &size, sizeof(Oid));
		tables.owners[tables.nowners++] = owner;
		if (owner == InvalidOid)
			tables.database_paused = true;
	}
	systable_endscan(scan);
	table_close(rel, NoLock);

	if (tables.nqueues > 0)
		qsort(tables.queues, tables.nqueues, sizeof(Declared), compare_declared);
	if (tables.nowners > 0)
		qsort(tables.owners, tables.nowners, sizeof(Oid), compare_oids);
}

/* What the tables say. */
static DwPause
pause_of(Oid owner, int16 queue)
{
	Declared   *declared = queue != 0 ? find_declared(queue) : NULL;

	if (tables.database_paused)
		return DW_PAUSED_DATABASE;
	if (owner_is_paused(owner))
		return DW_PAUSED_OWNER;
	return declared != NULL && declared->paused ? DW_PAUSED_QUEUE : DW_NOT_PAUSED;
}

/*---- The timer keeps shared memory up to date ----*/

static DwPause
pause_of_lane(const DwLane *lane)
{
	DwPause		paused = pause_of(lane->owner, lane->queue);
	Declared   *queue;

	if (paused != DW_NOT_PAUSED || lane->queue == 0)
		return paused;
	queue = find_declared(lane->queue);
	if (queue == NULL)
		return DW_PAUSED_NO_QUEUE;
	return queue->place == DW_NO_QUEUE ? DW_PAUSED_NO_PLACE : DW_NOT_PAUSED;
}

static void
enter_queue(DwDatabase *db, DwQueue *place, int16 id)
{
	memset(place, 0, sizeof(DwQueue));
	place->database = db->oid;
	place->id = id;
	pg_atomic_init_u64(&place->done, 0);
	pg_atomic_init_u64(&place->failed, 0);
	pg_atomic_init_u64(&place->retried, 0);
	pg_atomic_init_u64(&place->cancelled, 0);
	pg_atomic_init_u64(&place->skipped, 0);
}

static void
set_queue(DwQueue *place, const Declared *queue)
{
	place->paused = queue->paused;
	place->batch = queue->batch;
	place->max_running = queue->max_running;
	place->rate = queue->rate;
	place->timeout = queue->timeout;
	place->max_attempts = queue->max_attempts;
	place->retry_delay = queue->retry_delay;
	/* counted again when the lanes are attached */
	place->running = 0;
}

/*
 * Gives each declared queue a place, and back those of queues that are none
 * any more.  Returns whether some were.
 */
static bool
place_queues(DwDatabase *db)
{
	bool		left = false;
	int			next = 0;

	for (int i = 0; i < dw_max_queues; i++)
	{
		Declared   *queue;

		if (dw_queues[i].database != db->oid)
			continue;
		queue = find_declared(dw_queues[i].id);
		if (queue != NULL)
			queue->place = i;
		else
		{
			dw_queues[i].database = InvalidOid;
			left = true;
		}
	}

	db->queues_missing = false;
	for (int i = 0; i < tables.nqueues; i++)
	{
		Declared   *queue = &tables.queues[i];

		if (queue->place == DW_NO_QUEUE)
		{
			while (next < dw_max_queues && OidIsValid(dw_queues[next].database))
				next++;
			if (next == dw_max_queues)
			{
				db->queues_missing = true;
				continue;
			}
			enter_queue(db, &dw_queues[next], queue->id);
			queue->place = next;
		}
		set_queue(&dw_queues[queue->place], queue);
	}
	return left;
}

/* Also counts its executors as those of the queue. */
static void
attach_lane(DwLane *lane)
{
	Declared   *queue = lane->queue != 0 ? find_declared(lane->queue) : NULL;

	lane->queue_place = queue ? queue->place : DW_NO_QUEUE;
	if (lane->queue_place != DW_NO_QUEUE)
		dw_queues[lane->queue_place].running += lane->running;
}

/* Places were given back: databases that lack some look again. */
static void
tell_those_without_place(void)
{
	for (int i = 0; i < dw_max_databases; i++)
	{
		DwDatabase *db = dw_database(i);

		if (!OidIsValid(db->oid) || !db->queues_missing)
			continue;
		pg_atomic_fetch_add_u32(&db->control, 1);
		dw_wake_timer(db, DW_AWAKE);
	}
}

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
		dw_problem(db, "too many queues are declared: tasks of some are not run");
	}
}

/*
 * What was read of the tables goes into shared memory.  A lane that was paused
 * and is not any more is read again before: tasks may have come to its ready
 * list in any order, and executors have put back some.  So is one whose queue
 * is gone: what is in memory may be what was cancelled before.
 */
static void
apply_tables(DwDatabase *db)
{
	bool		left;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	left = place_queues(db);
	db->paused = tables.database_paused;
	for (int32 i = db->lanes; i != DW_NO_LANE; i = dw_lanes[i].next)
	{
		DwLane	   *lane = &dw_lanes[i];
		DwPause		paused;

		attach_lane(lane);
		paused = pause_of_lane(lane);
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
	for (int32 i = db->lanes; i != DW_NO_LANE; i = dw_lanes[i].next)
	{
		dw_lanes[i].paused = pause_of_lane(&dw_lanes[i]);
		dw_ready_obey_pause(db, &dw_lanes[i]);
	}
	LWLockRelease(dw_ready_lock(db));

	if (left)
		tell_those_without_place();
	report_missing(db);
}

void
dw_queues_attach_new_lane(DwDatabase *db, DwLane *lane)
{
	if (!owner_is_paused(lane->owner))
		return;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	lane->paused = pause_of_lane(lane);
	dw_ready_obey_pause(db, lane);
	LWLockRelease(dw_ready_lock(db));
}

/*---- Roles that were dropped ----*/

/* The last one is remembered: many queues have the same owner. */
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

/* The users that exist; NULL if all do. */
static ArrayType *
users_that_exist(Datum users, Oid *known)
{
	ArrayType  *array = DatumGetArrayTypeP(users);
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

/* Caller has locked the table for writing. */
static bool
adopt_queue(Relation rel, HeapTuple tuple, Oid *known)
{
	Datum	   *values;
	bool	   *nulls;
	ArrayType  *users;
	Oid			owner;
	TM_FailureData failure;

	dw_deform(rel, tuple, &values, &nulls);
	owner = DatumGetObjectId(values[Anum_queue_owner - 1]);
	users = nulls[Anum_queue_users - 1] ? NULL : users_that_exist(values[Anum_queue_users - 1], known);
	if (users == NULL && role_exists(owner, known))
		return false;
	/* somebody else who changes it makes us look again */
	if (heap_delete(rel, &tuple->t_self, GetCurrentCommandId(true), InvalidSnapshot,
					false, &failure, false) != TM_Ok)
		return false;

	if (users != NULL)
		values[Anum_queue_users - 1] = PointerGetDatum(users);
	if (!role_exists(owner, known))
	{
		ereport(LOG,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("queue \"%s\" was owned by a dropped role with OID %u; it is given to role \"%s\"",
						TextDatumGetCString(values[Anum_queue_name - 1]), owner,
						GetUserNameFromId(BOOTSTRAP_SUPERUSERID, false))));
		values[Anum_queue_owner - 1] = ObjectIdGetDatum(BOOTSTRAP_SUPERUSERID);
	}
	dw_queue_insert(values, nulls);
	return true;
}

/*
 * PostgreSQL does not know of our rows when a role is dropped.  Queues of such
 * a role are given to the bootstrap superuser, and it is taken off the lists
 * of users: else a dump would carry its number, which may mean another role
 * elsewhere.  In the transaction of a look, with the tables read.
 */
static bool
adopt_queues(void)
{
	Oid			known = InvalidOid;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		any = false;

	if (tables.nqueues == 0 ||
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

/*---- The timer's look ----*/

TimestampTz
dw_queues_look(DwDatabase *db, bool changed)
{
	static TimestampTz look_at = DW_NEVER;
	int64		retry = LOCKED_RETRY_US;
	bool		ok = false;
	bool		adopted = false;

	if (!changed && dw_now() < look_at)
		return look_at;

	PG_TRY();
	{
		Relation	rel = dw_read_begin();

		if (rel != NULL &&
			ConditionalLockRelationOid(dw_catalog()->queue, AccessShareLock) &&
			ConditionalLockRelationOid(dw_catalog()->pause, AccessShareLock))
		{
			read_tables(GetActiveSnapshot());
			adopted = adopt_queues();
			ok = true;
		}
		dw_read_end(rel);
	}
	PG_CATCH();
	{
		ok = adopted = false;
		retry = RETRY_US;
		dw_read_failed(db, "read queues");
	}
	PG_END_TRY();

	if (ok)
		apply_tables(db);
	if (adopted)
		pg_atomic_fetch_add_u32(&db->control, 1);
	look_at = ok || dw_extension_gone ? DW_NEVER : dw_now() + retry;
	return look_at;
}

/*---- Executors ----*/

/* Where the queue is in dw_queues; caller holds one of the two locks. */
static int32
find_place(DwDatabase *db, int16 id)
{
	static int32 last = 0;

	if (dw_queues[last].database == db->oid && dw_queues[last].id == id)
		return last;
	for (int32 i = 0; i < dw_max_queues; i++)
		if (dw_queues[i].database == db->oid && dw_queues[i].id == id)
			return last = i;
	return DW_NO_QUEUE;
}

void
dw_queue_defaults(DwDatabase *db, int16 queue, DwQueueDefaults *defaults)
{
	int32		place;

	defaults->timeout = -1;
	defaults->max_attempts = 1;
	defaults->retry_delay = DEFAULT_RETRY_DELAY;
	if (queue == 0)
		return;

	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	place = find_place(db, queue);
	if (place != DW_NO_QUEUE)
	{
		defaults->timeout = dw_queues[place].timeout;
		defaults->max_attempts = dw_queues[place].max_attempts;
		defaults->retry_delay = dw_queues[place].retry_delay;
	}
	LWLockRelease(dw_ready_lock(db));
}

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
	read_tables(snapshot);
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
	if (!tables.is_valid || tables.control != control || dw_control_is_touched())
	{
		pg_memory_barrier();
		read_tables_now();
		tables.control = control;
		/* not if our own changes are in it, which may be rolled back */
		tables.is_valid = db != NULL && !dw_control_is_touched();
	}
}

bool
dw_is_paused(DwDatabase *db, Oid owner, int16 queue)
{
	keep_tables_current(db);
	return pause_of(owner, queue) != DW_NOT_PAUSED;
}

DwHistoryLevel
dw_queue_history(DwDatabase *db, int16 queue)
{
	Declared   *declared;

	keep_tables_current(db);
	declared = find_declared(queue);
	return declared ? declared->history : DW_HISTORY_UNSET;
}

/*
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
	if (lane->paused == DW_NOT_PAUSED && tables.is_valid &&
		pg_atomic_read_u32(&db->control) == tables.control)
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

/*---- Shared memory ----*/

void
dw_queues_init(void)
{
	memset(dw_queues, 0, sizeof(DwQueue) * dw_max_queues);
}

/* A database is left; under the table lock. */
void
dw_queues_leave(Oid database)
{
	bool		left = false;

	for (int i = 0; i < dw_max_queues; i++)
		if (dw_queues[i].database == database)
		{
			dw_queues[i].database = InvalidOid;
			left = true;
		}
	if (left)
		tell_those_without_place();
}

/*
 * Any process may enter a lane.  What only the timer knows, others find out
 * when they have claimed its first task.
 */
void
dw_queue_attach_lane(DwDatabase *db, DwLane *lane)
{
	lane->queue_place = lane->queue == 0 ? DW_NO_QUEUE : find_place(db, lane->queue);
	if (db->paused)
		lane->paused = DW_PAUSED_DATABASE;
	else if (lane->queue == 0)
		lane->paused = DW_NOT_PAUSED;
	else if (lane->queue_place == DW_NO_QUEUE)
		lane->paused = db->queues_missing ? DW_PAUSED_NO_PLACE : DW_PAUSED_NO_QUEUE;
	else
		lane->paused = dw_queues[lane->queue_place].paused ? DW_PAUSED_QUEUE : DW_NOT_PAUSED;
}

const char *
dw_pause_text(DwPause reason)
{
	switch (reason)
	{
		case DW_NOT_PAUSED:
			break;
		case DW_PAUSED_DATABASE:
			return "all tasks of the database are paused";
		case DW_PAUSED_OWNER:
			return "all tasks of the role are paused";
		case DW_PAUSED_QUEUE:
			return "the queue is paused";
		case DW_PAUSED_NO_QUEUE:
			return "the queue is not declared";
		case DW_PAUSED_NO_PLACE:
			return "too many queues are declared, see delay_wheel.max_queues";
	}
	return "";
}
