/*-------------------------------------------------------------------------
 *
 * recovery.c
 *	  Whether a server that came out of recovery must wait before it runs tasks.
 *
 * Run by the postmaster and the launcher; sessions ask is_held().
 *
 * A physical copy of a server (a base backup restored for staging, a snapshot of a
 * standby) cannot be told from a failover: both come out of archive recovery, or are
 * promoted.  The setting delay_wheel.start_after_recovery says which it is.  "on" is a
 * failover, and tasks run at once.  With "hold" no task runs before a DBA has set it to
 * "on".
 *
 * The files that ask for recovery are gone when recovery is over, and the launcher
 * starts only then.  So the postmaster leaves a file of ours, the mark, when it finds
 * them at its start, whatever the setting is.  The launcher removes the mark when it
 * begins to serve.  In between the mark outlives restarts, crashes and copies.  After
 * crash recovery there is no mark, nor after tasks have run: the setting concerns
 * starts only.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "storage/fd.h"

#include "../base/settings.h"
#include "../base/wing.h"
#include "../shmem/shared.h"
#include "copies.h"

/* The mark, in the data directory. */
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
 * Writes the mark, durably.  If that fails, the server goes on and the log says so:
 * then a hold ends with the next restart.
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
	/* close it in any case; an error of buffered data may show only now */
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

/*
 * Finds out whether the server comes out of recovery, and sets dw_shared->recovered.
 * Called by the postmaster when it sets up shared memory.
 */
static void
note_recovery(void)
{
	bool		recovers = file_exists(STANDBY_SIGNAL_FILE) ||
		file_exists(RECOVERY_SIGNAL_FILE) || file_exists(BACKUP_LABEL_FILE);

	dw_shared->recovered = recovers || file_exists(MARK);
	if (recovers)
		leave_mark();
}

/*
 * True if the launcher must wait until a DBA sets delay_wheel.start_after_recovery to
 * "on".
 *
 * The launcher asks at its start and, while it must wait, after each reload of the
 * settings.  If it need not wait, the mark is removed.
 */
static bool
stays_held(void)
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

/* True if the launcher waits.  For other processes; changes nothing. */
static bool
is_held(void)
{
	return dw_shared->recovered && dw_start_after_recovery == DW_START_HOLD;
}

const DwWing dw_copies_wing = {
	.memory_is_ready = note_recovery,
	.is_held = is_held,
	.stays_held = stays_held
};
