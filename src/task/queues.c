/*-------------------------------------------------------------------------
 *
 * queues.c
 *	  Declared queues, rights to use them, and pauses.
 *
 * Run by sessions that schedule, and by timer and executors.
 *
 * The tables delay_wheel_data.queue and delay_wheel_data.pause are authoritative; backend/declare.c
 * changes them.  Sessions have a copy of the queues into which they scheduled last.  Timer and
 * executors have a copy of both tables (see README.md, "Pauses"); the timer copies the limits of
 * queues to dw_queues in shared memory, and pauses to the lanes (timer/queue_watch.c).
 *
 * Scheduling locks the queue, so that no session drops the queue before the end of the transaction.
 * README.md says why this is an object lock of the lock manager.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_collation.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../shmem/groups.h"
#include "task.h"

DwQueueTables dw_queue_tables;

/* A column of a deformed row (values and nulls), or the value "otherwise" if the column is null. */
#define COLUMN(type, column, otherwise) \
	(nulls[(column) - 1] ? (otherwise) : DatumGet##type(values[(column) - 1]))
#define TEXT_COLUMN(column) \
	(nulls[(column) - 1] ? NULL : TextDatumGetCString(values[(column) - 1]))
#define INTERVAL_COLUMN(column, otherwise) \
	(nulls[(column) - 1] ? (otherwise) : dw_interval_us(DatumGetIntervalP(values[(column) - 1])))

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
	ArrayType  *users;			/* roles that the queue was declared for; InvalidOid: all */
	ArrayType  *receivers;		/* roles that may receive its messages; InvalidOid: all */
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

/* Returns the id in a row of delay_wheel_data.queue. */
int16
dw_queue_id(Relation rel, HeapTuple tuple)
{
	return DatumGetInt16(dw_row_column(rel, tuple, Anum_queue_id));
}

/* Replaces *array by a long-lived copy of an array column; NULL if the column is null. */
static void
remember_array(ArrayType **array, const Datum *values, const bool *nulls, AttrNumber column)
{
	MemoryContext context = MemoryContextSwitchTo(TopMemoryContext);

	if (*array)
		pfree(*array);
	*array = NULL;
	if (!nulls[column - 1])
		*array = DatumGetArrayTypePCopy(values[column - 1]);
	MemoryContextSwitchTo(context);
}

/* Copies a row of delay_wheel_data.queue to *found, in long-lived memory. */
static void
remember_queue(Relation rel, HeapTuple tuple, const char *name)
{
	Datum	   *values;
	bool	   *nulls;

	dw_deform(rel, tuple, &values, &nulls);
	found->is_valid = false;
	strlcpy(found->name, name, sizeof(found->name));
	found->queue.id = DatumGetInt16(values[Anum_queue_id - 1]);
	found->queue.priority = COLUMN(Int16, Anum_queue_priority, 0);
	found->queue.spread = INTERVAL_COLUMN(Anum_queue_spread, 0);
	found->queue.external = COLUMN(Bool, Anum_queue_external, false);
	found->queue.groups = COLUMN(Bool, Anum_queue_groups, false);
	found->owner = COLUMN(ObjectId, Anum_queue_owner, InvalidOid);
	remember_array(&found->queue.keep_settings, values, nulls, Anum_queue_keep_settings);
	remember_array(&found->users, values, nulls, Anum_queue_users);
	remember_array(&found->receivers, values, nulls, Anum_queue_receivers);
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
			UnlockDatabaseObject(oid, locked, 0, AccessShareLock);
		locked = dw_queue_id(rel, tuple);
		(void) dw_queue_lock(oid, locked, AccessShareLock, true);
		heap_freetuple(tuple);
	}
	table_close(rel, AccessShareLock);
}

