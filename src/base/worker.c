/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  What launcher, timers, executors and sweepers have in common as processes.
 *
 * SIGTERM ends a worker at its next check for interrupts, also while it waits
 * for a lock; SIGINT is as background workers have it; SIGQUIT is watched, to
 * know who crashed (crashes.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "clock.h"
#include "compat.h"
#include "worker.h"

/* less than that does not matter: what waits until a time is late by as much */
#define SET_BACK_US		(100 * 1000)

static volatile sig_atomic_t terminated = false;

/* What pg_stat_activity shows; NULL: that is to be reported again. */
static const char *activity = NULL;
static BackendState activity_state = STATE_UNDEFINED;

/* Who sends it to itself is not told by anybody. */
static void
note_and_die(int signo, siginfo_t *info, void *unused)
{
	int			save_errno = errno;

	(void) unused;
	if (info->si_pid != MyProcPid)
		terminated = true;
	die(signo);
	errno = save_errno;
}

/* Was this process told to end by another one, by SIGTERM? */
bool
dw_worker_terminated(void)
{
	return terminated;
}

/* Sets up signals; to be called first. */
void
dw_worker_begin(void)
{
	struct sigaction act = {.sa_sigaction = note_and_die, .sa_flags = SA_SIGINFO | SA_RESTART};

	sigemptyset(&act.sa_mask);
	(void) sigaction(SIGTERM, &act, NULL);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	/* an error is a task's outcome, or something to try again */
	SetConfigOption("exit_on_error", "off", PGC_USERSET, PGC_S_OVERRIDE);
	dw_no_transaction_timeout();
	BackgroundWorkerUnblockSignals();
	(void) dw_worker_clock_set_back();
}

/*
 * Serves what signals asked for, between pieces of work: ends this process,
 * reads the settings again (then true).  A cancel finds nothing to cancel.
 */
bool
dw_worker_interrupts(void)
{
	QueryCancelPending = false;
	CHECK_FOR_INTERRUPTS();
	if (!ConfigReloadPending)
		return false;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	/* track_activities may be on now */
	activity = NULL;
	return true;
}

/*
 * What pg_stat_activity shows of this process, which runs no SQL: a text that
 * lasts.  Costs nothing if it is the same as before.
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
 * By how many microseconds the clock was set back since this was called before,
 * or the process began; 0 if it was not.  Times that were computed before are
 * too late then.
 *
 * Between two looks at the clock that is never set, the other one is ahead of
 * it by something between the two differences.
 */
int64
dw_worker_clock_set_back(void)
{
	static int64 ahead = PG_INT64_MIN;	/* it has been, for certain */
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
 * The memory of this process that it shares with no other, in kB; 0: not known.
 *
 * What malloc() keeps counts, too: contexts that were freed may leave pages
 * that are not given back.
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
 * To be called in a transaction, by a process that is connected to the
 * database.
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

	if (!database_is_open())
		return DW_ACCESS_CLOSED;
	if (dw_database_aclcheck(MyDatabaseId, owner, ACL_CONNECT) != ACLCHECK_OK)
		return DW_ACCESS_NO_CONNECT;
	return can_log_in ? DW_ACCESS_LOGIN : DW_ACCESS_NO_LOGIN;
}
