/*-------------------------------------------------------------------------
 *
 * update.c
 *	  delay_update(): changes a pending task.
 *
 * Run by sessions, and by executors whose tasks call the function.
 *
 * The row is deleted in the caller's transaction, and inserted again with the same id, as in a
 * move.  New values are judged as for a new task.  README.md tells who may change the SQL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend.h"

PG_FUNCTION_INFO_V1(dw_update);

/* The changes that a call asks for */
typedef struct Changes
{
	DwOptions	options;		/* the given options */
	StringInfoData names;		/* their names */
	text	   *sql;			/* NULL: the text stays */
	bool		has_args;		/* arguments of the SQL, or their types, are given */
	int			nargs;
	Datum		args;
	Datum		arg_types;
	ArrayType  *untyped;		/* args, if they are untyped texts and the call gives no SQL text */
	char	   *queue_name;
	DwQueueForTask queue;
} Changes;

/*---- Reading the arguments ----*/

/* Reads the SQL text and its arguments.  Numbers named arguments. */
static void
read_sql(Changes *changes)
{
	const DwOptions *options = &changes->options;
	ArrayType  *types = dw_given(options, ARG_TYPES) ? DatumGetArrayTypeP(dw_option(options, ARG_TYPES)) : NULL;
	ArrayType  *args;

	changes->sql = dw_options_sql(options, &args);
	changes->has_args = dw_given(options, ARGS) || dw_given(options, NAMED) || types != NULL;
	if (args != NULL && changes->sql == NULL && types == NULL &&
		(ARR_ELEMTYPE(args) == TEXTOID || ARR_ELEMTYPE(args) == VARCHAROID))
		changes->untyped = args;
	if (changes->has_args)
		changes->nargs = dw_args_parse(args, types, false, &changes->args, &changes->arg_types);
}

/* Reads the changes.  Raises an error if a change is invalid, or if the call gives no change. */
static void
read_changes(FunctionCallInfo fcinfo, Changes *changes)
{
	/* DW_OPT_NAME stands for the arguments that name the task */
	static const DwOption parameters[] = {
		DW_OPT_NAME, DW_OPT_DELAY, DW_OPT_DUE, DW_OPT_SQL, DW_OPT_ARGS, DW_OPT_NAMED, DW_OPT_PAYLOAD, DW_OPT_TAG,
		DW_OPT_PRIORITY, DW_OPT_MAX_ATTEMPTS, DW_OPT_JSON
	};
	const DwOptions *options = &changes->options;

	memset(changes, 0, sizeof(Changes));
	dw_options_take(fcinfo, parameters, lengthof(parameters), DW_FOR_UPDATE, &changes->options);
	changes->options.values[DW_OPT_NAME].isnull = true;
	initStringInfo(&changes->names);
	for (int i = 0; i < DW_NOPTIONS; i++)
		if (!options->values[i].isnull)
			appendStringInfo(&changes->names, "%s%s", changes->names.len > 0 ? ", " : "",
							 dw_option_name(i));
	if (changes->names.len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("no new value is given"),
				 errhint("Pass new values by name, as in %s.",
						 "delay_update(7, priority => 1)")));
	read_sql(changes);
	if (dw_given(options, TO_QUEUE))
	{
		changes->queue_name = dw_option_cstring(options, TO_QUEUE);
		dw_queue_find(changes->queue_name, &changes->queue);
	}
	if (dw_given(options, PAYLOAD))
		dw_option_refuse_long_json(dw_option(options, PAYLOAD), "payload");
}

/*---- Changing a task ----*/

/* Raises an error if the changes do not fit the kind of the task (SQL task or message). */
static void
require_kind(const Changes *changes, const DwTaskKey *key)
{
	const DwOptions *options = &changes->options;

	if (key->is_message &&
		(changes->sql != NULL || changes->has_args || dw_given(options, TIMEOUT) ||
		 dw_given(options, RETRY_ON) || dw_given(options, GIVE_UP_ON)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task %lld is a message", (long long) key->id),
				 errdetail("A message has a payload, but no SQL text, arguments, timeout, retry_on or give_up_on.")));
	if (!key->is_message && dw_given(options, PAYLOAD))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task %lld is not a message", (long long) key->id),
				 errdetail("The task has an SQL text, but no payload.")));
	if (dw_given(options, TO_QUEUE))
		dw_queue_require_kind(changes->queue_name, changes->queue.external, key->is_message);
}