/* Returns true if the current user owns the queue *found, or has the rights of one of the roles. */
static bool
has_rights_of(const ArrayType *roles)
{
	return has_privs_of_role(GetUserId(), found->owner) ||
		(roles != NULL && !ARR_HASNULL(roles) &&
		 dw_has_any_role((const Oid *) ARR_DATA_PTR(roles),
						 ArrayGetNItems(ARR_NDIM(roles), ARR_DIMS(roles))));
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
	return has_rights_of(found->users) || has_rights_of(found->receivers);
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
	*queue = (DwQueueForTask) {0};
	if (name == NULL || strcmp(name, "default") == 0)
		return;
	find_and_lock(name);
	if (!has_rights_of(found->users))
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
	if (!has_rights_of(found->receivers))
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
		name = dw_row_text(rel, tuple, Anum_queue_name);
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
	UnlockDatabaseObject(oid, id, 0, AccessShareLock);
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

/* Returns true if, by the copy, all tasks of the role (InvalidOid: of all roles) are paused. */
bool
dw_owner_is_paused(Oid owner)
{
	return dw_queue_tables.nowners > 0 &&
		bsearch(&owner, dw_queue_tables.owners, dw_queue_tables.nowners, sizeof(Oid),
				oid_cmp) != NULL;
}

/* Returns a column that lists SQLSTATEs as one text; NULL if it is null. */
static char *
errors_column(const Datum *values, const bool *nulls, AttrNumber column)
{
	return nulls[column - 1] ? NULL : dw_errors_joined(DatumGetArrayTypeP(values[column - 1]));
}

/* Returns the order with this name; DW_ORDER_NONE if the name is NULL or unknown. */
DwGroupOrder
dw_group_order_named(const char *name)
{
	if (name != NULL && strcmp(name, "hold") == 0)
		return DW_ORDER_HOLD;
	return name != NULL && strcmp(name, "pass") == 0 ? DW_ORDER_PASS : DW_ORDER_NONE;
}

/* Fills *queue from a row of delay_wheel_data.queue.  The copy's context is the current context. */
static void
read_queue(Relation rel, HeapTuple tuple, DwDeclaredQueue *queue)
{
	Datum	   *values;
	bool	   *nulls;

	dw_deform(rel, tuple, &values, &nulls);
	queue->id = DatumGetInt16(values[Anum_queue_id - 1]);
	queue->name = TEXT_COLUMN(Anum_queue_name);
	queue->pause = COLUMN(Bool, Anum_queue_paused, false) ? DW_PAUSED_QUEUE : DW_NOT_PAUSED;
	queue->batch = COLUMN(Bool, Anum_queue_batch, true);
	queue->max_running = COLUMN(Int32, Anum_queue_max_running, 0);
	queue->rate.starts = COLUMN(Int32, Anum_queue_rate, 0);
	queue->rate.per = INTERVAL_COLUMN(Anum_queue_per, USECS_PER_SEC);
	queue->rate.burst = COLUMN(Int32, Anum_queue_burst, 0);
	queue->groups = COLUMN(Bool, Anum_queue_groups, false);
	queue->group_max_running = COLUMN(Int32, Anum_queue_group_max_running, 0);
	queue->group_rate.starts = COLUMN(Int32, Anum_queue_group_rate, 0);
	queue->group_rate.per = INTERVAL_COLUMN(Anum_queue_group_per, USECS_PER_SEC);
	queue->group_rate.burst = COLUMN(Int32, Anum_queue_group_burst, 0);
	queue->group_order = dw_group_order_named(TEXT_COLUMN(Anum_queue_group_order));
	queue->external = COLUMN(Bool, Anum_queue_external, false);
	queue->defaults.timeout = COLUMN(Int32, Anum_queue_timeout, -1);
	queue->defaults.max_attempts = COLUMN(Int16, Anum_queue_max_attempts, 0);
	if (queue->defaults.max_attempts == 0)
		queue->defaults.max_attempts = queue->external ? DW_MESSAGE_ATTEMPTS : 1;
	queue->defaults.retry_delay = INTERVAL_COLUMN(Anum_queue_retry_delay, DW_DEFAULT_RETRY_DELAY);
	queue->retry.backoff = dw_backoff_named(TEXT_COLUMN(Anum_queue_retry_backoff), false);
	queue->retry.max_delay = INTERVAL_COLUMN(Anum_queue_retry_max_delay, 0);
	queue->retry.retry_on = errors_column(values, nulls, Anum_queue_retry_on);
	queue->retry.give_up_on = errors_column(values, nulls, Anum_queue_give_up_on);
	queue->history = nulls[Anum_queue_history - 1] ? DW_HISTORY_UNSET :
		dw_history_level(TEXT_COLUMN(Anum_queue_history));
	queue->defaults.lease = INTERVAL_COLUMN(Anum_queue_lease, DW_DEFAULT_LEASE);
	queue->receive_timeout = COLUMN(Int32, Anum_queue_receive_timeout, DW_DEFAULT_RECEIVE_TIMEOUT);
	queue->notify_channel = TEXT_COLUMN(Anum_queue_notify_channel);
	queue->place = DW_NO_QUEUE;
	pfree(values);
	pfree(nulls);
}

/*
 * Reads delay_wheel_data.queue and delay_wheel_data.pause into dw_queue_tables, with this snapshot.
 * The caller has locked both tables, and sets control and is_valid.  Afterwards no queue of the
 * copy has a place in dw_queues.
 */
void
dw_queue_tables_read(Snapshot snapshot)
{
	MemoryContext context = dw_queue_tables.context;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			size = 0;

	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "delay_wheel queues",
										ALLOCSET_SMALL_SIZES);
	MemoryContextReset(context);
	dw_queue_tables = (DwQueueTables) {.context = context};

	rel = table_open(dw_catalog()->queue, NoLock);
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		MemoryContext outer = MemoryContextSwitchTo(context);

		dw_queue_tables.queues = dw_reserve(dw_queue_tables.queues, dw_queue_tables.nqueues, &size,
											sizeof(DwDeclaredQueue), context);
		read_queue(rel, tuple, &dw_queue_tables.queues[dw_queue_tables.nqueues++]);
		MemoryContextSwitchTo(outer);
	}
	systable_endscan(scan);
	table_close(rel, NoLock);

	size = 0;
	rel = table_open(dw_catalog()->pause, NoLock);
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		dw_queue_tables.owners = dw_reserve(dw_queue_tables.owners, dw_queue_tables.nowners, &size,
											sizeof(Oid), context);
		dw_queue_tables.owners[dw_queue_tables.nowners++] =
			DatumGetObjectId(dw_row_column(rel, tuple, Anum_pause_owner));
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

	if (dw_owner_is_paused(InvalidOid))
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
 * Returns the queue with this id after reading the tables again if they may have changed, or NULL.
 * db may be NULL.
 */
const DwDeclaredQueue *
dw_queue_now(DwDatabase *db, int16 queue)
{
	keep_tables_current(db);
	return dw_queue_declared(queue);
}

/*
 * Returns true if the queue is for messages, or may be for messages since its declaration is gone.
 * For executors and sweepers; db may be NULL.
 */
bool
dw_queue_is_external(DwDatabase *db, int16 queue)
{
	const DwDeclaredQueue *declared = queue != 0 ? dw_queue_now(db, queue) : NULL;

	return queue != 0 && (declared == NULL || declared->external);
}

/* Returns true if tasks of a group wait while an earlier task waits for its next attempt. */
bool
dw_queue_holds_groups(int16 queue)
{
	const DwDeclaredQueue *declared = dw_queue_now(dw_my_database(), queue);

	return declared != NULL && declared->group_order == DW_ORDER_HOLD;
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
