/*-------------------------------------------------------------------------
 *
 * receive.c
 *	  delay_receive(), delay_lease() and delay_fail(): receiving and leasing messages.
 *
 * Run by sessions, and by executors whose tasks call these functions.  README.md describes the
 * protocol, and lease.c contains delay_done(), delay_extend() and delay_release().
 *
 * P2 to P5, A1 and A2 are steps of the model in test/model.  The callbacks at the end of a
 * (sub)transaction allocate nothing and cannot fail.  The only lock that they take is the ready
 * lock, once, for the count of received messages of groups (shmem/groups.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "storage/bufmgr.h"
#include "tcop/pquery.h"
#include "utils/portal.h"
#include "utils/tuplestore.h"

#include "../base/inject.h"
#include "backend.h"

/* Limit for the messages that a transaction takes. */
#define MAX_TAKEN		1000

PG_FUNCTION_INFO_V1(dw_receive);
PG_FUNCTION_INFO_V1(dw_lease);
PG_FUNCTION_INFO_V1(dw_fail);

typedef enum TakenState
{
	TAKEN_POPPED,				/* removed from the ready list, and not examined yet */
	TAKEN_RETURNED,				/* goes back into the ready list at the end of the call */
	TAKEN_FORGOTTEN,			/* nothing is left to do */
	TAKEN_HELD,					/* received: its row is deleted */
	TAKEN_LEASED,				/* its row has been moved to the end of a lease */
	TAKEN_ENDED					/* its row is deleted, and its end or next attempt written */
} TakenState;

/* A message that this transaction has taken from a ready list. */
typedef struct Taken
{
	DwEntry		entry;			/* with the row's TID */
	DwLaneRef	lane;			/* at the time of taking; another lane may have the place now */
	int16		queue;
	int32		queue_place;	/* the queue's index in dw_queues at the time of taking */
	DwGroupTaken group;			/* its group, while the message is counted there */
	TakenState	state;
	bool		has_sequel;		/* history, notification or follow-up need the row at the end */
	DwOutcome	outcome;		/* to be counted after the commit */
	TimestampTz since;			/* when it was received */
	TimestampTz until;			/* end of the lease, if TAKEN_LEASED */
	bool		is_last;		/* no attempt is left after this lease */
	uint32		lease_counts;	/* see dw_limits_lease_counts() */
	bool		has_lapsed;		/* after the commit, count a lapsed lease */
	SubTransactionId subid;		/* subtransaction that took it */
	SubTransactionId ended_in;	/* subtransaction that ended it, if TAKEN_ENDED */
} Taken;

/* In TopMemoryContext, MAX_TAKEN elements; in the order in which they were taken. */
static Taken *taken = NULL;
static int	ntaken = 0;

/* The database of the messages, pinned until the end of the transaction. */
static DwDatabase *taken_db = NULL;

DwReceiveWithin dw_receive_within = {false, false};

/* The arguments of a call. */
typedef struct Wish
{
	int16		queue;
	int			n;				/* greatest number of messages */
	int64		lease;			/* us; 0: no lease, received in this transaction */
	const char *receiver;		/* name of the lease's receiver; NULL: unknown */
} Wish;

/*---- Checks of the call ----*/

/*
 * Notes that the session executes this utility statement.  Returns the former note, which the
 * ProcessUtility hook restores at the end.
 */
DwReceiveWithin
dw_receive_enter(const Node *statement)
{
	DwReceiveWithin outer = dw_receive_within;

	dw_receive_within.explain |= IsA(statement, ExplainStmt);
	dw_receive_within.copy_to |= IsA(statement, CopyStmt) &&
		!((const CopyStmt *) statement)->is_from;
	return outer;
}

/*
 * Returns true if a SELECT or a cursor sends the rows of the function to the client.  Returns false
 * for a query in a function, for a cursor that a function reads (such as a loop of PL/pgSQL), and
 * for a statement that writes the rows.
 */
static bool
goes_to_client(const ReturnSetInfo *result)
{
	const QueryDesc *query = ActivePortal != NULL ? ActivePortal->queryDesc : NULL;

	return query != NULL && result->econtext != NULL && query->estate == result->econtext->ecxt_estate &&
		query->dest->mydest != DestSPI;
}

/* Returns true if the plan, or a part of it, evaluates its expressions in this context. */
static bool
is_in_plan(PlanState *plan, void *econtext)
{
	return plan->ps_ExprContext == econtext || planstate_tree_walker(plan, is_in_plan, econtext);
}

/*
 * Does the same for a SELECT that has an INSERT, UPDATE or DELETE of other rows in WITH.  The
 * portal of such a SELECT has no query, and only portals of clients have formats of columns.
 * Returns false for a call in WITH or in a subquery, since the statement may write the rows.
 */
