/*-------------------------------------------------------------------------
 *
 * batch.c
 *	  Several tasks of a lane in one transaction.
 *
 * Run by executors, under a backlog: when a lane has more tasks that are due,
 * most of the cost of a quick one is its transaction.  Nothing is fetched
 * ahead: a batch takes one task after the other from the ready list, as long
 * as its lane has some, and never waits for more.
 *
 * Nobody is to notice, so these are the rules:
 *
 * - Only tasks join that are one plain statement, and have not failed before
 *	 (is_wanted).  What joins is due at the start of the transaction, so now()
 *	 is never before the due time.
 * - There are no subtransactions.  At any error all is undone: the tasks go
 *	 back to the front of the lane's ready list, the one at fault marked to be
 *	 run alone, where errors are the task's own.  Of errors whose fault is not
 *	 known, as at the commit, all are marked.  So each task fails a batch once
 *	 at most.
 * - Deferred triggers fire at the end of each task, as if it were its commit:
 *	 so constraints are checked task by task, under the settings of the task.
 *	 Then its settings are undone, and what else it left is removed.  Where that
 *	 is not possible, or it has used a foreign table, the batch ends.
 * - A task that has met a limit of the batch does not count, even if it has
 *	 caught the error.
 * - A batch lives for MAX_LIFE_MS at most, waits for a lock no longer than
 *	 MAX_LOCK_WAIT_MS, and both are well below deadlock_timeout: whoever waits
 *	 for a batch, and looks for a deadlock after that time, does not find it any
 *	 more.  The task that waited runs alone, where it locks no more than itself.
 * - A cancel from outside is meant for the task that runs: it has failed.
 * - A task that is suspected of having crashed the server does not join.
 *
 * To others a batch is an open transaction whose end decides, as any other:
 * who looks for the row of a task of it waits.  Only a task that runs alone
 * can go on for ever, and so is said to be running.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"

#include "../base/clock.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "../base/settings.h"
#include "../ending/history.h"
#include "../ring/ring.h"
#include "../rows/catalog.h"
#include "../rows/more.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/outcome.h"
#include "../shmem/quits.h"
#include "../shmem/shared.h"
#include "../shmem/stats.h"
#include "../shmem/stop.h"
#include "../shmem/suspects.h"
#include "../task/attempts.h"
#include "../task/my_session.h"
#include "../task/touched.h"
#include "batch.h"
#include "claim.h"
#include "run_task.h"
#include "session.h"
#include "settle.h"
#include "take.h"
#include "task_log.h"
#include "task_timeout.h"

#define MAX_LIFE_MS		100
#define MAX_LOCK_WAIT_MS	10

/* So many tasks run alone where even the smallest batches were undone. */
#define ALONE_TASKS		100

/* The batch that this process runs, if it does. */
static struct
{
	DwDatabase *db;
	DwExecutor *me;
	enum
	{
		BATCH_RUNNING,
		BATCH_COMMITTING,
		BATCH_DONE
	}			state;
	enum
	{
		CURRENT_OPEN,			/* it may become a member */
		CURRENT_MEMBER,			/* it is the last one */
		CURRENT_LEFT,			/* it is to be run alone */
		CURRENT_FORGOTTEN		/* there is nothing to do for it here */
	}			current;
	uint32		size;			/* not more members than that */
	TimestampTz started;
	char	   *search_path;	/* of all members; may be NULL */
	char	   *sql;			/* of the current task */
	uint32		n;
	DwRun		members[DW_BATCH_MAX];
}			batch;

/* What belongs to one task. */
static MemoryContext batch_context = NULL;

/*---- Who may join ----*/

static int
life_ms(void)
{
	return Min(MAX_LIFE_MS, DeadlockTimeout / 2);
}

static int
lock_wait_ms(void)
{
	return Min(MAX_LOCK_WAIT_MS, DeadlockTimeout / 10);
}

/*
 * Do the settings allow it?
 *
 * What takes long is to be logged: nothing of a batch is.
 */
bool
dw_batches_allowed(void)
{
	return dw_batch_tasks > 1 && lock_wait_ms() > 0 && !dw_crashes_forbid_batches() &&
		(dw_log_min_duration < 0 || dw_log_min_duration >= life_ms());
}

/*
 * Is it one statement that reads or writes rows, as far as can be told by its
 * letters?  One that could be, but begins with a comment, say, runs alone.
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

/* They share the setting, which costs more than a comparison. */
static bool
has_same_path(const DwClaim *claim)
{
	char	   *path = dw_claim_text(claim, Anum_task_search_path);

	if (batch.n == 0)
		return true;
	if (path == NULL || batch.search_path == NULL)
		return path == batch.search_path;
	return strcmp(path, batch.search_path) == 0;
}

