/*-------------------------------------------------------------------------
 *
 * suspects.c
 *	  Notes of tasks that have crashed the server (suspects), or have ended their executor (quits).
 *
 * Run by executors, sessions, timers and the launcher, and by the postmaster when it creates shared
 * memory and when all processes are gone.
 *
 * README.md describes how the suspect is found (crash_watch.c).  executor/README.md describes how a
 * suspect runs.
 *
 * If an executor ends while it runs a task, and no other process has told the executor to end, the
 * executor notes a quit.  The executor that claims the task next finds the note, and counts the end
 * as a failed attempt.  Otherwise some tasks would be run again for ever: tasks that terminate
 * their own session, raise a FATAL error, or ignore their timeout.  After a request to stop the
 * task, the executor always notes a quit.  If a note gets lost, the task is run once more.
 *
 * The postmaster writes the file of suspects before it frees shared memory, and reads it when it
 * creates shared memory.  If the postmaster is killed, counts start at zero.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/fd.h"

#include "../base/errors.h"
#include "executors.h"

/* The file, in the data directory. */
#define FILE_NAME		"delay_wheel.crashes"
#define FILE_HEADER		"delay_wheel crashes 1: database, task, crashes, when"

/* DwNote.n of a quit */
#define ENDED			1		/* the task has ended its executor */
#define STOPPED			2		/* and a session had asked to stop the task */

/*---- The arrays; changes need the spinlock, except in the postmaster at its end ----*/

/* Returns the note of this task, or NULL. */
static DwNote *
find_note(DwNotes *notes, Oid database, int64 id)
{
	for (int i = 0; i < DW_MAX_NOTES; i++)
	{
		DwNote	   *note = &notes->notes[i];

		if (note->n > 0 && note->id == id && note->database == database)
			return note;
	}
	return NULL;
}

/* Returns a free note, or the oldest note. */
static DwNote *
free_note(DwNotes *notes)
{
	DwNote	   *oldest = &notes->notes[0];

	for (int i = 0; i < DW_MAX_NOTES; i++)
	{
		DwNote	   *note = &notes->notes[i];

		if (note->n == 0)
			return note;
		if (note->at < oldest->at)
			oldest = note;
	}
	return oldest;
}

/* Fills a note, or a free note if "note" is NULL.  If n is 0, makes the note free. */
static void
set_note(DwNotes *notes, DwNote *note, Oid database, int64 id, int n, TimestampTz at)
{
	uint32		used = 0;

	if (note == NULL)
		note = free_note(notes);
	note->n = 0;
	pg_write_barrier();
	note->database = database;
	note->id = id;
	note->at = at;
	pg_write_barrier();
	note->n = n;
	for (int i = 0; i < DW_MAX_NOTES; i++)
		used += notes->notes[i].n > 0;
	pg_atomic_write_u32(&notes->used, used);
}

/* Returns DwNote.n of a task, or 0.  Without notes the cost is one atomic read. */
static int
noted(DwNotes *notes, Oid database, int64 id)
{
	const DwNote *note;
	int			n;

	if (pg_atomic_read_u32(&notes->used) == 0)
		return 0;
	SpinLockAcquire(&notes->lock);
	note = find_note(notes, database, id);
	n = note != NULL ? note->n : 0;
	SpinLockRelease(&notes->lock);
	return n;
}

/*
 * Removes the note of a task, or makes it a note of the task "next" if that is not 0.  Returns its
 * n, or 0 if the task has no note.
 */
static int
end_note(DwNotes *notes, Oid database, int64 id, int64 next)
{
	DwNote	   *note;
	int			n = 0;

	if (pg_atomic_read_u32(&notes->used) == 0)
		return 0;
	SpinLockAcquire(&notes->lock);
	note = find_note(notes, database, id);
	if (note != NULL)
	{
		n = note->n;
		set_note(notes, note, database, next, next != 0 ? n : 0, note->at);
	}
	SpinLockRelease(&notes->lock);
	return n;
}

/*---- Suspects ----*/

