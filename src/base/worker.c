/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  Functions for the launcher, timers, executors and sweepers as processes, and for starting
 *	  them.
 *
 * Run by these background workers; dw_private_memory() and dw_session_access()
 * can be called by any process.
 *
 * Signals: SIGTERM ends a worker at its next check for interrupts, even while the worker waits for
 * a lock.  dw_worker_end_if_told() avoids an error in the log.  SIGINT has the same effect as in
 * any background worker.  shmem/crash_watch.c handles SIGQUIT, to find out which process crashed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "utils/acl.h"
#include "utils/syscache.h"

#include "clock.h"
#include "compat.h"
#include "settings.h"
#include "wing.h"
#include "worker.h"

static const DwWing *const no_wings[] = {NULL};

const DwWing *const *dw_wings = no_wings;

/*
 * The clock counts as set back if it was set back by at least this time, in us.  A smaller change
 * only delays work by the same time.
 */
#define SET_BACK_US		(100 * 1000)

/* True if another process has sent SIGTERM */
static volatile sig_atomic_t terminated = false;

/* The text and state in pg_stat_activity.  If the text is NULL, report both again */
static const char *activity = NULL;
static BackendState activity_state = STATE_UNDEFINED;

/*---- Starting workers ----*/

/*
 * Fills *worker for a process of this kind.  The kind "timer" gets the name "delay_wheel timer",
 * and the main function dw_timer_main().  The postmaster does not restart the process.
 */
void
dw_worker_describe(BackgroundWorker *worker, const char *kind)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker->bgw_name, BGW_MAXLEN, "delay_wheel %s", kind);
	snprintf(worker->bgw_type, BGW_MAXLEN, "delay_wheel %s", kind);
	strlcpy(worker->bgw_library_name, "delay_wheel", sizeof(worker->bgw_library_name));
	snprintf(worker->bgw_function_name, BGW_MAXLEN, "dw_%s_main", kind);
}

/*
 * Asks the postmaster for a process of this kind.  The new process gets "number" as its argument,
 * and "size" bytes in bgw_extra.  The postmaster wakes the caller when the new process starts and
 * ends.  If no background worker is free, returns false and does not change *handle.  Otherwise
 * replaces *handle, which was NULL or belonged to a former process.
 */
bool
dw_worker_start(const char *kind, int32 number, const void *extra, Size size,
				BackgroundWorkerHandle **handle)
{
	/* the handle must live as long as this process */
	MemoryContext context = MemoryContextSwitchTo(TopMemoryContext);
	BackgroundWorkerHandle *started;
	BackgroundWorker worker;
	bool		registered;

	dw_worker_describe(&worker, kind);
	worker.bgw_main_arg = Int32GetDatum(number);
	memcpy(worker.bgw_extra, extra, size);
	worker.bgw_notify_pid = MyProcPid;
	registered = RegisterDynamicBackgroundWorker(&worker, &started);
	MemoryContextSwitchTo(context);
	if (!registered)
		return false;
	if (*handle != NULL)
		pfree(*handle);
	*handle = started;
	return true;
}

/* Returns true if the process of this handle has ended, and its background worker is free. */
bool
dw_worker_has_ended(BackgroundWorkerHandle *handle)
{
	pid_t		pid;

	return GetBackgroundWorkerPid(handle, &pid) == BGWH_STOPPED;
}

/*---- Being a worker ----*/

/* SIGTERM handler.  Notes whether the signal came from another process. */
static void
note_and_die(DW_SIGNAL_ARGS)
{
	int			save_errno = errno;

	if (dw_signal_sender() != MyProcPid)
		terminated = true;
	dw_die();
	errno = save_errno;
}

/* Returns true if another process has told this process to end, by SIGTERM. */
bool
dw_worker_terminated(void)
{
	return terminated;
}

