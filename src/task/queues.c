/*-------------------------------------------------------------------------
 *
 * queues.c
 *	  Declared queues, rights to use them, and pauses.
 *
 * Run by sessions that schedule, and by timer and executors.
 *
 * The tables delay_wheel_data.queue and delay_wheel_data.pause are authoritative; backend/declare.c
 * changes them.  Each commit of a change raises control, so that all processes with a copy of data
 * from these tables notice the change:
 *
 * session		has a copy of the queues into which it scheduled last
 * timer		reads both tables; copies the limits of queues to dw_queues in shared memory, and
 *				pauses to the lanes (timer/queue_watch.c)
 * executor		reads both tables; checks after each claim that the task is not paused, since the
 *				timer may not have read the pause yet.  So no task starts after the commit of a
 *				pause
 *
 * A lane is one combination of owner, queue and priority.  A lane whose queue is not (or not yet)
 * in dw_queues is paused, since its tasks must not run without the limits that may be declared for
 * the queue.
 *
 * Scheduling locks the queue, so that no session drops the queue before the end of the transaction.
 * The lock is an object lock of the lock manager.  A row lock would write to the queue's row for
 * each scheduled task.
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
#include "../shmem/groups.h"
#include "../shmem/queue_limits.h"
#include "../shmem/shared.h"
#include "queues.h"
#include "task.h"
#include "touched.h"

DwQueueTables dw_queue_tables;

/* Returns a column of the row, or the value "otherwise" if the column is null. */
static Datum
column_or(Relation rel, HeapTuple tuple, AttrNumber attnum, Datum otherwise)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, attnum, RelationGetDescr(rel), &isnull);

	return isnull ? otherwise : value;
}

/* Returns an interval column in us, or the value "otherwise" if the column is null. */
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

	return DatumGetPointer(level) == NULL ? DW_HISTORY_UNSET :
		dw_history_level(TextDatumGetCString(level));
}

/*---- Finding a queue to schedule into ----*/

/* Number of queues that a session remembers. */
#define MAX_KNOWN_QUEUES	8

/* A queue that this session has read. */
typedef struct KnownQueue
{
	bool		is_valid;		/* valid while control stays the same */
	uint32		control;		/* value of control before the row was read */
	char		name[NAMEDATALEN];
	DwQueueForTask queue;
	Oid			owner;
	int			nusers;
	Oid		   *users;			/* roles that the queue was declared for; InvalidOid: all */
	int			nreceivers;
	Oid		   *receivers;		/* roles that may receive its messages; InvalidOid: all */
} KnownQueue;

/* The queues that this session has read last.  *found is the queue that is looked at now. */
static KnownQueue known_queues[MAX_KNOWN_QUEUES];
static KnownQueue *found = known_queues;

/* Sets *found to the known queue of this name, or to an entry that may be overwritten. */
static void
choose_known_queue(const char *name)
{
	static int	next = 0;

	for (int i = 0; i < MAX_KNOWN_QUEUES; i++)
		if (strcmp(known_queues[i].name, name) == 0)
		{
			found = &known_queues[i];
			return;
		}
	found = &known_queues[next];
	next = (next + 1) % MAX_KNOWN_QUEUES;
}

/* Returns a copy of the current row of a queue, or NULL.  rel is delay_wheel_data.queue. */
HeapTuple
dw_queue_row(Relation rel, const char *name)
{
	ScanKeyData key;

	ScanKeyEntryInitialize(&key, 0, Anum_queue_name, BTEqualStrategyNumber, InvalidOid,
						   C_COLLATION_OID, F_TEXTEQ, CStringGetTextDatum(name));
	return dw_row_find(rel, dw_catalog()->queue_name_key, &key, NULL);
}

/*
 * Locks a queue, or the pause of a role, until the end of the transaction; table is the OID of
 * delay_wheel_data.queue or delay_wheel_data.pause.  Sessions that schedule take AccessShareLock;
 * sessions that change a queue take a stronger lock.
 */
