/*-------------------------------------------------------------------------
 *
 * declare.c
 *	  SQL functions that declare, change and drop queues, and that pause and resume tasks.
 *
 * Run by sessions, and by executors whose tasks call them.  The functions write rows of
 * delay_wheel_data.queue and delay_wheel_data.pause.  The commit informs all processes that obey
 * these tables, see task/queues.c.  Object locks (README.md) ensure that a session sees the changes
 * of earlier sessions, and that a pause waits for an uncommitted resume.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "commands/sequence.h"
#include "replication/logicalworker.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "backend.h"

PG_FUNCTION_INFO_V1(dw_queue_changed);
PG_FUNCTION_INFO_V1(dw_queue_guard);
PG_FUNCTION_INFO_V1(dw_create_queue);
PG_FUNCTION_INFO_V1(dw_drop_queue);
PG_FUNCTION_INFO_V1(dw_pause_queue);
PG_FUNCTION_INFO_V1(dw_resume_queue);
PG_FUNCTION_INFO_V1(dw_pause_all);
PG_FUNCTION_INFO_V1(dw_resume_all);
PG_FUNCTION_INFO_V1(dw_pause_database);
PG_FUNCTION_INFO_V1(dw_resume_database);

/*---- Changes by plain SQL ----*/

/*
 * Statement trigger on delay_wheel_data.queue and delay_wheel_data.pause, fired when plain SQL has
 * changed rows.  The commit then informs all processes.
 */
Datum
dw_queue_changed(PG_FUNCTION_ARGS)
{
	(void) dw_require_trigger(fcinfo, "queue_changed", false);
	/* a restore must succeed even if the server has not preloaded the library */
	if (dw_shared != NULL)
		dw_touch(DW_CONTROL_CHANGED);
	PG_RETURN_POINTER(NULL);
}

/*
 * Row trigger on delay_wheel_data.queue and delay_wheel_data.pause.  Raises an error unless the
 * current user has the rights of the table's owner.  The right to write to all tables
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
				 errhint("Use %s, %s and %s.", "delay_wheel.create_queue()", "delay_wheel.pause_queue()", "delay_pause_all()")));
	if (!dw_accept_replicated(trigger, row))
		return PointerGetDatum(NULL);
	/* an apply worker of logical replication does not fire the statement trigger */
	if (IsLogicalWorker() && dw_shared != NULL)
		dw_touch(DW_CONTROL_CHANGED);
	return PointerGetDatum(row);
}

/*---- Names and rights ----*/

/* Returns the first argument, the name of a queue.  Raises an error if it is null or "default". */
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
				 errdetail("This queue contains all tasks that are scheduled without a queue."),
				 errhint("Declare a queue of another name with %s. %s pauses all tasks of the current user.",
						 "delay_wheel.create_queue()", "delay_pause_all()")));
	return name;
}

/* Raises the error for a change or drop of a queue that does not exist. */
static void
raise_unknown_queue(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("queue \"%s\" does not exist", name)));
}

/*---- Rows of queues ----*/

/*
 * Locks a queue in the lock manager until the end of the transaction, and then reads and returns
 * its row; NULL if there is no queue of that name.  Raises an error if the current user may not
 * change the queue, or if wait is false and another transaction has a conflicting lock.
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
		/* check rights first: a user without rights must not get a lock that blocks other users */
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
					 errdetail("Open transactions have scheduled tasks into the queue, or have changed it."),
					 errhint("Try again later.")));
	}
}

/*
 * Deletes a row of delay_wheel_data.queue or delay_wheel_data.pause.  Returns false if plain SQL of
 * another transaction has changed or deleted the row: the caller then looks again.
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
	dw_touch(DW_CONTROL_CHANGED);
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

/* Options that only one kind of queue has. */
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

/* Returns true if the change sets the column to another value than the default of a new queue. */
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

