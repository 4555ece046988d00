/*-------------------------------------------------------------------------
 *
 * declare.c
 *	  The SQL functions that declare, change and drop queues, and that pause
 *	  and resume tasks.
 *
 * Run by sessions, and by executors whose tasks call them.  The functions write rows
 * of delay_wheel_data.queue and delay_wheel_data.pause.  The commit tells all processes that
 * obey these tables, see task/queues.c.
 *
 * A session that changes a queue, or the pause of a role, first locks it in the lock
 * manager until the end of the transaction, and then reads its row with a new
 * snapshot.  So each of two sessions sees what the other one did, and a pause waits
 * for a resume that has not committed yet.
 *
 * Dropping a queue needs a lock that conflicts with those of sessions that schedule
 * into it.  delay_queue_drop() does not wait for this lock but raises an error, since
 * all other sessions that schedule into the queue would have to wait behind it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "../base/errors.h"
#include "../base/settings.h"
#include "../base/signature.h"
#include "../base/wing.h"
#include "../ending/ending.h"
#include "../rows/catalog.h"
#include "../rows/lane_scan.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/queue_limits.h"
#include "../shmem/shared.h"
#include "../statement/statement.h"
#include "../task/queues.h"
#include "../task/task.h"
#include "../task/touched.h"
#include "backend.h"

/* Limit for the rate of a queue, in tasks per second or a longer time */
#define MAX_RATE		1000000
/* Limit for the burst of a queue: times the longest time between two starts it fits into an int64 */
#define MAX_BURST		100000

PG_FUNCTION_INFO_V1(dw_queue_changed);
PG_FUNCTION_INFO_V1(dw_queue_guard);
PG_FUNCTION_INFO_V1(dw_queue);
PG_FUNCTION_INFO_V1(dw_queue_drop);
PG_FUNCTION_INFO_V1(dw_pause);
PG_FUNCTION_INFO_V1(dw_resume);
PG_FUNCTION_INFO_V1(dw_pause_database);
PG_FUNCTION_INFO_V1(dw_resume_database);

/*---- Changes by plain SQL ----*/

/*
 * Statement trigger on delay_wheel_data.queue and delay_wheel_data.pause, fired when plain SQL
 * has changed rows: the commit tells all processes.
 */
Datum
dw_queue_changed(PG_FUNCTION_ARGS)
{
	(void) dw_require_trigger(fcinfo, "queue_changed", false);
	/* a restore must succeed even if the server has not preloaded the library */
	if (dw_shared != NULL)
		dw_touch_control();
	PG_RETURN_POINTER(NULL);
}

/*
 * Row trigger on delay_wheel_data.queue and delay_wheel_data.pause.  Raises an error unless the
 * current user has the rights of the table's owner: the right to write to all tables
 * (pg_write_all_data) is not enough.
 */
Datum
dw_queue_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = dw_require_trigger(fcinfo, "queue_guard", true);
	HeapTuple	row;

	row = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple : trigger->tg_trigtuple;
	if (!has_privs_of_role(GetUserId(), trigger->tg_relation->rd_rel->relowner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to write to table \"%s.%s\"", "delay_wheel_data",
						RelationGetRelationName(trigger->tg_relation)),
				 errhint("Use %s, %s and %s.", "delay_queue()", "delay_pause()", "delay_resume()")));
	if (!dw_accept_replicated(trigger, row))
		return PointerGetDatum(NULL);
	/* an apply worker of logical replication does not fire the statement trigger */
	if (IsLogicalWorker() && dw_shared != NULL)
		dw_touch_control();
	return PointerGetDatum(row);
}

/*---- Names and rights ----*/

/* Returns the first argument, the name of a queue; an error if it is null or "default". */
static char *
queue_name(FunctionCallInfo fcinfo)
{
	char	   *name;

	dw_refuse_null(PG_ARGISNULL(0), "queue name");
	name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	if (strcmp(name, "default") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME),
				 errmsg("queue \"%s\" cannot be declared, changed or paused", name),
				 errdetail("It is the queue of tasks that name none."),
				 errhint("Declare a queue of another name with %s; %s without a name pauses one's own tasks, in whichever queue.",
						 "delay_queue()", "delay_pause()")));
	return name;
}

/* Raises the error for a queue that is to be changed or dropped, and does not exist. */
static void
raise_unknown_queue(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("queue \"%s\" does not exist", name)));
}

