/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  delay_done(), delay_release() and delay_extend(): the end or extension of a lease.
 *
 * Run by sessions.  The receiver passes the token of its lease.  If the message's row now has
 * another token, or is gone, the call is too late, and changes nothing.  Otherwise it deletes the
 * row in the caller's transaction, and concludes the message or inserts the row with a new due
 * time.
 *
 * If another transaction has deleted or locked the row, a call waits, as UPDATE does, and then
 * looks again: the other transaction may only have extended the lease, or may be rolled back.  The
 * call does not wait for a receiver that got the message after the end of the lease, since this
 * receiver may have the message for a long time.
 *
 * Steps K1 to K3 of the model in test/model.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/fmgrprotos.h"
#include "backend.h"

PG_FUNCTION_INFO_V1(dw_done);
PG_FUNCTION_INFO_V1(dw_done_all);
PG_FUNCTION_INFO_V1(dw_extend);
PG_FUNCTION_INFO_V1(dw_release);

/* A lease that this transaction has ended.  The end is counted after the commit. */
typedef struct Over
{
	DwLaneRef	lane;
	int16		queue;
	DwOutcome	outcome;		/* DW_NOT_ENDED: released */
	TimestampTz until;			/* when the lease would have ended */
	uint32		counts;			/* see dw_limits_lease_counts() */
	SubTransactionId subid;
} Over;

/* In TopTransactionContext. */
static List *overs = NIL;

/*---- Taking a lease's row ----*/

/*
 * Deletes the row of a message that is leased with this token, and fills in *claim.  Returns false
 * if the lease has another token, or another receiver has the message now.  Waits for other
 * transactions that have locked or deleted the row.  extends: the call extends the lease.  *allowed:
 * the queue of the call's last message, whose receivers were checked; 0 before the first message.
 */
static bool
take_leased(Relation rel, int64 id, int64 token, bool extends, int16 *allowed, DwClaim *claim)
{
	HeapTuple	tuple;
	TM_Result	result;

	do
	{
		DwTaskKey	key;

		CHECK_FOR_INTERRUPTS();
		/* K1 */
		tuple = dw_task_find_noted(rel, id);
		if (tuple == NULL)
			return false;
		dw_task_key(rel, tuple, &key);
		if (!key.is_leased || token != DatumGetInt64(dw_row_column(rel, tuple, Anum_task_token)))
			return false;
		/* the caller has the token, but may have lost the right in the meantime */
		if (key.queue != *allowed)
			dw_queue_require_receiver(key.queue);
		*allowed = key.queue;
		/* other messages of the group may have been received since the end of the lease */
		if (extends && !dw_task_lease_lasts(&key) && dw_group_is_limited(&key))
			return false;
		dw_writes_for(key.owner);
		/* an extended lease still counts in its group */
		if (extends)
			key.group = DW_NO_GROUP;
		if (dw_task_is_cancelled(rel, tuple))
			return false;
		/* K2 */
		result = dw_row_delete(rel, &key);
		/* plain SQL in the current command has deleted the row */
		if (result == TM_SelfModified)
			return false;
		if (result == TM_BeingModified && !dw_row_wait(rel, &key))
			return false;
	} while (result != TM_Ok);
	CommandCounterIncrement();
	dw_claim_read(dw_my_database(), rel, tuple, claim);
	return true;
}

/* Notes that this transaction has ended a lease. */
static void
note_over(const DwClaim *claim, DwOutcome outcome)
{
	DwLaneRef	lane = dw_lane_if_any(claim->key.owner, claim->key.queue, claim->key.priority);
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	Over	   *over = palloc(sizeof(Over));

	*over = (Over) {
		.lane = lane,
		.queue = claim->key.queue,
		.outcome = outcome,
		.until = claim->key.due,
		.counts = dw_limits_lease_counts(dw_lanes[lane.index].queue_place),
		.subid = GetCurrentSubTransactionId()
	};
	overs = lappend(overs, over);
	MemoryContextSwitchTo(old);
}

/*
 * Inserts the row of a message again with this due time; the caller has changed the other columns
 * in claim.  DW_TOUCH_LEASED: the due time is the end of its lease; this process remembers the TID.
 */
