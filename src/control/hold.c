/*-------------------------------------------------------------------------
 *
 * hold.c
 *	  Keeps our workers out of a database, for commands that need a database without sessions.
 *
 * Run by the backend of such a command (DROP DATABASE and the like), before the command.  README.md
 * describes the steps of a hold.
 *
 * If the database has no place, and no place is free, there is no hold: the database has no such
 * workers.  But a worker of the launcher may be connected for a moment, to look for the extension
 * (dw_look_main()).  The backend waits for the end of this worker.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "storage/procarray.h"

#include "control.h"

/* Time in microseconds until an executor that runs a task gets SIGTERM. */
#define GRACE_US	(100 * 1000)
/*
 * Maximum wait for workers to end, in microseconds.  After this time, the command itself fails
 * because of the sessions.
 */
#define PATIENCE_US	(5 * USECS_PER_SEC)

typedef struct Hold
{
	DwDatabase *db;				/* the place of the database, pinned */
	SubTransactionId subid;		/* the subtransaction that took the hold */
} Hold;

/* Holds of this transaction, in the order of subid.  The array has room for all places. */
static Hold *holds = NULL;
static int	nholds = 0;

static uint32 wait_event = 0;

/* Returns true if an executor of the database, other than this process, uses this place. */
static bool
is_other_executor(DwDatabase *db, DwExecutor *e)
{
	return e->database == db->oid && e->state != DW_EXECUTOR_FREE && e != dw_this_executor;
}

/*
 * Lists the pids of workers of the database that are or may become connected, except workers of the
 * launcher.  Returns the number of pids.  Takes the table lock.
 */
static int
list_workers(DwDatabase *db, pid_t *pids)
{
	int			n = 0;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	if (db->timer.pid != 0)
		pids[n++] = db->timer.pid;
	if (db->sweeper.pid != 0)
		pids[n++] = db->sweeper.pid;
	dw_each_executor(e)
		if (is_other_executor(db, e) && e->pid != 0)
			pids[n++] = e->pid;
	LWLockRelease(dw_shared->table_lock);
	return n;
}

/*
 * Returns true if one of these processes still has a session: a worker releases its place in shared
 * memory before its session ends.
 */
static bool
any_connected(const pid_t *pids, int n)
{
	for (int i = 0; i < n; i++)
		if (BackendPidGetProc(pids[i]) != NULL)
			return true;
	return false;
}

/*
 * Asks timer, sweeper and executors of the database to end.  busy_ones: sends SIGTERM once to
 * executors that run a task.
 */
static void
send_away(DwDatabase *db, bool busy_ones)
{
	dw_call_timer(db, DW_RESTART_NONE);

	/* an executor needs this lock to release its place and end, so pids stay valid */
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_each_executor(e)
	{
		if (!is_other_executor(db, e))
			continue;
		dw_executor_end(e);
		if (busy_ones && !e->put_back && e->pid != 0 &&
			(e->state == DW_EXECUTOR_BUSY || e->state == DW_EXECUTOR_CONNECTING))
		{
			e->put_back = true;
			(void) kill(e->pid, SIGTERM);
		}
	}
	LWLockRelease(dw_ready_lock(db));
}

/* Sleeps for 10 ms, or less if the latch is set. */
static void
wait_a_moment(void)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
					 dw_wait_event(wait_event, "DelayWheelHold"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* Makes the workers of the database end, and waits for this up to PATIENCE_US. */
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
}

/*
 * Makes our workers in the database end, and waits some seconds for their end.  No other worker
 * connects before the end of this (sub)transaction.  Has no effect if this transaction already
 * holds the database.
 */
void
dw_hold_database(Oid database)
{
	DwDatabase *db;
	int64		began = dw_uptime();

	for (int i = 0; i < nholds; i++)
		if (holds[i].db->oid == database)
			return;
	if (holds == NULL)
		holds = MemoryContextAlloc(TopMemoryContext, dw_max_databases * sizeof(Hold));

	/* wait while the launcher's worker looks for the extension */
	while (pg_atomic_read_u32(&dw_shared->looks_into) == database &&
		   dw_uptime() - began <= PATIENCE_US)
		wait_a_moment();
	/* also needed without a place, since the launcher may soon look for the extension */
	db = dw_database_enter(database, true);
	if (db == NULL)
		return;
	pg_atomic_fetch_add_u32(&db->holds, 1);
	holds[nholds].db = db;
	holds[nholds].subid = GetCurrentSubTransactionId();
	nholds++;
	wait_until_gone(db);
}

/* Ends the holds of a subtransaction and of its own subtransactions, which have greater numbers. */
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
	if (!any)
		return;
	/* the launcher checks if the databases still exist, even if their timers rest */
	pg_atomic_write_u32(&dw_shared->databases_changed, 1);
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
