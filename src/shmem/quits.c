/*-------------------------------------------------------------------------
 *
 * quits.c
 *	  Tasks that have ended their executor.
 *
 * Run by executors.  If an executor ends while it runs a task, and no other process has told the
 * executor to end, the executor leaves a note.  The executor that claims the task next finds the
 * note, and counts the end as a failed attempt.  Otherwise some tasks would be run again for ever:
 * tasks that terminate their own session, raise a FATAL error, or ignore their timeout.  After a
 * request to stop the task, the executor always leaves a note.
 *
 * A note can get lost, since at most DW_MAX_QUITS notes are stored, and a restart of the server
 * removes all notes.  If a note is lost, the task is run once more.  The table lock protects the
 * notes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/errors.h"
#include "executors.h"

/* Returns the note of this task, or NULL.  Needs the table lock. */
static DwQuit *
find_quit(Oid database, int64 id)
{
	for (int i = 0; i < DW_MAX_QUITS; i++)
		if (dw_shared->quits[i].id == id && dw_shared->quits[i].database == database)
			return &dw_shared->quits[i];
	return NULL;
}

/* Sets dw_shared->nquits, which other processes read without a lock. */
static void
count_notes(void)
{
	uint32		n = 0;

	for (int i = 0; i < DW_MAX_QUITS; i++)
		if (dw_shared->quits[i].id != 0)
			n++;
	pg_atomic_write_u32(&dw_shared->nquits, n);
}

/*
 * Stores a note that the task has ended its executor.  "stopped" is true if somebody had requested
 * to stop the task.  Needs the table lock exclusively.
 */
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

/* Returns true if the task has ended its executor.  Takes the table lock if any notes exist. */
bool
dw_quit_is_noted(int64 id)
{
	bool		found;

	/* usually there are no notes */
	if (pg_atomic_read_u32(&dw_shared->nquits) == 0)
		return false;
	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	found = find_quit(MyDatabaseId, id) != NULL;
	LWLockRelease(dw_shared->table_lock);
	return found;
}

/*
 * Removes the notes of a database, since the extension was dropped.  If the extension is created
 * again, new tasks get the same ids.  Needs the table lock exclusively.
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

/*
 * Removes the note of a task.  Returns the error for the failed attempt, in the current memory
 * context, or NULL if no note existed.  Takes the table lock.
 */
ErrorData *
dw_quit_take(int64 id)
{
	DwQuit	   *note;
	ErrorData  *error;
	bool		stopped = false;

	if (!dw_quit_is_noted(id))
		return NULL;
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	note = find_quit(MyDatabaseId, id);
	if (note != NULL)
	{
		stopped = note->stopped;
		note->id = 0;
		count_notes();
	}
	LWLockRelease(dw_shared->table_lock);
	if (note == NULL)
		return NULL;

	error = palloc0(sizeof(ErrorData));
	error->sqlerrcode = stopped ? ERRCODE_QUERY_CANCELED : DW_ERRCODE_QUIT;
	error->message = pstrdup("the executor ended while it ran the task");
	error->detail = pstrdup(stopped ?
							"The task was to be stopped, and its executor was terminated." :
							"The task terminated its own session, raised a FATAL error, or went on after its timeout.");
	error->hint = pstrdup("See the server's log.");
	return error;
}