/*---- Rows of queues ----*/

/*
 * Locks a queue in the lock manager until the end of the transaction, and returns its
 * row as it is under the lock; NULL if there is no queue of that name.  Raises an error
 * if the current user may not change the queue, or if wait is false and another
 * transaction has a conflicting lock.
 */
static HeapTuple
take_queue(Relation rel, const char *name, LOCKMODE mode, bool wait)
{
	int16		locked = 0;

	for (;;)
	{
		HeapTuple	tuple = dw_queue_row(rel, name);
		bool		isnull;

		if (tuple == NULL)
			return NULL;
		/* check rights first: a user without rights must not get a lock that blocks others */
		if (!has_privs_of_role(GetUserId(),
							   DatumGetObjectId(heap_getattr(tuple, Anum_queue_owner,
															 RelationGetDescr(rel), &isnull))))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("must be owner of queue \"%s\"", name)));
		if (dw_queue_id(rel, tuple) == locked)
			return tuple;
		locked = dw_queue_id(rel, tuple);
		if (dw_queue_lock(RelationGetRelid(rel), locked, mode, wait) == LOCKACQUIRE_NOT_AVAIL)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("queue \"%s\" is being used by other transactions", name),
					 errdetail("They have scheduled tasks into it, or changed it, and are still open."),
					 errhint("Try again later.")));
	}
}

/*
 * Deletes a row of delay_wheel_data.queue or delay_wheel_data.pause.  False if plain SQL of
 * another transaction has changed or deleted the row: the caller looks again.
 */
static bool
delete_queue_row(Relation rel, HeapTuple tuple)
{
	TM_Result	result = dw_heap_delete(rel, &tuple->t_self, true);

	if (result == TM_SelfModified)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
				 errmsg("row of \"%s.%s\" was changed by the current command", "delay_wheel_data",
						RelationGetRelationName(rel))));
	if (result == TM_Ok)
		CommandCounterIncrement();
	dw_touch_control();
	return result == TM_Ok;
}

/* A change of a queue: new values for some columns */
typedef struct Change
{
	bool		given[Natts_queue]; /* true for the columns that change */
	Datum		values[Natts_queue];
	bool		nulls[Natts_queue];
} Change;

/* Adds a column to a change. */
static void
give(Change *change, AttrNumber column, Datum value, bool isnull)
{
	change->given[column - 1] = true;
	change->values[column - 1] = value;
	change->nulls[column - 1] = isnull;
}

/* Raises an error if the columns of a row say more of groups than can be: there are none. */
static void
check_group_limits(const Datum *values, const bool *nulls)
{
	if (nulls[Anum_queue_group_max_running - 1] && nulls[Anum_queue_group_rate - 1] &&
		nulls[Anum_queue_group_order - 1])
		return;
	if (nulls[Anum_queue_groups - 1] || !DatumGetBool(values[Anum_queue_groups - 1]))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("group_max_running, group_rate and group_order need groups"),
				 errhint("Add groups => true, or set them to 0 and 'any'.")));
}

/* The options that mean something for queues of one kind only. */
static const struct
{
	AttrNumber	column;
	bool		external;
	const char *name;
}			kind_options[] = {
	{Anum_queue_receivers, true, "receivers"},
	{Anum_queue_lease, true, "lease"},
	{Anum_queue_receive_timeout, true, "receive_timeout"},
	{Anum_queue_notify_channel, true, "notify_channel"},
	{Anum_queue_timeout, false, "timeout"},
	{Anum_queue_batch, false, "batch"},
	{Anum_queue_retry_on, false, "retry_on"},
	{Anum_queue_give_up_on, false, "give_up_on"},
	{Anum_queue_keep_settings, false, "keep_settings"}
};

/* True if the change sets the column to something else than the default of a new queue. */
static bool
is_given(const Change *change, AttrNumber column)
{
	Datum		value = change->values[column - 1];

	if (!change->given[column - 1] || change->nulls[column - 1])
		return false;
	if (column == Anum_queue_batch)
		return !DatumGetBool(value);
	return column != Anum_queue_receivers || ARR_NDIM(DatumGetArrayTypeP(value)) > 0;
}