static bool
goes_to_client_beside_writes(const ReturnSetInfo *result)
{
	const EState *estate = result->econtext != NULL ? result->econtext->ecxt_estate : NULL;
	ListCell   *lc;

	if (estate == NULL || ActivePortal == NULL || ActivePortal->strategy != PORTAL_ONE_MOD_WITH ||
		ActivePortal->formats == NULL || !list_member_ptr(ActivePortal->stmts, estate->es_plannedstmt))
		return false;
	foreach(lc, estate->es_subplanstates)
		if (lfirst(lc) != NULL && is_in_plan(lfirst(lc), result->econtext))
			return false;
	return true;
}

/* Raises an error if the call would lose messages silently. */
static void
check_call(FunctionCallInfo fcinfo, const char *function)
{
	const ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	if (dw_receive_within.explain)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot receive messages in EXPLAIN ANALYZE"),
				 errdetail("EXPLAIN ANALYZE would receive the messages, and would not return them to the client.")));
	/* a target list calls the function once for each column of (f(...)).* */
	if (result != NULL && IsA(result, ReturnSetInfo) &&
		!(result->allowedModes & SFRM_Materialize_Preferred))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s must be called in FROM", function),
				 errhint("Use SELECT * FROM %s.", function)));
}

/* Returns the greatest number of messages to take.  Raises an error if it is out of range. */
static int
number_asked_for(FunctionCallInfo fcinfo)
{
	int			n = PG_ARGISNULL(1) ? 1 : PG_GETARG_INT32(1);

	if (n < 1 || n > MAX_TAKEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of messages must be between %d and %d", 1, MAX_TAKEN)));
	if (ntaken >= MAX_TAKEN)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a transaction cannot receive more than %d messages", MAX_TAKEN),
				 errhint("Commit, and receive more messages in another transaction.")));
	return Min(n, MAX_TAKEN - ntaken);
}

/*---- Taking messages from the ready lists ----*/

/*
 * Step P2: takes up to n messages of the queue, adds them to the array taken, and returns their
 * number.  Sets *timeout to the queue's receive_timeout.
 */
static int
pop_messages(DwDatabase *db, const Wish *wish, int n, DwAlone *alone, int *timeout)
{
	DwQueue    *place;
	bool		few_left = false;
	int			first = ntaken;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	place = dw_queue_place_of(db, wish->queue);
	*timeout = place != NULL ? place->receive_timeout : 0;
	while (place != NULL && ntaken < first + n)
	{
		Taken	   *t = &taken[ntaken];

		if (!dw_ready_pop_message(db, place, alone, &t->entry, &few_left))
			break;
		/* Y1 */
		dw_group_taken(&t->entry, &t->group);
		t->lane = dw_lane_ref(&dw_lanes[t->entry.lane]);
		t->queue = wish->queue;
		t->queue_place = place - dw_queues;
		t->state = TAKEN_POPPED;
		t->outcome = DW_NOT_ENDED;
		t->has_lapsed = false;
		t->subid = GetCurrentSubTransactionId();
		/* from now on, the callbacks bring the message back */
		ntaken++;
	}
	LWLockRelease(dw_ready_lock(db));
	DW_INJECT("receive-after-pop");
	if (few_left)
		dw_wake_timer(db, DW_AWAKE);
	return ntaken - first;
}

/* Stops counting this message as received, and wakes the timer if other messages may start now. */
static void
end_count(DwDatabase *db, const Taken *t)
{
	if (dw_limits_received(db->oid, t->queue_place, t->queue))
		dw_ask_dispatch(db, DW_AWAKE);
}

/*
 * Stops counting a message in its group, if any.  begun: the message was received.  leased: the
 * lease is committed.  Returns the time for a check by the timer.  Needs the ready lock.
 */
static TimestampTz
leave_group(Taken *t, bool begun, bool leased)
{
	if (t->group.hash == DW_NO_GROUP ||
		pg_atomic_read_u32(&dw_lanes[t->entry.lane].generation) != t->lane.generation)
		return DW_NEVER;
	return dw_group_end_taken(t->entry.lane, &t->group, begun, leased ? t->until : 0);
}

/*
 * Calls leave_group() for n messages, except those that were taken in an earlier subtransaction
 * than subid.  Takes the ready lock if there are such messages.
 */
static void
leave_groups(DwDatabase *db, Taken *first, int n, SubTransactionId subid, bool committed)
{
	TimestampTz news = DW_NEVER;
	bool		locked = false;

	for (int i = 0; i < n; i++)
	{
		Taken	   *t = &first[i];
		TimestampTz at;

		if (t->group.hash == DW_NO_GROUP || t->subid < subid)
			continue;
		if (!locked)
			LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
		locked = true;
		at = leave_group(t, t->state >= TAKEN_HELD, committed && t->state == TAKEN_LEASED);
		news = Min(news, at);
	}
	if (locked)
		LWLockRelease(dw_ready_lock(db));
	dw_ask_dispatch(db, news);
}

/*
 * Forgets a message that was not received, and stops counting it.  Takes the ready lock if the
 * message has a group.
 */
static void
forget_taken(DwDatabase *db, Taken *t)
{
	t->state = TAKEN_FORGOTTEN;
	end_count(db, t);
	leave_groups(db, t, 1, InvalidSubTransactionId, false);
}

