/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  SQL functions that schedule, cancel and reschedule tasks.
 *
 * Run by sessions, and by executors whose tasks call these functions.  Their changes belong to the
 * caller's transaction, whose commit informs the timer, see task/touched.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend.h"

PG_FUNCTION_INFO_V1(dw_origin);
PG_FUNCTION_INFO_V1(dw_task_changed);
PG_FUNCTION_INFO_V1(dw_task_guard);
PG_FUNCTION_INFO_V1(dw_schedule);
PG_FUNCTION_INFO_V1(dw_schedule_text);
PG_FUNCTION_INFO_V1(dw_schedule_at);
PG_FUNCTION_INFO_V1(dw_schedule_task);
PG_FUNCTION_INFO_V1(dw_scheduled);
PG_FUNCTION_INFO_V1(dw_send);
PG_FUNCTION_INFO_V1(dw_cancel);
PG_FUNCTION_INFO_V1(dw_reschedule);
PG_FUNCTION_INFO_V1(dw_reschedule_text);
PG_FUNCTION_INFO_V1(dw_reschedule_due);

/*---- Tables of tasks, and plain SQL that writes them ----*/

/*
 * SQL function delay_wheel_internal.origin(): returns the stamp of this database.  Tasks with
 * another stamp came with a copy of another database.
 */
Datum
dw_origin(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(dw_origin_stamp());
}

/*
 * Statement trigger on delay_wheel_data.task, fired when plain SQL has written or deleted rows.  At
 * the commit the timer looks at all lanes and recurring tasks, sessions in delay_wait() look at
 * their tasks, and leases are counted again.
 */
Datum
dw_task_changed(PG_FUNCTION_ARGS)
{
	(void) dw_require_trigger(fcinfo, "task_changed", false);
	/* a restore must succeed even if the server has not preloaded the library */
	if (dw_shared != NULL)
		dw_touch(DW_ALL_TOUCHED);
	PG_RETURN_POINTER(NULL);
}

/* Returns the owner in a row of a table of tasks; InvalidOid if it is null. */
static Oid
owner_of_row(TriggerData *trigger, HeapTuple tuple)
{
	TupleDesc	desc = RelationGetDescr(trigger->tg_relation);
	int			column = SPI_fnumber(desc, "owner");
	bool		isnull;
	Datum		owner;

	if (SPI_gettypeid(desc, column) != REGROLEOID)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("table \"%s\" has no owners of tasks",
						RelationGetRelationName(trigger->tg_relation))));
	owner = SPI_getbinval(tuple, desc, column, &isnull);
	return isnull ? InvalidOid : DatumGetObjectId(owner);
}

/*
 * Raises an error if plain SQL puts a task, or a recurring task, into a queue that the current user
 * may not schedule into.
 */
static void
require_queue_of_row(TriggerData *trigger, HeapTuple row)
{
	TupleDesc	desc = RelationGetDescr(trigger->tg_relation);
	int			column = SPI_fnumber(desc, "queue");
	bool		isnull;
	bool		is_message;
	int16		queue;

	if (superuser() || dw_shared == NULL || SPI_gettypeid(desc, column) != INT2OID ||
		(RelationGetRelid(trigger->tg_relation) != dw_catalog()->task &&
		 RelationGetRelid(trigger->tg_relation) != dw_catalog()->recurring))
		return;
	is_message = RelationGetRelid(trigger->tg_relation) == dw_catalog()->task &&
		!heap_attisnull(row, Anum_task_payload, desc);
	queue = DatumGetInt16(SPI_getbinval(row, desc, column, &isnull));
	if (isnull || (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) &&
				   queue == DatumGetInt16(SPI_getbinval(trigger->tg_trigtuple, desc, column, &isnull))))
		return;
	dw_queue_require(queue, is_message);
}

/*
 * Row trigger on the tables of tasks.  Raises an error if plain SQL inserts, changes or
 * deletes a task of a role whose rights the current user lacks.
 */