/*
 * A timeout of its own would have to be watched if it were below the batch's.
 * The end of a run of a recurring task may wait for who changes that.
 */
static bool
may_join(const DwClaim *claim, void *arg)
{
	if (claim->key.attempts != 0 || dw_quit_is_noted(claim->key.id) ||
		dw_mode(claim->values, claim->nulls) != DW_IN_TRANSACTION ||
		claim->key.due > GetCurrentTransactionStartTimestamp() ||
		(claim->terms.timeout > 0 && claim->terms.timeout < life_ms()) ||
		dw_more_has(claim->values, claim->nulls, Anum_task_more, DW_MORE_RECURRING) ||
		!has_same_path(claim))
		return false;
	batch.sql = dw_claim_text(claim, Anum_task_sql);
	return is_plain(batch.sql);
}

/*---- Running ----*/

/* Our timeout is not active any more if it has struck. */
static bool
life_is_over(void)
{
	return !get_timeout_active(STATEMENT_TIMEOUT);
}

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
	me->place.chunk = DW_NO_CHUNK;
}

/* The current task is claimed: it is a member from now on. */
static DwRun *
add_member(const DwEntry *entry)
{
	DwRun	   *member = &batch.members[batch.n++];

	memset(member, 0, sizeof(DwRun));
	member->entry = *entry;
	member->started = batch.me->since;
	batch.current = CURRENT_MEMBER;
	return member;
}

/* The first one's search path is set for all of them. */
static void
set_batch_search_path(const DwClaim *claim)
{
	char	   *path = dw_claim_text(claim, Anum_task_search_path);

	batch.search_path = path == NULL ? NULL : MemoryContextStrdup(TopTransactionContext, path);
	if (path != NULL)
		(void) set_config_option("search_path", path, PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
}

/*
 * May a wait for a lock have been given up in the task that began then?
 * PostgreSQL does not say so: only when the last wait was to be.  One that
 * waited, and took as long altogether, runs alone.
 */
static bool
lock_wait_is_over(TimestampTz began)
{
	return get_timeout_finish_time(LOCK_TIMEOUT) > began &&
		dw_now() - began >= (int64) lock_wait_ms() * 1000;
}

/* A handler of the task may have caught the error: alone it would not have met it. */
static void
check_limits(TimestampTz began)
{
	CHECK_FOR_INTERRUPTS();
	if (life_is_over())
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("batch took too long")));
	if (lock_wait_is_over(began))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("batch waited for a lock")));
}

static void
run_member(DwRun *member, const DwClaim *claim)
{
	TimestampTz began = dw_now();
	int			nest_level = NewGUCNestLevel();

	member->was_run = true;
	debug_query_string = dw_logged_sql(batch.sql);
	pgstat_report_activity(STATE_RUNNING, batch.sql);
	RESUME_CANCEL_INTERRUPTS();
	dw_task_log_begin();
	DW_INJECT("batch-before-sql");
	member->result = dw_run_sql(claim, batch.sql);
	dw_session_finish_work();
	dw_task_log_end();
	dw_task_log_check();
	check_limits(began);
	HOLD_CANCEL_INTERRUPTS();
	AtEOXact_GUC(false, nest_level);
	dw_session_clean_within();
	member->outcome = DW_DONE;
}

static void
do_member(DwRun *member, DwClaim *claim)
{
	if (dw_is_to_be_run(member, claim))
		run_member(member, claim);
	if (member->outcome == DW_NOT_ENDED)
		/* alone, it finds the same, and can be left */
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("task is paused")));
	dw_settle(batch.db, batch.me, member, claim);
	if (member->was_run)
		DW_INJECT("batch-after-sql");
	debug_query_string = NULL;
	/* its own statements have done so; for what is next */
	CommandCounterIncrement();
}

/*
 * Temporary objects are removed after the transaction that has used them.  What
 * a task does to queues, pauses and marks is to be committed before another one
 * is judged by it: else, if all is undone, that one would be forgotten.
 */