/*
 * Step P4, at the end of a call: puts TAKEN_RETURNED messages back, in their order, removes
 * forgotten messages, and wakes the next waiting session.
 */
static void
finish_call(DwDatabase *db, const Wish *wish)
{
	TimestampTz look_again = DW_NEVER;
	DwQueue    *place;
	int			left = 0;
	bool		put_back = false;

	DW_INJECT("receive-before-return");
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (int i = ntaken - 1; i >= 0; i--)
		if (taken[i].state == TAKEN_RETURNED)
		{
			DwLane	   *lane = &dw_lanes[taken[i].entry.lane];

			put_back = true;
			if (pg_atomic_read_u32(&lane->generation) == taken[i].lane.generation)
				(void) dw_ready_put_back(db, &taken[i].entry, false);
			else
				dw_reload_ask(&db->timer_news, taken[i].entry.due);
			dw_limits_not_begun(db, wish->queue);
			/* Y4: not earlier, so that the message is back when its group opens */
			(void) leave_group(&taken[i], false, false);
			taken[i].state = TAKEN_FORGOTTEN;
			end_count(db, &taken[i]);
		}
	for (int i = 0; i < ntaken; i++)
		if (taken[i].state != TAKEN_FORGOTTEN)
			taken[left++] = taken[i];
	ntaken = left;
	place = dw_queue_place_of(db, wish->queue);
	if (place != NULL)
	{
		/* Q5: the woken session has looked, or no longer has to look */
		place->woken_at = 0;
		place->looked_at = dw_now();
		/* at the end of this lease, leases must be counted again */
		if (wish->lease > 0 && ntaken > 0)
			place->leases_until = Min(place->leases_until, dw_time_add(dw_now(), wish->lease));
		/* if the woken session does not look, the timer wakes another waiting session */
		if (place->waiting > 0 && dw_ready_has_message(db, place, &look_again) &&
			dw_await_wake_one(place))
			look_again = dw_now() + DW_WAKE_AGAIN_US;
		/* messages that a limit blocks can be taken later without becoming ready again */
		if (place->notifies && !dw_ready_has_message(db, place, &look_again))
			place->has_news |= place->turns.n > 0;
		if (place->waiting == 0 && !place->notifies)
			look_again = DW_NEVER;
	}
	/* the timer may have to load a lane again, or to notify a channel */
	if (put_back)
		look_again = DW_AWAKE;
	LWLockRelease(dw_ready_lock(db));
	dw_ask_dispatch(db, look_again);
}

/*---- Claiming them ----*/

/*
 * For dw_claim().  Returns false for an SQL task, which plain SQL has put into the queue, and for a
 * message whose last lease has ended.  In the second case sets *arg to true: the sweeper ends such
 * a message.
 */
static bool
can_be_received(const DwClaim *claim, void *arg)
{
	bool	   *last_has_ended = arg;

	if (claim->nulls[Anum_task_payload - 1])
		return false;
	*last_has_ended = claim->key.is_leased && claim->key.attempts >= claim->terms.max_attempts;
	return !*last_has_ended;
}

/* Marks a message as ended by this (sub)transaction. */
static void
end_taken(Taken *t, DwOutcome outcome)
{
	t->state = TAKEN_ENDED;
	t->outcome = outcome;
	t->ended_in = GetCurrentSubTransactionId();
}

/* Ends a claimed message that must not be received, or puts it back, by the verdict. */
static void
obey_verdict(Relation rel, Taken *t, DwClaim *claim)
{
	ErrorData	error = {.sqlerrcode = claim->sqlstate, .message = unconstify(char *, claim->reason)};

	switch (claim->verdict)
	{
		case DW_RUN:
			Assert(false);
			break;
		case DW_DROP:
		case DW_SKIP:
			end_taken(t, claim->verdict == DW_DROP ? DW_CANCELLED : DW_SKIPPED);
			dw_conclude_row(rel, claim->tuple, &claim->key, t->outcome, NULL);
			break;
		case DW_PUT_BACK:
			dw_message_put_back(rel, claim, claim->key.due, DW_TOUCH_WRITTEN);
			end_taken(t, DW_NOT_ENDED);
			break;
		case DW_REFUSE:
			dw_attempt_fail(claim, claim->key.attempts, 0, &error);
			end_taken(t, DW_FAILED);
			break;
	}
}

/*
 * The group does not allow its message to be received now.  The message is back in a ready list, or
 * goes back at the end of the call.
 */
static void
go_back(DwDatabase *db, Taken *t, DwGroupVerdict verdict)
{
	if (verdict == DW_GROUP_GOES_BACK)
	{
		t->state = TAKEN_RETURNED;
		return;
	}
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_limits_not_begun(db, t->queue);
	LWLockRelease(dw_ready_lock(db));
	forget_taken(db, t);
}

/*
 * Step P3: claims a message that was taken.  Returns true if it is received: *claim then has its
 * row, in the current memory context.
 */
