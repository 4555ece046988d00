/*-------------------------------------------------------------------------
 *
 * trigger.c
 *	  delay_schedule_trigger() and delay_send_trigger(): schedule a task, or send a
 *	  message, for each row that is inserted or updated.
 *
 * Run by sessions, and by executors whose tasks write such rows.  The trigger runs at the end of
 * the statement.  A deferred trigger runs at the end of the transaction.
 *
 * A trigger FOR EACH STATEMENT gets all rows in one call, and writes their tasks together.  A
 * trigger FOR EACH ROW must write its task at once: the next trigger may look for the task, and may
 * run in a subtransaction, which could not write the task for its parent.
 *
 * The arguments of a trigger are parsed when it first fires in a session.  The result, a template,
 * is kept until the table changes, since columns may have been renamed, dropped or added.  A
 * partition has its own trigger, a clone of the parent's trigger, and so its own template, with the
 * partition's column numbers.
 *
 * The current user, who writes the row, owns the task or message, and needs the same right as for a
 * call of delay_schedule() or delay_send().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_trigger.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "parser/parse_coerce.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/inval.h"
#include "utils/tuplestore.h"
#include "backend.h"

/* Limit for the number of templates; when it is reached, all templates are forgotten */
#define MAX_KNOWN		1024

PG_FUNCTION_INFO_V1(dw_schedule_trigger);
PG_FUNCTION_INFO_V1(dw_send_trigger);

/* The description of a trigger function. */
typedef struct Kind
{
	bool		sends;			/* true: sends a message; false: schedules a task */
	const char *function;		/* name of the trigger function */
	const char *stands_for;		/* the ordinary function that does the same */
	const char *needs;			/* its first two arguments, for error messages */
	const char *example;
} Kind;

static const Kind schedules = {
	false, "delay_schedule_trigger", "delay_schedule", "a delay and an SQL text",
	"delay_schedule_trigger('48 hours', 'update t_order set stars = 5 where oid = $1', 'oid')"
};
static const Kind sends = {
	true, "delay_send_trigger", "delay_send", "a delay and the name of a queue",
	"delay_send_trigger('30 minutes', 'mail', 'id', 'email')"
};

/* The source of one part of the task: a column of the row, or a constant */
typedef struct Source
{
	AttrNumber	column;			/* 0: no column */
	Oid			type;			/* type of the column; base type of a domain */
	DwWriter	writer;			/* how to write the column's values as text */
	text	   *constant;		/* without a column; NULL: this part is not given */
} Source;

/* The parsed arguments of a trigger */
typedef struct Template
{
	MemoryContext context;		/* memory of the template */
	int			users;			/* number of rows in work: a cast of a value may write rows, too */
	bool		is_forgotten;	/* to be freed when users is 0 */
	Source		delay;			/* the column of the delay or the due time, if any */
	Interval   *interval;		/* the delay, if it is not a column */
	text	   *sql;			/* NULL for a message */
	int			nargs;
	Source	   *args;			/* columns for $1, $2, ..., or for the payload */
	Datum		arg_types;		/* a regtype[], if nargs > 0 */
	TupleDesc	payload;		/* for a message: the row type of the columns in args */
	Source		key;
	Source		queue;
	Source		tag;
	Source		group_key;
	DwIfExists	if_exists;
	DwOptions	options;		/* further options, the same for all rows */
	DwShard		shard;			/* on Citus: the shard, if the table is a shard */
	Datum		more;			/* names the shard, if the table is a shard */
} Template;

/* A trigger with its template */
typedef struct Known
{
	Oid			trigger;		/* hash key */
	Oid			table;
	bool		is_valid;		/* false: the table has changed after the parsing */
	Template   *template;
} Known;

/* The templates of this session, by the OIDs of triggers */
static HTAB *known_triggers = NULL;

/*---- Checks of the call ----*/

