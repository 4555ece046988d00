/*-------------------------------------------------------------------------
 *
 * trigger.c
 *	  delay_schedule_trigger(): a row that is inserted or updated schedules a
 *	  task.
 *
 * Run by backends, and by executors whose tasks write such rows, at the end of
 * the statement or, if the trigger is deferred, of the transaction.
 *
 * What the arguments of a trigger mean is found out when it first fires in a
 * session, and kept until the relation cache reports a change of its table:
 * columns may have been renamed, dropped or added.  A partition has a trigger
 * of its own, cloned from that of its parent; so the columns are its own, too,
 * wherever they stand.
 *
 * Who fires the trigger schedules the task, as if he called delay_schedule():
 * he must be allowed to, and the task is his.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupdesc.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "../base/compat.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../statement/args.h"
#include "../statement/sqlcheck.h"
#include "../task/new_task.h"
#include "options.h"
#include "schedule.h"

#define FUNCTION		"delay_schedule_trigger"

/* Triggers whose arguments are kept; beyond, all are read anew. */
#define MAX_KNOWN		1024

PG_FUNCTION_INFO_V1(dw_schedule_trigger);

/* Where a part of a task comes from: a column of the row, or a constant. */
typedef struct Source
{
	AttrNumber	column;			/* 0: none */
	Oid			type;			/* of the column, what a domain is over */
	const DwWriter *writer;
	text	   *constant;		/* NULL: not given */
} Source;

/* What the arguments of a trigger say */
typedef struct Template
{
	Source		delay;			/* a column, or this: */
	Interval   *interval;
	text	   *sql;
	int			nargs;
	Source	   *args;
	Datum		arg_types;
	Source		key;
	Source		queue;
	Source		tag;
	DwIfExists	if_exists;
} Template;

typedef struct Known
{
	Oid			trigger;		/* key */
	Oid			table;
	bool		is_valid;
	MemoryContext context;		/* of the template */
	Template   *template;
} Known;

/* An option among the arguments, name=value */
typedef enum Option
{
	OPTION_KEY,
	OPTION_QUEUE,
	OPTION_TAG,
	OPTION_IF_EXISTS,
	NOPTIONS
} Option;

static const char *const option_names[NOPTIONS] = {"key", "queue", "tag", "if_exists"};

static HTAB *known_triggers = NULL;

/* The role that was last found to be allowed to schedule. */
static Oid	allowed_role = InvalidOid;

/*---- How it may be used ----*/

/* An error unless it is fired after rows are inserted or updated. */
static TriggerData *
require_trigger(FunctionCallInfo fcinfo)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by a trigger", FUNCTION),
				 errhint("Use CREATE TRIGGER ... AFTER INSERT ... FOR EACH ROW EXECUTE FUNCTION %s(...), or call %s.",
						 FUNCTION, "delay_schedule()")));
	if (!TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired for each row", FUNCTION),
				 errhint("Create the trigger with FOR EACH ROW.")));
	if (!TRIGGER_FIRED_AFTER(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired after the row is written", FUNCTION),
				 errhint("Create the trigger with AFTER, on a table.")));
	if (!TRIGGER_FIRED_BY_INSERT(trigger->tg_event) && !TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired by INSERT or UPDATE", FUNCTION),
				 errhint("To cancel a task when a row is deleted, call %s in a trigger function of your own.",
						 "delay_cancel_key()")));
	return trigger;
}

static void
forget_allowed(Datum arg, int cacheid, uint32 hash)
{
	allowed_role = InvalidOid;
}

/* What has_privs_of_role() depends on, and the rights on functions. */
static void
watch_rights(void)
{
	static const int caches[] = {PROCOID, AUTHOID, AUTHMEMROLEMEM, DATABASEOID};
	static bool watching = false;

	if (watching)
		return;
	watching = true;
	for (size_t i = 0; i < lengthof(caches); i++)
		CacheRegisterSyscacheCallback(caches[i], forget_allowed, (Datum) 0);
}

/*
 * The current user must have the right to call delay_schedule(interval, text),
 * which is in the schema of this function.
 */