/* Raises an error if a change gives a queue an option that only the other kind has. */
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
					 errdetail("An external queue has messages, and executors run no SQL for messages.") : 0,
					 external ? 0 : errhint("Add external => true, or leave the option out.")));
}

/* The queue has changed its kind: resets the options in its row that only the other kind has. */
static void
reset_kind_options(bool external, Datum *values, bool *nulls)
{
	for (int i = 0; i < lengthof(kind_options); i++)
	{
		AttrNumber	column = kind_options[i].column;

		if (kind_options[i].external == external)
			continue;
		if (column == Anum_queue_batch)
			values[column - 1] = BoolGetDatum(true);
		else if (column == Anum_queue_receivers)
			values[column - 1] = PointerGetDatum(construct_empty_array(REGROLEOID));
		else
			nulls[column - 1] = true;
	}
}

/* Applies a change to the columns of a row. */
static void
apply_change(const Change *change, Datum *values, bool *nulls)
{
	for (int i = 0; i < Natts_queue; i++)
		if (change->given[i])
		{
			values[i] = change->values[i];
			nulls[i] = change->nulls[i];
		}
	if ((nulls[Anum_queue_groups - 1] || !DatumGetBool(values[Anum_queue_groups - 1])) &&
		!(nulls[Anum_queue_group_max_running - 1] && nulls[Anum_queue_group_rate - 1] &&
		  nulls[Anum_queue_group_order - 1]))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("group_max_running, group_rate and group_order need groups"),
				 errhint("Add groups => true, or set the limits to 0 and the order to 'any'.")));
	check_kind_options(change, DatumGetBool(values[Anum_queue_external - 1]));
}

/* Returns true if the task table has rows of the queue, armed or not. */
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
 * Returns true if the queue has tasks, including tasks that came with a copy of another database.
 * A running task with a mode may have no row.  Such a task counts, since it may be put back, and a
 * follow-up may use the queue.
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
				 errhint("Cancel the tasks with %s and wait until they are removed, or wait until the tasks have run.",
						 psprintf("delay_cancel_all(queue => %s)", quote_literal_cstr(name)))));
}

/* Returns true if the change switches a column of the row, a boolean, on or off. */
static bool
switches(const Change *change, AttrNumber column, const Datum *values, const bool *nulls)
{
	bool		is_on = !nulls[column - 1] && DatumGetBool(values[column - 1]);

	return change->given[column - 1] && DatumGetBool(change->values[column - 1]) != is_on;
}

/*
 * Changes a queue: deletes its row, and inserts a row with the same id.  Returns false if there is
 * no queue of that name.
 */
static bool
change_queue(Relation rel, const char *name, const Change *change)
{
	for (;;)
	{
		HeapTuple	tuple = take_queue(rel, name, ShareUpdateExclusiveLock, true);
		Datum	   *values;
		bool	   *nulls;
		bool		changes_kind;

		if (tuple == NULL)
			return false;
		dw_deform(rel, tuple, &values, &nulls);
		changes_kind = switches(change, Anum_queue_external, values, nulls);
		/* if groups are switched off, no task may belong to a group */
		if (changes_kind || (switches(change, Anum_queue_groups, values, nulls) &&
							 !DatumGetBool(change->values[Anum_queue_groups - 1])))
		{
			/* a stronger lock is needed, so that no session uses the queue meanwhile */
			tuple = take_queue(rel, name, AccessExclusiveLock, false);
			require_empty(rel, name, tuple);
		}
		if (changes_kind)
			reset_kind_options(DatumGetBool(change->values[Anum_queue_external - 1]), values, nulls);
		apply_change(change, values, nulls);
		if (!delete_queue_row(rel, tuple))
			continue;
		dw_table_insert(RelationGetRelid(rel), values, nulls, Natts_queue);
		return true;
	}
}

/* Raises an error if shared memory has no place for another queue. */
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
				 errhint("Drop queues with %s, in any database, or increase \"%s\" and restart the server.",
						 "delay_wheel.drop_queue()", "delay_wheel.max_queues")));
}