/* Sets up signals and settings of a worker.  Called first in a worker's main function. */
void
dw_worker_begin(void)
{
	dw_signal(SIGTERM, note_and_die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	/* an error must not end the process: a task fails, or the process tries the work again */
	SetConfigOption("exit_on_error", "off", PGC_USERSET, PGC_S_OVERRIDE);
	dw_no_transaction_timeout();
	BackgroundWorkerUnblockSignals();
	/* read the settings again, since a SIGHUP before the handler was set is lost */
	ProcessConfigFile(PGC_SIGHUP);
	/* remember the clock of this moment */
	(void) dw_worker_clock_set_back();
}

/*
 * Ends this process after SIGTERM.  Called between two pieces of work.  Exit code and callbacks are
 * the same as in PostgreSQL's own check for interrupts, which would log a FATAL error for an
 * ordinary shutdown.
 */
void
dw_worker_end_if_told(void)
{
	if (!ProcDiePending)
		return;
	/* ereport() checks for interrupts, too */
	HOLD_INTERRUPTS();
	ereport(LOG,
			(errmsg("%s is shutting down", MyBgworkerEntry->bgw_name)));
	/* the postmaster restarts a launcher that another process has told to end */
	proc_exit(1);
}

/*
 * Handles signals between two pieces of work: ends this process after SIGTERM, and reads the
 * settings again after SIGHUP.  Returns true if this function has read the settings.  Forgets a
 * request to cancel (SIGINT), since no work is being done.
 */
bool
dw_worker_interrupts(void)
{
	QueryCancelPending = false;
	dw_worker_end_if_told();
	CHECK_FOR_INTERRUPTS();
	if (!ConfigReloadPending)
		return false;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	/* track_activities may have been switched on: report the activity again */
	activity = NULL;
	return true;
}

/*
 * Returns true if there is a signal that dw_worker_interrupts() has not handled.  Called before a
 * worker sleeps, since the latch that the signal set may have been reset.
 */
bool
dw_worker_is_signalled(void)
{
	return ConfigReloadPending || InterruptPending;
}

/*
 * Sets the state and the text that pg_stat_activity shows for this worker.  The text must live as
 * long as the process.  A call with the pointer of the previous call costs nothing.
 */
void
dw_worker_activity(BackendState state, const char *text)
{
	if (text == activity && state == activity_state)
		return;
	pgstat_report_activity(state, text);
	activity = text;
	activity_state = state;
}

/*
 * Adds a number to this worker's amount of work, which pg_stat_activity shows after the text of
 * dw_worker_activity().  A new text resets the amount to 0.
 */
void
dw_worker_progress(int64 n)
{
	static const char *counted = NULL;
	static int64 amount = 0;

	if (counted != activity)
		amount = 0;
	counted = activity;
	amount += n;
	if (n > 0 && activity_state == STATE_RUNNING)
		pgstat_report_activity(STATE_RUNNING, psprintf("%s: %lld so far", activity, (long long) amount));
}

/*
 * Returns by how many microseconds the clock was set back since the previous call, or since
 * dw_worker_begin(), or 0.  If the caller has planned to sleep until a time, the sleep would end
 * too late by this amount.
 *
 * dw_now() is read between two calls of dw_uptime().  So the difference of the clocks was at least
 * now - after, and at most now - before.  The clock was set back if the upper bound is below a
 * lower bound of an earlier call.
 */
int64
dw_worker_clock_set_back(void)
{
	static int64 ahead = PG_INT64_MIN;	/* highest lower bound so far; PG_INT64_MIN: none yet */
	int64		before = dw_uptime();
	TimestampTz now = dw_now();
	int64		after = dw_uptime();
	int64		back = ahead == PG_INT64_MIN ? 0 : ahead - (now - before);

	if (back >= SET_BACK_US)
	{
		ahead = now - after;
		return back;
	}
	ahead = Max(ahead, now - after);
	return 0;
}

/*
 * Returns how much memory this process shares with no other process, in kB, or 0 if that is not
 * known, as on systems other than Linux.
 *
 * Includes memory that was freed, but that malloc() has not returned to the system.
 */
int64
dw_private_memory(void)
{
	FILE	   *file = AllocateFile("/proc/self/statm", "r");
	long long	resident;
	long long	shared;
	int			n;

	if (file == NULL)
		return 0;
	n = fscanf(file, "%*d %lld %lld", &resident, &shared);
	FreeFile(file);
	return n == 2 ? (resident - shared) * (sysconf(_SC_PAGESIZE) / 1024) : 0;
}

/* Returns whether a role can have sessions in this database.  Called in a transaction. */
DwAccess
dw_session_access(Oid owner)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(owner));
	bool		can_log_in;
	bool		is_open;

	if (!HeapTupleIsValid(tuple))
		return DW_ACCESS_NO_ROLE;
	can_log_in = ((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin;
	ReleaseSysCache(tuple);

	if (!dw_superuser_tasks && superuser_arg(owner))
		return DW_ACCESS_SUPERUSER;
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	is_open = HeapTupleIsValid(tuple) && ((Form_pg_database) GETSTRUCT(tuple))->datallowconn;
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (!is_open)
		return DW_ACCESS_CLOSED;
	if (dw_database_aclcheck(MyDatabaseId, owner, ACL_CONNECT) != ACLCHECK_OK)
		return DW_ACCESS_NO_CONNECT;
	return can_log_in ? DW_ACCESS_LOGIN : DW_ACCESS_NO_LOGIN;
}