LockAcquireResult
dw_queue_lock(Oid table, Oid id, LOCKMODE mode, bool wait)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, table, id, 0);
	return LockAcquire(&tag, mode, false, !wait);
}

/* Releases the lock of an id after the queue was found to have another id. */
static void
unlock_queue(Oid table, int16 id)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, table, id, 0);
	(void) LockRelease(&tag, AccessShareLock, false);
}

/* Returns the id in a row of delay_wheel_data.queue. */
int16
dw_queue_id(Relation rel, HeapTuple tuple)
{
	return DatumGetInt16(column_or(rel, tuple, Anum_queue_id, 0));
}

/* Copies an array of roles in a row of delay_wheel_data.queue to long-lived memory. */
static void
remember_roles(Relation rel, HeapTuple tuple, AttrNumber column, Oid **roles, int *n)
{
	Datum		value = column_or(rel, tuple, column, (Datum) 0);
	ArrayType  *array;
	int			count;

	*n = 0;
	if (*roles)
		pfree(*roles);
	*roles = NULL;
	if (DatumGetPointer(value) == NULL)
		return;
	array = DatumGetArrayTypeP(value);
	count = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	if (count == 0 || ARR_HASNULL(array))
		return;
	*roles = MemoryContextAlloc(TopMemoryContext, count * sizeof(Oid));
	memcpy(*roles, ARR_DATA_PTR(array), count * sizeof(Oid));
	*n = count;
}

/* Copies the names of settings in a row of delay_wheel_data.queue to long-lived memory. */
static void
remember_settings(Relation rel, HeapTuple tuple, ArrayType **names)
{
	Datum		value = column_or(rel, tuple, Anum_queue_keep_settings, (Datum) 0);
	ArrayType  *array;

	if (*names)
		pfree(*names);
	*names = NULL;
	if (DatumGetPointer(value) == NULL)
		return;
	array = DatumGetArrayTypeP(value);
	*names = MemoryContextAlloc(TopMemoryContext, VARSIZE(array));
	memcpy(*names, array, VARSIZE(array));
}

/* Copies a row of delay_wheel_data.queue to *found, in long-lived memory. */
static void
remember_queue(Relation rel, HeapTuple tuple, const char *name)
{
	found->is_valid = false;
	strlcpy(found->name, name, sizeof(found->name));
	found->queue.id = dw_queue_id(rel, tuple);
	found->queue.priority = DatumGetInt16(column_or(rel, tuple, Anum_queue_priority, 0));
	found->queue.spread = interval_column(rel, tuple, Anum_queue_spread, 0);
	found->owner = DatumGetObjectId(column_or(rel, tuple, Anum_queue_owner, InvalidOid));
	found->queue.external = DatumGetBool(column_or(rel, tuple, Anum_queue_external,
												   BoolGetDatum(false)));
	found->queue.groups = DatumGetBool(column_or(rel, tuple, Anum_queue_groups, BoolGetDatum(false)));
	remember_settings(rel, tuple, &found->queue.keep_settings);
	remember_roles(rel, tuple, Anum_queue_users, &found->users, &found->nusers);
	remember_roles(rel, tuple, Anum_queue_receivers, &found->receivers, &found->nreceivers);
}

static void
raise_unknown(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("queue \"%s\" does not exist", name),
			 errhint("Declare it with %s.", "delay_wheel.create_queue()")));
}

/*
 * Finds a queue, locks it and fills in *found.  While this session waits for the lock, the queue
 * may be dropped, and another queue of the same name declared.  So only a row that was read under
 * the lock is valid.
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
		if (dw_queue_id(rel, tuple) == locked)
		{
			remember_queue(rel, tuple, name);
			break;
		}
		if (locked != 0)
			unlock_queue(oid, locked);
		locked = dw_queue_id(rel, tuple);
		(void) dw_queue_lock(oid, locked, AccessShareLock, true);
		heap_freetuple(tuple);
	}
	table_close(rel, AccessShareLock);
}

/* Returns true if the current user owns the queue *found, or has the rights of one of the roles. */
static bool
has_rights_of(const Oid *roles, int n)
{
	return has_privs_of_role(GetUserId(), found->owner) || dw_has_any_role(roles, n);
}