/* Inserts the row of a new queue.  The caller has locked the table. */
static void
create_queue(Relation rel, const char *name, const Change *change)
{
	Datum		values[Natts_queue] = {0};
	bool		nulls[Natts_queue];
	int16		id;

	memset(nulls, true, sizeof(nulls));
	require_place(rel);
	/* plain SQL may have deleted the row of a queue that has tasks */
	do
	{
		CHECK_FOR_INTERRUPTS();
		id = nextval_internal(dw_catalog()->queue_id_seq, false);
	} while (dw_queue_name_of(id) != NULL || has_tasks(id));
	values[Anum_queue_id - 1] = Int16GetDatum(id);
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
	dw_touch(DW_CONTROL_CHANGED);
}

/*---- The options of create_queue() ----*/

/*
 * Converts an array of role names to an array of role OIDs.  The name "public" stands for all
 * roles, and becomes InvalidOid, which is printed as "-".
 */
static Datum
users_of(ArrayType *array)
{
	int			n;
	Datum	   *names = dw_elements_not_null(array, "role name", &n);

	for (int i = 0; i < n; i++)
	{
		const char *name = NameStr(*DatumGetName(names[i]));

		names[i] = ObjectIdGetDatum(strcmp(name, "public") == 0 ? InvalidOid :
									get_role_oid(name, false));
	}
	return PointerGetDatum(construct_array(names, n, REGROLEOID, sizeof(Oid), true, TYPALIGN_INT));
}

/*
 * Raises an error if a text has no meaning for the option.  Returns true if the text stands for the
 * default, which is null.
 */
static bool
check_word(DwOption option, const char *word)
{
	switch (option)
	{
		case DW_OPT_GROUP_ORDER:
			if (strcmp(word, "any") == 0)
				return true;
			if (dw_group_order_named(word) == DW_ORDER_NONE)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("group_order must be hold, pass or any, not \"%s\"", word)));
			return false;
		case DW_OPT_HISTORY:
			if (strcmp(word, "default") == 0)
				return true;
			if (dw_history_level(word) == DW_HISTORY_UNSET)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("history must be off, errors, sample, all or default, not \"%s\"", word)));
			return false;
		case DW_OPT_NOTIFY_CHANNEL:
			if (word[0] != '\0' && !dw_is_channel(word))
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("invalid channel name for notify_channel: \"%s\"", word),
						 errdetail("The name must have between 1 and %d bytes.", NAMEDATALEN - 1)));
			return word[0] == '\0';
		default:
			(void) dw_backoff_named(word, true);
			return false;
	}
}

/*
 * Returns the value of the column for an option that is given, and sets *isnull.  Raises an error
 * if the option's value is invalid.
 */
static Datum
column_value(const DwOptions *options, DwOption option, bool *isnull)
{
	Datum		value = options->values[option].value;

	*isnull = false;
	switch (option)
	{
		case DW_OPT_MAX_RUNNING:
		case DW_OPT_RATE:
		case DW_OPT_BURST:
		case DW_OPT_GROUP_MAX_RUNNING:
		case DW_OPT_GROUP_RATE:
		case DW_OPT_GROUP_BURST:
			/* 0 means no limit */
			*isnull = DatumGetInt32(value) == 0;
			return value;
		case DW_OPT_PRIORITY:
		case DW_OPT_MAX_ATTEMPTS:
			return Int16GetDatum(DatumGetInt32(value));
		case DW_OPT_TIMEOUT:
			*isnull = dw_option_ms(options, option) == 0;
			return Int32GetDatum(dw_option_ms(options, option));
		case DW_OPT_RECEIVE_TIMEOUT:
			return Int32GetDatum(dw_option_ms(options, option));
		case DW_OPT_RETRY_MAX_DELAY:
		case DW_OPT_SPREAD:
			*isnull = dw_option_us(options, option) == 0;
			return value;
		case DW_OPT_RETRY_BACKOFF:
		case DW_OPT_HISTORY:
		case DW_OPT_NOTIFY_CHANNEL:
		case DW_OPT_GROUP_ORDER:
			*isnull = check_word(option, TextDatumGetCString(value));
			return value;
		case DW_OPT_RETRY_ON:
		case DW_OPT_GIVE_UP_ON:
			dw_errors_check(DatumGetArrayTypeP(value), dw_option_name(option));
			*isnull = ARR_NDIM(DatumGetArrayTypeP(value)) == 0;
			return value;
		case DW_OPT_KEEP_SETTINGS:
			dw_kept_settings_check(DatumGetArrayTypeP(value));
			*isnull = ARR_NDIM(DatumGetArrayTypeP(value)) == 0;
			return value;
		case DW_OPT_USERS:
		case DW_OPT_RECEIVERS:
			return users_of(DatumGetArrayTypeP(value));
		default:
			return value;
	}
}