/*
 * Sets the arguments of a task.  Arguments without types get the types of the old arguments, if
 * their numbers are equal.
 */
static void
change_args(const Changes *changes, DwNewTask *task)
{
	Datum		args = changes->args;
	Datum		arg_types = changes->arg_types;

	if (changes->untyped != NULL && !task->nulls[Anum_task_arg_types - 1])
	{
		ArrayType  *types = DatumGetArrayTypeP(task->values[Anum_task_arg_types - 1]);

		if (ArrayGetNItems(ARR_NDIM(types), ARR_DIMS(types)) == changes->nargs)
			(void) dw_args_parse(changes->untyped, types, true, &args, &arg_types);
	}
	dw_new_task_set(task, Anum_task_args, args, changes->nargs == 0);
	dw_new_task_set(task, Anum_task_arg_types, arg_types, changes->nargs == 0);
}

/*
 * Raises an error if an untyped argument would be read with settings that differ from this
 * session's settings.  The task's text, and the settings for reading the text, do not change.
 */
static void
require_reading(const DwNewTask *task, const DwTaskKey *key)
{
	const char *setting = dw_new_task_reads_otherwise(task);

	if (setting != NULL && dw_args_any_untyped(task->values[Anum_task_args - 1], task->nulls[Anum_task_args - 1],
											   task->values[Anum_task_arg_types - 1], task->nulls[Anum_task_arg_types - 1]))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("arguments without a type would be read with settings of the task, not of this session"),
				 errdetail("Task %lld keeps its SQL text, and runs with another value of %s.", (long long) key->id, setting),
				 errhint("Pass their types as %s, or pass the SQL text, too.", "arg_types")));
}

/* Sets the SQL text and the arguments of a task, and judges them as for a new task. */
static void
change_sql(const Changes *changes, const DwTaskKey *key, DwNewTask *task)
{
	int			nargs = changes->nargs;

	if (changes->sql != NULL)
		dw_new_task_set(task, Anum_task_sql, PointerGetDatum(changes->sql), false);
	if (changes->has_args)
		change_args(changes, task);
	else if (!task->nulls[Anum_task_args - 1])
	{
		ArrayType  *args = DatumGetArrayTypeP(task->values[Anum_task_args - 1]);

		nargs = ArrayGetNItems(ARR_NDIM(args), ARR_DIMS(args));
	}
	/* a new text runs with the search_path of this session, an old text with its own search_path */
	task->check = changes->sql != NULL && task->owner == GetUserId() ? dw_check_sql_text :
		Min(dw_check_sql_text, DW_CHECK_ON);
	dw_new_task_check(task, nargs);
	if (changes->sql != NULL)
	{
		/* from now on, read the text as in this session; keep the task's other settings */
		dw_new_task_set(task, Anum_task_search_path, (Datum) 0, true);
		task->keep_settings = construct_empty_array(TEXTOID);
		dw_new_task_keep(task);
	}
	else
		require_reading(task, key);
}

/* Raises an error if the task has a group, and its old or new queue has no groups. */
static void
require_groups(const Changes *changes, const DwNewTask *task)
{
	DwQueueForTask queue = changes->queue;
	char	   *name = changes->queue_name;

	if (task->nulls[Anum_task_group_key - 1] ||
		(name == NULL && !dw_given(&changes->options, GROUP_KEY)))
		return;
	if (name == NULL)
	{
		name = task->queue == 0 ? NULL : dw_queue_name_of(task->queue);
		dw_queue_find(name, &queue);
	}
	dw_queue_require_groups(name, &queue);
}