/* Raises an error if a change gives a queue an option that means nothing for one of its kind. */
static void
check_kind_options(const Change *change, bool external)
{
	for (int i = 0; i < lengthof(kind_options); i++)
		if (kind_options[i].external != external && is_given(change, kind_options[i].column))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 external ?
					 errmsg("option \"%s\" is not for external queues", kind_options[i].name) :
					 errmsg("option \"%s\" needs an external queue", kind_options[i].name),
					 external ?
					 errdetail("Sessions receive its messages, and no SQL is run for them.") : 0,
					 external ? 0 : errhint("Add external => true, or leave it out.")));
}

/* Makes a change in the columns of a row. */
static void
apply_change(const Change *change, Datum *values, bool *nulls)
{
	for (int i = 0; i < Natts_queue; i++)
		if (change->given[i])
		{
			values[i] = change->values[i];
			nulls[i] = change->nulls[i];
		}
	check_group_limits(values, nulls);
	check_kind_options(change, DatumGetBool(values[Anum_queue_external - 1]));
}

/* True if the task table has rows of the queue, of any origin. */
static bool
has_rows(int16 id)
{
	Relation	rel = table_open(dw_catalog()->task, AccessShareLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	DwTaskKey	key;
	bool		found = false;

	for (bool first = true; !found && dw_next_lane(rel, snapshot, &key, first); first = false)
	{
		CHECK_FOR_INTERRUPTS();
		found = key.queue == id;
	}
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return found;
}

/*
 * True if the queue has tasks, including those that came with a copy of another
 * database.  A task with a mode may have no row while it runs.  Such a task counts,
 * since it may be put back, or be followed by another task of the queue.
 */
static bool
has_tasks(int16 id)
{
	uint32		ended;
	bool		found;

	do
	{
		CHECK_FOR_INTERRUPTS();
		ended = dw_autonomous_ended();
		found = has_rows(id) || dw_executor_runs_autonomous_in(id);
		/* a task may have ended, and been put back, between the two checks */
	} while (!found && ended != dw_autonomous_ended());
	return found;
}

/* Raises an error if the queue has tasks, or a wing needs it. */
static void
require_empty(Relation rel, const char *name, HeapTuple tuple)
{
	dw_each_wing(wing, require_unused)
		wing->require_unused(dw_queue_id(rel, tuple), name);
	if (has_tasks(dw_queue_id(rel, tuple)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("queue \"%s\" has pending tasks", name),
				 errhint("Cancel them with %s and wait until they are removed, or wait until they have run.",
						 psprintf("delay_cancel_all(queue => %s)", quote_literal_cstr(name)))));
}

/* True if the change makes the queue external, or one of SQL tasks, that is not so now. */
static bool
changes_kind(const Change *change, const Datum *values)
{
	return change->given[Anum_queue_external - 1] &&
		DatumGetBool(change->values[Anum_queue_external - 1]) !=
		DatumGetBool(values[Anum_queue_external - 1]);
}

/*
 * Changes a queue: its row is deleted, and a row with the same id is inserted.  False
 * if there is no queue of that name.
 */
static bool
change_queue(Relation rel, const char *name, const Change *change)
{
	for (;;)
	{
		HeapTuple	tuple = take_queue(rel, name, ShareUpdateExclusiveLock, true);
		Datum	   *values;
		bool	   *nulls;

		if (tuple == NULL)
			return false;
		dw_deform(rel, tuple, &values, &nulls);
		if (changes_kind(change, values))
		{
			/* nobody may use the queue meanwhile, which the lock taken so far allows */
			tuple = take_queue(rel, name, AccessExclusiveLock, false);
			require_empty(rel, name, tuple);
		}
		apply_change(change, values, nulls);
		if (!delete_queue_row(rel, tuple))
			continue;
		dw_table_insert(RelationGetRelid(rel), values, nulls, Natts_queue);
		return true;
	}
}

/* Raises an error if shared memory has no place for one more queue. */
static void
require_place(Relation rel)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	int			n = 0;

	while (HeapTupleIsValid(systable_getnext(scan)))
		n++;
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	for (int i = 0; i < dw_max_queues; i++)
		if (OidIsValid(dw_queues[i].database) && dw_queues[i].database != MyDatabaseId)
			n++;
	LWLockRelease(dw_shared->table_lock);
	if (n >= dw_max_queues)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many queues are declared: the limit of %d is reached", dw_max_queues),
				 errhint("Drop some with %s, in any database, or increase \"%s\" and restart the server.",
						 "delay_queue_drop()", "delay_wheel.max_queues")));
}