/*
 * Returns the data of the trigger that calls the function.  Raises an error unless the trigger is
 * an AFTER trigger on INSERT or UPDATE, FOR EACH ROW or with a transition table of the new rows.
 */
static TriggerData *
require_trigger(FunctionCallInfo fcinfo, const Kind *kind)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by a trigger", kind->function),
				 errhint("Use CREATE TRIGGER ... AFTER INSERT ... FOR EACH ROW EXECUTE FUNCTION %s(...), or call %s().",
						 kind->function, kind->stands_for)));
	if (!TRIGGER_FIRED_FOR_ROW(trigger->tg_event) && trigger->tg_newtable == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired for each row, or with a transition table of new rows", kind->function),
				 errhint("Create the trigger with FOR EACH ROW, or with REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT.")));
	if (!TRIGGER_FIRED_AFTER(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired after the row is written", kind->function),
				 errhint("Create the trigger with AFTER, on a table.")));
	/* all its events: a trigger on INSERT OR DELETE must not fail only when a row is deleted */
	if (TRIGGER_FOR_DELETE(trigger->tg_trigger->tgtype))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired by INSERT or UPDATE", kind->function),
				 errhint("To cancel a task when a row is deleted, call %s in a trigger function of your own.",
						 "delay_cancel()")));
	return trigger;
}

/* Error context callback; arg is a TriggerData. */
static void
trigger_callback(void *arg)
{
	const TriggerData *trigger = (const TriggerData *) arg;

	errcontext("trigger \"%s\" on table \"%s\"", trigger->tg_trigger->tgname,
			   RelationGetRelationName(trigger->tg_relation));
}

/* Error context callback of the check of rights; arg is a TriggerData. */
static void
writer_callback(void *arg)
{
	/* after other errors, looking up names may be impossible */
	if (geterrcode() == ERRCODE_INSUFFICIENT_PRIVILEGE)
		errdetail("The task would belong to role \"%s\", which writes the row.",
				  GetUserNameFromId(GetUserId(), false));
	trigger_callback(arg);
}

/* Raises an error unless the current user, who writes the row, has the right to schedule. */
static void
require_right(const TriggerData *trigger)
{
	ErrorContextCallback callback;

	dw_push_context(&callback, writer_callback, unconstify(TriggerData *, trigger));
	dw_require_right();
	error_context_stack = callback.previous;
}

/*---- Parsing the arguments of a trigger ----*/

/* Returns the number of the column with this name; 0 if there is none. */
static AttrNumber
column_named(Relation rel, const char *name)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (column->attisdropped || strcmp(NameStr(column->attname), name) != 0)
			continue;
		/* the value of a virtual column is computed by a read, so a trigger does not have it */
		if (column->attgenerated != '\0' && column->attgenerated != ATTRIBUTE_GENERATED_STORED)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("column \"%s\" is a virtual generated column", name),
					 errhint("Use the columns from which it is computed, or make it a stored column.")));
		return column->attnum;
	}
	return 0;
}

/* Makes a column the source of a text. */
static void
read_from_column(Source *source, Relation rel, AttrNumber column)
{
	source->column = column;
	source->type = getBaseType(TupleDescAttr(RelationGetDescr(rel), column - 1)->atttypid);
	dw_writer_init(&source->writer, source->type, CurrentMemoryContext);
}

/* Error context callback: adds a hint to the errors of the type interval. */
static void
delay_callback(void *arg)
{
	errhint("The first argument of the trigger is the delay: the name of a column of type interval or timestamp with time zone, or an interval such as '48 hours'.");
}