static bool
take_next_member(DwEntry *entry)
{
	if (batch.n >= batch.size || dw_batch_is_closed || dw_control_is_touched() ||
		(MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0 ||
		dw_now() - batch.started >= (int64) dw_batch_time * 1000)
		return false;
	return dw_executor_next(batch.me, batch.started, entry);
}

static void
run_members(DwEntry *entry)
{
	Relation	rel = dw_claim_open();

	do
	{
		DwClaim		claim;
		DwClaimResult result;

		batch.current = CURRENT_OPEN;
		MemoryContextReset(batch_context);
		MemoryContextSwitchTo(batch_context);
		dw_claim_snapshot();
		/* the claim itself may be what crashes */
		result = dw_crashes_of(batch.db->oid, entry->id) > 0 ? DW_CLAIM_REJECTED :
			dw_claim(batch.db, batch.me, rel, entry, may_join, NULL, &claim);
		if (result == DW_CLAIM_REJECTED)
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
		do_member(add_member(entry), &claim);
	} while (take_next_member(entry));
	table_close(rel, NoLock);
}

/* For tests: so that all goes the way of what was undone. */
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

/* What came of the members is told, and counted, when it is certain. */
static void
run_and_commit(DwEntry *entry)
{
	dw_claim_begin_transaction();
	dw_history_collect();
	batch.started = GetCurrentTransactionStartTimestamp();
	dw_timeout_arm(life_ms());
	run_members(entry);

	batch.state = BATCH_COMMITTING;
	dw_history_write_collected();
	/* it would cut the wait for a synchronous standby short */
	dw_timeout_disarm();
	dw_cancel_forget();
	DW_INJECT("batch-before-commit");
	fail_some();
	dw_claim_commit_transaction();
	batch.state = BATCH_DONE;
	DW_COUNT("batches");
	dw_cancel_forget();
	for (uint32 i = 0; i < batch.n; i++)
	{
		const DwRun *member = &batch.members[i];

		if (member->was_run)
			dw_count_begin(batch.db, batch.me, member->started - member->entry.due);
		dw_settled(batch.db, member);
	}
}

/*
 * After an error: undoes all.  Returns the error if it is that of a cancel
 * which was meant for the current task, NULL if the fault is to be found when
 * the tasks run alone.
 */
static ErrorData *
undo_batch(void)
{
	bool		in_time = !life_is_over();
	ErrorData  *error;

	HOLD_INTERRUPTS();
	HOLD_CANCEL_INTERRUPTS();
	disable_all_timeouts(false);
	dw_timeout_disarm();
	dw_cancel_forget();
	MemoryContextSwitchTo(batch_context);
	error = dw_take_error();
	dw_task_log_end();
	dw_task_log_explain(error);
	AbortCurrentTransaction();
	dw_history_forget();
	RESUME_INTERRUPTS();

	ereport(DEBUG1,
			(errmsg_internal("delay_wheel undoes a batch of %u tasks: %s", batch.n, error->message)));
	if (batch.state != BATCH_RUNNING || batch.current != CURRENT_MEMBER || !in_time ||
		error->sqlerrcode != ERRCODE_QUERY_CANCELED)
		return NULL;
	batch.current = CURRENT_FORGOTTEN;
	batch.n--;
	return error;
}

/*
 * Runs the current task and others of its lane after it.  False if the current
 * task, which *entry is then, is left, and the batch has ended: it is to be
 * run alone.
 */
bool
dw_run_batch(DwDatabase *db, DwExecutor *me, DwEntry *entry)
{
	int			lock_timeout = LockTimeout;
	ErrorData  *error = NULL;
	bool		done;

	if (batch_context == NULL)
		batch_context = AllocSetContextCreate(TopMemoryContext, "delay_wheel batch",
											  ALLOCSET_DEFAULT_SIZES);

	/*
	 * Not by set_config_option: a change of any setting makes undoing those of
	 * each task look at all there are.
	 */
	LockTimeout = LockTimeout > 0 ? Min(LockTimeout, lock_wait_ms()) : lock_wait_ms();
	PG_TRY();
	{
		run_and_commit(entry);
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
	/* the current task goes on alone: others may know that it can take long */
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_batch_end(db, me);
	LWLockRelease(dw_ready_lock(db));
	if (error == NULL)
		return false;
	dw_fail_task(db, me, entry, error);
	return true;
}

/*---- The end, under the ready lock ----*/

/* In the order in which they were taken: so the last one first. */
static void
put_all_back(DwDatabase *db, DwExecutor *me)
{
	if (batch.current == CURRENT_OPEN || batch.current == CURRENT_LEFT)
		dw_put_back(db, &me->current, true);
	for (int i = (int) batch.n - 1; i >= 0; i--)
		dw_put_back(db, &batch.members[i].entry,
				 batch.state == BATCH_COMMITTING ||
				 (batch.current == CURRENT_MEMBER && i == batch.n - 1));

	/* others may take some of them */
	pg_atomic_write_u32(&db->executors_dirty, 1);
	dw_wake_timer(db, DW_AWAKE);
}

/*
 * Batches grow by one with each that went well, and halve with each that was
 * undone: so where one of N tasks fails they come to about the square root
 * of N, which costs least.
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
	batch.n = 0;
	me->in_batch = false;
}