/*
 * Returns an id that no queue has, and no task: plain SQL may have deleted the row of
 * a queue that has tasks.
 */
static int16
new_id(void)
{
	for (;;)
	{
		int16		id = nextval_internal(dw_catalog()->queue_id_seq, false);

		CHECK_FOR_INTERRUPTS();
		if (dw_queue_name_of(id) == NULL && !has_tasks(id))
			return id;
	}
}

/* Inserts the row of a new queue.  The caller has locked the table. */
static void
create_queue(Relation rel, const char *name, const Change *change)
{
	Datum		values[Natts_queue] = {0};
	bool		nulls[Natts_queue];

	memset(nulls, true, sizeof(nulls));
	require_place(rel);
	values[Anum_queue_id - 1] = Int16GetDatum(new_id());
	values[Anum_queue_name - 1] = CStringGetTextDatum(name);
	values[Anum_queue_owner - 1] = ObjectIdGetDatum(GetUserId());
	values[Anum_queue_users - 1] = PointerGetDatum(construct_empty_array(REGROLEOID));
	values[Anum_queue_batch - 1] = BoolGetDatum(true);
	nulls[Anum_queue_id - 1] = nulls[Anum_queue_name - 1] = nulls[Anum_queue_owner - 1] = false;
	nulls[Anum_queue_users - 1] = nulls[Anum_queue_batch - 1] = false;
	nulls[Anum_queue_paused - 1] = nulls[Anum_queue_priority - 1] = false;
	values[Anum_queue_receivers - 1] = PointerGetDatum(construct_empty_array(REGROLEOID));
	nulls[Anum_queue_external - 1] = nulls[Anum_queue_receivers - 1] = false;
	apply_change(change, values, nulls);
	dw_table_insert(RelationGetRelid(rel), values, nulls, Natts_queue);
	dw_touch_control();
}

/*---- The arguments of delay_queue() ----*/

/*
 * Turns an array of role names into one of role OIDs.  The name "public" stands for all
 * roles, and becomes InvalidOid (printed as -).
 */
static Datum
users_of(ArrayType *array)
{
	Datum	   *names;
	bool	   *nulls;
	int			n;

	deconstruct_array(array, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR, &names, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		const char *name;

		dw_refuse_null(nulls[i], "role name");
		name = NameStr(*DatumGetName(names[i]));
		names[i] = ObjectIdGetDatum(strcmp(name, "public") == 0 ? InvalidOid :
									get_role_oid(name, false));
	}
	return PointerGetDatum(construct_array(names, n, REGROLEOID, sizeof(Oid), true, TYPALIGN_INT));
}

/*
 * Adds an integer argument to the change; 0 means no limit, and sets the column to
 * null.  As in all functions here, a null argument changes nothing.
 */
static void
take_limit(FunctionCallInfo fcinfo, int arg, const char *what, int max, AttrNumber column, Change *change)
{
	int			value;

	if (PG_ARGISNULL(arg))
		return;
	value = PG_GETARG_INT32(arg);
	if (value < 0 || value > max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be between %d and %d", what, 0, max),
				 errhint("0 is no limit.")));
	give(change, column, Int32GetDatum(value), value == 0);
}

/* Adds a column to the change, if the argument is given. */
static void
take_column(FunctionCallInfo fcinfo, int arg, AttrNumber column, Datum value, bool isnull, Change *change)
{
	if (!PG_ARGISNULL(arg))
		give(change, column, value, isnull);
}

/* Adds a time that a rate is for to the change. */
static void
take_per(FunctionCallInfo fcinfo, int arg, const char *what, AttrNumber column, Change *change)
{
	int64		per = dw_option_pause(fcinfo, arg, what);

	if (!PG_ARGISNULL(arg) && per < USECS_PER_SEC)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be at least a second", what)));
	take_column(fcinfo, arg, column, PG_GETARG_DATUM(arg), false, change);
}

/* Adds a burst of a rate to the change. */
static void
take_burst(FunctionCallInfo fcinfo, int arg, const char *what, AttrNumber column, Change *change)
{
	int32		burst = dw_option_number(fcinfo, arg, what, 0, MAX_BURST);

	take_column(fcinfo, arg, column, Int32GetDatum(burst), burst == 0, change);
}