Datum
dw_task_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = dw_require_trigger(fcinfo, "task_guard", true);
	HeapTuple	row;

	row = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple : trigger->tg_trigtuple;
	if (!has_privs_of_role(GetUserId(), owner_of_row(trigger, row)) ||
		!has_privs_of_role(GetUserId(), owner_of_row(trigger, trigger->tg_trigtuple)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to write a task of another role"),
				 errhint("Use SET ROLE and delay_schedule().")));
	require_queue_of_row(trigger, row);
	/* COPY and apply workers are not yet noted as writers (shmem/published.c) */
	if (dw_shared != NULL)
		dw_writes_for(InvalidOid);
	if (dw_audits(DW_AUDIT_CONTROL))
		dw_audit_count(trigger->tg_relation);
	return PointerGetDatum(dw_accept_replicated(trigger, row) ? row : NULL);
}

/*---- Scheduling ----*/

/*
 * Inserts the row of a judged task in the current transaction, and notes the task for the commit,
 * which informs the timer.  Returns the id of the new task.  If a pending task with the same key
 * stays, is moved, or prevents the new task, returns the id of the pending task (see
 * task->outcome).  limited: the owner's number of tasks is limited.  The caller has called
 * dw_require_writable().
 */
int64
dw_schedule_row(DwNewTask *task, bool limited)
{
	DwKeyRow   *pending = NULL;
	bool		has_key = !task->nulls[Anum_task_key - 1];
	Relation	rel;
	int64		id;

	task->lane = dw_require_lane(task->owner, task->queue, task->priority);

	/*
	 * Lock the task table before an id is drawn.  So the sweeper sees each transaction that may
	 * insert a task with an id below a mark's number (task/marks.c).
	 */
	rel = dw_tasks_open();
	if (task->unique_for > 0)
		dw_period_prepare();
	if (has_key)
		pending = dw_key_enter(rel, task);
	if (task->outcome == DW_KEPT || task->outcome == DW_REFUSED)
	{
		task->due = pending->task.due;
		table_close(rel, NoLock);
		return pending->task.id;
	}
	if (task->outcome == DW_MOVED)
	{
		id = pending->task.id;
		dw_pending_move(rel, pending->tuple, &pending->task, task->due);
	}
	else
	{
		/* checked last: a task that replaces another task, or is not needed, does not count */
		if (limited && dw_max_pending >= 0)
			dw_require_room(task->owner);
		dw_writes_for(task->owner);
		id = dw_new_task_insert(rel, task);
		if (task->unique_for > 0)
			dw_period_begin(task, id);
	}
	if (has_key)
		dw_key_leave();
	/* a task from another node was recorded on that node */
	if (limited && dw_audits(task->outcome == DW_NEW ? DW_AUDIT_ALL : DW_AUDIT_CONTROL))
	{
		if (task->outcome == DW_MOVED)
			dw_audit_row("reschedule", rel, pending->tuple, task->due, NULL);
		else
			dw_audit_task("schedule", task->values, task->nulls, task->due,
						  task->outcome == DW_REPLACED ?
						  psprintf("replaces task %lld", (long long) pending->task.id) : NULL);
	}
	table_close(rel, NoLock);
	return id;
}

/* The outcome of the last call of this transaction that schedules a task, for delay_scheduled() */
static struct
{
	int			level;			/* nest level of the transaction; 0: no outcome */
	int64		id;
	DwScheduled outcome;
	TimestampTz due;
}			last_scheduled;

/* Forgets the outcome, at the end of a transaction, or the abort of a subtransaction. */
static void
forget_transaction(XactEvent event, void *arg)
{
	last_scheduled.level = 0;
}

static void
forget_subtransaction(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (last_scheduled.level < GetCurrentTransactionNestLevel())
		return;
	if (event == SUBXACT_EVENT_ABORT_SUB)
		last_scheduled.level = 0;
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
		last_scheduled.level--;
}

/* Notes the outcome of the task that was scheduled last. */
static void
note_outcome(int64 id, const DwNewTask *task)
{
	static bool registered = false;

	if (!registered)
	{
		RegisterXactCallback(forget_transaction, NULL);
		RegisterSubXactCallback(forget_subtransaction, NULL);
		registered = true;
	}
	last_scheduled.level = GetCurrentTransactionNestLevel();
	last_scheduled.id = id;
	last_scheduled.outcome = task->outcome;
	last_scheduled.due = task->due;
}

/*
 * Schedules a new task in the current transaction: judges it, calls dw_schedule_row(), notes the
 * outcome, and returns the result.  nargs is as for dw_new_task_check().
 */