void
dw_message_put_back(Relation rel, DwClaim *claim, TimestampTz due, DwTouchKind kind)
{
	DwHint		hint = {.id = claim->key.id, .due = due};

	claim->values[Anum_task_due - 1] = TimestampTzGetDatum(due);
	hint.lane = dw_lane_if_any(claim->key.owner, claim->key.queue, claim->key.priority);
	hint.tid = dw_task_insert_again(rel, claim->values, claim->nulls);
	if (kind == DW_TOUCH_LEASED)
		dw_task_finder_note(hint.id, &hint.tid);
	dw_touch_row(&hint, kind);
}

/*---- Calls of a receiver ----*/

/*
 * Concludes the message as done, with this result (jsonb as text) or NULL.  Returns false if the
 * token is not valid.  *allowed: see take_leased().
 */
static bool
finish_done(int64 id, int64 token, text *result, int16 *allowed)
{
	Relation	rel = dw_tasks_open();
	DwClaim		claim;
	bool		held = take_leased(rel, id, token, false, allowed, &claim);

	if (held)
	{
		DwTaskKey	key = claim.key;
		DwEnded		ended = {
			.key = &key,
			.values = claim.values,
			.nulls = claim.nulls,
			.outcome = DW_DONE,
			.started = dw_claim_leased_at(&claim),
			.reply = result
		};

		/* this attempt was counted when the lease began */
		key.attempts--;
		dw_conclude(&ended);
		note_over(&claim, DW_DONE);
	}
	table_close(rel, NoLock);
	return held;
}

/*
 * Ends the attempt as failed.  The message is due again at due, or after its own pause if due is
 * DW_NEVER, unless it is given up.  Returns false if the token is not valid.
 */
bool
dw_lease_fail(int64 id, int64 token, TimestampTz due, bool give_up, ErrorData *error)
{
	Relation	rel = dw_tasks_open();
	DwClaim		claim;
	int16		allowed = 0;
	bool		held = take_leased(rel, id, token, false, &allowed, &claim);

	if (held)
	{
		/* the attempt was counted when the lease began */
		claim.key.attempts--;
		give_up = dw_attempt_end(rel, &claim, due, give_up, dw_claim_leased_at(&claim),
								 error) == DW_FAILED;
		note_over(&claim, give_up ? DW_FAILED : DW_RETRIED);
	}
	table_close(rel, NoLock);
	return held;
}

/* Reads id and token of a call from SQL.  Raises an error if an argument is null. */
static void
read_lease(FunctionCallInfo fcinfo, const char *function, int64 *id, int64 *token)
{
	dw_require_right_to_write(function);
	dw_refuse_null(PG_ARGISNULL(0), "message id");
	dw_refuse_null(PG_ARGISNULL(1), "token");
	*id = PG_GETARG_INT64(0);
	*token = PG_GETARG_INT64(1);
}

/* SQL function delay_done(). */
Datum
dw_done(PG_FUNCTION_ARGS)
{
	int64		id;
	int64		token;
	text	   *result = NULL;
	int16		allowed = 0;

	read_lease(fcinfo, "delay_done()", &id, &token);
	if (!PG_ARGISNULL(2))
	{
		Datum		json = PG_GETARG_DATUM(2);

		dw_option_refuse_long_json(json, "result");
		result = cstring_to_text(DatumGetCString(DirectFunctionCall1(jsonb_out, json)));
	}
	PG_RETURN_BOOL(finish_done(id, token, result, &allowed));
}

/* Returns the elements of an array of bigint.  Raises an error if an element is null. */
static Datum *
read_numbers(ArrayType *array, const char *what, int *n)
{
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("array of %s must have one dimension", what)));
	return dw_elements_not_null(array, what, n);
}

/* SQL function delay_done_all(). */
Datum
dw_done_all(PG_FUNCTION_ARGS)
{
	MemoryContext context;
	MemoryContext outer;
	Datum	   *ids;
	Datum	   *tokens;
	int			n;
	int			ntokens;
	int			done = 0;
	int16		allowed = 0;

	dw_require_right_to_write("delay_done_all()");
	dw_refuse_null(PG_ARGISNULL(0), "array of ids");
	dw_refuse_null(PG_ARGISNULL(1), "array of tokens");
	ids = read_numbers(PG_GETARG_ARRAYTYPE_P(0), "message id", &n);
	tokens = read_numbers(PG_GETARG_ARRAYTYPE_P(1), "token", &ntokens);
	if (n != ntokens)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("arrays of ids and tokens must have the same length")));
	context = AllocSetContextCreate(CurrentMemoryContext, "delay_done_all", ALLOCSET_DEFAULT_SIZES);
	outer = MemoryContextSwitchTo(context);
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(context);
		if (finish_done(DatumGetInt64(ids[i]), DatumGetInt64(tokens[i]), NULL, &allowed))
			ids[done++] = ids[i];
	}
	MemoryContextSwitchTo(outer);
	MemoryContextDelete(context);
	PG_RETURN_ARRAYTYPE_P(construct_array(ids, done, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
										  TYPALIGN_DOUBLE));
}