/* Adds the argument group_order to the change; "any" sets the column to null. */
static void
take_group_order(FunctionCallInfo fcinfo, int arg, Change *change)
{
	char	   *order;
	bool		is_any;

	if (PG_ARGISNULL(arg))
		return;
	order = text_to_cstring(PG_GETARG_TEXT_PP(arg));
	is_any = strcmp(order, "any") == 0;
	if (!is_any && dw_group_order_named(order) == DW_ORDER_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("group_order must be hold, pass or any, not \"%s\"", order)));
	give(change, Anum_queue_group_order, PG_GETARG_DATUM(arg), is_any);
}

/* Reads the arguments of delay_queue() on groups. */
static void
take_groups(FunctionCallInfo fcinfo, Change *change)
{
	take_column(fcinfo, 23, Anum_queue_groups, PG_GETARG_DATUM(23), false, change);
	take_limit(fcinfo, 24, "group_max_running", INT_MAX, Anum_queue_group_max_running, change);
	take_limit(fcinfo, 25, "group_rate", MAX_RATE, Anum_queue_group_rate, change);
	take_per(fcinfo, 26, "group_per", Anum_queue_group_per, change);
	take_burst(fcinfo, 27, "group_burst", Anum_queue_group_burst, change);
	take_group_order(fcinfo, 28, change);
}

/* Adds the argument history to the change; "default" sets the column to null. */
static void
take_history(FunctionCallInfo fcinfo, int arg, Change *change)
{
	char	   *level;
	bool		is_default;

	if (PG_ARGISNULL(arg))
		return;
	level = text_to_cstring(PG_GETARG_TEXT_PP(arg));
	is_default = strcmp(level, "default") == 0;
	if (!is_default && dw_history_level(level) == DW_HISTORY_UNSET)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("history must be off, errors, sample, all or default, not \"%s\"", level)));
	give(change, Anum_queue_history, PG_GETARG_DATUM(arg), is_default);
}

/* Adds the argument notify_channel to the change; an empty text sets the column to null. */
static void
take_channel(FunctionCallInfo fcinfo, int arg, Change *change)
{
	char	   *channel;

	if (PG_ARGISNULL(arg))
		return;
	channel = text_to_cstring(PG_GETARG_TEXT_PP(arg));
	if (channel[0] != '\0' && !dw_is_channel(channel))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid channel name for notify_channel: \"%s\"", channel),
				 errdetail("It must have between 1 and %d bytes.", NAMEDATALEN - 1)));
	give(change, Anum_queue_notify_channel, PG_GETARG_DATUM(arg), channel[0] == '\0');
}

/* Adds an argument that lists SQLSTATEs to the change; an empty list sets the column to null. */
static void
take_errors(FunctionCallInfo fcinfo, int arg, const char *what, AttrNumber column, Change *change)
{
	ArrayType  *errors;

	if (PG_ARGISNULL(arg))
		return;
	errors = PG_GETARG_ARRAYTYPE_P(arg);
	dw_errors_check(errors, what);
	give(change, column, PointerGetDatum(errors), ARR_NDIM(errors) == 0);
}

/* Reads the arguments of delay_queue() on retries that follow each other. */
static void
take_retry(FunctionCallInfo fcinfo, Change *change)
{
	int64		max_delay = dw_option_pause(fcinfo, 17, "retry_max_delay");

	if (!PG_ARGISNULL(16))
		dw_backoff_check(text_to_cstring(PG_GETARG_TEXT_PP(16)));
	take_column(fcinfo, 16, Anum_queue_retry_backoff, PG_GETARG_DATUM(16), false, change);
	take_column(fcinfo, 17, Anum_queue_retry_max_delay, PG_GETARG_DATUM(17), max_delay == 0, change);
	take_errors(fcinfo, 18, "retry_on", Anum_queue_retry_on, change);
	take_errors(fcinfo, 19, "give_up_on", Anum_queue_give_up_on, change);
}

/* Adds the argument keep_settings to the change; an empty list sets the column to null. */
static void
take_settings(FunctionCallInfo fcinfo, int arg, Change *change)
{
	ArrayType  *names;

	if (PG_ARGISNULL(arg))
		return;
	names = PG_GETARG_ARRAYTYPE_P(arg);
	dw_kept_settings_check(names);
	give(change, Anum_queue_keep_settings, PointerGetDatum(names), ARR_NDIM(names) == 0);
}