/*
 * Writes the name of a database, in quotes, or its OID if no timer has stored the name.  Takes no
 * lock, since the postmaster may call it: if the name is just changing, the result may be a mix of
 * both names.
 */
static void
name_database(Oid oid, char *text)
{
	DwDatabase *db = dw_database_find(oid);
	char		name[NAMEDATALEN];

	memcpy(name, db != NULL ? db->name : "", db != NULL ? sizeof(name) : 1);
	name[sizeof(name) - 1] = '\0';
	if (name[0] != '\0')
		snprintf(text, NAMEDATALEN + 2, "\"%s\"", name);
	else
		snprintf(text, NAMEDATALEN + 2, "%u", oid);
}

/*
 * Records and logs that the process of executor "e" crashed while it ran a task.  Takes the
 * spinlock, except in the postmaster at its end.
 */
void
dw_suspects_blame(const DwExecutor *e)
{
	char		database[NAMEDATALEN + 2];
	bool		shared = MyProcPid != PostmasterPid;
	DwNotes    *suspects = &dw_shared->suspects;
	DwNote	   *known;
	int			crashes;

	if (shared)
		SpinLockAcquire(&suspects->lock);
	known = find_note(suspects, e->database, e->current.id);
	crashes = known == NULL ? 1 : Min(known->n + 1, DW_CRASHES_LEFT_ALONE);
	set_note(suspects, known, e->database, e->current.id, crashes, dw_now());
	if (shared)
		SpinLockRelease(&suspects->lock);
	/* a crash while the task is set aside is logged when the task is left alone */
	if (crashes <= DW_MAX_CRASHES)
	{
		name_database(e->database, database);
		ereport(LOG,
				(errmsg("the process of delay_wheel task %lld of database %s crashed (crash %d of %d)",
						(long long) e->current.id, database, crashes, DW_MAX_CRASHES),
				 crashes < DW_MAX_CRASHES ? errdetail("The task will be run again, alone.") :
				 errdetail("The task will not be run again.")));
	}
}

/* Returns the number of crashes of a task. */
int
dw_crashes_of(Oid database, int64 id)
{
	return dw_shared == NULL ? 0 : noted(&dw_shared->suspects, database, id);
}

/*
 * Stores the ids of a database's suspects whose last crash was before the given time in "ids", an
 * array of DW_MAX_NOTES.  Returns their number.
 */
int
dw_crashes_list(Oid database, TimestampTz before, int64 *ids)
{
	DwNotes    *suspects = &dw_shared->suspects;
	int			n = 0;

	if (pg_atomic_read_u32(&suspects->used) == 0)
		return 0;
	SpinLockAcquire(&suspects->lock);
	for (int i = 0; i < DW_MAX_NOTES; i++)
	{
		const DwNote *note = &suspects->notes[i];

		if (note->n > 0 && note->database == database && note->at < before)
			ids[n++] = note->id;
	}
	SpinLockRelease(&suspects->lock);
	return n;
}

/*
 * Returns true for a while after a start with suspects.  During this time no batch is begun, since
 * an earlier task of a batch may cause a crash.  Suspects run only in processes that have run
 * nothing before.
 */
bool
dw_crashes_are_recent(void)
{
	return dw_shared->careful_until != 0 && dw_uptime() < dw_shared->careful_until;
}

/*
 * Removes a suspect, since the task has ended, its row is gone, or it starts afresh.
 *
 * If "next" is not 0, the task "next" becomes the suspect instead.  This task is the next run of a
 * recurring task, after a run was lost or left out.
 */
void
dw_crashes_end(Oid database, int64 id, int64 next)
{
	(void) end_note(&dw_shared->suspects, database, id, next);
}

/*---- Quits ----*/

/*
 * Notes that the task has ended its executor.  "stopped" is true if somebody had requested to stop
 * the task.
 */
void
dw_quit_note(Oid database, int64 id, bool stopped)
{
	DwNotes    *quits = &dw_shared->quits;

	SpinLockAcquire(&quits->lock);
	set_note(quits, find_note(quits, database, id), database, id, stopped ? STOPPED : ENDED, dw_now());
	SpinLockRelease(&quits->lock);
}