int64
dw_schedule_new(DwNewTask *task, int nargs)
{
	int64		id;

	dw_new_task_check(task, nargs);
	dw_new_task_keep(task);
	id = dw_schedule_row(task, true);
	note_outcome(id, task);
	return id;
}

/*---- Scheduling many tasks in one call ----*/

/*
 * Prepares for scheduling many tasks, whose rows are written together.  The tasks are allocated in
 * many->context.  The same call of a function must write them, since the next call may look for
 * them.
 */
DwManyTasks *
dw_schedule_many_begin(void)
{
	DwManyTasks *many = palloc(sizeof(DwManyTasks));

	many->context = AllocSetContextCreate(CurrentMemoryContext, "delay_wheel new tasks",
										  ALLOCSET_DEFAULT_SIZES);
	many->n = 0;
	return many;
}

/* Writes the tasks that were collected.  The caller may then reset their memory. */
static void
write_collected(DwManyTasks *many)
{
	DwNewTask  *tasks = many->tasks;
	int			n = many->n;
	MemoryContext caller;
	Relation	rel;

	if (n == 0)
		return;
	caller = MemoryContextSwitchTo(many->context);
	/* lock the table before ids are drawn, as in dw_schedule_row() */
	rel = dw_tasks_open();
	for (int i = 0; i < n; i++)
		dw_writes_for(tasks[i].owner);
	note_outcome(dw_new_tasks_insert(rel, tasks, n), &tasks[n - 1]);
	for (int i = 0; i < n && dw_audits(DW_AUDIT_ALL); i++)
		dw_audit_task("schedule", tasks[i].values, tasks[i].nulls, tasks[i].due, NULL);
	table_close(rel, NoLock);
	many->n = 0;
	MemoryContextSwitchTo(caller);
}

/*
 * Schedules a task, whose SQL was checked, as dw_schedule_new() does.  Writes the row together with
 * others, perhaps later.
 */
void
dw_schedule_many_add(DwManyTasks *many, DwNewTask *task)
{
	/* the search for the key, and the count, must find all earlier tasks in the table */
	if (!task->nulls[Anum_task_key - 1] || dw_max_pending >= 0)
	{
		write_collected(many);
		(void) dw_schedule_new(task, DW_SQL_CHECKED);
		return;
	}
	dw_new_task_check(task, DW_SQL_CHECKED);
	dw_new_task_keep(task);
	task->lane = dw_require_lane(task->owner, task->queue, task->priority);
	many->tasks[many->n++] = *task;
}

/*
 * Called after each source of a task, also if it had no task: writes the tasks if they are many or
 * long, and frees memory that is not needed any more.
 */
void
dw_schedule_many_next(DwManyTasks *many)
{
	if (many->n == DW_MANY_TASKS || MemoryContextMemAllocated(many->context, true) > DW_MANY_BYTES)
		write_collected(many);
	if (many->n == 0)
		MemoryContextReset(many->context);
}

/* Writes the tasks that are left, and frees the memory of all. */
void
dw_schedule_many_end(DwManyTasks *many)
{
	write_collected(many);
	MemoryContextDelete(many->context);
	pfree(many);
}

/*---- Functions that schedule one task ----*/

/*
 * Does the work of delay_schedule() and delay_schedule_at().  The SQL text is argument 1 (counted
 * from 0).  The task's arguments follow it, unless the parameter has its default.
 */
static int64
schedule_plain(FunctionCallInfo fcinfo, TimestampTz due)
{
	DwNewTask	task;
	int			nargs;

	dw_refuse_null(PG_ARGISNULL(1), "SQL text");
	dw_new_task_init(&task, PG_GETARG_TEXT_PP(1));
	task.due = due;
	nargs = dw_args_collect(fcinfo, 2, &task.values[Anum_task_args - 1],
							&task.values[Anum_task_arg_types - 1]);
	task.nulls[Anum_task_args - 1] = task.nulls[Anum_task_arg_types - 1] = nargs == 0;
	return dw_schedule_new(&task, nargs);
}

/* SQL function delay_schedule(), after a delay. */
Datum
dw_schedule(PG_FUNCTION_ARGS)
{
	dw_require_right_to_write("delay_schedule()");
	dw_refuse_null(PG_ARGISNULL(0), "delay");
	PG_RETURN_INT64(schedule_plain(fcinfo, dw_due_after(PG_GETARG_INTERVAL_P(0))));
}