static void
require_allowed(Oid me)
{
	Oid			types[] = {INTERVALOID, TEXTOID};
	Oid			user = GetUserId();
	Oid			function;

	if (user == allowed_role)
		return;
	watch_rights();
	function = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
							   CStringGetDatum("delay_schedule"),
							   PointerGetDatum(buildoidvector(types, lengthof(types))),
							   ObjectIdGetDatum(get_func_namespace(me)));
	if (!OidIsValid(function))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function %s does not exist in the schema of \"%s\"",
						"delay_schedule(interval, text)", FUNCTION)));
	if (dw_function_aclcheck(function, user, ACL_EXECUTE) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for function %s", "delay_schedule"),
				 errdetail("Role \"%s\", who writes the row, would own the task.",
						   GetUserNameFromId(user, false)),
				 errhint("Allow the role to schedule tasks with %s, or have the table's owner schedule them in a SECURITY DEFINER trigger function that calls %s.",
						 "delay_wheel.allow()", "delay_schedule()")));
	allowed_role = user;
}

/*---- What the arguments of a trigger say ----*/

/* Its number; 0 if there is no column of this name. */
static AttrNumber
column_named(Relation rel, const char *name)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (column->attisdropped || strcmp(NameStr(column->attname), name) != 0)
			continue;
		/* a trigger sees nothing of one that is computed when it is read */
		if (column->attgenerated != '\0' && column->attgenerated != ATTRIBUTE_GENERATED_STORED)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("column \"%s\" is a virtual generated column", name),
					 errhint("Use the columns that it is computed from, or make it a stored one.")));
		return column->attnum;
	}
	return 0;
}

/* The column as a source of text. */
static void
read_from_column(Source *source, Relation rel, AttrNumber column)
{
	DwWriter   *writer = palloc(sizeof(DwWriter));

	source->column = column;
	source->type = getBaseType(TupleDescAttr(RelationGetDescr(rel), column - 1)->atttypid);
	dw_writer_init(writer, source->type, CurrentMemoryContext);
	source->writer = writer;
}

static void
delay_callback(void *arg)
{
	errhint("The first argument of the trigger is the delay: the name of a column of type interval or timestamp with time zone, or an interval such as '48 hours'.");
}

/* Its errors are those of the type, with a hint. */
static Interval *
parse_interval(const char *string)
{
	ErrorContextCallback callback = {
		.previous = error_context_stack,
		.callback = delay_callback
	};
	Interval   *interval;

	error_context_stack = &callback;
	interval = DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(string),
													 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	error_context_stack = callback.previous;
	return interval;
}

static void
read_delay(Template *template, Relation rel, const char *argument)
{
	AttrNumber	column = column_named(rel, argument);

	if (column == 0)
	{
		template->interval = parse_interval(argument);
		return;
	}
	template->delay.column = column;
	template->delay.type = getBaseType(TupleDescAttr(RelationGetDescr(rel), column - 1)->atttypid);
	if (template->delay.type != INTERVALOID && template->delay.type != TIMESTAMPTZOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of type %s cannot say when a task is due", argument,
						format_type_be(template->delay.type)),
				 errhint("Use a column of type interval, which counts from the start of the transaction, or timestamp with time zone.")));
}

/* The value of a constant option must be valid. */
static void
read_source(Source *source, Option option, Relation rel, const char *value)
{
	AttrNumber	column = column_named(rel, value);

	if (column != 0)
	{
		read_from_column(source, rel, column);
		return;
	}
	source->constant = cstring_to_text(value);
	dw_option_check_text(source->constant, option_names[option]);
}

/* name=value; false if it is not of that form. */
static bool
is_option(const char *argument, Option *option, const char **value)
{
	const char *equals = strchr(argument, '=');

	if (equals == NULL)
		return false;
	for (int i = 0; i < NOPTIONS; i++)
		if (strncmp(argument, option_names[i], equals - argument) == 0 &&
			option_names[i][equals - argument] == '\0')
		{
			*option = i;
			*value = equals + 1;
			return true;
		}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized option \"%s\"", pnstrdup(argument, equals - argument)),
			 errhint("Options are %s, %s, %s and %s; all else is settled by the queue.",
					 "key=", "queue=", "tag=", "if_exists=")));
}

static void
read_option(Template *template, Option option, Relation rel, const char *value)
{
	switch (option)
	{
		case OPTION_KEY:
			read_source(&template->key, option, rel, value);
			break;
		case OPTION_QUEUE:
			read_source(&template->queue, option, rel, value);
			break;
		case OPTION_TAG:
			read_source(&template->tag, option, rel, value);
			break;
		default:
			template->if_exists = dw_if_exists_named(value);
	}
}

