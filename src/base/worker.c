/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  Things that the launcher, timers, executors and sweepers need as processes, and how
 *	  one of them starts another.
 *
 * Run by these background workers; dw_private_memory() and dw_session_access()
 * can be called by any process.
 *
 * Signals: SIGTERM ends a worker at its next check for interrupts, also while the
 * worker waits for a lock; dw_worker_end_if_told() has to do with what the log says then.  SIGINT is handled as in any background worker.  SIGQUIT
 * is handled by shmem/crash_watch.c, which finds out which process crashed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "clock.h"
#include "compat.h"
#include "wing.h"
#include "settings.h"
#include "worker.h"

static const DwWing *const no_wings[] = {NULL};

const DwWing *const *dw_wings = no_wings;

/*
 * The clock counts as set back from this many microseconds on.  A smaller change
 * only makes work late by as much.
 */
#define SET_BACK_US		(100 * 1000)

/* True if another process has sent SIGTERM */
static volatile sig_atomic_t terminated = false;

/* The text and state that pg_stat_activity shows; the text is NULL: report it again */
static const char *activity = NULL;
static BackendState activity_state = STATE_UNDEFINED;

/*---- Starting workers ----*/

/*
 * Fills *worker for a process of this kind: "timer" is called "delay_wheel timer", and its
 * main function is dw_timer_main().  The postmaster does not restart it.
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
 * Asks the postmaster for a process of this kind.  It gets a number as its argument, and
 * "size" bytes in bgw_extra.  The postmaster wakes this process when the new one starts
 * and ends.  Returns false, and leaves *handle as it is, if no background worker is free;
 * else *handle, which was NULL or of a former process, is replaced.
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

/* True if the process of this handle has ended, and its background worker is free. */
bool
dw_worker_has_ended(BackgroundWorkerHandle *handle)
{
	pid_t		pid;

	return GetBackgroundWorkerPid(handle, &pid) == BGWH_STOPPED;
}

/*---- Being a worker ----*/

/* SIGTERM handler; remembers whether the signal came from another process. */
static void
note_and_die(DW_SIGNAL_ARGS)
{
	int			save_errno = errno;

	if (dw_signal_sender() != MyProcPid)
		terminated = true;
	dw_die();
	errno = save_errno;
}

/* True if another process told this one to end, by SIGTERM. */
bool
dw_worker_terminated(void)
{
	return terminated;
}

/*
 * Sets up signals and the settings that a worker needs; to be called first in a
 * worker's main function.
 */
void
dw_worker_begin(void)
{
	dw_signal(SIGTERM, note_and_die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	/* an error must not end the process: it is a task's outcome, or is tried again */
	SetConfigOption("exit_on_error", "off", PGC_USERSET, PGC_S_OVERRIDE);
	dw_no_transaction_timeout();
	BackgroundWorkerUnblockSignals();
	/* a SIGHUP after the fork and before the handler was there is lost: so read the settings anew */
	ProcessConfigFile(PGC_SIGHUP);
	/* remember the clock of this moment */
	(void) dw_worker_clock_set_back();
}

/*
 * Between two pieces of work: ends this process if it was told to, as PostgreSQL's own check
 * for interrupts does, with the same exit code and the same callbacks, but with a line of the
 * log that is no error, since an ordinary shutdown is none.  In the middle of work PostgreSQL
 * says it, as FATAL.
 */
void
dw_worker_end_if_told(void)
{
	if (!ProcDiePending)
		return;
	/* to report is to check for interrupts, too */
	HOLD_INTERRUPTS();
	ereport(LOG,
			(errmsg("%s is shutting down", MyBgworkerEntry->bgw_name)));
	/* the postmaster starts a launcher again that was told to end by somebody else */
	proc_exit(1);
}

/*
 * Handles signals between two pieces of work: ends this process after SIGTERM, and
 * reads the settings again after SIGHUP.  True if the settings were read.  A
 * request to cancel (SIGINT) is forgotten, since no piece of work is under way.
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
 * True if a signal has come that dw_worker_interrupts() has not handled.  To be asked before
 * a worker sleeps, since the latch that the signal has set may have been reset.
 */
bool
dw_worker_is_signalled(void)
{
	return ConfigReloadPending || InterruptPending;
}

/*
 * Sets the state and the text that pg_stat_activity shows for this worker.  The
 * text must live as long as the process; the same pointer as in the call before
 * costs nothing.
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
 * Adds to the amount of what this worker does, which pg_stat_activity shows beside the text of
 * dw_worker_activity().  Another text begins with 0.
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
 * Returns by how many microseconds the clock was set back since the previous
 * call, or since dw_worker_begin(); 0 if the clock was not set back.  Times until
 * which a caller planned to sleep are then too late by as much.
 *
 * dw_now() is read between two calls of dw_uptime().  So at that moment, the
 * difference between the two clocks was at least now - after, and at most
 * now - before.  The clock was set back if even the upper bound lies below a lower
 * bound of an earlier call.
 */
int64
dw_worker_clock_set_back(void)
{
	static int64 ahead = PG_INT64_MIN;	/* highest lower bound so far; lowest: none yet */
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
 * Returns how much memory this process shares with no other process, in kB; 0 if
 * that is not known (only Linux tells).
 *
 * Memory that contexts have freed, but malloc() has not given back to the system,
 * counts as well.
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

/* True if this database exists and allows connections. */
static bool
database_is_open(void)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	bool		open = HeapTupleIsValid(tuple) &&
		((Form_pg_database) GETSTRUCT(tuple))->datallowconn;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return open;
}

/*
 * Tells whether a role can have sessions in the database of this process.  To be
 * called in a transaction.
 */
DwAccess
dw_session_access(Oid owner)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(owner));
	bool		can_log_in;

	if (!HeapTupleIsValid(tuple))
		return DW_ACCESS_NO_ROLE;
	can_log_in = ((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin;
	ReleaseSysCache(tuple);

	if (!dw_superuser_tasks && superuser_arg(owner))
		return DW_ACCESS_SUPERUSER;
	if (!database_is_open())
		return DW_ACCESS_CLOSED;
	if (dw_database_aclcheck(MyDatabaseId, owner, ACL_CONNECT) != ACLCHECK_OK)
		return DW_ACCESS_NO_CONNECT;
	return can_log_in ? DW_ACCESS_LOGIN : DW_ACCESS_NO_LOGIN;
}
