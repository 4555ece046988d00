/*-------------------------------------------------------------------------
 *
 * hold.c
 *	  A database without our sessions, for commands that need it so.
 *
 * DROP DATABASE and the like fail while anybody is connected to the database.
 * Run by the backend of such a command, before it.  Who holds a database has
 * pinned its place, so that the launcher cannot give it to another one, and
 * has raised DwDatabase.holds: no timer and no executor connects any more.
 * Those that are there end: the timer and idle executors at a word, executors
 * that run a task after a moment by SIGTERM, which puts the task back.  The
 * sweeper ends like the timer.
 *
 * A database without a place has no hold.  The launcher may have a look taken
 * into it, by a session of a moment, which is waited for.
 *
 * The hold ends with the transaction, or the subtransaction, whatever comes
 * of the command; then the launcher looks what has become of the database.
 * The callbacks cannot fail, wait or allocate.
 *
 * A worker looks at holds under the table lock, in which it also notes its
 * pid, before it connects.  So who has raised holds, and then taken the table
 * lock, knows the pids of all that may be connected or come to be.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/procarray.h"
#include "utils/memutils.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/settings.h"
#include "../shmem/executors.h"
#include "../shmem/places.h"
#include "../shmem/shared.h"
#include "hold.h"

/* An executor may finish a task that is as short. */
#define GRACE_US	(100 * 1000)
/* Then it is left to the command to say that there is somebody. */
#define PATIENCE_US	(5 * USECS_PER_SEC)

typedef struct Hold
{
	DwDatabase *db;
	SubTransactionId subid;
} Hold;

/* What this transaction holds; has room for all places. */
static Hold *holds = NULL;
static int	nholds = 0;

static uint32 wait_event = 0;

/* Is it an executor of the database, and not this very process? */
static bool
is_other_executor(DwDatabase *db, DwExecutor *e)
{
	return e->database == db->oid && e->state != DW_EXECUTOR_FREE && e != dw_this_executor;
}

/* Lists the workers of the database that may be connected. */
static int
list_workers(DwDatabase *db, pid_t *pids)
{
	int			n = 0;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	if (db->timer_pid != 0)
		pids[n++] = db->timer_pid;
	if (db->sweeper_pid != 0)
		pids[n++] = db->sweeper_pid;
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (is_other_executor(db, &dw_executors[i]) && dw_executors[i].pid != 0)
			pids[n++] = dw_executors[i].pid;
	LWLockRelease(dw_shared->table_lock);
	return n;
}

/* A worker that has left its place is a session until it has ended. */
static bool
any_connected(const pid_t *pids, int n)
{
	for (int i = 0; i < n; i++)
		if (BackendPidGetProc(pids[i]) != NULL)
			return true;
	return false;
}

static void
send_away(DwDatabase *db, bool busy_ones)
{
	dw_call_timer(db, DW_RESTART_NONE);

	/* none can leave its place, and so end, without this lock */
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (!is_other_executor(db, e))
			continue;
		e->must_exit = true;
		if (e->proc != 0)
			SetLatch(dw_proc_latch(e->proc));
		if (busy_ones && !e->put_back && e->pid != 0 &&
			(e->state == DW_EXECUTOR_BUSY || e->state == DW_EXECUTOR_CONNECTING))
		{
			e->put_back = true;
			(void) kill(e->pid, SIGTERM);
		}
	}
	LWLockRelease(dw_ready_lock(db));
}

static void
wait_a_moment(void)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
					 dw_wait_event(wait_event, "DelayWheelHold"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

static void
wait_until_gone(DwDatabase *db)
{
	pid_t	   *connected = palloc((dw_shared->nexecutors + 2) * sizeof(pid_t));
	pid_t	   *left = palloc((dw_shared->nexecutors + 2) * sizeof(pid_t));
	int			n = list_workers(db, connected);
	int64		began = dw_uptime();

	while (list_workers(db, left) > 0 || any_connected(connected, n))
	{
		int64		waited = dw_uptime() - began;

		if (waited > PATIENCE_US)
			break;
		send_away(db, waited > GRACE_US);
		wait_a_moment();
	}
	pfree(connected);
	pfree(left);
}

static void
wait_for_look(Oid database)
{
	int64		began = dw_uptime();

	while (pg_atomic_read_u32(&dw_shared->looks_into) == database &&
		   dw_uptime() - began <= PATIENCE_US)
		wait_a_moment();
}

/*
 * Makes timer and executors of the database end and waits until they are
 * gone, some seconds at most; no others come before the end of this
 * (sub)transaction.
 */
void
dw_hold_database(Oid database)
{
	DwDatabase *db;

	for (int i = 0; i < nholds; i++)
		if (holds[i].db->oid == database)
			return;
	if (holds == NULL)
		holds = MemoryContextAlloc(TopMemoryContext, dw_max_databases * sizeof(Hold));

	wait_for_look(database);
	/* also if it is not served: the launcher might just be about to ask */
	db = dw_database_enter(database, true);
	if (db == NULL)
		return;
	pg_atomic_fetch_add_u32(&db->holds, 1);
	holds[nholds].db = db;
	holds[nholds].subid = GetCurrentSubTransactionId();
	nholds++;
	wait_until_gone(db);
}

/* Ends the holds of the subtransaction and of those inside; their numbers grow. */
static void
release(SubTransactionId subid)
{
	bool		any = false;

	while (nholds > 0 && holds[nholds - 1].subid >= subid)
	{
		DwDatabase *db = holds[--nholds].db;

		pg_atomic_fetch_sub_u32(&db->holds, 1);
		dw_database_unpin(db);
		any = true;
	}
	if (any)
		dw_wake_launcher();
}

static void
hold_xact_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		release(InvalidSubTransactionId);
}

static void
hold_subxact_callback(SubXactEvent event, SubTransactionId subid,
				 SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		release(subid);
}

/* Called once by the postmaster. */
void
dw_hold_install(void)
{
	RegisterXactCallback(hold_xact_callback, NULL);
	RegisterSubXactCallback(hold_subxact_callback, NULL);
}