/* Parses the first argument: the name of a column, or an interval. */
static void
read_delay(Template *template, Relation rel, const char *argument)
{
	AttrNumber	column = column_named(rel, argument);
	ErrorContextCallback callback;

	if (column == 0)
	{
		dw_push_context(&callback, delay_callback, NULL);
		template->interval = dw_interval_of_text(argument, "delay");
		error_context_stack = callback.previous;
		return;
	}
	template->delay.column = column;
	template->delay.type = getBaseType(TupleDescAttr(RelationGetDescr(rel), column - 1)->atttypid);
	if (template->delay.type != INTERVALOID && template->delay.type != TIMESTAMPTZOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of type %s cannot be used as due time", argument,
						format_type_be(template->delay.type)),
				 errhint("Use a column of type interval, which counts from the start of the transaction, or timestamp with time zone.")));
}

/*
 * Returns the template's place for an option whose value may be a column; NULL for other options.
 */
static Source *
source_of(Template *template, DwOption option)
{
	switch (option)
	{
		case DW_OPT_KEY:
			return &template->key;
		case DW_OPT_QUEUE:
			return &template->queue;
		case DW_OPT_TAG:
			return &template->tag;
		case DW_OPT_GROUP_KEY:
			return &template->group_key;
		default:
			return NULL;
	}
}

/*
 * Parses an argument of the form name=value into the template.  Returns false if the argument has
 * no "=".  The value of some options may be the name of a column.  Raises an error if the option is
 * unknown, is not for triggers, or is given twice, or if the value is invalid.
 */
static bool
read_option(Template *template, Relation rel, const char *argument, const Kind *kind)
{
	const char *equals = strchr(argument, '=');
	DwOption	option;
	Source	   *source;
	AttrNumber	column;

	if (equals == NULL)
		return false;
	option = dw_option_named(argument, equals - argument,
							 DW_FOR_TRIGGER | (kind->sends ? DW_FOR_MESSAGE : DW_FOR_TASK));
	source = source_of(template, option);
	if (source == NULL)
	{
		dw_option_set_text(&template->options, option, equals + 1);
		return true;
	}
	if (source->column != 0 || source->constant != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"%s\" is given twice", dw_option_name(option))));
	column = column_named(rel, equals + 1);
	if (column != 0)
		read_from_column(source, rel, column);
	else
	{
		source->constant = cstring_to_text(equals + 1);
		dw_option_check_text(source->constant, dw_option_name(option));
	}
	return true;
}

/* Adds a column to the template, as the next $n, or for the payload. */
static void
read_arg(Template *template, Relation rel, AttrNumber column, Datum *types)
{
	types[template->nargs] = ObjectIdGetDatum(TupleDescAttr(RelationGetDescr(rel), column - 1)->atttypid);
	read_from_column(&template->args[template->nargs++], rel, column);
}

/* Parses the n arguments after the first two: names of columns, and options. */
static void
read_args_and_options(Template *template, Relation rel, char **arguments, int n, const Kind *kind)
{
	Datum	   *types = palloc(n * sizeof(Datum));

	template->args = palloc0(n * sizeof(Source));
	for (int i = 0; i < n; i++)
	{
		AttrNumber	column = column_named(rel, arguments[i]);

		if (column != 0)
			read_arg(template, rel, column, types);
		else if (!read_option(template, rel, arguments[i], kind))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of relation \"%s\" does not exist", arguments[i],
							RelationGetRelationName(rel)),
					 kind->sends ?
					 errhint("After delay and queue, the arguments of the trigger are names of columns for the payload, as in the catalog, without quotes. If a column was renamed, create the trigger again.") :
					 errhint("After delay and SQL, the arguments of the trigger are names of columns for $1, $2, ..., as in the catalog, without quotes. If a column was renamed, create the trigger again.")));
	}
	if (template->nargs > 0)
		template->arg_types = PointerGetDatum(construct_array(types, template->nargs, REGTYPEOID,
														  sizeof(Oid), true, TYPALIGN_INT));
}

