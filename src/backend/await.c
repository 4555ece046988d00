/*-------------------------------------------------------------------------
 *
 * await.c
 *	  delay_await(), delay_await_any(): wait until a message can be received; delay_end_await().
 *
 * Run by sessions.  The procedures are called as statements of their own, commit, and wait for the
 * latch, which the timer sets, or a session that puts messages into a ready list
 * (shmem/published.c).  They receive no message: the caller does this in a new transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/parsenodes.h"
#include "pgstat.h"
#include "storage/procarray.h"
#include "tcop/pquery.h"
#include "utils/portal.h"
#include "backend.h"

/* The wait ends this time before a timeout of the session, in us. */
#define MARGIN_US		(50 * 1000)

PG_FUNCTION_INFO_V1(dw_await);
PG_FUNCTION_INFO_V1(dw_await_any);
PG_FUNCTION_INFO_V1(dw_end_await);

/* The queues that a session waits for. */
typedef struct Awaiting
{
	int			n;
	char	   *names[DW_MAX_AWAITED];
	int16		ids[DW_MAX_AWAITED];
	bool		found[DW_MAX_AWAITED];	/* has a message that can be received */
} Awaiting;

/* Why the wait has ended. */
typedef enum Awaited
{
	AWAITED_NOTHING,			/* it has not ended */
	AWAITED_MESSAGE,			/* a message can be received */
	AWAITED_END,				/* timeout, or delay_end_await() */
	AWAITED_CHANGE				/* queues or rights may have changed */
} Awaited;

/*
 * Returns the end of the wait, by dw_uptime(): the given time, or a moment before a timeout of the
 * session.
 */
static int64
deadline_of(int64 asked)
{
	TimestampTz finish = dw_statement_ends_at();
	int64		left = finish == DW_NEVER ? DW_NEVER : finish - GetCurrentTimestamp() - MARGIN_US;

	return left == DW_NEVER ? asked : Min(asked, dw_uptime() + Max(left, 0));
}

/* Ends the wait in shared memory.  Returns true if delay_end_await() has asked for that. */
static bool
leave_wait(DwDatabase *db)
{
	bool		end_asked;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	end_asked = dw_await_leave(db);
	LWLockRelease(dw_ready_lock(db));
	return end_asked;
}

/* Exit callback; db is a pointer to the DwDatabase. */
static void
leave_wait_at_exit(int code, Datum db)
{
	(void) leave_wait((DwDatabase *) DatumGetPointer(db));
}

/*
 * Step Q1 of the model.  Returns AWAITED_MESSAGE if a message of one of the queues can be received
 * now, and notes these queues.  Returns AWAITED_END after delay_end_await().  Otherwise registers
 * this session: the next message wakes it.
 */
static Awaited
look_or_register(DwDatabase *db, Awaiting *awaiting)
{
	TimestampTz look_again = DW_NEVER;
	bool		any = false;
	bool		end_asked;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	end_asked = dw_await_leave(db);
	for (int i = 0; i < awaiting->n; i++)
	{
		TimestampTz when = DW_NEVER;
		DwQueue    *queue = dw_queue_place_of(db, awaiting->ids[i]);

		if (queue != NULL)
			queue->looked_at = dw_now();
		awaiting->found[i] = queue != NULL && dw_ready_has_message(db, queue, &when);
		any |= awaiting->found[i];
		look_again = Min(look_again, when);
	}
	if (!any && !end_asked)
		dw_await_enter(db, awaiting->ids, awaiting->n);
	LWLockRelease(dw_ready_lock(db));
	if (any)
		return AWAITED_MESSAGE;
	if (end_asked)
		return AWAITED_END;
	/* a limit of a queue may block messages: at its end, the timer wakes this session */
	dw_ask_dispatch(db, look_again);
	return AWAITED_NOTHING;
}

/*
 * Sleeps for this time, in ms (-1: without limit), or until the latch is set.  Meanwhile checks for
 * the end of the client's connection, as pq_check_connection() does.
 */
