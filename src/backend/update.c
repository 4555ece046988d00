/*-------------------------------------------------------------------------
 *
 * update.c
 *	  delay_update() and delay_update_key(): change what a pending task is.
 *
 * Run by sessions, and by executors whose tasks call these functions.
 *
 * The row of the task is deleted and inserted again in the caller's transaction, with the same
 * id, as when a task is moved.  What is given is judged as for a new task.  A new SQL text, or
 * other arguments, run as the task's owner; so only those may give them who could become the
 * owner by SET ROLE, and schedule such a task themselves.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/settings.h"
#include "../ending/ending.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../statement/statement.h"
#include "../task/queues.h"
#include "../task/task.h"
#include "../task/touched.h"
#include "backend.h"

PG_FUNCTION_INFO_V1(dw_update);
PG_FUNCTION_INFO_V1(dw_update_key);

/* The arguments of both functions after those that name the task, in the order of the install script */
enum
{
	SQL,
	ARGS,
	ARG_TYPES,
	NAMED,
	PRIORITY,
	TO_QUEUE,
	MAX_ATTEMPTS,
	TIMEOUT,
	TAG,
	PAYLOAD,
	NCHANGES
};

/* What is to be changed; only what is given is set. */
typedef struct Changes
{
	bool		given[NCHANGES];
	text	   *sql;
	int			nargs;
	Datum		args;
	Datum		arg_types;
	bool		no_args;
	ArrayType  *untyped;		/* args as given, if they are texts whose types were not given, and
								 * neither was an SQL text; else NULL */
	int16		priority;
	char	   *queue_name;
	DwQueueForTask queue;
	int16		max_attempts;
	int32		timeout;
	text	   *tag;			/* NULL: none from now on */
	Datum		payload;
} Changes;

/*---- Reading the arguments ----*/

/* Reads the SQL text and its arguments; those that have names are numbered. */
static void
read_sql(FunctionCallInfo fcinfo, int first, Changes *changes)
{
	ArrayType  *args = NULL;

	dw_option_refuse_both(changes->given[NAMED], changes->given[ARGS] || changes->given[ARG_TYPES]);
	if (changes->given[NAMED] && !changes->given[SQL])
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("named needs an SQL text"),
				 errhint("The text that is stored has numbers in place of names: use args, or pass sql_text, too.")));
	if (changes->given[SQL])
		changes->sql = PG_GETARG_TEXT_PP(first + SQL);
	if (changes->given[NAMED])
		changes->sql = dw_named_numbered(changes->sql, PG_GETARG_JSONB_P(first + NAMED), &args);
	else if (changes->given[ARGS])
		args = PG_GETARG_ARRAYTYPE_P(first + ARGS);
	changes->given[ARGS] |= changes->given[NAMED] || changes->given[ARG_TYPES];
	if (args != NULL && !changes->given[SQL] && !changes->given[ARG_TYPES] && (ARR_ELEMTYPE(args) == TEXTOID || ARR_ELEMTYPE(args) == VARCHAROID))
		changes->untyped = args;
	if (changes->given[ARGS])
		changes->nargs = dw_args_parse(args, changes->given[ARG_TYPES] ?
									   PG_GETARG_ARRAYTYPE_P(first + ARG_TYPES) : NULL,
									   &changes->args, &changes->arg_types, &changes->no_args);
}

/*
 * Reads the changes from the arguments, of which first is the number of the first one.  An
 * invalid one raises an error, and so does a call without any.
 */
static void
read_changes(FunctionCallInfo fcinfo, int first, Changes *changes)
{
	bool		any = false;

	memset(changes, 0, sizeof(Changes));
	for (int i = 0; i < NCHANGES; i++)
		any |= changes->given[i] = !PG_ARGISNULL(first + i);
	if (!any)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("nothing is to be changed"),
				 errhint("Pass what the task shall have, by name, as in %s.",
						 "delay_update(7, priority => 1)")));
	read_sql(fcinfo, first, changes);
	if (changes->given[PRIORITY])
		changes->priority = dw_option_number(fcinfo, first + PRIORITY, "priority", DW_MIN_PRIORITY,
												DW_MAX_PRIORITY);
	if (changes->given[TO_QUEUE])
	{
		changes->queue_name = text_to_cstring(PG_GETARG_TEXT_PP(first + TO_QUEUE));
		dw_queue_find(changes->queue_name, &changes->queue);
	}
	changes->max_attempts = dw_option_number(fcinfo, first + MAX_ATTEMPTS, "max_attempts", 1, PG_INT16_MAX);
	changes->timeout = dw_option_timeout(fcinfo, first + TIMEOUT, "timeout");
	if (changes->given[TAG] && VARSIZE_ANY_EXHDR(PG_GETARG_TEXT_PP(first + TAG)) > 0)
		changes->tag = dw_option_text(fcinfo, first + TAG, "tag");
	if (changes->given[PAYLOAD])
	{
		changes->payload = PG_GETARG_DATUM(first + PAYLOAD);
		dw_option_refuse_long_json(changes->payload, "payload");
	}
}