/* Reads the arguments of delay_queue() that follow the name. */
static void
read_change(FunctionCallInfo fcinfo, Change *change)
{
	int32		timeout = dw_option_timeout(fcinfo, 4, "timeout");
	int64		spread;

	take_limit(fcinfo, 1, "max_running", INT_MAX, Anum_queue_max_running, change);
	take_limit(fcinfo, 2, "rate", MAX_RATE, Anum_queue_rate, change);
	take_column(fcinfo, 3, Anum_queue_priority,
		 Int16GetDatum(dw_option_number(fcinfo, 3, "priority", DW_MIN_PRIORITY, DW_MAX_PRIORITY)), false, change);
	take_column(fcinfo, 4, Anum_queue_timeout, Int32GetDatum(timeout), timeout == 0, change);
	take_column(fcinfo, 5, Anum_queue_max_attempts,
		 Int16GetDatum(dw_option_number(fcinfo, 5, "max_attempts", 1, SHRT_MAX)), false, change);
	(void) dw_option_pause(fcinfo, 6, "retry_delay");
	take_column(fcinfo, 6, Anum_queue_retry_delay, PG_GETARG_DATUM(6), false, change);
	take_column(fcinfo, 7, Anum_queue_batch, PG_GETARG_DATUM(7), false, change);
	spread = dw_option_pause(fcinfo, 8, "spread");
	take_column(fcinfo, 8, Anum_queue_spread, PG_GETARG_DATUM(8), spread == 0, change);
	if (!PG_ARGISNULL(9))
		give(change, Anum_queue_users, users_of(PG_GETARG_ARRAYTYPE_P(9)), false);
	take_history(fcinfo, 10, change);
	take_column(fcinfo, 11, Anum_queue_external, PG_GETARG_DATUM(11), false, change);
	if (!PG_ARGISNULL(12))
		give(change, Anum_queue_receivers, users_of(PG_GETARG_ARRAYTYPE_P(12)), false);
	(void) dw_option_lease(fcinfo, 13, "lease");
	take_column(fcinfo, 13, Anum_queue_lease, PG_GETARG_DATUM(13), false, change);
	take_column(fcinfo, 14, Anum_queue_receive_timeout,
		 Int32GetDatum(dw_option_timeout(fcinfo, 14, "receive_timeout")), false, change);
	take_channel(fcinfo, 15, change);
	take_retry(fcinfo, change);
	take_settings(fcinfo, 20, change);
	take_per(fcinfo, 21, "per", Anum_queue_per, change);
	take_burst(fcinfo, 22, "burst", Anum_queue_burst, change);
	take_groups(fcinfo, change);
}

/* Returns the columns that are given, with their values, as "max_running = 2, rate = 10". */
static char *
describe(Relation rel, const Change *change)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < Natts_queue; i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(rel), i);
		Oid			output;
		bool		varlena;

		if (!change->given[i])
			continue;
		getTypeOutputInfo(column->atttypid, &output, &varlena);
		appendStringInfo(&text, "%s%s = %s", text.len > 0 ? ", " : "", NameStr(column->attname),
						 change->nulls[i] ? "null" : OidOutputFunctionCall(output, change->values[i]));
	}
	return text.len > 0 ? text.data : NULL;
}

/* Records what was done to a queue, or, without a name, to the tasks of roles, if that is to be recorded. */
static void
audit_control(const char *what, const char *name, const char *detail)
{
	if (dw_audits(DW_AUDIT_CONTROL))
		dw_audit_write(&(DwAction) {.what = what,.name = name,.detail = detail});
}

/* SQL function delay_queue(): declares a queue, or changes it. */
Datum
dw_queue(PG_FUNCTION_ARGS)
{
	Change		change = {0};
	Relation	rel;
	char	   *name;

	dw_require_writable("delay_queue()");
	name = queue_name(fcinfo);
	if (name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("queue name must not be empty")));
	if (strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("queue name must be less than %d bytes long", NAMEDATALEN)));
	read_change(fcinfo, &change);

	rel = table_open(dw_catalog()->queue, RowExclusiveLock);
	if (!change_queue(rel, name, &change))
	{
		/* only one session at a time creates queues; another one may just have created this */
		LockRelation(rel, ShareUpdateExclusiveLock);
		if (!change_queue(rel, name, &change))
			create_queue(rel, name, &change);
	}
	audit_control("queue", name, dw_audits(DW_AUDIT_CONTROL) ? describe(rel, &change) : NULL);
	table_close(rel, NoLock);
	PG_RETURN_BOOL(true);
}

