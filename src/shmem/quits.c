/*-------------------------------------------------------------------------
 *
 * quits.c
 *	  Tasks that have ended their executor.
 *
 * Run by executors: who ends without having been told to by somebody else,
 * while a task runs, notes that; who claims the task next finds it, and takes it
 * for a failed attempt.  Else such a task would be run again for ever: one that
 * terminates its own session, or raises a FATAL error, or does not end when its
 * timeout has struck.  One that was to be stopped is noted, too, whoever
 * terminated the executor.
 *
 * A note that is lost, since there are too many, or the server was restarted,
 * costs one more run.  The table lock protects them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "../base/errors.h"
#include "quits.h"
#include "shared.h"

/* The place of the note, or NULL; the caller has the lock. */
static DwQuit *
find_quit(Oid database, int64 id)
{
	for (int i = 0; i < DW_MAX_QUITS; i++)
		if (dw_shared->quits[i].id == id && dw_shared->quits[i].database == database)
			return &dw_shared->quits[i];
	return NULL;
}

static void
count_notes(void)
{
	uint32		n = 0;

	for (int i = 0; i < DW_MAX_QUITS; i++)
		if (dw_shared->quits[i].id != 0)
			n++;
	pg_atomic_write_u32(&dw_shared->nquits, n);
}

/* An executor has ended while it ran the task; or it was to be stopped. */
void
dw_quit_note(Oid database, int64 id, bool stopped)
{
	DwQuit	   *note = find_quit(database, id);

	Assert(LWLockHeldByMeInMode(dw_shared->table_lock, LW_EXCLUSIVE));
	if (note == NULL)
		note = &dw_shared->quits[dw_shared->next_quit++ % DW_MAX_QUITS];
	note->database = database;
	note->id = id;
	note->stopped = stopped;
	count_notes();
}

/* Has the task ended its executor? */
bool
dw_quit_is_noted(int64 id)
{
	bool		found;

	/* what is there mostly */
	if (pg_atomic_read_u32(&dw_shared->nquits) == 0)
		return false;
	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	found = find_quit(MyDatabaseId, id) != NULL;
	LWLockRelease(dw_shared->table_lock);
	return found;
}

/*
 * The extension is gone: if it is created again, other tasks have the same ids.
 */
void
dw_quits_forget_database(Oid database)
{
	Assert(LWLockHeldByMeInMode(dw_shared->table_lock, LW_EXCLUSIVE));
	for (int i = 0; i < DW_MAX_QUITS; i++)
		if (dw_shared->quits[i].database == database)
			dw_shared->quits[i].id = 0;
	count_notes();
}

static ErrorData *
error_of(bool stopped)
{
	ErrorData  *error = palloc0(sizeof(ErrorData));

	error->sqlerrcode = stopped ? ERRCODE_QUERY_CANCELED : DW_ERRCODE_QUIT;
	error->message = pstrdup("the executor ended while it ran the task");
	error->detail = pstrdup(stopped ?
							"The task was to be stopped, and its executor was terminated." :
							"The task terminated its own session, raised a FATAL error, or went on after its timeout.");
	error->hint = pstrdup("See the server's log.");
	return error;
}

/* If so that is forgotten, and the error returned that it has failed with. */
ErrorData *
dw_quit_take(int64 id)
{
	DwQuit	   *note;
	bool		found;
	bool		stopped = false;

	if (!dw_quit_is_noted(id))
		return NULL;
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	note = find_quit(MyDatabaseId, id);
	found = note != NULL;
	if (found)
	{
		stopped = note->stopped;
		note->id = 0;
		count_notes();
	}
	LWLockRelease(dw_shared->table_lock);
	return found ? error_of(stopped) : NULL;
}
