/*-------------------------------------------------------------------------
 *
 * my_session.c
 *	  The database of this process, and the task that the process runs.
 *
 * Run by sessions, and by executors.  The database's place in shared memory is pinned while the
 * transaction may have news for the timer.  So the launcher does not give the place to another
 * database.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "../base/wing.h"
#include "task.h"

/* The launcher should have started within this time after the start of the server. */
#define LAUNCHER_LIMIT_MS	10000

int64		dw_run_now_id = 0;
Oid			dw_run_now_owner = InvalidOid;
TimestampTz dw_run_now_clock = DT_NOBEGIN;
bool		dw_batch_is_closed = false;
bool		dw_may_snooze = false;
int64		dw_running_batch_id = 0;

/*
 * The place that was found last.  While the place is not pinned, the launcher may give the place to
 * another database, so each transaction pins it again, by the database's OID.
 */
static DwDatabase *my_database = NULL;
static bool pinned = false;

/*
 * Returns the clock of the tasks that this process runs: the current time, or the due time that
 * delay_run_due() has reached, if this is later.
 */
TimestampTz
dw_time_reached(void)
{
	return Max(dw_now(), dw_run_now_clock);
}

/*
 * Returns this process's database, pinned until the end of the transaction.  If the database has no
 * place in shared memory, takes a free place; returns NULL if all places are taken.
 */
DwDatabase *
dw_my_database(void)
{
	if (pinned)
		return my_database;
	if (my_database == NULL || !dw_database_pin(my_database, MyDatabaseId))
		my_database = dw_database_enter(MyDatabaseId, true);
	pinned = my_database != NULL;
	if (pinned)
		dw_silence_report_timer(my_database);
	return my_database;
}

/* Returns the database if this transaction has already pinned it, else NULL.  Takes no lock. */
DwDatabase *
dw_my_pinned_database(void)
{
	return pinned ? my_database : NULL;
}

/*
 * Returns this process's database, pinned, or NULL if it has no place.  Callbacks at
 * the end of a transaction call this function, so it neither allocates nor fails.
 */
DwDatabase *
dw_my_database_find(void)
{
	if (!pinned)
	{
		my_database = dw_database_find_pin(MyDatabaseId);
		pinned = my_database != NULL;
	}
	return my_database;
}

/* Removes the pin at the end of the transaction, when the timer has got all news. */
void
dw_my_database_unpin(void)
{
	if (pinned)
		dw_database_unpin(my_database);
	pinned = false;
}

/* Reports that all places are taken, at this level. */
static void
say_no_place(int level)
{
	ereport(level,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("delay_wheel has no place for another database: the limit of %d is reached",
					dw_max_databases),
			 level == WARNING ? errdetail("Tasks of this database wait until there is a place.") : 0,
			 errhint("Increase \"%s\" and restart the server.", "delay_wheel.max_databases")));
}

/* Does the same as dw_my_database(), but raises an error if all places are taken. */
DwDatabase *
dw_require_my_database(void)
{
	DwDatabase *db = dw_my_database();

	if (db == NULL)
		say_no_place(ERROR);
	return db;
}

/* Warns, once in a session, that shared memory has no place for this database. */
void
dw_warn_no_place(void)
{
	static bool warned = false;

	if (!warned)
		say_no_place(WARNING);
	warned = true;
}

/*
 * Returns why this database cannot have a timer now; NULL if the database has or will get a timer.
 */
static const char *
why_not_served(DwDatabase *db)
{
	if (db->timer.state != DW_PROCESS_NONE ||
		(dw_process_rests(&db->timer) && dw_lack_since(&db->timer.lack) == 0))
		return NULL;
	if (dw_wings_hold(false))
		return "The server came out of recovery, and \"delay_wheel.start_after_recovery\" is \"hold\".";
	if (dw_lack_since(&db->timer.lack) != 0 && pg_atomic_read_u32(&dw_shared->timer_refused) != 0)
		return "No background worker is free for its timer.";
	if (!dw_process_is_there(&dw_shared->launcher) &&
		TimestampDifferenceExceeds(PgStartTime, dw_now(), LAUNCHER_LIMIT_MS))
		return "The launcher is not running.";
	return NULL;
}

/*
 * Warns, once in a session until the database is served again, that no message can be received.
 * Raises no error: a receiver may do other work in its transaction, and a background worker may
 * become free.
 */
void
dw_warn_not_served(DwDatabase *db)
{
	static bool warned = false;
	const char *why = why_not_served(db);

	if (why == NULL)
		warned = warned && db->timer.state != DW_PROCESS_RUNNING;
	if (why == NULL || warned)
		return;
	warned = true;
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("no message can be received, since the database is not served"),
			 errdetail_internal("%s", why),
			 errhint("See \"last_problem\" in delay_wheel.status. Messages wait until the database is served.")));
}

/* Returns the task's owner if this process runs it (executor, delay_run()), else InvalidOid. */
Oid
dw_owner_of_task_here(int64 id)
{
	if (dw_run_now_id != 0 && dw_run_now_id == id)
		return dw_run_now_owner;
	if (dw_this_executor != NULL && dw_this_executor->state == DW_EXECUTOR_BUSY &&
		dw_this_executor->current.id == id)
		return dw_this_executor->owner;
	return InvalidOid;
}

/*
 * Notes that the running task will run again at this time; 0: the task will not run again.
 *
 * The note is the value of a setting.  So PostgreSQL undoes the note if its subtransaction is
 * rolled back, keeps the note over the commits of a procedure, and restores the note of a task that
 * has called delay_run().
 */
void
dw_snooze(TimestampTz until)
{
	char		text[MAXINT8LEN + 1] = "";

	if (until != 0)
		pg_lltoa(until, text);
	(void) set_config_option(DW_SNOOZED_UNTIL, text, PGC_INTERNAL, PGC_S_SESSION,
							 GUC_ACTION_SET, true, 0, false);
}

/* Returns when the task that has just run must run again, or 0.  Then forgets the time. */
TimestampTz
dw_snooze_take(void)
{
	TimestampTz until;

	if (likely(dw_snoozed_until[0] == '\0'))
		return 0;
	until = pg_strtoint64(dw_snoozed_until);
	dw_snooze(0);
	return until;
}

/*---- The batch of the running task ----*/

/* Notes the batch of a task whose SQL is about to run.  values, nulls: the columns of its row. */
void
dw_running_in(const Datum *values, const bool *nulls)
{
	if (likely(nulls[Anum_task_more - 1]) ||
		!dw_more_number(values, nulls, Anum_task_more, DW_MORE_BATCH_ID, &dw_running_batch_id))
		dw_running_batch_id = 0;
}