static void
sleep_watching_client(long ms, uint32 wait_event)
{
	WaitEvent	event;

	ModifyWaitEvent(FeBeWaitSet, DW_CLIENT_SOCKET, WL_SOCKET_CLOSED, NULL);
	if (WaitEventSetWait(FeBeWaitSet, ms, &event, 1, wait_event) == 0)
		return;
	if (event.events & WL_POSTMASTER_DEATH)
		proc_exit(1);
	if (event.events & WL_SOCKET_CLOSED)
	{
		/* not an error: a client may go away while its session waits */
		pgStatSessionEndCause = DISCONNECT_CLIENT_EOF;
		proc_exit(0);
	}
}

/* Steps Q2 and Q3: sleeps until this time or a wakeup.  Ends the session if its client is gone. */
static void
sleep_until(int64 deadline)
{
	static uint32 cache = 0;
	uint32		wait_event = dw_wait_event(cache, "DelayWheelAwait");
	long		ms = -1;

	/* rounded up, so that the session does not wake up too early */
	if (deadline != DW_NEVER)
		ms = Min((Max(deadline - dw_uptime(), 0) + 999) / 1000, INT_MAX);
	if (FeBeWaitSet != NULL && WaitEventSetCanReportClosed())
		sleep_watching_client(ms, wait_event);
	else
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (ms >= 0 ? WL_TIMEOUT : 0),
						 ms, wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Waits for a message of the queues until the deadline, or until queues have changed.  Then removes
 * the session from shared memory, even after an error.
 */
static Awaited
await(DwDatabase *db, Awaiting *awaiting, uint32 control, int64 deadline)
{
	Awaited		result = AWAITED_NOTHING;

	PG_ENSURE_ERROR_CLEANUP(leave_wait_at_exit, PointerGetDatum(db));
	{
		for (;;)
		{
			result = look_or_register(db, awaiting);
			if (result == AWAITED_NOTHING && dw_uptime() >= deadline)
				result = AWAITED_END;
			if (result == AWAITED_NOTHING && dw_control_read(&db->timer_news) != control)
				result = AWAITED_CHANGE;
			if (result != AWAITED_NOTHING)
				break;
			sleep_until(deadline);
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(leave_wait_at_exit, PointerGetDatum(db));
	if (leave_wait(db) && result == AWAITED_CHANGE)
		return AWAITED_END;
	return result;
}

/*
 * Finds the queues, commits, and waits.  After each change of queues, looks up the queues and the
 * rights to receive from them again.
 */
static bool
await_message(Awaiting *awaiting, int64 asked)
{
	Awaited		result;

	do
	{
		DwDatabase *db = dw_require_my_database();
		uint32		control;

		/* read before the queues, so that a later change is noticed */
		control = dw_control_read(&db->timer_news);
		pg_memory_barrier();
		for (int i = 0; i < awaiting->n; i++)
			awaiting->ids[i] = dw_queue_find_to_receive(awaiting->names[i]);
		dw_warn_not_served(db);
		/* releases the snapshot and all locks; the new transaction has no snapshot and no locks */
		SPI_commit();
		db = dw_my_database();
		result = db == NULL ? AWAITED_CHANGE : await(db, awaiting, control, deadline_of(asked));
	} while (result == AWAITED_CHANGE);
	return result == AWAITED_MESSAGE;
}

/*
 * Raises an error unless the session can wait, a client executes CALL as a single statement,
 * outside of a transaction, and argument 0 is given.  name: the name of the procedure.
 */
static void
require_waiting(FunctionCallInfo fcinfo, const char *name)
{
	const CallContext *call = (const CallContext *) fcinfo->context;
	Node	   *utility = NULL;

	dw_require_right();
	dw_require_shared();
	PreventCommandDuringRecovery(name);
	if (ActivePortal != NULL && ActivePortal->stmts != NIL)
		utility = linitial_node(PlannedStmt, ActivePortal->stmts)->utilityStmt;
	if (MyBackendType != B_BACKEND || call == NULL || !IsA(call, CallContext) || call->atomic ||
		utility == NULL || !IsA(utility, CallStmt) ||
		castNode(CallStmt, utility)->funcexpr->funcid != fcinfo->flinfo->fn_oid ||
		TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run inside a transaction block, a function or DO", name),
				 errdetail("The procedure commits before it waits."),
				 errhint("Use CALL %s as a statement of its own.", name)));
	dw_refuse_null(PG_ARGISNULL(0), "queue name");
}

/* Waits for a message, up to the time of argument 1.  Returns true if a queue has a message. */
static bool
wait_for_queues(FunctionCallInfo fcinfo, Awaiting *awaiting)
{
	int64		deadline = DW_NEVER;	/* by dw_uptime() */
	bool		found;

	if (!PG_ARGISNULL(1))
		deadline = dw_time_add(dw_uptime(), dw_interval_us(PG_GETARG_INTERVAL_P(1)));
	if (dw_max_await >= 0)
		deadline = Min(deadline, dw_uptime() + (int64) dw_max_await * 1000);
	(void) SPI_connect_ext(SPI_OPT_NONATOMIC);
	found = await_message(awaiting, deadline);
	SPI_finish();
	return found;
}

/* SQL procedure delay_await(). */
Datum
dw_await(PG_FUNCTION_ARGS)
{
	Awaiting   *awaiting = palloc0(sizeof(Awaiting));

	require_waiting(fcinfo, "delay_await()");
	awaiting->n = 1;
	awaiting->names[0] = text_to_cstring(PG_GETARG_TEXT_PP(0));
	/* a procedure returns its INOUT parameters as a row */
	return dw_make_row(fcinfo, &DW_BOOL(wait_for_queues(fcinfo, awaiting)), 1);
}

/* SQL procedure delay_await_any().  "found" gets the names of the queues that have a message. */
Datum
dw_await_any(PG_FUNCTION_ARGS)
{
	Awaiting   *awaiting = palloc0(sizeof(Awaiting));
	ArrayBuildState *found = NULL;
	DwColumn	column = DW_NULL(TEXTARRAYOID);
	Datum	   *names;

	require_waiting(fcinfo, "delay_await_any()");
	names = dw_elements_not_null(PG_GETARG_ARRAYTYPE_P(0), "queue name", &awaiting->n);
	if (awaiting->n < 1 || awaiting->n > DW_MAX_AWAITED)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("delay_await_any() waits for 1 to %d queues, not %d", DW_MAX_AWAITED, awaiting->n)));
	for (int i = 0; i < awaiting->n; i++)
		awaiting->names[i] = TextDatumGetCString(names[i]);
	if (wait_for_queues(fcinfo, awaiting))
		for (int i = 0; i < awaiting->n; i++)
			if (awaiting->found[i])
				found = accumArrayResult(found, CStringGetTextDatum(awaiting->names[i]), false, TEXTOID, CurrentMemoryContext);
	if (found != NULL)
		column = (DwColumn) {TEXTARRAYOID, makeArrayResult(found, CurrentMemoryContext), false};
	return dw_make_row(fcinfo, &column, 1);
}

/*
 * SQL function delay_end_await(): ends the wait of the session with this pid.  Its caller has the
 * rights of that session's role.
 */
Datum
dw_end_await(PG_FUNCTION_ARGS)
{
	PGPROC	   *proc;
	DwDatabase *db;
	pid_t		pid;
	bool		ended;

	dw_require_right();
	dw_require_shared();
	dw_refuse_null(PG_ARGISNULL(0), "process id");
	pid = PG_GETARG_INT32(0);
	db = dw_my_database();
	proc = BackendPidGetProc(pid);
	if (db == NULL || proc == NULL)
		PG_RETURN_BOOL(false);
	if (!has_privs_of_role(GetUserId(), proc->roleId))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to end the wait of process %d", (int) pid),
				 errdetail("Only members of the role of that session, and superusers, may end its wait.")));
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	ended = dw_await_end(db, pid);
	LWLockRelease(dw_ready_lock(db));
	PG_RETURN_BOOL(ended);
}