/* Returns true if the task has ended its executor. */
bool
dw_quit_is_noted(int64 id)
{
	return noted(&dw_shared->quits, MyDatabaseId, id) != 0;
}

/*
 * Removes the note of a task.  Returns the error for the failed attempt, in the current memory
 * context, or NULL if no note existed.
 */
ErrorData *
dw_quit_take(int64 id)
{
	int			quit = end_note(&dw_shared->quits, MyDatabaseId, id, 0);
	ErrorData  *error;

	if (quit == 0)
		return NULL;
	error = palloc0(sizeof(ErrorData));
	error->sqlerrcode = quit == STOPPED ? ERRCODE_QUERY_CANCELED : DW_ERRCODE_QUIT;
	error->message = pstrdup("the executor ended while it ran the task");
	error->detail = pstrdup(quit == STOPPED ?
							"The task was to be stopped, and its executor was terminated." :
							"The task terminated its own session, raised a FATAL error, or went on after its timeout.");
	error->hint = pstrdup("See the server's log.");
	return error;
}

/*
 * Removes all notes of a database, since the extension was dropped.  If the extension is created
 * again, new tasks get the same ids.
 */
void
dw_notes_forget_database(Oid database)
{
	DwNotes    *both[] = {&dw_shared->suspects, &dw_shared->quits};

	for (int i = 0; i < lengthof(both); i++)
	{
		SpinLockAcquire(&both[i]->lock);
		for (int n = 0; n < DW_MAX_NOTES; n++)
			if (both[i]->notes[n].database == database)
				set_note(both[i], &both[i]->notes[n], InvalidOid, 0, 0, 0);
		SpinLockRelease(&both[i]->lock);
	}
}

/*---- The file ----*/

/*
 * Writes the file, if there are suspects.  Takes no lock, since no other process is left.  Raises
 * no error, and relies on nothing in shared memory, which may be damaged.
 */
void
dw_suspects_write_file(void)
{
	FILE	   *file = NULL;
	bool		failed = false;

	for (int i = 0; i < DW_MAX_NOTES; i++)
	{
		const DwNote *suspect = &dw_shared->suspects.notes[i];

		if (suspect->n <= 0)
			continue;
		if (file == NULL)
		{
			file = AllocateFile(FILE_NAME, PG_BINARY_W);
			failed = file == NULL || fprintf(file, "%s\n", FILE_HEADER) < 0;
		}
		failed = failed || fprintf(file, "%u " INT64_FORMAT " %d " INT64_FORMAT "\n",
								   suspect->database, suspect->id, suspect->n, suspect->at) < 0;
		if (failed)
			break;
	}
	/* an error of buffered data may show only when the file is closed */
	if (file != NULL && FreeFile(file) != 0)
		failed = true;
	if (failed)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", FILE_NAME)));
}

/* Reads the file into the empty array, and removes the file. */
void
dw_suspects_read_file(void)
{
	FILE	   *file = AllocateFile(FILE_NAME, PG_BINARY_R);
	char		line[256];

	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", FILE_NAME)));
		return;
	}
	/* the file has another version, or another program has written it */
	if (fgets(line, sizeof(line), file) == NULL || strcmp(line, FILE_HEADER "\n") != 0)
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("ignoring invalid file \"%s\"", FILE_NAME)));
	else
		/* read at most as many lines as the array can hold */
		for (int i = 0; i < DW_MAX_NOTES && fgets(line, sizeof(line), file) != NULL; i++)
		{
			Oid			database;
			long long	id;
			int			crashes;
			long long	crashed_at;

			if (sscanf(line, "%u %lld %d %lld", &database, &id, &crashes, &crashed_at) == 4 &&
				crashes > 0)
				set_note(&dw_shared->suspects, NULL, database, id,
						 Min(crashes, DW_CRASHES_LEFT_ALONE), crashed_at);
		}
	(void) FreeFile(file);
	/* if the file came back after a crash, it would blame tasks again */
	(void) durable_unlink(FILE_NAME, LOG);
}