/* Judges the options that are the same for all rows.  Raises an error if an option is invalid. */
static void
check_options(Template *template, const Kind *kind)
{
	const DwOptions *options = &template->options;
	DwNewTask	task;

	if (template->key.column == 0 && template->key.constant == NULL)
		for (DwOption i = 0; i < DW_NOPTIONS; i++)
			if (!options->values[i].isnull && (i == DW_OPT_IF_EXISTS || i == DW_OPT_UNIQUE_FOR))
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("option \"%s\" needs a key", dw_option_name(i)),
						 i == DW_OPT_UNIQUE_FOR ?
						 errhint("Only a task with a key can be unique.") :
						 errhint("Only a task with a key can exist already.")));
	/* by default, the new task of a changed row replaces the row's pending task */
	template->if_exists = dw_given(options, IF_EXISTS) ? dw_if_exists_named(dw_option_cstring(options, IF_EXISTS)) :
		DW_REPLACE;
	dw_new_task_init(&task, kind->sends ? NULL : cstring_to_text(""));
	dw_options_set(options, &task);
}

/* Adds all columns of the table to the template, as if the arguments named them. */
static void
read_all_columns(Template *template, Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Datum	   *types = palloc(desc->natts * sizeof(Datum));

	template->args = palloc0(desc->natts * sizeof(Source));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		/* a trigger does not see the value of a virtual generated column */
		if (!column->attisdropped &&
			(column->attgenerated == '\0' || column->attgenerated == ATTRIBUTE_GENERATED_STORED))
			read_arg(template, rel, column->attnum, types);
	}
}

/*
 * Finds out if the table is a shard of Citus, so that tasks can follow the shard to another node.
 */
static void
read_shard(Template *template, Relation rel)
{
	Datum		values[Natts_task] = {0};
	bool		nulls[Natts_task];

	memset(nulls, true, sizeof(nulls));
	dw_shard_of(rel, &template->shard);
	if (template->shard.id == 0)
		return;
	dw_more_set_number(values, nulls, Anum_task_more, DW_MORE_SHARD, template->shard.id);
	template->more = values[Anum_task_more - 1];
}

/* Makes the template of a trigger in the current memory context. */
static Template *
make_template(const TriggerData *trigger, const Kind *kind)
{
	const Trigger *definition = trigger->tg_trigger;
	Relation	rel = trigger->tg_relation;
	Template	   *template = palloc0(sizeof(Template));

	if (definition->tgnargs < 2)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("function \"%s\" needs at least two arguments, %s", kind->function, kind->needs),
				 errhint("For example, %s.", kind->example)));
	dw_options_none(&template->options, DW_FOR_TRIGGER);
	read_shard(template, rel);
	read_delay(template, rel, definition->tgargs[0]);
	read_args_and_options(template, rel, definition->tgargs + 2, definition->tgnargs - 2, kind);
	check_options(template, kind);
	if (kind->sends)
	{
		template->queue.constant = cstring_to_text(definition->tgargs[1]);
		if (template->nargs == 0)
			read_all_columns(template, rel);
		template->payload = CreateTemplateTupleDesc(template->nargs);
		for (int i = 0; i < template->nargs; i++)
			TupleDescCopyEntry(template->payload, i + 1, RelationGetDescr(rel),
							   template->args[i].column);
		TupleDescFinalize(template->payload);
		template->payload = BlessTupleDesc(template->payload);
		return template;
	}
	template->sql = cstring_to_text(definition->tgargs[1]);
	dw_check_sql(template->sql, template->nargs);
	return template;
}

/*---- Keeping templates ----*/

/*
 * Relation cache callback: invalidates the templates of a table; InvalidOid: of all tables.  Frees
 * nothing, since a template may be in use.
 */
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

/* Removes a trigger's template, and frees the template as soon as it is not in use. */
static void
forget_trigger(Known *known)
{
	Template   *template = known->template;

	(void) hash_search(known_triggers, &known->trigger, HASH_REMOVE, NULL);
	template->is_forgotten = true;
	if (template->users == 0)
		MemoryContextDelete(template->context);
}