static bool
claim_taken(DwDatabase *db, Relation rel, Taken *t, DwClaim *claim)
{
	DwClaimResult result = DW_CLAIM_UNSEEN;
	bool		last_has_ended = false;

	/* the timer hands messages over a little early, and the clock may have been set back */
	while (t->entry.due > dw_now() && t->entry.due - dw_now() <= DW_HEAD_START_US)
		SPIN_DELAY();
	if (t->entry.due <= dw_now() && !dw_is_paused(db, dw_lanes[t->entry.lane].owner, t->queue))
		result = dw_claim(db, NULL, rel, NULL, &t->entry, can_be_received, &last_has_ended, claim);
	switch (result)
	{
		case DW_CLAIMED:
			t->entry.block = ItemPointerGetBlockNumber(&claim->key.tid);
			t->entry.offset = ItemPointerGetOffsetNumber(&claim->key.tid);
			/* a message that is put back has the same token, and its lapse is counted later */
			t->has_lapsed = claim->key.is_leased && claim->verdict != DW_PUT_BACK;
			if (claim->verdict == DW_RUN)
				return true;
			obey_verdict(rel, t, claim);
			return false;
		case DW_CLAIM_UNSEEN:
			t->state = TAKEN_RETURNED;
			return false;
		case DW_CLAIM_LOCKED:
			/* the end of the other transaction may not be noticed */
			go_back(db, t, dw_group_send_back(db, &t->entry, &t->group, NULL, DW_NEVER, false));
			return false;
		case DW_CLAIM_CANCELLED:
			/* this transaction may have cancelled it: a rollback brings the message back */
			if (dw_control_is_touched())
			{
				end_taken(t, DW_CANCELLED);
				return false;
			}
			dw_task_was_cancelled(db, &t->entry);
			break;
		case DW_CLAIM_NOTHING:
		case DW_CLAIM_REJECTED:
			if (last_has_ended)
				dw_ask_sweeper(db, DW_JOB_LEASES, dw_now());
			/* the lane was released meanwhile, so the entry was compared with another lane */
			if (pg_atomic_read_u32(&dw_lanes[t->entry.lane].generation) != t->lane.generation)
			{
				dw_reload_ask(&db->timer_news, t->entry.due);
				dw_wake_timer(db, DW_AWAKE);
			}
			break;
	}
	forget_taken(db, t);
	return false;
}