/*---- Changing a task ----*/

/* Raises an error if a task gets what only a message has, or vice versa, or the other's queue. */
static void
require_kind(const Changes *changes, const DwTaskKey *key)
{
	if (key->is_message && (changes->given[SQL] || changes->given[ARGS] || changes->given[TIMEOUT]))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task %lld is a message", (long long) key->id),
				 errdetail("It has a payload, and no SQL text, arguments or timeout.")));
	if (!key->is_message && changes->given[PAYLOAD])
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task %lld is not a message", (long long) key->id),
				 errdetail("It has an SQL text, and no payload.")));
	if (changes->given[TO_QUEUE])
		dw_queue_require_kind(changes->queue_name, changes->queue.external, key->is_message);
}

/* Raises an error unless the current user could become the task's owner. */
static void
require_becoming(const DwTaskKey *key)
{
	if (!dw_can_set_role(GetUserId(), key->owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to change the SQL of task %lld", (long long) key->id),
				 errdetail("It runs as role \"%s\", which the current user may not become by SET ROLE.",
						   GetUserNameFromId(key->owner, false))));
}

/*
 * Sets the arguments of a task.  Those that were given without types have the types that the task
 * has, if their number is the same.
 */
static void
change_args(const Changes *changes, DwNewTask *task)
{
	Datum		args = changes->args;
	Datum		arg_types = changes->arg_types;
	bool		no_args = changes->no_args;

	if (changes->untyped != NULL && !task->nulls[Anum_task_arg_types - 1])
	{
		ArrayType  *types = DatumGetArrayTypeP(task->values[Anum_task_arg_types - 1]);

		if (ArrayGetNItems(ARR_NDIM(types), ARR_DIMS(types)) == changes->nargs)
			(void) dw_args_parse(changes->untyped, types, &args, &arg_types, &no_args);
	}
	dw_new_task_set(task, Anum_task_args, args, no_args);
	dw_new_task_set(task, Anum_task_arg_types, arg_types, no_args);
}

/*
 * Raises an error if an argument without a type is not to be read as in this session: the
 * task's text, which stays, is not.
 */
static void
require_reading(const DwNewTask *task, const DwTaskKey *key)
{
	const char *setting = dw_new_task_reads_otherwise(task);

	if (setting != NULL && dw_args_any_untyped(task->values[Anum_task_args - 1], task->nulls[Anum_task_args - 1],
											   task->values[Anum_task_arg_types - 1], task->nulls[Anum_task_arg_types - 1]))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("arguments without a type would not be read as in this session"),
				 errdetail("The SQL text of task %lld stays, and is read under another %s.", (long long) key->id, setting),
				 errhint("Pass their types as %s, or the SQL text, too.", "arg_types")));
}

/* Sets the SQL text and the arguments of a task, and judges them as those of a new one. */
static void
change_sql(const Changes *changes, const DwTaskKey *key, DwNewTask *task)
{
	int			nargs = changes->nargs;

	if (changes->given[SQL])
		dw_new_task_set(task, Anum_task_sql, PointerGetDatum(changes->sql), false);
	if (changes->given[ARGS])
		change_args(changes, task);
	else if (!task->nulls[Anum_task_args - 1])
	{
		ArrayType  *args = DatumGetArrayTypeP(task->values[Anum_task_args - 1]);

		nargs = ArrayGetNItems(ARR_NDIM(args), ARR_DIMS(args));
	}
	/* a text that is new runs with the search_path of this session, others need not */
	task->check = changes->given[SQL] && task->owner == GetUserId() ? dw_check_sql_text :
		Min(dw_check_sql_text, DW_CHECK_ON);
	dw_new_task_check(task, nargs);
	if (changes->given[SQL])
	{
		/* read as in this session from now on; of other settings it keeps what it has kept */
		dw_new_task_set(task, Anum_task_search_path, (Datum) 0, true);
		task->keep_settings = construct_empty_array(TEXTOID);
		dw_new_task_keep(task);
	}
	else
		require_reading(task, key);
}