/* Callback of a memory context, called when the trigger has handled a row, or has failed. */
static void
end_use(void *arg)
{
	Template   *template = arg;

	if (--template->users == 0 && template->is_forgotten)
		MemoryContextDelete(template->context);
}

/*
 * Marks the template as in use until the caller's memory context, which lasts for one row, is
 * reset.
 */
static void
begin_use(Template *template)
{
	MemoryContextCallback *end = palloc(sizeof(MemoryContextCallback));

	end->func = end_use;
	end->arg = template;
	template->users++;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, end);
}

/*
 * Makes and stores the template of a trigger.  After an error, a half-made template is freed with
 * the caller's memory context.
 */
static Template *
add_known_trigger(const TriggerData *trigger, const Kind *kind)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "delay_wheel trigger",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	Template	   *template = make_template(trigger, kind);
	Known	   *known;

	MemoryContextSwitchTo(caller);
	known = hash_search(known_triggers, &trigger->tg_trigger->tgoid, HASH_ENTER, NULL);
	MemoryContextSetParent(context, CacheMemoryContext);
	known->table = RelationGetRelid(trigger->tg_relation);
	known->is_valid = true;
	known->template = template;
	template->context = context;
	return template;
}

/*
 * Returns the template of a trigger.  The statement has locked the table.  So earlier changes were
 * reported when the table was opened, and later changes wait for the lock.
 */
static Template *
template_of(const TriggerData *trigger, const Kind *kind)
{
	HASH_SEQ_STATUS scan;
	Known	   *known;

	if (known_triggers == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(Known)};

		known_triggers = hash_create("delay_wheel triggers", 32, &ctl, HASH_ELEM | HASH_BLOBS);
		CacheRegisterRelcacheCallback(forget_table, (Datum) 0);
	}
	known = hash_search(known_triggers, &trigger->tg_trigger->tgoid, HASH_FIND, NULL);
	if (known != NULL && known->is_valid)
		return known->template;
	if (known != NULL)
		forget_trigger(known);
	else if (hash_get_num_entries(known_triggers) >= MAX_KNOWN)
	{
		hash_seq_init(&scan, known_triggers);
		while ((known = hash_seq_search(&scan)) != NULL)
			forget_trigger(known);
	}
	return add_known_trigger(trigger, kind);
}

/*---- The task of a row ----*/

/* Reads a column of the row as an argument; returns false if it is null. */
static bool
get_argument(const Source *source, TupleTableSlot *row, DwArgument *argument)
{
	argument->type = source->type;
	argument->writer = &source->writer;
	argument->value = slot_getattr(row, source->column, &argument->isnull);
	return !argument->isnull;
}

/*
 * Returns the text of an option for the row; NULL if the option is not given, or its column is
 * null.  Trailing blanks of a char(n) are removed, as in a cast to text.
 */
static text *
get_text(const Source *source, DwOption option, TupleTableSlot *row)
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
	dw_option_check_text(value, dw_option_name(option));
	/* the slot will have another row before the task is written, see schedule_for_rows() */
	return value == (text *) DatumGetPointer(argument.value) ?
		(text *) DatumGetPointer(datumCopy(argument.value, false, -1)) : value;
}

/* Sets *due.  Returns false if the delay's column is null: the row gets no task. */
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

/* Returns the arguments of the row's task: a text[] of its columns. */
static Datum
get_args(const Template *template, TupleTableSlot *row)
{
	DwArgument *arguments = palloc(template->nargs * sizeof(DwArgument));

	for (int i = 0; i < template->nargs; i++)
		(void) get_argument(&template->args[i], row, &arguments[i]);
	return dw_args_texts(arguments, template->nargs);
}