/* Returns true if no queue was changed since *found was read. */
static bool
found_is_current(DwDatabase *db)
{
	return db != NULL && found->control == dw_control_read(&db->timer_news);
}

/*
 * Locks the queue *found.  Returns true if the queue still has this name and was not changed since
 * this session read the queue.  A session that drops a queue raises control before it releases its
 * lock.
 */
static bool
lock_found_queue(DwDatabase *db, const char *name)
{
	if (!found->is_valid || strcmp(found->name, name) != 0 || !found_is_current(db) ||
		dw_control_is_touched())
		return false;
	return dw_queue_lock(dw_catalog()->queue, found->queue.id, AccessShareLock, true) ==
		LOCKACQUIRE_ALREADY_HELD || found_is_current(db);
}

/*
 * Returns true if the current user may schedule into the queue of this row of
 * delay_wheel_data.queue, or receive from it.
 */
bool
dw_queue_is_usable(Relation rel, HeapTuple tuple)
{
	choose_known_queue("");
	remember_queue(rel, tuple, "");
	return has_rights_of(found->users, found->nusers) ||
		has_rights_of(found->receivers, found->nreceivers);
}

/*
 * Finds a queue by name, locks it and fills in *found.  Raises an error if no queue has the name.
 */
static void
find_and_lock(const char *name)
{
	DwDatabase *db = dw_my_database();

	choose_known_queue(name);
	if (!lock_found_queue(db, name))
	{
		uint32		control = db ? dw_control_read(&db->timer_news) : 0;

		pg_read_barrier();
		lock_queue_by_name(name);
		found->control = control;
		/* the copy has changes of this transaction, which may be rolled back */
		found->is_valid = db != NULL && !dw_control_is_touched();
	}
}

/*
 * Finds a queue by name (NULL: the default queue) and fills *queue.  Raises an error if
 * the queue does not exist, or the current user may not schedule into it.  The queue
 * is locked, so that it is not dropped before the end of the transaction.
 */
void
dw_queue_find(const char *name, DwQueueForTask *queue)
{
	if (name == NULL || strcmp(name, "default") == 0)
	{
		memset(queue, 0, sizeof(DwQueueForTask));
		return;
	}
	find_and_lock(name);
	if (!has_rights_of(found->users, found->nusers))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for queue \"%s\"", name),
				 errdetail("Only members of the role that owns the queue, its users, and superusers may schedule into it."),
				 errhint("Its owner can name users with %s.", "delay_wheel.create_queue()")));
	*queue = found->queue;
	/* user code may look for another queue before the names are used */
	if (queue->keep_settings != NULL)
		queue->keep_settings = DatumGetArrayTypePCopy(PointerGetDatum(queue->keep_settings));
}

/*
 * Finds an external queue by name, and returns its id.  Raises an error if the queue does
 * not exist, is not external, or the current user may not receive from it.  The queue is
 * locked, so that it is not dropped before the end of the transaction.
 */
int16
dw_queue_find_to_receive(const char *name)
{
	if (strcmp(name, "default") == 0)
		dw_queue_require_kind(name, false, true);
	find_and_lock(name);
	/* before the rights: a queue of SQL tasks has no receivers any more */
	dw_queue_require_kind(name, found->queue.external, true);
	if (!has_rights_of(found->receivers, found->nreceivers))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to receive from queue \"%s\"", name),
				 errdetail("Only members of the role that owns the queue, its receivers, and superusers may receive from it."),
				 errhint("Its owner can name receivers with %s.", "delay_wheel.create_queue()")));
	return found->queue.id;
}