/* Makes the changes in the columns of the task's row. */
static void
apply_changes(const Changes *changes, const DwTaskKey *key, DwNewTask *task)
{
	const DwOptions *options = &changes->options;

	require_kind(changes, key);
	/* new follow-ups run as the owner, too */
	if (changes->sql != NULL || changes->has_args || dw_given(options, ON_SUCCESS) ||
		dw_given(options, ON_FAILURE))
	{
		dw_refuse_superuser(key->owner);
		if (!dw_can_set_role(GetUserId(), key->owner))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied to change the SQL of task %lld", (long long) key->id),
					 errdetail("The task runs as role \"%s\", and the current user may not use SET ROLE to this role.",
							   GetUserNameFromId(key->owner, false))));
	}
	if (changes->sql != NULL || changes->has_args)
		change_sql(changes, key, task);
	dw_options_set(options, task);
	if (dw_given(options, DELAY) || dw_given(options, DUE))
	{
		dw_options_set_due(options, task);
		task->values[Anum_task_due - 1] = TimestampTzGetDatum(task->due);
		dw_more_remove(task->values, task->nulls, Anum_task_more, DW_MORE_NOT_BEFORE);
		dw_more_remove(task->values, task->nulls, Anum_task_more, DW_MORE_LOCAL);
	}
	if (dw_given(options, PRIORITY))
		task->priority = DatumGetInt32(dw_option(options, PRIORITY));
	if (dw_given(options, TO_QUEUE))
		task->queue = changes->queue.id;
	if (dw_given(options, NEW_KEY))
	{
		text	   *label = DatumGetTextPP(dw_option(options, NEW_KEY));

		dw_new_task_set(task, Anum_task_key, PointerGetDatum(label), VARSIZE_ANY_EXHDR(label) == 0);
	}
	if (dw_given(options, PAYLOAD))
		dw_new_task_set(task, Anum_task_payload, dw_option(options, PAYLOAD), false);
	require_groups(changes, task);
	dw_new_task_set(task, Anum_task_priority, Int16GetDatum(task->priority), false);
	dw_new_task_set(task, Anum_task_queue, Int16GetDatum(task->queue), false);
}

/* Changes a task whose row this transaction has deleted, and inserts the row again. */
static void
update_taken(Relation rel, HeapTuple tuple, const DwTaskKey *key, const Changes *changes)
{
	DwNewTask	task = {.owner = key->owner, .queue = key->queue, .priority = key->priority};
	Datum	   *values;
	bool	   *nulls;
	DwLaneRef	lane;
	bool		enters;

	dw_deform(rel, tuple, &values, &nulls);
	memcpy(task.values, values, sizeof(task.values));
	memcpy(task.nulls, nulls, sizeof(task.nulls));
	/* the lease of the message has ended, so the message is due as before the lease */
	if (!task.nulls[Anum_task_first_due - 1])
		task.values[Anum_task_due - 1] = task.values[Anum_task_first_due - 1];
	task.due = DatumGetTimestampTz(task.values[Anum_task_due - 1]);
	apply_changes(changes, key, &task);

	if (task.queue == key->queue && task.priority == key->priority)
		lane = dw_lane_if_any(task.owner, task.queue, task.priority);
	else
		lane = dw_require_lane(task.owner, task.queue, task.priority);
	enters = (task.queue != key->queue || dw_given(&changes->options, NEW_KEY)) && !task.nulls[Anum_task_key - 1];
	if (enters)
	{
		DwKey		wanted = dw_key_of_values(task.values);

		dw_period_prepare();
		if (!dw_key_enter_again(rel, &wanted, key->id, true))
			ereport(ERROR,
					(errcode(ERRCODE_UNIQUE_VIOLATION),
					 errmsg("another task of key \"%s\" is pending or running",
							text_to_cstring(wanted.key)),
					 errhint("Wait until the other task has run, or cancel it.")));
		dw_period_move(values, nulls, task.values, task.nulls);
	}
	dw_pending_rewrite(rel, task.values, task.nulls, lane);
	if (enters)
		dw_key_leave();
	if (dw_audits(DW_AUDIT_CONTROL))
		dw_audit_task("update", task.values, task.nulls, 0, changes->names.data);
}

/*
 * SQL function delay_update().  The arguments name the task as in dw_named_task(), with the
 * parameter options between them.
 */
Datum
dw_update(PG_FUNCTION_ARGS)
{
	DwNamedTask named;
	Changes		changes;
	Relation	rel;
	HeapTuple	tuple;
	DwTaskKey	key;
	DwTakeResult result;

	dw_require_right_to_write("delay_update()");
	dw_named_task(fcinfo, 11, &named);
	read_changes(fcinfo, &changes);
	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	result = dw_take_named(&named, rel, &tuple, &key);
	if (result == DW_TAKEN)
		update_taken(rel, tuple, &key, &changes);
	table_close(rel, NoLock);
	PG_RETURN_TEXT_P(cstring_to_text(dw_take_answer(result, "changed")));
}