/* SQL function delay_schedule(), with a delay or a time as text. */
Datum
dw_schedule_text(PG_FUNCTION_ARGS)
{
	dw_require_right_to_write("delay_schedule()");
	dw_refuse_null(PG_ARGISNULL(0), "delay");
	PG_RETURN_INT64(schedule_plain(fcinfo, dw_due_of_text(PG_GETARG_TEXT_PP(0))));
}

/* SQL function delay_schedule_at(). */
Datum
dw_schedule_at(PG_FUNCTION_ARGS)
{
	dw_require_right_to_write("delay_schedule_at()");
	dw_refuse_null(PG_ARGISNULL(0), "due time");
	PG_RETURN_INT64(schedule_plain(fcinfo, dw_finite_due(PG_GETARG_TIMESTAMPTZ(0))));
}

/* SQL function delay_schedule_task(). */
Datum
dw_schedule_task(PG_FUNCTION_ARGS)
{
	static const DwOption parameters[] = {
		DW_OPT_SQL, DW_OPT_ARGS, DW_OPT_NAMED, DW_OPT_DELAY, DW_OPT_DUE, DW_OPT_KEY, DW_OPT_IF_EXISTS,
		DW_OPT_QUEUE, DW_OPT_TAG, DW_OPT_PRIORITY, DW_OPT_MAX_ATTEMPTS, DW_OPT_GROUP_KEY, DW_OPT_JSON
	};
	DwOptions	options;
	DwNewTask	task;
	int			nargs;

	dw_require_right_to_write("delay_schedule_task()");
	dw_options_take(fcinfo, parameters, lengthof(parameters), DW_FOR_TASK, &options);
	nargs = dw_options_task(&options, &task);
	PG_RETURN_INT64(dw_schedule_new(&task, nargs));
}

/*
 * SQL function delay_send(): a message is a task with a payload in place of SQL.  The same code
 * reads its options.
 */
Datum
dw_send(PG_FUNCTION_ARGS)
{
	static const DwOption parameters[] = {
		DW_OPT_QUEUE, DW_OPT_PAYLOAD, DW_OPT_DELAY, DW_OPT_DUE, DW_OPT_KEY, DW_OPT_IF_EXISTS,
		DW_OPT_TAG, DW_OPT_PRIORITY, DW_OPT_MAX_ATTEMPTS, DW_OPT_GROUP_KEY, DW_OPT_HEADERS, DW_OPT_JSON
	};
	DwOptions	options;
	DwNewTask	message;

	dw_require_right_to_write("delay_send()");
	dw_options_take(fcinfo, parameters, lengthof(parameters), DW_FOR_MESSAGE, &options);
	dw_options_message(&options, &message);
	PG_RETURN_INT64(dw_schedule_new(&message, DW_SQL_CHECKED));
}

/*
 * SQL function delay_scheduled(): returns the outcome of the transaction's last call that scheduled
 * a task.  A given id must be the id of this task.
 */
Datum
dw_scheduled(PG_FUNCTION_ARGS)
{
	static const char *const outcomes[] = {
		[DW_NEW] = "new", [DW_REPLACED] = "replaced", [DW_KEPT] = "kept", [DW_MOVED] = "moved",
		[DW_REFUSED] = "refused"
	};

	dw_require_right();
	/* in a target list, (f(...)).* evaluates the function and its argument once for each column */
	if (fcinfo->resultinfo == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s must be called in FROM", "delay_scheduled()"),
				 errhint("Use SELECT * FROM %s.", "delay_scheduled()")));
	if (last_scheduled.level == 0 || (!PG_ARGISNULL(0) && PG_GETARG_INT64(0) != last_scheduled.id))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 PG_ARGISNULL(0) ? errmsg("it is not known which task this transaction has scheduled last") :
				 errmsg("task %lld is not the one that this transaction has scheduled last", (long long) PG_GETARG_INT64(0)),
				 last_scheduled.level != 0 ? errdetail("The transaction has scheduled task %lld last.", (long long) last_scheduled.id) :
				 errdetail("The transaction has scheduled no task, or has rolled back to a savepoint since then."),
				 errhint("Call both functions together: SELECT * FROM delay_scheduled(delay_schedule_task(...)).")));

	const DwColumn row[] = {
		DW_INT8(last_scheduled.id), dw_text_or_null(outcomes[last_scheduled.outcome]),
		dw_null_if(last_scheduled.outcome == DW_REFUSED, DW_TIME(last_scheduled.due))
	};

	return dw_make_row(fcinfo, row, lengthof(row));
}