/* Raises an error for a message in a queue of SQL tasks, and for an SQL task in an external queue. */
void
dw_queue_require_kind(const char *name, bool external, bool message)
{
	if (external == message)
		return;
	if (message)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("queue \"%s\" is not external", name),
				 errdetail("The queue has SQL tasks, which executors run."),
				 errhint("Declare a queue for messages with %s.", "delay_wheel.create_queue(..., external => true)")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("queue \"%s\" is external", name),
			 errdetail("The queue has messages, which sessions receive. Executors run no SQL from an external queue."),
			 errhint("Use %s, or another queue.", "delay_send()")));
}

/*
 * For a task with a group, raises an error if the queue has no groups.  A NULL name is the default
 * queue.
 */
void
dw_queue_require_groups(const char *name, const DwQueueForTask *queue)
{
	if (!queue->groups)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("queue \"%s\" has no groups", name ? name : "default"),
				 errdetail("Its tasks cannot have a group_key."),
				 errhint("Declare a queue with %s.", "delay_wheel.create_queue(..., groups => true)")));
}

/* Returns the current name of a queue, or NULL if no queue has this id. */
char *
dw_queue_name_of(int16 id)
{
	Relation	rel = table_open(dw_catalog()->queue, AccessShareLock);
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	char	   *name = NULL;

	ScanKeyInit(&key, Anum_queue_id, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(id));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (tuple != NULL)
		name = TextDatumGetCString(column_or(rel, tuple, Anum_queue_name, (Datum) 0));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return name;
}

/*
 * Makes the checks of dw_queue_find() for a queue known by its id.  Also raises an error if the
 * queue is not for rows of this kind (messages or SQL tasks).
 */
void
dw_queue_require(int16 id, bool message)
{
	DwQueueForTask queue;
	char	   *name;

	if (id == 0)
	{
		dw_queue_require_kind("default", false, message);
		return;
	}
	name = dw_queue_name_of(id);
	if (name == NULL)
		raise_unknown(psprintf("%d", id));
	dw_queue_find(name, &queue);
	dw_queue_require_kind(name, queue.external, message);
}

/*
 * Makes the checks of dw_queue_find_to_receive() for a queue known by its id.  Only superusers can
 * receive from a queue that does not exist any more.
 */
void
dw_queue_require_receiver(int16 id)
{
	char	   *name = dw_queue_name_of(id);

	if (name != NULL)
		(void) dw_queue_find_to_receive(name);
	else if (!superuser())
		raise_unknown(psprintf("%d", id));
}

/*
 * If the queue exists, locks it until the end of this transaction, which puts a task into the
 * queue, and returns true.  Needs no rights.
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
	if (dw_queue_name_of(id) != NULL)
		return true;
	unlock_queue(oid, id);
	return false;
}

/*
 * Returns the id of a queue.  Raises an error if the queue does not exist.  Needs no rights on the
 * queue, and does not lock it.
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
	id = dw_queue_id(rel, tuple);
	table_close(rel, AccessShareLock);
	return id;
}

/*---- Reading the tables ----*/

static int
compare_declared(const void *a, const void *b)
{
	return (int) ((const DwDeclaredQueue *) a)->id - (int) ((const DwDeclaredQueue *) b)->id;
}

/* Returns the queue with this id from the copy, or NULL. */
DwDeclaredQueue *
dw_queue_declared(int16 id)
{
	DwDeclaredQueue	key = {.id = id};

	if (dw_queue_tables.nqueues == 0)
		return NULL;
	return bsearch(&key, dw_queue_tables.queues, dw_queue_tables.nqueues,
				   sizeof(DwDeclaredQueue), compare_declared);
}

/* Returns true if, by the copy, all tasks of the role are paused. */
bool
dw_owner_is_paused(Oid owner)
{
	return dw_queue_tables.nowners > 0 &&
		bsearch(&owner, dw_queue_tables.owners, dw_queue_tables.nowners, sizeof(Oid),
				oid_cmp) != NULL;
}

