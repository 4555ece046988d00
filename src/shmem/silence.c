/*-------------------------------------------------------------------------
 *
 * silence.c
 *	  Finds processes of delay_wheel that do not answer, for views and the log.
 *
 * Run by timers, by sessions that read these views, and by sessions at the first use of delay_wheel
 * in a transaction.
 *
 * Other processes detect a silent process by stored times (process.c, executors.c): a process that
 * is stopped or waits in vain cannot report itself.  No process wakes up only for this check, with
 * one exception: when an executor that a timer has called is silent for DW_SILENT_US, the timer
 * wakes up once.  So a process that is not needed may be stopped for a long time before it is
 * reported.  An executor that runs a task is never reported, since the task may take any time.
 *
 * Locking: takes no lock, since the stopped process may hold any lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executors.h"

/*
 * Returns for how long the executor has been silent, in us, or 0 if it answers or belongs to
 * another database.
 */
static int64
executor_silent_for(const DwDatabase *db, const DwExecutor *e)
{
	TimestampTz since = e->database == db->oid ? dw_executor_unanswered_since(e) : 0;
	int64		silent = since == 0 ? 0 : dw_now() - since;

	if (silent < DW_SILENT_US)
		return 0;
	/* the place may belong to another executor now, or this executor may have answered */
	pg_read_barrier();
	return e->database == db->oid && dw_executor_unanswered_since(e) == since ? silent : 0;
}

/*
 * Finds the next process of the database that does not answer, or the launcher if "db" is NULL.
 * Returns false if no further process is found.  *position must be 0 for the first call.
 */
bool
dw_silent_next(DwDatabase *db, uint32 *position, DwSilent *found)
{
	for (;;)
	{
		uint32		n = (*position)++;

		if (n >= (db == NULL ? 1 : 2 + dw_shared->nexecutors))
			return false;
		if (db == NULL || n < 2)
		{
			DwProcess  *process = db == NULL ? &dw_shared->launcher : n == 0 ? &db->timer : &db->sweeper;

			found->kind = db == NULL ? "launcher" : n == 0 ? "timer" : "sweeper";
			found->pid = process->pid;
			found->silent_for = dw_process_silent_for(process);
			found->told = &process->told;
		}
		else
		{
			found->kind = "executor";
			found->pid = dw_executors[n - 2].pid;
			found->silent_for = executor_silent_for(db, &dw_executors[n - 2]);
			found->told = &db->executors_told;
		}
		if (found->silent_for > 0)
			return true;
	}
}

/* Returns true if the caller must write to the log: at most once in DW_LOG_INTERVAL_US. */
static bool
log_is_due(pg_atomic_uint64 *told)
{
	uint64		before = pg_atomic_read_u64(told);
	uint64		now = (uint64) dw_uptime();

	if (before != 0 && now - before < DW_LOG_INTERVAL_US)
		return false;
	return pg_atomic_compare_exchange_u64(told, &before, now);
}

/*
 * If a report is due, writes this process to the log and to the last problem of the database.
 * Other silent processes of the same kind are not reported.
 */
static void
report(DwDatabase *db, bool is_of_database, const DwSilent *silent)
{
	char	   *text;

	if (!log_is_due(silent->told))
		return;
	text = psprintf("%s does not answer: PID %d", silent->kind, (int) silent->pid);
	dw_problem(&db->problem, text);
	ereport(LOG,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 is_of_database ?
			 errmsg("delay_wheel %s of database \"%s\" does not answer: PID %d", silent->kind, db->name, (int) silent->pid) :
			 errmsg("delay_wheel launcher does not answer: PID %d", (int) silent->pid),
			 errdetail("The process should have answered a call, or ended a piece of work, %.1f s ago.",
					   silent->silent_for / (double) USECS_PER_SEC),
			 errhint("If a signal, a debugger or a frozen cgroup has stopped the process, continue it. The view delay_wheel.silent shows all such processes.")));
	pfree(text);
}

/*
 * Reports silent processes of this database, and a silent launcher.  Reports each kind at most once
 * in DW_LOG_INTERVAL_US.
 */
void
dw_silence_report(DwDatabase *db)
{
	for (int i = 0; i < 2; i++)
	{
		uint32		position = 0;
		DwSilent	silent;

		while (dw_silent_next(i == 0 ? db : NULL, &position, &silent))
			report(db, i == 0, &silent);
	}
}

/* Calls dw_silence_report() if timer or launcher do not answer.  Otherwise the timer calls it. */
void
dw_silence_report_timer(DwDatabase *db)
{
	if (dw_process_silent_for(&db->timer) > 0 || dw_process_silent_for(&dw_shared->launcher) > 0)
		dw_silence_report(db);
}