/*---- Cancelling ----*/

/*
 * Cancels a leased message, whose row was just found.  Its token is no longer valid.  Returns the
 * result of delay_cancel().  Returns "running" if a transaction has received the message, since the
 * receiver cannot be stopped.  Returns NULL if the transaction that had locked or deleted the row
 * has ended.  Then the caller looks again.
 */
static const char *
end_lease(Relation rel, HeapTuple tuple, const DwTaskKey *key)
{
	if (!dw_task_lease_lasts(key) || dw_row_delete(rel, key) != TM_Ok)
		return dw_row_wait(rel, key) ? NULL : "running";
	CommandCounterIncrement();
	dw_conclude_row(rel, tuple, key, DW_CANCELLED, NULL);
	if (dw_audits(DW_AUDIT_CONTROL))
		dw_audit_row("cancel", rel, tuple, 0, "ends the lease");
	dw_touch_leases();
	return "cancelled";
}

/* Records a request to stop a running task.  The owner of a task without a row is not known. */
static void
audit_stop(int64 id, const DwTaskKey *key, bool at_once)
{
	dw_audit_write(&(DwAction) {
		.what = "cancel",
		.task = id,
		.owner = key->owner,
		.queue = key->queue,
		.with_queue = OidIsValid(key->owner),
		.detail = at_once ? "stops the running task" : "this attempt is its last"
	});
}

/*
 * Reads how a call names a pending task: by its id, argument 0, or by a key of the current user.
 * key: the number of the argument with the key.  The next argument is the name of the key's queue
 * (null: the default queue).  Raises an error unless either id or key is given.
 */
void
dw_named_task(FunctionCallInfo fcinfo, int key, DwNamedTask *named)
{
	named->by_key = !PG_ARGISNULL(key);
	if (PG_ARGISNULL(0) && !named->by_key)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("neither a task id nor a key is given"),
				 errhint("Pass the id of the task, or key => ... to name the task by its key.")));
	if (!PG_ARGISNULL(0) && named->by_key)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a task id and a key cannot both be given")));
	if (!named->by_key && !PG_ARGISNULL(key + 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("queue can be given only with a key")));
	if (!named->by_key)
	{
		named->id = PG_GETARG_INT64(0);
		return;
	}
	named->key.owner = GetUserId();
	/* the user needs no right to schedule into the queue */
	named->key.queue = PG_ARGISNULL(key + 1) ? 0 : dw_queue_named(text_to_cstring(PG_GETARG_TEXT_PP(key + 1)));
	named->key.key = PG_GETARG_TEXT_PP(key);
}

/* Takes the named pending task, as dw_take_pending() does. */
DwTakeResult
dw_take_named(const DwNamedTask *named, Relation rel, HeapTuple *tuple, DwTaskKey *key)
{
	return named->by_key ? dw_key_take(rel, &named->key, tuple, key) :
		dw_take_pending(rel, named->id, tuple, key);
}

/* Cancels the pending task with a key, in the current transaction. */
DwTakeResult
dw_schedule_cancel(const DwKey *key)
{
	Relation	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	DwTakeResult state = dw_key_cancel(rel, key);

	if (state == DW_TAKEN)
		CommandCounterIncrement();
	table_close(rel, NoLock);
	return state;
}

/*
 * Cancels a pending task by its id.  stop_running: stops a running task.  no_retry: makes the
 * present attempt the last.  tell_end: if the task has ended and its end is recorded, returns the
 * end.
 */