/* SQL function delay_queue_drop(). */
Datum
dw_queue_drop(PG_FUNCTION_ARGS)
{
	Relation	rel;
	HeapTuple	tuple;
	char	   *name;

	dw_require_writable("delay_queue_drop()");
	name = queue_name(fcinfo);
	rel = table_open(dw_catalog()->queue, RowExclusiveLock);
	do
	{
		tuple = take_queue(rel, name, AccessExclusiveLock, false);
		if (tuple == NULL)
			raise_unknown_queue(name);
		require_empty(rel, name, tuple);
	} while (!delete_queue_row(rel, tuple));
	audit_control("queue_drop", name, NULL);
	table_close(rel, NoLock);
	PG_RETURN_BOOL(true);
}

/*---- Pauses ----*/

/* Pauses or resumes a queue; an error if there is no queue of that name. */
static void
set_queue_paused(const char *name, bool paused)
{
	Relation	rel = table_open(dw_catalog()->queue, RowExclusiveLock);
	Change		change = {0};

	give(&change, Anum_queue_paused, BoolGetDatum(paused), false);
	if (!change_queue(rel, name, &change))
		raise_unknown_queue(name);
	table_close(rel, NoLock);
}

/* Returns the row of the pause of a role, as it is now; NULL if there is none. */
static HeapTuple
find_pause(Relation rel, Oid owner)
{
	ScanKeyData key;

	ScanKeyInit(&key, Anum_pause_owner, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(owner));
	return dw_row_find(rel, dw_catalog()->pause_pkey, &key, NULL);
}

/* Pauses or resumes the tasks of a role, or of all roles (InvalidOid). */
static void
set_owner_paused(Oid owner, bool paused)
{
	Relation	rel = table_open(dw_catalog()->pause, RowExclusiveLock);
	HeapTuple	tuple;

	(void) dw_queue_lock(RelationGetRelid(rel), owner, ExclusiveLock, true);
	tuple = find_pause(rel, owner);
	if (paused && tuple == NULL)
	{
		Datum		values[Natts_pause];
		bool		nulls[Natts_pause] = {0};

		values[Anum_pause_owner - 1] = ObjectIdGetDatum(owner);
		values[Anum_pause_since - 1] = TimestampTzGetDatum(GetCurrentTransactionStartTimestamp());
		dw_table_insert(RelationGetRelid(rel), values, nulls, Natts_pause);
		dw_touch_control();
	}
	else if (!paused)
		while (tuple != NULL && !delete_queue_row(rel, tuple))
			tuple = find_pause(rel, owner);
	table_close(rel, NoLock);
}

/* delay_pause() and delay_resume(): a queue, or the current user's tasks if none is named. */
static Datum
pause_or_resume(FunctionCallInfo fcinfo, const char *function, bool paused)
{
	dw_require_right();
	dw_require_writable(function);
	if (PG_ARGISNULL(0))
		set_owner_paused(GetUserId(), paused);
	else
		set_queue_paused(queue_name(fcinfo), paused);
	audit_control(paused ? "pause" : "resume",
				  PG_ARGISNULL(0) ? NULL : queue_name(fcinfo), NULL);
	PG_RETURN_BOOL(true);
}

/* SQL function delay_pause(). */
Datum
dw_pause(PG_FUNCTION_ARGS)
{
	return pause_or_resume(fcinfo, "delay_pause()", true);
}

/* SQL function delay_resume(). */
Datum
dw_resume(PG_FUNCTION_ARGS)
{
	return pause_or_resume(fcinfo, "delay_resume()", false);
}

/* SQL function delay_pause_database(). */
Datum
dw_pause_database(PG_FUNCTION_ARGS)
{
	dw_require_writable("delay_pause_database()");
	set_owner_paused(InvalidOid, true);
	audit_control("pause_database", NULL, NULL);
	PG_RETURN_BOOL(true);
}

/* SQL function delay_resume_database(). */
Datum
dw_resume_database(PG_FUNCTION_ARGS)
{
	dw_require_writable("delay_resume_database()");
	set_owner_paused(InvalidOid, false);
	audit_control("resume_database", NULL, NULL);
	PG_RETURN_BOOL(true);
}
