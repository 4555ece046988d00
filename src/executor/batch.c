/*-------------------------------------------------------------------------
 *
 * batch.c
 *	  Several tasks of a lane in one transaction.
 *
 * Run by executors, under a backlog.  A lane has the tasks of one owner, queue and priority.
 *
 * A task must not notice that other tasks share its transaction.  README.md has the rules for this:
 * which tasks join, that any error undoes the whole batch, what is done at the end of each task,
 * and the limits of time, which are well below deadlock_timeout.  There are no subtransactions.
 * Only a task that runs alone can take long, so only such a task is reported as running.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pgstat.h"
#include "executor.h"

/* Limit of the time from a batch's start to its commit, in ms. */
#define MAX_LIFE_MS		100
/* Limit of a batch's wait for a lock, in ms. */
#define MAX_LOCK_WAIT_MS	10

/* Number of a lane's tasks that run alone after a batch of two tasks was undone. */
#define ALONE_TASKS		100

/* The batch that this process runs; valid while me->in_batch. */
static struct
{
	DwDatabase *db;
	DwExecutor *me;
	enum
	{
		BATCH_RUNNING,
		BATCH_COMMITTING,		/* all members have run */
		BATCH_DONE				/* the transaction is committed */
	}			state;
	enum
	{
		CURRENT_OPEN,			/* the task may become a member of the batch */
		CURRENT_MEMBER,			/* the task is the batch's last member */
		CURRENT_LEFT,			/* the task did not join, and must run alone */
		CURRENT_FORGOTTEN		/* the task is no member, and is not put back */
	}			current;		/* state of the executor's current task */
	uint32		size;			/* limit of the number of members */
	TimestampTz started;		/* now() of the batch's transaction */
	char	   *sql;			/* SQL text of the current task */
	uint32		n;				/* number of members */
	DwRun		members[DW_BATCH_MAX];	/* the tasks that were claimed */
}			batch;

/* Memory for one task of a batch, reset before the next task. */
static MemoryContext batch_context = NULL;

/* search_path of all members of this executor's last batch, or NULL. */
static char *last_search_path = NULL;

/* Tasks that may join */

/* Limit of a batch's life in ms, well below deadlock_timeout. */
static int
life_ms(void)
{
	return Min(MAX_LIFE_MS, DeadlockTimeout / 2);
}

/* Limit of a batch's wait for a lock in ms, far below deadlock_timeout. */
static int
lock_wait_ms(void)
{
	return Min(MAX_LOCK_WAIT_MS, DeadlockTimeout / 10);
}

/*
 * Returns true if the settings allow batches, and no task has crashed the server recently.
 * log_min_duration does not log tasks of a batch, so it must be longer than a batch's life.  If
 * transactions keep their first snapshot, the second task would not see the changes of the first,
 * and its serialization failure would undo the first.
 */
bool
dw_batches_allowed(void)
{
	return dw_batch_tasks > 1 && lock_wait_ms() > 0 && !dw_crashes_are_recent() &&
		DefaultXactIsoLevel < XACT_REPEATABLE_READ &&
		(dw_log_min_duration < 0 || dw_log_min_duration >= life_ms());
}

/*
 * Returns true if the text is one statement that reads or writes rows.  Looks only at the first
 * word and at semicolons.  So the result may be wrongly false, for example for a text that begins
 * with a comment.  Then the task runs alone.
 */
static bool
is_plain(const char *sql)
{
	static const char *const words[] = {"select", "insert", "update", "delete", "merge", "with"};
	const char *end;

	sql += strspn(sql, " \t\n\r\f");
	end = strchr(sql, ';');
	if (end != NULL && end[strspn(end, "; \t\n\r\f")] != '\0')
		return false;
	for (int i = 0; i < lengthof(words); i++)
	{
		size_t		length = strlen(words[i]);

		if (pg_strncasecmp(sql, words[i], length) == 0)
			return sql[length] != '\0' && strchr(" \t\n\r\f", sql[length]) != NULL;
	}
	return false;
}

/* Returns true if this is last_search_path, which is set once for all members of the batch. */
static bool
is_same_path(const char *path)
{
	if (path == NULL || last_search_path == NULL)
		return path == last_search_path;
	return strcmp(path, last_search_path) == 0;
}

/*
 * For dw_claim().  Returns true if the task may join the batch.  A short timeout needs its own
 * timer.  The end of a recurring run may wait for a session that changes the recurring task.
 */
