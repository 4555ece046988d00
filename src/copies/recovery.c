/*-------------------------------------------------------------------------
 *
 * recovery.c
 *	  Holds tasks on a server that came out of recovery, depending on the setting.
 *
 * Run by the postmaster and the launcher; sessions ask is_held().  README.md describes the mark, a
 * file that the postmaster creates if the server recovers, whatever the setting is.  No mark exists
 * after crash recovery, or when tasks have run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "storage/fd.h"

#include "../base/settings.h"
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
 * Writes the mark durably.  Logs a failure.  The server then continues, but a hold ends with the
 * next restart.
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
				 errdetail("After another restart, delay_wheel will run tasks as if this server had not come out of recovery.")));
		(void) unlink(MARK_NEW);
		return;
	}
	(void) durable_rename(MARK_NEW, MARK, LOG);
}

/*
 * Sets dw_shared->recovered: true if the server comes out of recovery.  Called by the postmaster
 * when it initializes shared memory.
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
 * Returns true if the launcher must wait until a DBA sets delay_wheel.start_after_recovery to "on".
 *
 * The launcher calls this at its start and, while it must wait, after each reload of the settings.
 * Then removes the mark if the launcher need not wait.
 */
static bool
is_held(bool launcher)
{
	static bool waited = false;

	if (!dw_shared->recovered)
		return false;

	if (dw_start_after_recovery == DW_START_HOLD)
	{
		if (!launcher || waited)
			return true;
		waited = true;
		leave_mark();
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("delay_wheel runs no tasks, since this server came out of recovery and \"%s\" is \"%s\"",
						"delay_wheel.start_after_recovery", "hold"),
				 errhint("If the tasks must run on this server, set the parameter to \"%s\" and reload the configuration.",
						 "on")));
		return true;
	}

	if (!launcher)
		return false;
	if (file_exists(MARK))
		(void) durable_unlink(MARK, LOG);
	dw_shared->recovered = false;
	if (waited)
		ereport(LOG, (errmsg("delay_wheel begins to run tasks")));
	return false;
}

const DwWing dw_copies_wing = {
	.memory_is_ready = note_recovery,
	.is_held = is_held
};