/* Makes the changes in the columns of the task's row. */
static void
apply_changes(const Changes *changes, const DwTaskKey *key, DwNewTask *task)
{
	require_kind(changes, key);
	if (changes->given[SQL] || changes->given[ARGS])
	{
		require_becoming(key);
		change_sql(changes, key, task);
	}
	if (changes->given[PRIORITY])
		task->priority = changes->priority;
	if (changes->given[TO_QUEUE])
		task->queue = changes->queue.id;
	if (changes->given[MAX_ATTEMPTS])
		dw_new_task_set(task, Anum_task_max_attempts, Int16GetDatum(changes->max_attempts), false);
	if (changes->given[TIMEOUT])
		dw_new_task_set(task, Anum_task_timeout, Int32GetDatum(changes->timeout), false);
	if (changes->given[TAG])
		dw_new_task_set(task, Anum_task_tag, PointerGetDatum(changes->tag), changes->tag == NULL);
	if (changes->given[PAYLOAD])
		dw_new_task_set(task, Anum_task_payload, changes->payload, false);
	dw_new_task_set(task, Anum_task_priority, Int16GetDatum(task->priority), false);
	dw_new_task_set(task, Anum_task_queue, Int16GetDatum(task->queue), false);
}

/*
 * Takes the lock of the task's key in the queue that it goes to.  Raises an error if another
 * task of the key is pending there.
 */
static void
enter_key(Relation rel, const DwTaskKey *key, const DwNewTask *task)
{
	DwKey		wanted = {
		.owner = task->owner,
		.queue = task->queue,
		.key = DatumGetTextPP(task->values[Anum_task_key - 1])
	};

	if (!dw_key_enter_again(rel, &wanted, key->id, true))
		ereport(ERROR,
				(errcode(ERRCODE_UNIQUE_VIOLATION),
				 errmsg("another task of key \"%s\" is pending or running",
						text_to_cstring(wanted.key)),
				 errhint("Wait until it has run, or cancel it.")));
}

/* Returns the names of the arguments that were given. */
static char *
names_of(const Changes *changes)
{
	static const char *const names[NCHANGES] = {
		[SQL] = "sql_text", [ARGS] = "args", [ARG_TYPES] = "arg_types", [NAMED] = "named",
		[PRIORITY] = "priority", [TO_QUEUE] = "to_queue", [MAX_ATTEMPTS] = "max_attempts",
		[TIMEOUT] = "timeout", [TAG] = "tag", [PAYLOAD] = "payload"
	};
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < NCHANGES; i++)
		if (changes->given[i])
			appendStringInfo(&text, "%s%s", text.len > 0 ? ", " : "", names[i]);
	return text.data;
}

/* Changes a task whose row this transaction has deleted, and writes the row again. */
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
	/* the lease of a message has ended, which was due before it began */
	if (!task.nulls[Anum_task_first_due - 1])
		task.values[Anum_task_due - 1] = task.values[Anum_task_first_due - 1];
	task.due = DatumGetTimestampTz(task.values[Anum_task_due - 1]);
	apply_changes(changes, key, &task);

	if (task.queue == key->queue && task.priority == key->priority)
		lane = dw_lane_if_any(task.owner, task.queue, task.priority);
	else
		lane = dw_require_lane(task.owner, task.queue, task.priority);
	enters = task.queue != key->queue && !task.nulls[Anum_task_key - 1];
	if (enters)
	{
		dw_period_prepare();
		enter_key(rel, key, &task);
		dw_period_move(values, nulls, task.values, task.nulls);
	}
	dw_pending_rewrite(rel, task.values, task.nulls, lane);
	if (enters)
		dw_key_leave();
	if (dw_audits(DW_AUDIT_CONTROL))
		dw_audit_task("update", task.values, task.nulls, 0, names_of(changes));
}

/*
 * Changes a pending task; false if it is not pending.  The arguments name the task as in
 * dw_take_named(), and what is to be changed comes behind.
 */
static Datum
update_named(FunctionCallInfo fcinfo, const char *function, int queue)
{
	Changes		changes;
	Relation	rel;
	HeapTuple	tuple;
	DwTaskKey	key;
	bool		taken;

	dw_require_right();
	dw_require_writable(function);
	dw_refuse_null(PG_ARGISNULL(0), queue == DW_BY_ID ? "task id" : "key");
	read_changes(fcinfo, queue + 1, &changes);
	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	taken = dw_take_named(fcinfo, queue, rel, &tuple, &key);
	if (taken)
		update_taken(rel, tuple, &key, &changes);
	table_close(rel, NoLock);
	PG_RETURN_BOOL(taken);
}

/* SQL function delay_update(). */
Datum
dw_update(PG_FUNCTION_ARGS)
{
	return update_named(fcinfo, "delay_update()", DW_BY_ID);
}

/* SQL function delay_update_key(). */
Datum
dw_update_key(PG_FUNCTION_ARGS)
{
	return update_named(fcinfo, "delay_update_key()", 1);
}