static bool
may_join(const DwClaim *claim, void *arg)
{
	if (claim->key.attempts != 0 || dw_quit_is_noted(claim->key.id) ||
		dw_mode(claim->values, claim->nulls) != DW_IN_TRANSACTION ||
		claim->key.due > GetCurrentTransactionStartTimestamp() ||
		(claim->terms.timeout > 0 && claim->terms.timeout < life_ms()) ||
		dw_more_has(claim->values, claim->nulls, Anum_task_more, DW_MORE_RECURRING) ||
		(batch.n > 0 && !is_same_path(dw_claim_text(claim, Anum_task_search_path))))
		return false;
	batch.sql = dw_claim_text(claim, Anum_task_sql);
	return batch.sql != NULL && is_plain(batch.sql);
}

/*---- Running ----*/

/* Returns true if the timeout that limits the batch's life has struck. */
static bool
life_is_over(void)
{
	return !get_timeout_active(STATEMENT_TIMEOUT);
}

/* Begins a batch with the current task, under the ready lock. */
void
dw_batch_begin(DwDatabase *db, DwExecutor *me)
{
	batch.db = db;
	batch.me = me;
	batch.state = BATCH_RUNNING;
	batch.current = CURRENT_OPEN;
	dw_batch_is_closed = false;
	batch.size = Min(dw_batch_tasks, dw_lanes[me->current.lane].batch_size);
	batch.n = 0;
	me->in_batch = true;
	me->position.chunk = DW_NO_CHUNK;
}

/* Makes the current task, which has been claimed, a member of the batch. */
static DwRun *
add_member(void)
{
	DwRun	   *member = &batch.members[batch.n++];

	memset(member, 0, sizeof(DwRun));
	member->entry = batch.me->current;
	member->started = batch.me->since;
	batch.current = CURRENT_MEMBER;
	return member;
}

/*
 * Sets the search_path of the last batch for the session.  To be called outside of a transaction.
 * Usually the next batch has the same search_path.  Then no setting changes within its transaction,
 * and undoing a task's settings need not visit all settings.
 */
static void
expect_search_path(void)
{
	if (last_search_path != NULL)
		dw_session_set_path(last_search_path, GUC_ACTION_SET);
}

/* Sets the search_path of the first member, for all members. */
static void
set_batch_search_path(const DwClaim *claim)
{
	char	   *path = dw_claim_text(claim, Anum_task_search_path);

	if (is_same_path(path))
		return;
	dw_session_set_path(path, GUC_ACTION_LOCAL);
	if (last_search_path != NULL)
		pfree(last_search_path);
	last_search_path = path == NULL ? NULL : MemoryContextStrdup(TopMemoryContext, path);
}

/*
 * Returns true if the task that began at this time may have met lock_timeout.  PostgreSQL only
 * reports the time at which the last wait for a lock would have reached the limit.  So the result
 * is true for any task that has waited for a lock and has run for at least lock_wait_ms().
 */
static bool
lock_wait_is_over(TimestampTz began)
{
	return get_timeout_finish_time(LOCK_TIMEOUT) > began &&
		dw_now() - began >= (int64) lock_wait_ms() * 1000;
}

/* Raises an error if the batch has met the limit of its life. */
static void
check_life(void)
{
	if (life_is_over())
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("batch took too long")));
}

/*
 * Raises an error if the task that began at this time has met a limit of the batch.  The task may
 * have caught PostgreSQL's own error, which would not occur if the task ran alone.
 */
static void
check_limits(TimestampTz began)
{
	CHECK_FOR_INTERRUPTS();
	check_life();
	if (lock_wait_is_over(began))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("batch waited for a lock")));
}

/* Runs the SQL of a member, and all code that its own commit would run. */
static void
run_member(DwRun *member, const DwClaim *claim)
{
	TimestampTz began = dw_now();
	int			nest_level = NewGUCNestLevel();

	member->was_run = true;
	debug_query_string = dw_logged_sql(batch.sql);
	pgstat_report_activity(STATE_RUNNING, batch.sql);
	dw_cancel_for_task(batch.me);
	check_life();
	RESUME_CANCEL_INTERRUPTS();
	dw_task_log_begin();
	DW_INJECT("batch-before-sql");
	member->result = dw_run_sql(claim, batch.sql);
	dw_session_finish_work();
	dw_task_log_end();
	check_limits(began);
	HOLD_CANCEL_INTERRUPTS();
	AtEOXact_GUC(false, nest_level);
	dw_session_clean_within();
	member->outcome = DW_DONE;
}

/* Runs a claimed task, if its verdict allows it, and settles the run. */
static void
do_member(DwRun *member, DwClaim *claim)
{
	if (dw_is_to_be_run(member, claim))
		run_member(member, claim);
	if (member->outcome == DW_NOT_ENDED)
		/* if the task runs alone, it gets the same verdict, and its claim can be undone */
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task is paused")));
	dw_settle(batch.db, batch.me, member, claim);
	if (member->was_run)
		DW_INJECT("batch-after-sql");
	debug_query_string = NULL;
	/* the next member must see the rows that dw_settle() has written */
	CommandCounterIncrement();
}