/* Returns a text column, in the memory of the copy; NULL if it is null. */
static char *
text_column(Relation rel, HeapTuple tuple, AttrNumber attnum)
{
	Datum		value = column_or(rel, tuple, attnum, (Datum) 0);

	return DatumGetPointer(value) == NULL ? NULL :
		MemoryContextStrdup(dw_queue_tables.context, TextDatumGetCString(value));
}

/* Returns a column that lists SQLSTATEs as one text, in the memory of the copy; NULL if it is null. */
static char *
errors_column(Relation rel, HeapTuple tuple, AttrNumber attnum)
{
	Datum		value = column_or(rel, tuple, attnum, (Datum) 0);

	return DatumGetPointer(value) == NULL ? NULL :
		MemoryContextStrdup(dw_queue_tables.context, dw_errors_joined(DatumGetArrayTypeP(value)));
}

/* Returns the order with this name; DW_ORDER_NONE if the name is NULL or unknown. */
DwGroupOrder
dw_group_order_named(const char *name)
{
	if (name != NULL && strcmp(name, "hold") == 0)
		return DW_ORDER_HOLD;
	return name != NULL && strcmp(name, "pass") == 0 ? DW_ORDER_PASS : DW_ORDER_NONE;
}

/* Fills *rate from these columns of a row of delay_wheel_data.queue. */
static void
read_rate(Relation rel, HeapTuple tuple, AttrNumber starts, AttrNumber per, AttrNumber burst, DwRate *rate)
{
	rate->starts = DatumGetInt32(column_or(rel, tuple, starts, 0));
	rate->per = interval_column(rel, tuple, per, USECS_PER_SEC);
	rate->burst = DatumGetInt32(column_or(rel, tuple, burst, 0));
}

/* Fills *queue from a row of delay_wheel_data.queue. */
static void
read_queue(Relation rel, HeapTuple tuple, DwDeclaredQueue *queue)
{
	queue->id = dw_queue_id(rel, tuple);
	queue->pause = DatumGetBool(column_or(rel, tuple, Anum_queue_paused, BoolGetDatum(false))) ?
		DW_PAUSED_QUEUE : DW_NOT_PAUSED;
	queue->batch = DatumGetBool(column_or(rel, tuple, Anum_queue_batch, BoolGetDatum(true)));
	queue->max_running = DatumGetInt32(column_or(rel, tuple, Anum_queue_max_running, 0));
	read_rate(rel, tuple, Anum_queue_rate, Anum_queue_per, Anum_queue_burst, &queue->rate);
	queue->groups = DatumGetBool(column_or(rel, tuple, Anum_queue_groups, BoolGetDatum(false)));
	queue->group_max_running = DatumGetInt32(column_or(rel, tuple, Anum_queue_group_max_running, 0));
	read_rate(rel, tuple, Anum_queue_group_rate, Anum_queue_group_per, Anum_queue_group_burst,
			  &queue->group_rate);
	queue->group_order = dw_group_order_named(text_column(rel, tuple, Anum_queue_group_order));
	queue->timeout = DatumGetInt32(column_or(rel, tuple, Anum_queue_timeout, Int32GetDatum(-1)));
	queue->max_attempts = DatumGetInt16(column_or(rel, tuple, Anum_queue_max_attempts,
												  Int16GetDatum(0)));
	queue->retry_delay = interval_column(rel, tuple, Anum_queue_retry_delay,
										 DW_DEFAULT_RETRY_DELAY);
	queue->retry.backoff = dw_backoff_named(text_column(rel, tuple, Anum_queue_retry_backoff));
	queue->retry.max_delay = interval_column(rel, tuple, Anum_queue_retry_max_delay, 0);
	queue->retry.retry_on = errors_column(rel, tuple, Anum_queue_retry_on);
	queue->retry.give_up_on = errors_column(rel, tuple, Anum_queue_give_up_on);
	queue->history = history_column(rel, tuple);
	queue->external = DatumGetBool(column_or(rel, tuple, Anum_queue_external, BoolGetDatum(false)));
	queue->lease = interval_column(rel, tuple, Anum_queue_lease, DW_DEFAULT_LEASE);
	queue->receive_timeout = DatumGetInt32(column_or(rel, tuple, Anum_queue_receive_timeout,
													 Int32GetDatum(DW_DEFAULT_RECEIVE_TIMEOUT)));
	queue->name = text_column(rel, tuple, Anum_queue_name);
	queue->notify_channel = text_column(rel, tuple, Anum_queue_notify_channel);
	if (queue->max_attempts == 0)
		queue->max_attempts = queue->external ? DW_MESSAGE_ATTEMPTS : 1;
	queue->place = DW_NO_QUEUE;
}