/* A column whose values $n stands for. */
static void
read_arg(Template *template, Relation rel, AttrNumber column, const char *name, Datum *types)
{
	if (column == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist", name,
						RelationGetRelationName(rel)),
				 errhint("After delay and SQL, the arguments of the trigger name the columns for $1, $2, ... as the catalog has them, without quotes; if one was renamed, create the trigger again.")));
	types[template->nargs] = ObjectIdGetDatum(TupleDescAttr(RelationGetDescr(rel), column - 1)->atttypid);
	read_from_column(&template->args[template->nargs++], rel, column);
}

static void
read_args_and_options(Template *template, Relation rel, char **arguments, int n)
{
	Datum	   *types = palloc(n * sizeof(Datum));
	bool		given[NOPTIONS] = {0};

	template->args = palloc0(n * sizeof(Source));
	for (int i = 0; i < n; i++)
	{
		AttrNumber	column = column_named(rel, arguments[i]);
		Option		option;
		const char *value;

		if (column != 0 || !is_option(arguments[i], &option, &value))
		{
			read_arg(template, rel, column, arguments[i], types);
			continue;
		}
		if (given[option])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("option \"%s\" is given twice", option_names[option])));
		given[option] = true;
		read_option(template, option, rel, value);
	}
	if (given[OPTION_IF_EXISTS] && !given[OPTION_KEY])
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" needs a key", option_names[OPTION_IF_EXISTS]),
				 errhint("Only a task with a key can exist already.")));
	if (template->nargs > 0)
		template->arg_types = PointerGetDatum(construct_array(types, template->nargs, REGTYPEOID,
														  sizeof(Oid), true, TYPALIGN_INT));
}

/* In the current memory context. */
static Template *
make_template(const TriggerData *trigger)
{
	const Trigger *definition = trigger->tg_trigger;
	Relation	rel = trigger->tg_relation;
	Template	   *template = palloc0(sizeof(Template));

	if (definition->tgnargs < 2)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("function \"%s\" needs at least two arguments, a delay and an SQL text", FUNCTION),
				 errhint("For example, %s('48 hours', 'update t_order set stars = 5 where oid = $1', 'oid').", FUNCTION)));
	/* a row that changes is to have the task that it now wants */
	template->if_exists = DW_REPLACE;
	read_delay(template, rel, definition->tgargs[0]);
	template->sql = cstring_to_text(definition->tgargs[1]);
	read_args_and_options(template, rel, definition->tgargs + 2, definition->tgnargs - 2);
	dw_check_sql(template->sql, template->nargs);
	return template;
}

/*---- Templates that are kept ----*/

/* Nothing is freed here: the template may be in use. */
static void
forget_table(Datum arg, Oid table)
{
	HASH_SEQ_STATUS scan;
	Known	   *known;

	hash_seq_init(&scan, known_triggers);
	while ((known = hash_seq_search(&scan)) != NULL)
		if (table == InvalidOid || known->table == table)
			known->is_valid = false;
}

static void
start_knowing(void)
{
	HASHCTL		ctl = {
		.keysize = sizeof(Oid),
		.entrysize = sizeof(Known)
	};

	known_triggers = hash_create("delay_wheel triggers", 32, &ctl, HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(forget_table, (Datum) 0);
}

static void
forget_trigger(Known *known)
{
	MemoryContext context = known->context;

	(void) hash_search(known_triggers, &known->trigger, HASH_REMOVE, NULL);
	MemoryContextDelete(context);
}

static void
forget_all_triggers(void)
{
	HASH_SEQ_STATUS scan;
	Known	   *known;

	hash_seq_init(&scan, known_triggers);
	while ((known = hash_seq_search(&scan)) != NULL)
		forget_trigger(known);
}

/* What is half made on an error goes with the caller's memory context. */
static Template *
learn(const TriggerData *trigger)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "delay_wheel trigger",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	Template	   *template = make_template(trigger);
	Known	   *known;

	MemoryContextSwitchTo(caller);
	known = hash_search(known_triggers, &trigger->tg_trigger->tgoid, HASH_ENTER, NULL);
	MemoryContextSetParent(context, CacheMemoryContext);
	known->table = RelationGetRelid(trigger->tg_relation);
	known->is_valid = true;
	known->context = context;
	known->template = template;
	return template;
}

/*
 * The table is locked: of what changed it before, its opening has told; and who
 * is to change it waits.
 */