const char *
dw_cancel_by_id(int64 id, bool stop_running, bool no_retry, bool tell_end)
{
	Relation	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	HeapTuple	tuple;
	DwTaskKey	key = {0};
	const char *result = NULL;

	while (result == NULL)
		switch (dw_take_pending(rel, id, &tuple, &key))
		{
			case DW_TAKEN:
				CommandCounterIncrement();
				dw_conclude_row(rel, tuple, &key, DW_CANCELLED, NULL);
				if (dw_audits(DW_AUDIT_CONTROL))
					dw_audit_row("cancel", rel, tuple, 0, NULL);
				result = "cancelled";
				break;
			case DW_GONE:
				if (tell_end)
					dw_each_wing(wing, outcome_of)
						result = result != NULL ? result : wing->outcome_of(id);
				if (result == NULL)
					result = "gone";
				break;
			case DW_RUNNING:
				/* a task that delay_run() runs in this session cannot stop itself */
				if (!(stop_running || no_retry) || dw_run_now_id == id || (key.is_message && !stop_running))
					result = "running";
				else if (key.is_message)
					result = end_lease(rel, tuple, &key);
				else if (dw_stop_task(dw_my_database(), id, stop_running))
				{
					if (dw_audits(DW_AUDIT_CONTROL))
						audit_stop(id, &key, stop_running);
					result = stop_running ? "stopping" : "ending";
				}
				/* otherwise the task has just ended, or was put back: look again */
				break;
		}
	table_close(rel, NoLock);
	return result;
}

/*
 * Returns the result of an SQL function that calls dw_take_named().  taken: the result for
 * DW_TAKEN.
 */
const char *
dw_take_answer(DwTakeResult result, const char *taken)
{
	return result == DW_TAKEN ? taken : result == DW_RUNNING ? "running" : "gone";
}

/* SQL function delay_cancel(). */
Datum
dw_cancel(PG_FUNCTION_ARGS)
{
	DwNamedTask named;
	bool		stop_running = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
	bool		tell_end = !PG_ARGISNULL(2) && PG_GETARG_BOOL(2);
	bool		no_retry = !PG_ARGISNULL(5) && PG_GETARG_BOOL(5);
	const char *result;

	dw_require_right_to_write("delay_cancel()");
	dw_named_task(fcinfo, 3, &named);
	if (named.by_key && (stop_running || no_retry || tell_end))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s can be given only with a task id", stop_running ? "stop_running" : no_retry ? "no_retry" : "tell_end")));
	if (!named.by_key)
		result = dw_cancel_by_id(named.id, stop_running, no_retry, tell_end);
	else
		result = dw_take_answer(dw_schedule_cancel(&named.key), "cancelled");
	PG_RETURN_TEXT_P(cstring_to_text(result));
}

/*---- Rescheduling ----*/

/*
 * Moves a pending task to another due time: deletes its row, and inserts it with the same id.
 * Returns the result of the SQL function.  The arguments name the task as in dw_named_task().
 */
static Datum
reschedule(FunctionCallInfo fcinfo, TimestampTz due)
{
	DwNamedTask named;
	Relation	rel;
	HeapTuple	tuple;
	DwTaskKey	key;
	DwTakeResult result;

	dw_named_task(fcinfo, 2, &named);
	rel = table_open(dw_catalog()->task, RowExclusiveLock);
	result = dw_take_named(&named, rel, &tuple, &key);
	if (result == DW_TAKEN)
	{
		dw_pending_move(rel, tuple, &key, due);
		if (dw_audits(DW_AUDIT_CONTROL))
			dw_audit_row("reschedule", rel, tuple, due, NULL);
	}
	table_close(rel, NoLock);
	PG_RETURN_TEXT_P(cstring_to_text(dw_take_answer(result, "moved")));
}

/* SQL function delay_reschedule(), by a delay. */
Datum
dw_reschedule(PG_FUNCTION_ARGS)
{
	dw_require_right_to_write("delay_reschedule()");
	dw_refuse_null(PG_ARGISNULL(1), "delay");
	return reschedule(fcinfo, dw_due_after(PG_GETARG_INTERVAL_P(1)));
}

/* SQL function delay_reschedule(), with a delay or a time as text. */
Datum
dw_reschedule_text(PG_FUNCTION_ARGS)
{
	dw_require_right_to_write("delay_reschedule()");
	dw_refuse_null(PG_ARGISNULL(1), "delay");
	return reschedule(fcinfo, dw_due_of_text(PG_GETARG_TEXT_PP(1)));
}

/* SQL function delay_reschedule(), to a time. */
Datum
dw_reschedule_due(PG_FUNCTION_ARGS)
{
	dw_require_right_to_write("delay_reschedule()");
	dw_refuse_null(PG_ARGISNULL(1), "due time");
	return reschedule(fcinfo, dw_finite_due(PG_GETARG_TIMESTAMPTZ(1)));
}
