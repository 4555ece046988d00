/*-------------------------------------------------------------------------
 *
 * recovery.c
 *	  Whether a server that came out of recovery is to run tasks.
 *
 * A physical copy (a base backup restored for staging, a snapshot of a
 * standby) cannot be told from a failover: both come out of archive recovery,
 * or are promoted.  delay_wheel.start_after_recovery says which it is: "on"
 * is a failover, which needs nobody; with "hold" nothing runs before a DBA
 * has set it to "on".
 *
 * The files that ask for recovery are gone when it is over, and the launcher
 * starts only then.  So the postmaster leaves a file of ours when it finds
 * them, whatever the setting is by then; the launcher removes it when it
 * begins to serve.  In between it outlives restarts, crashes and copies.
 * There is no such file after crash recovery, nor once tasks have run: the
 * setting speaks of starts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "storage/fd.h"
#include "sys/stat.h"

#include "../base/settings.h"
#include "recovery.h"
#include "shared.h"

/* In the data directory. */
#define MARK		"delay_wheel.recovered"
#define MARK_NEW	MARK ".tmp"

static const char mark_text[] =
"This server came out of recovery, and has run no delay_wheel task since.\n"
"See delay_wheel.start_after_recovery.\n";

static bool
file_exists(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0;
}

/*
 * Leaves the mark, durably.  If that fails the server goes on: then a hold
 * ends with the next restart, which the log says.
 */
static void
leave_mark(void)
{
	FILE	   *file;
	bool		written;

	if (file_exists(MARK))
		return;
	file = AllocateFile(MARK_NEW, PG_BINARY_W);
	written = file != NULL && fputs(mark_text, file) >= 0;
	/* also if that failed; what was buffered may fail only now */
	if (file != NULL && FreeFile(file) != 0)
		written = false;
	if (!written)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", MARK_NEW),
				 errdetail("delay_wheel will not know after another restart that this server came out of recovery.")));
		(void) unlink(MARK_NEW);
		return;
	}
	(void) durable_rename(MARK_NEW, MARK, LOG);
}

/* Called by the postmaster when shared memory is set up. */
void
dw_recovery_note(void)
{
	bool		recovers = file_exists(STANDBY_SIGNAL_FILE) ||
		file_exists(RECOVERY_SIGNAL_FILE) || file_exists(BACKUP_LABEL_FILE);

	dw_shared->recovered = recovers || file_exists(MARK);
	if (recovers)
		leave_mark();
}

/*
 * Must the launcher wait for a word of the DBA?  Asked at its start, and
 * again after each reload of the settings as long as it must.
 */
bool
dw_recovery_must_wait(void)
{
	static bool waited = false;

	if (!dw_shared->recovered)
		return false;

	if (dw_start_after_recovery == DW_START_HOLD)
	{
		if (waited)
			return true;
		waited = true;
		leave_mark();
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("delay_wheel runs no tasks, since this server came out of recovery and \"%s\" is \"%s\"",
						"delay_wheel.start_after_recovery", "hold"),
				 errhint("If the tasks are to run on this server, set it to \"%s\" and reload the configuration.",
						 "on")));
		return true;
	}

	if (file_exists(MARK))
		(void) durable_unlink(MARK, LOG);
	dw_shared->recovered = false;
	if (waited)
		ereport(LOG, (errmsg("delay_wheel begins to run tasks")));
	return false;
}

/* The same for who only looks. */
bool
dw_recovery_is_held(void)
{
	return dw_shared->recovered && dw_start_after_recovery == DW_START_HOLD;
}