/* Reads the options of a queue.  An option has the name of its column. */
static void
read_change(Relation rel, const DwOptions *options, Change *change)
{
	for (DwOption option = 0; option < DW_NOPTIONS; option++)
	{
		Datum		value;
		bool		isnull;

		/* the name is not changed */
		if (option == DW_OPT_NAME || options->values[option].isnull)
			continue;
		value = column_value(options, option, &isnull);
		give(change, SPI_fnumber(RelationGetDescr(rel), dw_option_name(option)), value, isnull);
	}
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

/*
 * Records an action on a queue in the audit, if the audit includes it.  Without a name, the action
 * is on tasks of roles.
 */
static void
audit_control(const char *what, const char *name, const char *detail)
{
	if (dw_audits(DW_AUDIT_CONTROL))
		dw_audit_write(&(DwAction) {.what = what,.name = name,.detail = detail});
}

/* SQL function delay_wheel.create_queue(): declares a queue, or changes it. */
Datum
dw_create_queue(PG_FUNCTION_ARGS)
{
	static const DwOption parameters[] = {
		DW_OPT_NAME, DW_OPT_MAX_RUNNING, DW_OPT_RATE, DW_OPT_PER, DW_OPT_BURST, DW_OPT_PRIORITY, DW_OPT_MAX_ATTEMPTS,
		DW_OPT_GROUPS, DW_OPT_EXTERNAL, DW_OPT_USERS, DW_OPT_RECEIVERS, DW_OPT_JSON
	};
	DwOptions	options;
	Change		change = {0};
	Relation	rel;
	char	   *name;

	dw_require_writable("delay_wheel.create_queue()");
	name = queue_name(fcinfo);
	if (name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("queue name must not be empty")));
	if (strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("queue name must be less than %d bytes long", NAMEDATALEN)));
	dw_options_take(fcinfo, parameters, lengthof(parameters), DW_FOR_QUEUE, &options);
	rel = table_open(dw_catalog()->queue, RowExclusiveLock);
	read_change(rel, &options, &change);
	if (!change_queue(rel, name, &change))
	{
		/* sessions create queues one at a time; another session may just have created this queue */
		LockRelation(rel, ShareUpdateExclusiveLock);
		if (!change_queue(rel, name, &change))
			create_queue(rel, name, &change);
	}
	audit_control("create_queue", name, dw_audits(DW_AUDIT_CONTROL) ? describe(rel, &change) : NULL);
	table_close(rel, NoLock);
	PG_RETURN_BOOL(true);
}