/* SQL function delay_extend(). */
Datum
dw_extend(PG_FUNCTION_ARGS)
{
	Relation	rel;
	DwClaim		claim;
	int64		id;
	int64		token;
	int64		lease;
	bool		held;
	int16		allowed = 0;

	read_lease(fcinfo, "delay_extend()", &id, &token);
	lease = dw_span_argument(fcinfo, 2, "lease", 1000);
	rel = dw_tasks_open();
	held = take_leased(rel, id, token, true, &allowed, &claim);
	if (held)
	{
		TimestampTz until = dw_time_add(dw_now(), lease > 0 ? lease :
										dw_queue_defaults(dw_my_database(), claim.key.queue).lease);

		if (until < claim.key.due || !dw_task_lease_lasts(&claim.key))
		{
			dw_touch_leases();
			dw_touch_group(claim.key.queue, claim.key.group);
		}
		dw_message_put_back(rel, &claim, until, DW_TOUCH_LEASED);
	}
	table_close(rel, NoLock);
	PG_RETURN_BOOL(held);
}

/* SQL function delay_release(). */
Datum
dw_release(PG_FUNCTION_ARGS)
{
	Relation	rel;
	DwClaim		claim;
	int64		id;
	int64		token;
	int64		delay;
	bool		held;
	int16		allowed = 0;

	read_lease(fcinfo, "delay_release()", &id, &token);
	delay = dw_span_argument(fcinfo, 2, "delay", 0);
	rel = dw_tasks_open();
	held = take_leased(rel, id, token, false, &allowed, &claim);
	if (held)
	{
		TimestampTz due = delay > 0 ? dw_time_add(dw_now(), delay) : dw_claim_first_due(&claim);
		int			attempts = claim.key.attempts - 1;

		claim.values[Anum_task_attempts - 1] = Int16GetDatum(attempts);
		claim.nulls[Anum_task_attempts - 1] = attempts <= 0;
		dw_row_end_lease(claim.nulls);
		dw_message_put_back(rel, &claim, due, DW_TOUCH_WRITTEN);
		note_over(&claim, DW_NOT_ENDED);
	}
	table_close(rel, NoLock);
	PG_RETURN_BOOL(held);
}

/*---- The end of the transaction ----*/

/* Counts the ends of leases after the commit, and wakes the timer if places were freed. */
static void
count_over(void)
{
	DwDatabase *db = dw_my_pinned_database();
	bool		wake = false;
	ListCell   *lc;

	foreach(lc, db != NULL ? overs : NIL)
	{
		const Over *over = lfirst(lc);
		DwLane	   *lane = &dw_lanes[over->lane.index];

		/* the statistics and the queue's place were released with the lane */
		if (pg_atomic_read_u32(&lane->generation) != over->lane.generation)
		{
			wake |= dw_limits_doubt_leases(db);
			continue;
		}
		dw_count_end(db, lane, over->outcome);
		wake |= dw_limits_lease_over(db->oid, lane->queue_place, over->queue, over->counts,
									 over->until);
	}
	if (wake)
		dw_ask_dispatch(db, DW_AWAKE);
}

static void
lease_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			count_over();
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			break;
		default:
			return;
	}
	/* the end of the transaction frees the memory */
	overs = NIL;
}

/* Forgets the calls of a subtransaction, after its abort.  Ids of subtransactions grow. */
static void
lease_subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent,
					   void *arg)
{
	while (event == SUBXACT_EVENT_ABORT_SUB && overs != NIL &&
		   ((Over *) llast(overs))->subid >= subid)
		overs = list_delete_last(overs);
}

/* Installs the callbacks; called once by the postmaster, after dw_touched_install(). */
void
dw_lease_install(void)
{
	RegisterXactCallback(lease_xact_callback, NULL);
	RegisterSubXactCallback(lease_subxact_callback, NULL);
}