static const Template *
template_of(const TriggerData *trigger)
{
	Known	   *known;

	if (known_triggers == NULL)
		start_knowing();
	known = hash_search(known_triggers, &trigger->tg_trigger->tgoid, HASH_FIND, NULL);
	if (known != NULL && known->is_valid)
		return known->template;
	if (known != NULL)
		forget_trigger(known);
	else if (hash_get_num_entries(known_triggers) >= MAX_KNOWN)
		forget_all_triggers();
	return learn(trigger);
}

/*---- The task of a row ----*/

static bool
get_argument(const Source *source, TupleTableSlot *row, DwArgument *argument)
{
	argument->type = source->type;
	argument->writer = source->writer;
	argument->value = slot_getattr(row, source->column, &argument->isnull);
	return !argument->isnull;
}

/*
 * NULL if it is not given, or null.  The blanks that fill up a char(n) are no
 * part of it, as in a cast to text.
 */
static text *
get_text(const Source *source, Option option, TupleTableSlot *row)
{
	DwArgument	argument;
	text	   *value;

	if (source->column == 0)
		return source->constant;
	if (!get_argument(source, row, &argument))
		return NULL;
	if (argument.type == BPCHAROID)
		argument.value = DirectFunctionCall1(rtrim1, argument.value);
	value = DatumGetTextPP(dw_argument_text(&argument));
	dw_option_check_text(value, option_names[option]);
	return value;
}

/* False if the row wants no task. */
static bool
get_due(const Template *template, TupleTableSlot *row, TimestampTz *due)
{
	Datum		value;
	bool		isnull;

	if (template->delay.column == 0)
	{
		*due = dw_due_after(template->interval);
		return true;
	}
	value = slot_getattr(row, template->delay.column, &isnull);
	if (isnull)
		return false;
	*due = template->delay.type == INTERVALOID ? dw_due_after(DatumGetIntervalP(value)) :
		dw_finite_due(DatumGetTimestampTz(value));
	return true;
}

static void
put_column(DwNewTask *task, AttrNumber column, Datum value, bool isnull)
{
	task->values[column - 1] = value;
	task->nulls[column - 1] = isnull;
}

static void
put_args(DwNewTask *task, const Template *template, TupleTableSlot *row)
{
	DwArgument *arguments = palloc(template->nargs * sizeof(DwArgument));

	for (int i = 0; i < template->nargs; i++)
		(void) get_argument(&template->args[i], row, &arguments[i]);
	put_column(task, Anum_task_args, dw_args_texts(arguments, template->nargs), false);
	put_column(task, Anum_task_arg_types, template->arg_types, false);
}

/* The row has none any more, where a new one would have replaced it. */
static void
cancel_task(const DwNewTask *task, text *key)
{
	DwKey		pending = {
		.owner = task->owner,
		.queue = task->queue,
		.key = key
	};

	if (key != NULL && task->if_exists == DW_REPLACE)
		(void) dw_schedule_cancel(&pending);
}

static void
schedule_for(const Template *template, TupleTableSlot *row)
{
	text	   *key = get_text(&template->key, OPTION_KEY, row);
	text	   *queue = get_text(&template->queue, OPTION_QUEUE, row);
	text	   *tag = get_text(&template->tag, OPTION_TAG, row);
	DwNewTask	task;

	dw_new_task_init(&task, template->sql);
	task.if_exists = template->if_exists;
	if (queue != NULL)
		dw_new_task_queue(&task, text_to_cstring(queue), DW_NO_PRIORITY);
	if (!get_due(template, row, &task.due))
	{
		cancel_task(&task, key);
		return;
	}
	if (template->nargs > 0)
		put_args(&task, template, row);
	put_column(&task, Anum_task_key, PointerGetDatum(key), key == NULL);
	put_column(&task, Anum_task_tag, PointerGetDatum(tag), tag == NULL);
	(void) dw_schedule_checked(&task);
}

static void
trigger_callback(void *arg)
{
	const TriggerData *trigger = (const TriggerData *) arg;

	errcontext("trigger \"%s\" on table \"%s\"", trigger->tg_trigger->tgname,
			   RelationGetRelationName(trigger->tg_relation));
}

Datum
dw_schedule_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = require_trigger(fcinfo);
	ErrorContextCallback callback = {
		.previous = error_context_stack,
		.callback = trigger_callback,
		.arg = trigger
	};

	error_context_stack = &callback;
	dw_require_writable(FUNCTION "()");
	require_allowed(fcinfo->flinfo->fn_oid);
	schedule_for(template_of(trigger), TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ?
				 trigger->tg_newslot : trigger->tg_trigslot);
	error_context_stack = callback.previous;
	PG_RETURN_POINTER(NULL);
}