/* Returns the payload of the row's message: an object of its columns. */
static Datum
get_payload(const Template *template, TupleTableSlot *row)
{
	Datum	   *values = palloc(template->nargs * sizeof(Datum));
	bool	   *nulls = palloc(template->nargs * sizeof(bool));
	HeapTuple	tuple;
	Datum		json;

	for (int i = 0; i < template->nargs; i++)
		values[i] = slot_getattr(row, template->args[i].column, &nulls[i]);
	tuple = heap_form_tuple(template->payload, values, nulls);
	json = DirectFunctionCall1(row_to_json, HeapTupleGetDatum(tuple));
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(json)));
}

/*
 * Returns true if another node schedules the row's task.  Rows of a reference table are on all
 * nodes, and its trigger fires on each node.  Only the first node schedules tasks.  The first node
 * is the coordinator if the coordinator has the table.
 */
static bool
is_of_other_node(const Template *template, Relation rel)
{
	DwShard		now;

	if (!template->shard.is_copy)
		return false;
	/* not cached, since adding or removing nodes does not change this table */
	dw_shard_of(rel, &now);
	return !now.is_first;
}

/* Sets the options that are the same for all rows.  They were judged before. */
static void
set_options(const Template *template, bool has_key, DwNewTask *task)
{
	DwCheck		check = task->check;

	task->check = DW_CHECK_OFF;
	dw_options_set(&template->options, task);
	task->check = check;
	if (has_key && dw_given(&template->options, UNIQUE_FOR))
		dw_new_task_unique_for(task, dw_option_us(&template->options, DW_OPT_UNIQUE_FOR));
}

/*
 * Schedules the task of a row, or sends its message: at once, or together with others if "many" is
 * not NULL.  If the row gets no task, cancels its pending task.
 */
static void
schedule_for_row(const Template *template, TupleTableSlot *row, DwManyTasks *many)
{
	text	   *key = get_text(&template->key, DW_OPT_KEY, row);
	text	   *queue = get_text(&template->queue, DW_OPT_QUEUE, row);
	text	   *tag = get_text(&template->tag, DW_OPT_TAG, row);
	text	   *group_key = get_text(&template->group_key, DW_OPT_GROUP_KEY, row);
	int16		priority = dw_given(&template->options, PRIORITY) ?
		DatumGetInt32(dw_option(&template->options, PRIORITY)) : DW_NO_PRIORITY;
	DwNewTask	task;

	dw_new_task_init(&task, template->sql);
	task.if_exists = template->if_exists;
	dw_new_task_set(&task, Anum_task_group_key, PointerGetDatum(group_key), group_key == NULL);
	if (queue != NULL || group_key != NULL)
		dw_new_task_queue(&task, queue ? text_to_cstring(queue) : NULL, priority);
	else if (priority != DW_NO_PRIORITY)
		task.priority = priority;
	if (!get_due(template, row, &task.due))
	{
		DwKey		pending = {.owner = task.owner, .queue = task.queue, .key = key};

		/* the row gets no task: cancel the task that a new task would have replaced */
		if (key != NULL && dw_replaces(task.if_exists))
			(void) dw_schedule_cancel(&pending);
		return;
	}
	if (template->payload != NULL)
		dw_new_task_payload(&task, get_payload(template, row));
	else if (template->nargs > 0)
	{
		dw_new_task_set(&task, Anum_task_args, get_args(template, row), false);
		dw_new_task_set(&task, Anum_task_arg_types, template->arg_types, false);
	}
	dw_new_task_set(&task, Anum_task_key, PointerGetDatum(key), key == NULL);
	dw_new_task_set(&task, Anum_task_tag, PointerGetDatum(tag), tag == NULL);
	dw_new_task_set(&task, Anum_task_more, template->more, template->shard.id == 0);
	set_options(template, key != NULL, &task);
	if (many != NULL)
		dw_schedule_many_add(many, &task);
	else
		(void) dw_schedule_new(&task, DW_SQL_CHECKED);
}