/*
 * Takes the next task for the batch.  Returns false if the batch must end: temporary objects can be
 * removed only after the transaction, and a change of queues, pauses or marks could decide the next
 * task's verdict.  If the batch is then undone, that task would be forgotten without a reason.
 */
static bool
take_next_member(void)
{
	DwDatabase *db = batch.db;
	DwExecutor *me = batch.me;
	DwEntry		before = me->current;
	TimestampTz now = dw_now();
	bool		few_left = false;
	bool		found;

	if (batch.n >= batch.size || dw_batch_is_closed || dw_control_is_touched() ||
		(MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0 ||
		now - batch.started >= (int64) dw_batch_time * 1000)
		return false;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	/* an owner without an executor waits for the whole batch, since batches are short */
	found = !me->must_exit && pg_atomic_read_u32(&me->stale) == DW_FRESH &&
		dw_ready_pop_next(db, me, batch.started, now, &few_left);
	/* the ends of members are counted at the end of the batch */
	if (found && batch.current == CURRENT_FORGOTTEN)
		dw_group_end(db, &before, true, false);
	LWLockRelease(dw_ready_lock(db));
	if (few_left)
		dw_ready_ask_for_load(db, me);
	return found;
}

/* Claims, runs and settles the current task, and the tasks that follow in the batch. */
static void
run_members(void)
{
	const DwEntry *entry = &batch.me->current;
	Relation	rel = dw_claim_open();
	DwTaskFinder finder = {0};

	do
	{
		DwClaim		claim;
		DwClaimResult result;

		batch.current = CURRENT_OPEN;
		MemoryContextReset(batch_context);
		MemoryContextSwitchTo(batch_context);
		dw_renew_snapshot();
		/* a suspect is not claimed here, since the claim may be the cause of the crash */
		result = dw_crashes_of(batch.db->oid, entry->id) > 0 ? DW_CLAIM_REJECTED :
			dw_claim(batch.db, batch.me, rel, &finder, entry, may_join, NULL, &claim);
		/* DW_CLAIM_LOCKED: after the task was taken, an order was set for its queue */
		if (result == DW_CLAIM_REJECTED || result == DW_CLAIM_LOCKED)
		{
			batch.current = CURRENT_LEFT;
			break;
		}
		if (result == DW_CLAIM_CANCELLED)
			dw_task_was_cancelled(batch.db, entry);
		if (result != DW_CLAIMED)
		{
			batch.current = CURRENT_FORGOTTEN;
			continue;
		}
		if (batch.n == 0)
			set_batch_search_path(&claim);
		do_member(add_member(), &claim);
	} while (take_next_member());
	dw_task_find_end(&finder);
	table_close(rel, NoLock);
}

/* For tests: every dw_fail_batches-th batch fails at its commit. */
static void
fail_some(void)
{
#ifdef DW_INJECTION
	static int	n = 0;

	if (dw_fail_batches > 0 && ++n % dw_fail_batches == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("batch failed at its commit")));
#endif
}

/* Runs the batch's transaction. */
static void
run_and_commit(void)
{
	dw_claim_begin_transaction(false);
	dw_each_wing(wing, batch_begins)
		wing->batch_begins();
	batch.started = GetCurrentTransactionStartTimestamp();
	dw_timeout_arm(life_ms());
	dw_open_queries_begin();
	run_members();
	dw_open_queries_end();

	batch.state = BATCH_COMMITTING;
	dw_each_wing(wing, batch_ends)
		wing->batch_ends();
	/* otherwise the timeout would end the wait for a synchronous standby */
	dw_timeout_disarm();
	dw_cancel_forget();
	DW_INJECT("batch-before-commit");
	fail_some();
	dw_claim_commit_transaction(batch.db, batch.members, batch.n);
	batch.state = BATCH_DONE;
	DW_COUNT("batches");
	dw_cancel_forget();
	for (uint32 i = 0; i < batch.n; i++)
	{
		const DwRun *member = &batch.members[i];

		if (member->was_run)
			dw_count_begin(batch.db, batch.me, member->started - member->entry.due);
	}
}

/*
 * For PG_CATCH: aborts the batch's transaction.  Returns the error if a cancel by another session
 * was meant for the current task, and removes the task from the batch.  Returns NULL for other
 * errors: a run alone shows if the task causes the error.
 *
 * lock_timeout may expire just when the lock is granted.  If the next wait for a lock begins before
 * the cancel is noticed, PostgreSQL reports a cancel by another session.
 */