/* Returns the array, enlarged if it has no room for one more element; a new array for NULL. */
static void *
reserve_entry(void *array, int n, int *size, Size element)
{
	if (n < *size)
		return array;
	*size = Max(*size * 2, 16);
	return array == NULL ? MemoryContextAlloc(dw_queue_tables.context, *size * element) :
		repalloc(array, *size * element);
}

/*
 * Reads delay_wheel_data.queue and delay_wheel_data.pause into dw_queue_tables, with this snapshot.
 * The caller has locked both tables, and sets control and is_valid.  Afterwards no queue of the
 * copy has a place in dw_queues.
 */
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
		dw_queue_tables.queues = reserve_entry(dw_queue_tables.queues, dw_queue_tables.nqueues,
											   &size, sizeof(DwDeclaredQueue));
		read_queue(rel, tuple, &dw_queue_tables.queues[dw_queue_tables.nqueues++]);
	}
	systable_endscan(scan);
	table_close(rel, NoLock);

	size = 0;
	rel = table_open(dw_catalog()->pause, NoLock);
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Oid			owner;

		owner = DatumGetObjectId(column_or(rel, tuple, Anum_pause_owner, InvalidOid));
		dw_queue_tables.owners = reserve_entry(dw_queue_tables.owners, dw_queue_tables.nowners,
											   &size, sizeof(Oid));
		dw_queue_tables.owners[dw_queue_tables.nowners++] = owner;
		if (owner == InvalidOid)
			dw_queue_tables.database_paused = true;
	}
	systable_endscan(scan);
	table_close(rel, NoLock);

	if (dw_queue_tables.nqueues > 0)
		qsort(dw_queue_tables.queues, dw_queue_tables.nqueues, sizeof(DwDeclaredQueue),
			  compare_declared);
	if (dw_queue_tables.nowners > 0)
		qsort(dw_queue_tables.owners, dw_queue_tables.nowners, sizeof(Oid), oid_cmp);
}

/* Returns why the tasks of an owner and queue are paused, by the copy. */
static DwPause
pause_of(Oid owner, int16 queue)
{
	DwDeclaredQueue *declared = queue != 0 ? dw_queue_declared(queue) : NULL;

	if (dw_queue_tables.database_paused)
		return DW_PAUSED_DATABASE;
	if (dw_owner_is_paused(owner))
		return DW_PAUSED_OWNER;
	return declared != NULL ? declared->pause : DW_NOT_PAUSED;
}

/*---- Timer ----*/

/*
 * Returns why a lane must be paused: because of a pause, or because its queue is unknown or has no
 * place in dw_queues.  For the timer, whose copy contains the places of queues.
 */
DwPause
dw_pause_of_lane(const DwLane *lane)
{
	DwPause		paused = pause_of(lane->owner, lane->queue);
	DwDeclaredQueue *queue;

	if (paused != DW_NOT_PAUSED || lane->queue == 0)
		return paused;
	queue = dw_queue_declared(lane->queue);
	if (queue == NULL)
		return DW_PAUSED_NO_QUEUE;
	return queue->place == DW_NO_QUEUE ? DW_PAUSED_NO_PLACE : DW_NOT_PAUSED;
}

/*---- Executors ----*/

