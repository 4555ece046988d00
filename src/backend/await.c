/*-------------------------------------------------------------------------
 *
 * await.c
 *	  delay_await(): waits until a message can be received.
 *
 * Run by sessions.  The procedure is called as a statement of its own.  It commits, and then waits
 * for its latch without snapshot, lock or transaction id.  The timer, or a session that puts
 * messages into a ready list, wakes it, see shmem/receivers.c.  The procedure takes no message: its
 * caller receives afterwards, in a new transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/portal.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/settings.h"
#include "../shmem/queue_limits.h"
#include "../shmem/ready.h"
#include "../shmem/receivers.h"
#include "../shmem/shared.h"
#include "../task/queues.h"
#include "../task/task.h"

/* How long before a timeout of the session the wait ends, in us. */
#define MARGIN_US		(50 * 1000)

PG_FUNCTION_INFO_V1(dw_await);

/* Why the wait has ended. */
typedef enum Awaited
{
	AWAITED_MESSAGE,			/* a message can be received */
	AWAITED_TIMEOUT,
	AWAITED_CHANGE				/* queues or rights may have changed */
} Awaited;

/* Raises an error unless this is a CALL of its own, by a client, outside of a transaction block. */
static void
require_top_level(FunctionCallInfo fcinfo)
{
	const CallContext *call = (const CallContext *) fcinfo->context;
	Node	   *utility = NULL;

	if (ActivePortal != NULL && ActivePortal->stmts != NIL)
		utility = linitial_node(PlannedStmt, ActivePortal->stmts)->utilityStmt;
	if (MyBackendType == B_BACKEND && call != NULL && IsA(call, CallContext) && !call->atomic &&
		utility != NULL && IsA(utility, CallStmt) &&
		castNode(CallStmt, utility)->funcexpr->funcid == fcinfo->flinfo->fn_oid &&
		!TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
			 errmsg("%s cannot run inside a transaction block, a function or DO", "delay_await()"),
			 errdetail("It commits before it waits."),
			 errhint("Use CALL %s as a statement of its own.", "delay_await()")));
}

/*
 * Returns when the wait ends, by dw_uptime(): as asked, or a moment before a timeout of the
 * session.
 */
static int64
deadline_of(int64 asked)
{
	TimestampTz finish = dw_statement_ends_at();
	int64		left = finish == DW_NEVER ? DW_NEVER : finish - GetCurrentTimestamp() - MARGIN_US;

	return left == DW_NEVER ? asked : Min(asked, dw_uptime() + Max(left, 0));
}

/* Ends the wait in shared memory.  Also an exit callback; db is a pointer to the DwDatabase. */
static void
leave_wait(int code, Datum db)
{
	DwDatabase *database = (DwDatabase *) DatumGetPointer(db);

	LWLockAcquire(dw_ready_lock(database), LW_EXCLUSIVE);
	dw_await_leave(database);
	LWLockRelease(dw_ready_lock(database));
}

/*
 * Step Q1 of the model.  Returns true if a message can be received now.  Otherwise registers this
 * session, so that the next message wakes it.
 */
static bool
look_or_register(DwDatabase *db, int16 id)
{
	TimestampTz look_again = DW_NEVER;
	DwQueue    *queue;
	bool		found;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_await_leave(db);
	queue = dw_queue_place_of(db, id);
	if (queue != NULL)
		queue->looked_at = dw_now();
	found = queue != NULL && dw_ready_has_message(db, queue, &look_again);
	if (!found)
		dw_await_enter(db, id);
	LWLockRelease(dw_ready_lock(db));
	/* a limit of the queue holds messages back: the timer wakes us when the limit ends */
	if (!found)
		dw_ask_dispatch(db, look_again);
	return found;
}

/*
 * Sleeps for this time, in ms (-1: without limit), or until the latch is set.  Looks for
 * the end of the client's connection meanwhile, as pq_check_connection() does.
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
		/* so the session ends at CHECK_FOR_INTERRUPTS() */
		ClientConnectionLost = true;
		InterruptPending = true;
	}
}

/*
 * Steps Q2 and Q3: sleeps until this time, or until woken; ends the session if its client is gone.
 */
static void
sleep_until(int64 deadline)
{
	static uint32 cache = 0;
	uint32		wait_event = dw_wait_event(cache, "DelayWheelAwait");
	long		ms = -1;

	/* rounded up, not to wake up a moment before */
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

/* Waits for a message of the queue until the deadline, or until queues have changed. */
static Awaited
await(DwDatabase *db, int16 id, uint32 control, int64 deadline)
{
	for (;;)
	{
		if (look_or_register(db, id))
			return AWAITED_MESSAGE;
		if (dw_uptime() >= deadline)
			return AWAITED_TIMEOUT;
		if (dw_control_read(&db->timer_news) != control)
			return AWAITED_CHANGE;
		sleep_until(deadline);
	}
}

/* Calls await(), and leaves nothing in shared memory, even after an error. */
static Awaited
await_and_leave(DwDatabase *db, int16 id, uint32 control, int64 deadline)
{
	/* set here for static analysis alone */
	Awaited		result = AWAITED_TIMEOUT;

	PG_ENSURE_ERROR_CLEANUP(leave_wait, PointerGetDatum(db));
	{
		result = await(db, id, control, deadline);
	}
	PG_END_ENSURE_ERROR_CLEANUP(leave_wait, PointerGetDatum(db));
	leave_wait(0, PointerGetDatum(db));
	return result;
}

/*
 * Finds the queue, commits, and waits.  Each time that queues have changed, the queue and
 * the right to receive from it are looked up again.
 */
static bool
await_message(const char *name, int64 asked)
{
	Awaited		result;

	do
	{
		DwDatabase *db = dw_require_my_database();
		uint32		control;
		int16		id;

		/* read before the queue, so that a later change is noticed */
		control = dw_control_read(&db->timer_news);
		pg_memory_barrier();
		id = dw_queue_find_to_receive(name);
		dw_warn_not_served(db);
		/* gives up the snapshot and all locks; the new transaction has none */
		SPI_commit();
		db = dw_my_database();
		result = db == NULL ? AWAITED_CHANGE :
			await_and_leave(db, id, control, deadline_of(asked));
	} while (result == AWAITED_CHANGE);
	return result == AWAITED_MESSAGE;
}

/* Returns the INOUT parameter "found" as a row, since a procedure must return a row. */
static Datum
result_row(FunctionCallInfo fcinfo, bool found)
{
	TupleDesc	desc;
	Datum		value = BoolGetDatum(found);
	bool		isnull = false;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type of delay_await() must be a row type");
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), &value, &isnull));
}

/* SQL procedure delay_await(). */
Datum
dw_await(PG_FUNCTION_ARGS)
{
	int64		deadline = DW_NEVER;	/* by dw_uptime() */
	char	   *name;
	bool		found;

	dw_require_right();
	dw_require_shared();
	PreventCommandDuringRecovery("delay_await()");
	require_top_level(fcinfo);
	dw_refuse_null(PG_ARGISNULL(0), "queue name");
	name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	if (!PG_ARGISNULL(1))
		deadline = dw_time_add(dw_uptime(), dw_interval_us(PG_GETARG_INTERVAL_P(1)));
	if (dw_max_await >= 0)
		deadline = Min(deadline, dw_uptime() + (int64) dw_max_await * 1000);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	found = await_message(name, deadline);
	SPI_finish();
	return result_row(fcinfo, found);
}