/* SQL function delay_wheel.drop_queue(). */
Datum
dw_drop_queue(PG_FUNCTION_ARGS)
{
	Relation	rel;
	HeapTuple	tuple;
	char	   *name;

	dw_require_writable("delay_wheel.drop_queue()");
	name = queue_name(fcinfo);
	rel = table_open(dw_catalog()->queue, RowExclusiveLock);
	do
	{
		tuple = take_queue(rel, name, AccessExclusiveLock, false);
		if (tuple == NULL)
			raise_unknown_queue(name);
		require_empty(rel, name, tuple);
	} while (!delete_queue_row(rel, tuple));
	audit_control("drop_queue", name, NULL);
	table_close(rel, NoLock);
	PG_RETURN_BOOL(true);
}

/*---- Pauses ----*/

/* Pauses or resumes a queue, which is argument 0. */
static Datum
pause_queue(FunctionCallInfo fcinfo, const char *action, bool paused)
{
	Relation	rel;
	Change		change = {0};
	char	   *name;

	dw_require_right_to_write(psprintf("delay_wheel.%s()", action));
	name = queue_name(fcinfo);
	rel = table_open(dw_catalog()->queue, RowExclusiveLock);
	give(&change, Anum_queue_paused, BoolGetDatum(paused), false);
	if (!change_queue(rel, name, &change))
		raise_unknown_queue(name);
	table_close(rel, NoLock);
	audit_control(action, name, NULL);
	PG_RETURN_BOOL(true);
}

/* SQL function delay_wheel.pause_queue(). */
Datum
dw_pause_queue(PG_FUNCTION_ARGS)
{
	return pause_queue(fcinfo, "pause_queue", true);
}

/* SQL function delay_wheel.resume_queue(). */
Datum
dw_resume_queue(PG_FUNCTION_ARGS)
{
	return pause_queue(fcinfo, "resume_queue", false);
}

/* Pauses or resumes all tasks of a role, or of the database if owner is InvalidOid. */
static Datum
pause_owner(const char *function, const char *action, Oid owner, bool paused)
{
	Relation	rel;
	HeapTuple	tuple;
	ScanKeyData key;

	if (OidIsValid(owner))
		dw_require_right();
	dw_require_writable(function);
	rel = table_open(dw_catalog()->pause, RowExclusiveLock);
	(void) dw_queue_lock(RelationGetRelid(rel), owner, ExclusiveLock, true);
	do
	{
		ScanKeyInit(&key, Anum_pause_owner, BTEqualStrategyNumber, F_OIDEQ,
					ObjectIdGetDatum(owner));
		tuple = dw_row_find(rel, dw_catalog()->pause_pkey, &key, NULL);
	} while (!paused && tuple != NULL && !delete_queue_row(rel, tuple));
	if (paused && tuple == NULL)
	{
		Datum		values[Natts_pause];
		bool		nulls[Natts_pause] = {0};

		values[Anum_pause_owner - 1] = ObjectIdGetDatum(owner);
		values[Anum_pause_since - 1] = TimestampTzGetDatum(GetCurrentTransactionStartTimestamp());
		dw_table_insert(RelationGetRelid(rel), values, nulls, Natts_pause);
		dw_touch(DW_CONTROL_CHANGED);
	}
	table_close(rel, NoLock);
	audit_control(action, NULL, NULL);
	PG_RETURN_BOOL(true);
}

/* SQL function delay_pause_all(): the current user's tasks. */
Datum
dw_pause_all(PG_FUNCTION_ARGS)
{
	return pause_owner("delay_pause_all()", "pause_all", GetUserId(), true);
}

/* SQL function delay_resume_all(). */
Datum
dw_resume_all(PG_FUNCTION_ARGS)
{
	return pause_owner("delay_resume_all()", "resume_all", GetUserId(), false);
}

/* SQL function delay_wheel.pause_database(). */
Datum
dw_pause_database(PG_FUNCTION_ARGS)
{
	return pause_owner("delay_wheel.pause_database()", "pause_database", InvalidOid, true);
}

/* SQL function delay_wheel.resume_database(). */
Datum
dw_resume_database(PG_FUNCTION_ARGS)
{
	return pause_owner("delay_wheel.resume_database()", "resume_database", InvalidOid, false);
}