/*
 * Reads the tables again if they may have changed.  Releases the locks of the tables, since a long
 * task must not block other sessions.
 */
static void
keep_tables_current(DwDatabase *db)
{
	Oid			queue;
	Oid			pause;
	Snapshot	snapshot;
	uint32		control;

	/* a session makes its pause visible, then raises control, then answers its client */
	pg_memory_barrier();
	control = db ? dw_control_read(&db->timer_news) : 0;
	if (dw_queue_tables.is_valid && dw_queue_tables.control == control && !dw_control_is_touched())
		return;

	pg_memory_barrier();
	queue = dw_catalog()->queue;
	pause = dw_catalog()->pause;
	LockRelationOid(queue, AccessShareLock);
	LockRelationOid(pause, AccessShareLock);
	/* GetLatestSnapshot() could set the transaction's snapshot, which would then stay */
	snapshot = RegisterSnapshot(GetCatalogSnapshot(queue));
	dw_queue_tables_read(snapshot);
	UnregisterSnapshot(snapshot);
	UnlockRelationOid(pause, AccessShareLock);
	UnlockRelationOid(queue, AccessShareLock);
	dw_queue_tables.control = control;
	/* the copy has changes of this transaction, which may be rolled back */
	dw_queue_tables.is_valid = db != NULL && !dw_control_is_touched();
}

/*
 * Returns true if the tasks of this owner and queue are paused now, even if the timer has not
 * noticed the committed pause yet.  For executors; db may be NULL.
 */
bool
dw_is_paused(DwDatabase *db, Oid owner, int16 queue)
{
	keep_tables_current(db);
	return pause_of(owner, queue) != DW_NOT_PAUSED;
}

/*
 * Returns the copy of the tables, after reading them again if they may have changed.  db may be
 * NULL.
 */
const DwQueueTables *
dw_queue_tables_now(DwDatabase *db)
{
	keep_tables_current(db);
	return &dw_queue_tables;
}

/*
 * Returns true if the queue is for messages, or may be for messages since its declaration is gone.
 * For executors and sweepers; db may be NULL.
 */
bool
dw_queue_is_external(DwDatabase *db, int16 queue)
{
	DwDeclaredQueue *declared;

	if (queue == 0)
		return false;
	keep_tables_current(db);
	declared = dw_queue_declared(queue);
	return declared == NULL || declared->external;
}

/*
 * Returns which tasks of the queue the history records; DW_HISTORY_UNSET if the setting decides.
 * For executors and sessions; db may be NULL.
 */
DwHistoryLevel
dw_queue_history(DwDatabase *db, int16 queue)
{
	DwDeclaredQueue *declared;

	keep_tables_current(db);
	declared = dw_queue_declared(queue);
	return declared ? declared->history : DW_HISTORY_UNSET;
}

/*
 * Puts back a task that was claimed although it is paused; the claim has been undone.
 *
 * The timer has not noticed the pause yet, or entered the lane before it read the pause.  The next
 * executor would take the task again, so this executor pauses the lane itself.  But if control has
 * changed since the executor read the tables, the executor does not pause the lane, since the timer
 * will read the tables now.  The timer loads the lane again from this task on, so that tasks stay
 * in order.
 */
void
dw_queue_put_back(DwDatabase *db, const DwEntry *entry)
{
	DwLane	   *lane = &dw_lanes[entry->lane];

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	if (lane->paused == DW_NOT_PAUSED && dw_queue_tables.is_valid &&
		dw_control_read(&db->timer_news) == dw_queue_tables.control)
	{
		lane->paused = pause_of(lane->owner, lane->queue);
		dw_ready_obey_pause(db, lane);
	}
	LWLockRelease(dw_ready_lock(db));

	/* a lane keeps its place while an executor runs one of its tasks */
	dw_atomic_lower(&lane->reload_from, entry->due);
	dw_lane_dirty(db, lane);
	dw_wake_timer(db, DW_AWAKE);
}