static ErrorData *
undo_batch(void)
{
	bool		in_time = !life_is_over() &&
		(batch.n == 0 || !lock_wait_is_over(batch.members[batch.n - 1].started));
	ErrorData  *error;

	HOLD_INTERRUPTS();
	HOLD_CANCEL_INTERRUPTS();
	disable_all_timeouts(false);
	dw_timeout_disarm();
	dw_cancel_forget();
	MemoryContextSwitchTo(batch_context);
	error = dw_task_error();
	dw_open_queries_forget();
	AbortCurrentTransaction();
	dw_each_wing(wing, batch_undone)
		wing->batch_undone();
	RESUME_INTERRUPTS();

	ereport(DEBUG1,
			(errmsg_internal("delay_wheel undoes a batch of %u tasks: %s", batch.n, error->message)));
	/* if there are other nodes, the cancel may be stray, see run_task.c */
	if (batch.state != BATCH_RUNNING || batch.current != CURRENT_MEMBER || !in_time ||
		error->sqlerrcode != ERRCODE_QUERY_CANCELED || dw_other_nodes_exist())
		return NULL;
	batch.current = CURRENT_FORGOTTEN;
	batch.n--;
	return error;
}

/*
 * Runs the current task, and then other tasks of its lane, in one transaction.  Returns false if
 * the caller must run the current task alone.  If me->in_batch is still set, the caller calls
 * dw_batch_end() before the next task.
 */
bool
dw_run_batch(DwDatabase *db, DwExecutor *me)
{
	int			lock_timeout = LockTimeout;
	ErrorData  *error = NULL;
	bool		done;

	if (batch_context == NULL)
		batch_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel batch",
											  ALLOCSET_DEFAULT_SIZES);

	/* Not by set_config_option(), see expect_search_path(). */
	LockTimeout = LockTimeout > 0 ? Min(LockTimeout, lock_wait_ms()) : lock_wait_ms();
	PG_TRY();
	{
		expect_search_path();
		run_and_commit();
	}
	PG_CATCH();
	{
		error = undo_batch();
	}
	PG_END_TRY();
	LockTimeout = lock_timeout;
	pg_atomic_write_u32(&me->xid, InvalidTransactionId);
	MemoryContextSwitchTo(batch_context);
	done = batch.state == BATCH_DONE;
	dw_task_clean(done && (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0);

	if (error == NULL && !(done && batch.current == CURRENT_LEFT))
		return true;
	/* the current task runs alone from now on, so other processes see it as running */
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_batch_end(db, me);
	LWLockRelease(dw_ready_lock(db));
	if (error == NULL)
		return false;
	dw_fail_task(db, me, error);
	return true;
}

/*---- The end, under the ready lock ----*/

/* Puts all tasks of an undone batch back, the last first, which keeps their order in the list. */
static void
put_all_back(DwDatabase *db, DwExecutor *me)
{
	if (batch.current == CURRENT_OPEN || batch.current == CURRENT_LEFT)
		(void) dw_ready_put_back(db, &me->current, true);
	for (int i = (int) batch.n - 1; i >= 0; i--)
		(void) dw_ready_put_back(db, &batch.members[i].entry,
								 batch.state == BATCH_COMMITTING ||
								 (batch.current == CURRENT_MEMBER && i == batch.n - 1));

	/* other executors may take some of the tasks */
	dw_ask_dispatch(db, DW_AWAKE);
}

/* Counts the end of members for their groups.  The executor counts the current task later. */
static void
end_members(DwDatabase *db)
{
	for (uint32 i = 0; i < batch.n; i++)
		if (batch.current != CURRENT_MEMBER || i < batch.n - 1)
			dw_group_end(db, &batch.members[i].entry, true, false);
}

/* Has the processor load the groups of the members, which dw_batch_end() needs. */
void
dw_batch_expect_end(void)
{
	for (uint32 i = 0; i < batch.n; i++)
		if (dw_entry_has_group(&batch.members[i].entry))
			dw_group_expect(&dw_lanes[batch.members[i].entry.lane], batch.members[i].entry.block);
}

/*
 * Ends the batch, under the ready lock: puts the tasks of an undone batch back, and adapts the size
 * of the lane's next batches: plus one after a full batch, half after an undone batch.  If one of N
 * tasks fails, the size approaches the square root of N, where the cost is lowest.
 */
void
dw_batch_end(DwDatabase *db, DwExecutor *me)
{
	DwLane	   *lane = &dw_lanes[me->current.lane];

	if (batch.state == BATCH_DONE)
	{
		if (batch.n >= lane->batch_size && lane->batch_size < DW_BATCH_MAX)
			lane->batch_size++;
	}
	else
	{
		lane->batch_size = Min(lane->batch_size, batch.size) / 2;
		if (lane->batch_size < 2)
		{
			lane->batch_size = 2;
			lane->alone = ALONE_TASKS;
		}
		put_all_back(db, me);
	}
	end_members(db);
	batch.n = 0;
	me->in_batch = false;
}