/* Adds a claimed message to the result of delay_receive() or, with a token, of delay_lease(). */
static void
put_message(ReturnSetInfo *result, const DwClaim *claim, int64 token)
{
	Datum		values[7];
	bool		nulls[7] = {0};
	Jsonb	   *headers = dw_more_object(claim->values, claim->nulls, Anum_task_more, DW_MORE_HEADERS);
	int			i = 0;

	values[i++] = Int64GetDatum(claim->key.id);
	if (token != 0)
		values[i++] = Int64GetDatum(token);
	/* values stored out of line are deleted with the row */
	values[i++] = PointerGetDatum(PG_DETOAST_DATUM(claim->values[Anum_task_payload - 1]));
	values[i++] = Int32GetDatum(claim->key.attempts + 1);
	values[i++] = TimestampTzGetDatum(dw_claim_first_due(claim));
	nulls[i] = headers == NULL;
	values[i++] = PointerGetDatum(headers);
	nulls[i] = claim->nulls[Anum_task_key - 1];
	if (!nulls[i])
		values[i] = PointerGetDatum(PG_DETOAST_DATUM(claim->values[Anum_task_key - 1]));
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Returns a random token, which is never 0.  Draws several at a time, since a call takes long. */
static int64
new_token(void)
{
	static int64 tokens[64];
	static int	left = 0;

	if (left == 0)
	{
		if (!pg_strong_random(tokens, sizeof(tokens)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate a random token")));
		left = lengthof(tokens);
	}
	return Max(tokens[--left] & PG_INT64_MAX, 1);
}

/*
 * Moves a claimed message to the end of a lease: inserts its row again with a random token.
 * Returns the token.
 */
static int64
lease_claimed(Relation rel, Taken *t, DwClaim *claim, const Wish *wish)
{
	TimestampTz until = dw_time_add(dw_now(), wish->lease);
	int64		token = new_token();
	int			attempts = claim->key.attempts + 1;
	TimestampTz due = dw_claim_first_due(claim);
	Datum	   *values = claim->values;
	bool	   *nulls = claim->nulls;
	ItemPointerData tid;

	values[Anum_task_first_due - 1] = TimestampTzGetDatum(due);
	values[Anum_task_due - 1] = TimestampTzGetDatum(until);
	values[Anum_task_token - 1] = Int64GetDatum(token);
	values[Anum_task_attempts - 1] = Int16GetDatum(Min(attempts, PG_INT16_MAX));
	values[Anum_task_leased_at - 1] = TimestampTzGetDatum(t->since);
	nulls[Anum_task_first_due - 1] = nulls[Anum_task_token - 1] = nulls[Anum_task_attempts - 1] = false;
	nulls[Anum_task_leased_at - 1] = false;
	if (wish->receiver != NULL)
		dw_more_set_text(values, nulls, Anum_task_more, DW_MORE_RECEIVER, wish->receiver);
	else
		dw_more_remove(values, nulls, Anum_task_more, DW_MORE_RECEIVER);
	/* no hint: receivers end most leases, see timer/lease_watch.c */
	tid = dw_task_insert_again(rel, values, nulls);
	dw_task_finder_note(claim->key.id, &tid);
	t->state = TAKEN_LEASED;
	t->until = until;
	t->is_last = attempts >= claim->terms.max_attempts;
	t->lease_counts = dw_limits_lease_counts(t->queue_place);
	return token;
}

/* Receives or leases a claimed message, by the arguments of the call. */
static void
give_claimed(Relation rel, Taken *t, DwClaim *claim, const Wish *wish, ReturnSetInfo *result)
{
	int64		token = 0;

	t->since = dw_now();
	if (wish->lease > 0)
		token = lease_claimed(rel, t, claim, wish);
	else
	{
		t->state = TAKEN_HELD;
		t->outcome = DW_DONE;
		t->has_sequel = claim->key.has_more || dw_wings_want_end(wish->queue, DW_DONE);
	}
	put_message(result, claim, token);
}

/* If the queue has max_running, ensures that the number of leases is counted. */
static void
count_leases(DwDatabase *db, Relation rel, int16 queue)
{
	uint32		changes;

	while (!dw_limits_leases_known(db, queue, &changes))
	{
		TimestampTz next_end;
		uint32		n = dw_leases_count(rel, queue, dw_now(), &next_end);

		if (dw_limits_leases_counted(db, queue, changes, n, next_end))
			break;
	}
}

/* Returns true if this transaction has received messages and has not put all of them back. */
static bool
holds_any(void)
{
	for (int i = 0; i < ntaken; i++)
		if (taken[i].state == TAKEN_HELD)
			return true;
	return false;
}

/*
 * For dw_group_verdict().  Returns false for leases that this transaction has begun, and for leases
 * of cancelled messages.
 */
static bool
counts_in_group(Relation rel, HeapTuple tuple, const DwTaskKey *key)
{
	for (int i = 0; i < ntaken; i++)
		if (taken[i].state == TAKEN_LEASED && taken[i].entry.id == key->id)
			return false;
	return !dw_task_is_cancelled(rel, tuple);
}

/*---- Cursors that have received messages ----*/

/*
 * A cursor that is older than a savepoint survives a rollback to the savepoint, with the rows that
 * it has read but not returned yet.  If these rows are messages, other sessions receive them after
 * the rollback.  So the rollback marks the cursor as failed, as PostgreSQL does with cursors of the
 * subtransaction, and FETCH raises an error.
 */

/* A cursor that has received messages in a subtransaction younger than the cursor. */
typedef struct Reader
{
	SubTransactionId subid;		/* the subtransaction */
	char		name[FLEXIBLE_ARRAY_MEMBER];
} Reader;

/* In TopTransactionContext, whose memory the end of the transaction frees. */
static List *readers = NIL;

/*
 * Notes the cursors that run the current query, directly or through functions, and that are older
 * than the current subtransaction.  The query has received messages.
 */
static void
note_cursors(void)
{
	SubTransactionId subid = GetCurrentSubTransactionId();

	if (!IsSubTransaction())
		return;
	(void) SPI_connect();
	/* all cursors, including cursors of the protocol */
	if (SPI_execute("SELECT c.name FROM pg_catalog.pg_cursor() c", true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list cursors");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		const char *name = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1);
		Portal		portal = GetPortalByName(name);
		MemoryContext old;
		Reader	   *reader;

		if (portal->status != PORTAL_ACTIVE || portal->createSubid >= subid)
			continue;
		old = MemoryContextSwitchTo(TopTransactionContext);
		reader = palloc(offsetof(Reader, name) + strlen(name) + 1);
		reader->subid = subid;
		strcpy(reader->name, name);
		readers = lappend(readers, reader);
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
}

/*
 * Marks the cursors that have received messages in this aborted subtransaction as failed.  Ids of
 * subtransactions grow, so subtransactions that were released into this subtransaction have higher
 * ids.  Active cursors do not fail: a function that the cursor calls has undone its own messages.
 * Younger cursors with the same name do not fail.  For callbacks: this function allocates nothing,
 * and cannot fail, since PostgreSQL does not shut down the query of a failed cursor.
 */
static void
undo_cursors(SubTransactionId subid)
{
	while (readers != NIL && ((Reader *) llast(readers))->subid >= subid)
	{
		Portal		portal = GetPortalByName(((Reader *) llast(readers))->name);

		if (portal != NULL && portal->status == PORTAL_READY && portal->createSubid < subid)
			MarkPortalFailed(portal);
		readers = list_delete_last(readers);
	}
}

/*---- The calls ----*/

/* Takes messages of the queue by the arguments of the call. */
static void
receive(DwDatabase *db, const Wish *wish, ReturnSetInfo *result)
{
	Relation	rel = dw_claim_open();
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "delay_receive",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext outer = MemoryContextSwitchTo(context);
	int			n = wish->n;
	int			popped;
	int			timeout = 0;
	DwAlone		alone = wish->lease > 0 ? DW_ALONE_NO_MATTER :
		holds_any() ? DW_ALONE_REFUSED : DW_ALONE_ALLOWED;

	count_leases(db, rel, wish->queue);
	while (n > 0 && ntaken < MAX_TAKEN &&
		   (popped = pop_messages(db, wish, Min(n, MAX_TAKEN - ntaken), &alone, &timeout)) > 0)
		for (int i = ntaken - popped; popped > 0; i++, popped--)
		{
			Taken	   *t = &taken[i];
			DwGroupVerdict verdict;
			DwClaim		claim;

			CHECK_FOR_INTERRUPTS();
			MemoryContextReset(context);
			verdict = dw_group_verdict(db, rel, t->queue, &t->entry, &t->group, counts_in_group);
			if (verdict != DW_GROUP_CLAIM)
				go_back(db, t, verdict);
			else if (claim_taken(db, rel, t, &claim))
			{
				DW_INJECT("receive-after-claim");
				give_claimed(rel, t, &claim, wish, result);
				n--;
			}
		}
	MemoryContextSwitchTo(outer);
	MemoryContextDelete(context);
	table_close(rel, NoLock);
	if (n == wish->n || wish->lease > 0)
		return;
	/* leases have no such cursors, since they begin outside of transaction blocks */
	note_cursors();
	/* the session ends if this transaction is idle for the queue's receive_timeout */
	if (timeout > 0 &&
		(IdleInTransactionSessionTimeout <= 0 || IdleInTransactionSessionTimeout > timeout))
		(void) set_config_option("idle_in_transaction_session_timeout", psprintf("%d", timeout),
								 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

/* Does the work of delay_receive() and delay_lease().  The first argument is the queue's name. */
static Datum
receive_or_lease(FunctionCallInfo fcinfo, int64 lease, bool leasing)
{
	DwDatabase *db;
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Wish		wish = {.n = number_asked_for(fcinfo)};

	InitMaterializedSRF(fcinfo, 0);
	wish.queue = dw_queue_find_to_receive(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	db = dw_my_database();
	if (db == NULL)
	{
		dw_warn_no_place();
		return (Datum) 0;
	}
	if (leasing && !PG_ARGISNULL(3))
	{
		text	   *receiver = PG_GETARG_TEXT_PP(3);

		dw_option_check_text(receiver, "receiver");
		wish.receiver = text_to_cstring(receiver);
	}
	if (leasing)
		wish.lease = lease > 0 ? lease : dw_queue_defaults(db, wish.queue).lease;
	if (taken == NULL)
		taken = MemoryContextAlloc(TopMemoryContext, MAX_TAKEN * sizeof(Taken));
	taken_db = db;
	receive(db, &wish, result);
	finish_call(db, &wish);
	if (tuplestore_tuple_count(result->setResult) == 0)
		dw_warn_not_served(db);
	/* a receiver with an open transaction blocks DDL, see give_way.c */
	if (wish.lease == 0 && ntaken > 0)
		dw_wake_timer(db, dw_now() + DW_GIVE_WAY_US);
	return (Datum) 0;
}

/* SQL function delay_receive(). */
Datum
dw_receive(PG_FUNCTION_ARGS)
{
	const ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		autocommit = !PG_ARGISNULL(2) && PG_GETARG_BOOL(2);

	dw_require_right_to_write("delay_receive()");
	dw_refuse_null(PG_ARGISNULL(0), "queue name");
	check_call(fcinfo, "delay_receive()");
	/* a SELECT, COPY or cursor whose rows go to the client commits before the client has seen them */
	if (!autocommit && result != NULL && !IsTransactionBlock() &&
		(dw_receive_within.copy_to || goes_to_client(result) ||
		 goes_to_client_beside_writes(result)))
		ereport(ERROR,
				(errcode(ERRCODE_NO_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s needs a transaction block", "delay_receive()"),
				 errdetail("Outside of a transaction block, the statement commits before the client has seen the messages."),
				 errhint("Use BEGIN and COMMIT, or autocommit => true if losing messages does not matter.")));
	return receive_or_lease(fcinfo, 0, false);
}

/* SQL function delay_lease(). */
Datum
dw_lease(PG_FUNCTION_ARGS)
{
	const ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int64		lease;

	dw_require_right_to_write("delay_lease()");
	dw_refuse_null(PG_ARGISNULL(0), "queue name");
	lease = dw_span_argument(fcinfo, 2, "lease", 1000);
	check_call(fcinfo, "delay_lease()");
	/* needs a SELECT of a client; in a pipeline, a later statement may undo the SELECT */
	if (MyBackendType != B_BACKEND || IsTransactionBlock() ||
		(MyXactFlags & XACT_FLAGS_PIPELINING) != 0 || result == NULL || !goes_to_client(result))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run inside a transaction block, a function or DO", "delay_lease()"),
				 errdetail("A lease begins when the statement commits."),
				 errhint("Use SELECT * FROM %s as a statement of its own.", "delay_lease()")));
	/* in a pipeline, the next statements must not belong to this transaction */
	MyXactFlags |= XACT_FLAGS_NEEDIMMEDIATECOMMIT;
	/* a crash must not lose the lease of a client, even if synchronous_commit is off */
	ForceSyncCommit();
	return receive_or_lease(fcinfo, lease, true);
}

/* ---- Putting a message back ---- */

/* Returns the message with this id that this transaction has received and not put back, or NULL. */
static Taken *
find_held(int64 id)
{
	for (int i = 0; i < ntaken; i++)
		if (taken[i].entry.id == id && taken[i].state == TAKEN_HELD)
			return &taken[i];
	return NULL;
}

/* Returns a copy of the row of a message that this transaction has received. */
static HeapTuple
fetch_held(Relation rel, const Taken *t)
{
	HeapTupleData tuple;
	HeapTuple	copy;
	Buffer		buffer;

	ItemPointerSet(&tuple.t_self, t->entry.block, dw_entry_offset(&t->entry));
	if (!heap_fetch(rel, SnapshotAny, &tuple, &buffer, false))
		elog(ERROR, "could not find the row of message %lld", (long long) t->entry.id);
	copy = heap_copytuple(&tuple);
	ReleaseBuffer(buffer);
	return copy;
}

/* SQL function delay_fail(). */
Datum
dw_fail(PG_FUNCTION_ARGS)
{
	ErrorData	error = {.sqlerrcode = DW_ERRCODE_REPORTED, .message = "the receiver has reported a failure"};
	TimestampTz due = DW_NEVER;
	bool		give_up = !PG_ARGISNULL(4) && PG_GETARG_BOOL(4);
	Relation	rel;
	DwClaim		claim;
	Taken	   *t;

	dw_require_right_to_write("delay_fail()");
	dw_refuse_null(PG_ARGISNULL(0), "message id");
	if (!PG_ARGISNULL(2))
	{
		text	   *message = PG_GETARG_TEXT_PP(2);

		/* the log gets the same length of the text as for errors of SQL tasks */
		error.message = TextDatumGetCString(dw_clipped_text(VARDATA_ANY(message), VARSIZE_ANY_EXHDR(message),
															DW_MAX_ERROR_TEXT));
	}
	if (!PG_ARGISNULL(3))
		due = dw_time_add(dw_now(), dw_span_argument(fcinfo, 3, "retry_in", 0));
	if (!PG_ARGISNULL(1))
		PG_RETURN_BOOL(dw_lease_fail(PG_GETARG_INT64(0), PG_GETARG_INT64(1), due, give_up, &error));

	t = find_held(PG_GETARG_INT64(0));
	if (t == NULL)
		PG_RETURN_BOOL(false);
	/* this transaction may have dropped the queue */
	if (!dw_queue_keep(t->queue))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the queue of message %lld does not exist any more", (long long) t->entry.id)));
	rel = dw_claim_open();
	dw_claim_read(taken_db, rel, fetch_held(rel, t), &claim);
	end_taken(t, dw_attempt_end(rel, &claim, due, give_up, t->since, &error));
	table_close(rel, NoLock);
	PG_RETURN_BOOL(true);
}

/*---- The end of the transaction ----*/

/* Concludes a message whose history, notification or follow-up needs the row. */
static void
conclude_held(Relation rel, const Taken *t)
{
	HeapTuple	tuple = fetch_held(rel, t);
	DwTaskKey	key;
	Datum	   *values;
	bool	   *nulls;

	dw_task_key(rel, tuple, &key);
	dw_deform(rel, tuple, &values, &nulls);
	dw_conclude(&(DwEnded) {
		.key = &key,.values = values,.nulls = nulls,.outcome = DW_DONE,.started = t->since
	});
}

/* Concludes the messages that were received and not put back, before the commit. */
static void
conclude_all(void)
{
	MemoryContext context;
	MemoryContext outer;
	Relation	rel;

	if (ntaken == 0 || !dw_catalog_is_there())
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "delay_receive", ALLOCSET_DEFAULT_SIZES);
	outer = MemoryContextSwitchTo(context);
	PushActiveSnapshot(GetTransactionSnapshot());
	rel = dw_claim_open();
	for (int i = 0; i < ntaken; i++)
	{
		if (taken[i].state != TAKEN_HELD)
			continue;
		if (taken[i].has_sequel)
			conclude_held(rel, &taken[i]);
		else
			dw_touch_ended(taken[i].entry.id, DW_DONE);
		MemoryContextReset(context);
	}
	table_close(rel, NoLock);
	PopActiveSnapshot();
	MemoryContextSwitchTo(outer);
	MemoryContextDelete(context);
}

/* Updates the counts after the commit. */
static void
count_all(void)
{
	TimestampTz first_end = DW_NEVER;	/* first end of the leases */
	TimestampTz last_chance = DW_NEVER; /* first end of the leases that are a last attempt */

	for (int i = 0; i < ntaken; i++)
	{
		DwLane	   *lane = &dw_lanes[taken[i].entry.lane];
		uint64		late = Max(taken[i].since - taken[i].entry.due, 0);

		if (taken[i].has_lapsed)
			dw_limits_lease_lapsed(taken_db->oid, taken[i].queue_place, taken[i].queue);
		if (taken[i].state == TAKEN_LEASED)
		{
			dw_limits_lease_begins(taken_db->oid, taken[i].queue_place, taken[i].queue,
								   taken[i].lease_counts);
			first_end = Min(first_end, taken[i].until);
			if (taken[i].is_last)
				last_chance = Min(last_chance, taken[i].until);
		}
		/* count the lease first: at each moment, the message must count as leased or received */
		end_count(taken_db, &taken[i]);
		/* the statistics were released with the lane */
		if (pg_atomic_read_u32(&lane->generation) != taken[i].lane.generation)
			continue;
		dw_rollback_forget(&taken_db->rollbacks, taken[i].entry.id);
		dw_count_end(taken_db, lane, taken[i].outcome);
		if (taken[i].outcome == DW_DONE || taken[i].state == TAKEN_LEASED)
		{
			dw_count_lateness(&taken_db->lateness, late);
			dw_count_lane_lateness(&lane->lateness, late);
		}
	}
	/* not earlier: other sessions see the leases only after the commit */
	leave_groups(taken_db, taken, ntaken, InvalidSubTransactionId, true);
	/* V1 */
	if (first_end != DW_NEVER && dw_lease_end_ask(&taken_db->timer_news, first_end))
		dw_wake_timer(taken_db, first_end);
	if (last_chance != DW_NEVER)
		dw_ask_sweeper(taken_db, DW_JOB_LEASES, last_chance);
	ntaken = 0;
}

/*
 * Counts a rollback of the message's receiver.  Returns true after too many rollbacks in a row, if
 * the transaction had received no other message.  Then the sweeper counts the attempt, and the
 * message is due after a pause.
 */
static bool
leave_to_sweeper(const Taken *t, bool alone)
{
	/* only messages that the client has received and not put back */
	if (t->state != TAKEN_HELD ||
		dw_rollback_note(&taken_db->rollbacks, t->entry.id) < DW_ROLLBACKS_FREE + 1 || !alone ||
		!dw_rollback_hand_over(&taken_db->rollbacks, t->entry.id))
		return false;
	dw_ask_sweeper(taken_db, DW_JOB_ROLLBACKS, dw_now());
	return true;
}

/*
 * Step A2, after an abort: brings back the messages that this subtransaction or later
 * subtransactions have taken.
 */
static void
bring_back(SubTransactionId subid)
{
	int			held = 0;
	int			left = 0;

	leave_groups(taken_db, taken, ntaken, subid, false);
	for (int i = 0; i < ntaken; i++)
		held += taken[i].subid >= subid && taken[i].state == TAKEN_HELD;
	for (int i = 0; i < ntaken; i++)
	{
		Taken	   *t = &taken[i];

		if (t->subid >= subid)
		{
			DwHint		hint = {.id = t->entry.id, .due = t->entry.due, .lane = t->lane};

			if (t->state == TAKEN_FORGOTTEN)
				continue;
			ItemPointerSet(&hint.tid, t->entry.block, dw_entry_offset(&t->entry));
			end_count(taken_db, t);
			if (!leave_to_sweeper(t, held == 1))
				dw_deliver(taken_db, &hint);
			continue;
		}
		if (t->state == TAKEN_ENDED && t->ended_in >= subid)
		{
			t->state = TAKEN_HELD;
			t->outcome = DW_DONE;
		}
		taken[left++] = *t;
	}
	ntaken = left;
}

static void
receive_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			conclude_all();
			break;
		case XACT_EVENT_PRE_PREPARE:
			if (ntaken > 0)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that has received messages")));
			break;
		case XACT_EVENT_PREPARE:
			/* savepoints have rolled back all received messages */
			readers = NIL;
			dw_xid_withdraw(DW_RECEIVING);
			break;
		case XACT_EVENT_COMMIT:
			if (ntaken > 0)
				DW_INJECT("receive-commit");
			readers = NIL;
			dw_xid_withdraw(DW_RECEIVING);
			count_all();
			break;
		case XACT_EVENT_ABORT:
			readers = NIL;
			dw_xid_withdraw(DW_RECEIVING);
			bring_back(InvalidSubTransactionId);
			break;
		default:
			break;
	}
}

/* Undoes the work of a subtransaction, after its abort.  Ids of subtransactions grow. */
static void
receive_subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent,
						 void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		undo_cursors(subid);
		bring_back(subid);
	}
}

/*
 * Installs the callbacks; called once by the postmaster, whose children inherit them.  To be called
 * after dw_touched_install(): callbacks that are installed later run first, and the callbacks of
 * touched.c release the database's pin.
 */
void
dw_receive_install(void)
{
	RegisterXactCallback(receive_xact_callback, NULL);
	RegisterSubXactCallback(receive_subxact_callback, NULL);
}