/*
 * Returns true if the payload may run user code: row_to_json() calls casts of user-defined types to
 * json.  This code may look for the tasks of earlier rows.  Not cached, since creating a cast does
 * not change the table.
 */
static bool
runs_user_code(const Template *template)
{
	if (template->payload == NULL)
		return false;
	for (int i = 0; i < template->nargs; i++)
	{
		Oid			type = template->args[i].type;
		Oid			function;

		/* row_to_json() ignores casts of PostgreSQL's own types */
		if (type < FirstNormalObjectId)
			continue;
		/* the types of elements or columns may have casts */
		if (type_is_array(type) || type_is_rowtype(type) ||
			find_coercion_pathway(JSONOID, type, COERCION_EXPLICIT, &function) == COERCION_PATH_FUNC)
			return true;
	}
	return false;
}

/* Does the same for all rows of a transition table. */
static void
schedule_for_rows(const Template *template, const TriggerData *trigger)
{
	Tuplestorestate *rows = trigger->tg_newtable;
	int			reader = tuplestore_alloc_read_pointer(rows, EXEC_FLAG_REWIND);
	TupleTableSlot *row = MakeSingleTupleTableSlot(RelationGetDescr(trigger->tg_relation),
												   &TTSOpsMinimalTuple);
	DwManyTasks *many = dw_schedule_many_begin();
	bool		at_once = runs_user_code(template);

	/* the table belongs to all triggers of the statement, which read it one after the other */
	tuplestore_select_read_pointer(rows, reader);
	tuplestore_rescan(rows);
	/* a row that was on disk is allocated by the slot's user, here in the caller's context */
	while (tuplestore_gettupleslot(rows, true, false, row))
	{
		MemoryContext caller = MemoryContextSwitchTo(many->context);

		CHECK_FOR_INTERRUPTS();
		/* user code may have changed the role */
		if (at_once)
			require_right(trigger);
		schedule_for_row(template, row, at_once ? NULL : many);
		MemoryContextSwitchTo(caller);
		dw_schedule_many_next(many);
	}
	dw_schedule_many_end(many);
	ExecDropSingleTupleTableSlot(row);
}

/* Returns true if the trigger is fired for a statement that has written no rows. */
static bool
is_without_rows(const TriggerData *trigger)
{
	return !TRIGGER_FIRED_FOR_ROW(trigger->tg_event) && trigger->tg_newtable != NULL &&
		tuplestore_tuple_count(trigger->tg_newtable) == 0;
}

/* Does the work of the trigger functions. */
static Datum
fire(FunctionCallInfo fcinfo, const Kind *kind)
{
	TriggerData *trigger;
	Template   *template;
	ErrorContextCallback callback;

	if (CALLED_AS_TRIGGER(fcinfo))
	{
		trigger = (TriggerData *) fcinfo->context;
		/* a trigger FOR EACH ROW would not be called, so this one needs no right either */
		if (is_without_rows(trigger))
			PG_RETURN_POINTER(NULL);
		require_right(trigger);
	}
	else
		dw_require_right();
	trigger = require_trigger(fcinfo, kind);
	dw_push_context(&callback, trigger_callback, trigger);
	dw_require_writable(psprintf("%s()", kind->function));
	template = template_of(trigger, kind);
	begin_use(template);
	if (is_of_other_node(template, trigger->tg_relation))
		;
	else if (!TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		schedule_for_rows(template, trigger);
	else
		schedule_for_row(template, TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ?
						 trigger->tg_newslot : trigger->tg_trigslot, NULL);
	error_context_stack = callback.previous;
	PG_RETURN_POINTER(NULL);
}

/* SQL function delay_schedule_trigger(). */
Datum
dw_schedule_trigger(PG_FUNCTION_ARGS)
{
	return fire(fcinfo, &schedules);
}

/* SQL function delay_send_trigger(). */
Datum
dw_send_trigger(PG_FUNCTION_ARGS)
{
	return fire(fcinfo, &sends);
}
