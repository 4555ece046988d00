/*-------------------------------------------------------------------------
 *
 * suspects.c
 *	  Suspects: tasks that have crashed the server, and the number of their crashes.
 *
 * Run by executors, sessions, timers and the launcher, and by the postmaster when it creates shared
 * memory and when all processes are gone.
 *
 * README.md describes how the suspect is found (crash_watch.c).  executor/README.md describes how a
 * suspect runs.
 *
 * The postmaster writes the file before it frees shared memory: without a lock, since no other
 * process is left, and without raising errors.  It reads and removes the file when it creates
 * shared memory.  If the postmaster is killed, counts start at zero.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/fd.h"

#include "../base/compat.h"
#include "executors.h"

/* The file, in the data directory. */
#define FILE_NAME		"delay_wheel.crashes"
#define FILE_HEADER		"delay_wheel crashes 1: database, task, crashes, when"

DwSuspects *dw_suspects = NULL;

/*---- The array; changes need the spinlock, except in the postmaster at its end ----*/

/* Returns the suspect with this id, or NULL. */
static DwSuspect *
find_suspect(Oid database, int64 id)
{
	for (int i = 0; i < DW_MAX_SUSPECTS; i++)
	{
		DwSuspect  *suspect = &dw_suspects->suspects[i];

		if (suspect->crashes > 0 && suspect->id == id && suspect->database == database)
			return suspect;
	}
	return NULL;
}

/* Returns a free element, or the element of the suspect with the oldest crash. */
static DwSuspect *
free_element(void)
{
	DwSuspect  *oldest = &dw_suspects->suspects[0];

	for (int i = 0; i < DW_MAX_SUSPECTS; i++)
	{
		DwSuspect  *suspect = &dw_suspects->suspects[i];

		if (suspect->crashes == 0)
			return suspect;
		if (suspect->crashed_at < oldest->crashed_at)
			oldest = suspect;
	}
	return oldest;
}

/* Fills an element.  If "crashes" is 0, makes the element free. */
static void
set_element(DwSuspect *element, Oid database, int64 id, int crashes, TimestampTz crashed_at)
{
	uint32		n = 0;

	element->crashes = 0;
	pg_write_barrier();
	element->database = database;
	element->id = id;
	element->crashed_at = crashed_at;
	pg_write_barrier();
	element->crashes = crashes;
	for (int i = 0; i < DW_MAX_SUSPECTS; i++)
		n += dw_suspects->suspects[i].crashes > 0;
	pg_atomic_write_u32(&dw_suspects->n, n);
}

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
	DwSuspect  *known;
	int			crashes;

	if (shared)
		SpinLockAcquire(&dw_suspects->lock);
	known = find_suspect(e->database, e->current.id);
	crashes = known == NULL ? 1 : Min(known->crashes + 1, DW_CRASHES_LEFT_ALONE);
	set_element(known != NULL ? known : free_element(), e->database, e->current.id, crashes,
				dw_now());
	if (shared)
		SpinLockRelease(&dw_suspects->lock);
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

/*---- Reading ----*/

/* Returns the number of crashes of a task.  Without suspects the cost is one atomic read. */
int
dw_crashes_of(Oid database, int64 id)
{
	const DwSuspect *suspect;
	int			crashes;

	if (dw_suspects == NULL || pg_atomic_read_u32(&dw_suspects->n) == 0)
		return 0;
	SpinLockAcquire(&dw_suspects->lock);
	suspect = find_suspect(database, id);
	crashes = suspect != NULL ? suspect->crashes : 0;
	SpinLockRelease(&dw_suspects->lock);
	return crashes;
}

/*
 * Stores the ids of a database's suspects whose last crash was before the given time in "ids", an
 * array of DW_MAX_SUSPECTS.  Returns their number.
 */
int
dw_crashes_list(Oid database, TimestampTz before, int64 *ids)
{
	int			n = 0;

	if (pg_atomic_read_u32(&dw_suspects->n) == 0)
		return 0;
	SpinLockAcquire(&dw_suspects->lock);
	for (int i = 0; i < DW_MAX_SUSPECTS; i++)
	{
		const DwSuspect *suspect = &dw_suspects->suspects[i];

		if (suspect->crashes > 0 && suspect->database == database && suspect->crashed_at < before)
			ids[n++] = suspect->id;
	}
	SpinLockRelease(&dw_suspects->lock);
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
	return dw_suspects->careful_until != 0 && dw_uptime() < dw_suspects->careful_until;
}

/*---- Changing ----*/

/*
 * Removes a suspect, since the task has ended, its row is gone, or it starts afresh.
 *
 * If "next" is not 0, the task "next" becomes the suspect instead.  This task is the next run of a
 * recurring task, after a run was lost or left out.
 */
void
dw_crashes_end(Oid database, int64 id, int64 next)
{
	DwSuspect  *suspect;

	if (pg_atomic_read_u32(&dw_suspects->n) == 0)
		return;
	SpinLockAcquire(&dw_suspects->lock);
	suspect = find_suspect(database, id);
	if (suspect != NULL)
		set_element(suspect, database, next, next != 0 ? suspect->crashes : 0, suspect->crashed_at);
	SpinLockRelease(&dw_suspects->lock);
}

/* Removes all suspects of a database, since the extension was dropped. */
void
dw_crashes_forget_database(Oid database)
{
	int64		ids[DW_MAX_SUSPECTS];
	int			n = dw_crashes_list(database, DT_NOEND, ids);

	for (int i = 0; i < n; i++)
		dw_crashes_end(database, ids[i], 0);
}

/*---- The file ----*/

/*
 * Writes the file, if there are suspects.  Raises no error, and relies on nothing in shared memory,
 * which may be damaged.  If the write fails, counts start at zero.
 */
void
dw_suspects_write_file(void)
{
	FILE	   *file = NULL;
	bool		failed = false;

	for (int i = 0; i < DW_MAX_SUSPECTS; i++)
	{
		const DwSuspect *suspect = &dw_suspects->suspects[i];

		if (suspect->crashes <= 0)
			continue;
		if (file == NULL)
		{
			file = AllocateFile(FILE_NAME, PG_BINARY_W);
			failed = file == NULL || fprintf(file, "%s\n", FILE_HEADER) < 0;
		}
		failed = failed || fprintf(file, "%u " INT64_FORMAT " %d " INT64_FORMAT "\n",
								   suspect->database, suspect->id, suspect->crashes,
								   suspect->crashed_at) < 0;
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

/*
 * Reads the file into the empty array, and removes the file.  Called by the postmaster when it sets
 * up shared memory.
 */
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
		for (int i = 0; i < DW_MAX_SUSPECTS && fgets(line, sizeof(line), file) != NULL; i++)
		{
			Oid			database;
			long long	id;
			int			crashes;
			long long	crashed_at;

			if (sscanf(line, "%u %lld %d %lld", &database, &id, &crashes, &crashed_at) == 4 &&
				crashes > 0)
				set_element(free_element(), database, id, Min(crashes, DW_CRASHES_LEFT_ALONE),
							crashed_at);
		}
	(void) FreeFile(file);
	/* if the file came back after a crash, it would blame tasks again */
	(void) durable_unlink(FILE_NAME, LOG);
}

/* dw_crashes_init() initializes this memory. */
void
dw_crashes_request(void)
{
	ShmemRequestStruct(.name = "delay_wheel crashes",
					   .size = sizeof(DwSuspects),
					   .ptr = (void **) &dw_suspects);
}
