/*-------------------------------------------------------------------------
 *
 * suspects.c
 *	  Tasks that crash the server: suspects, and how often they did.
 *
 * Run by executors, by the launcher, by sessions, and by the postmaster when it sets up
 * shared memory, and when all processes are gone.
 *
 * A task that crashes its process makes the server restart.  After the restart the task
 * is overdue, so it would be run again at once, and so on for ever.  So such a task
 * must be set aside, but no other task that happened to run at the same time.
 *
 * Blame needs proof.  When a process crashes, the postmaster tells all others to quit.
 * So the process that died without having been told is the one that crashed.  Executors
 * note in their place that they were told, and by which process (crash_watch.c).  When
 * all processes are gone, and shared memory is about to be given up, the postmaster
 * looks at these places: a task whose process died untold becomes a suspect.  If the
 * stop was ordered, nobody is blamed.
 *
 * A suspect is run again on trial, if possible while no other task runs (trial.c).  A crash
 * on trial counts if its process is the only one that died untold, and did not exist
 * any more when others were told.  So a process that ignores the signal, and is killed
 * in the end, is not counted.  The parallel workers of a task's query count as its
 * process.  After two crashes on trial, three in all, the task is set aside
 * (verdict.c); any other end clears it.  To be set aside the task must be claimed,
 * which is done on trial, too.  If that crashes the server, the task is left alone.
 *
 * Suspects are an array in shared memory, under a spinlock, and a file in the data
 * directory, which outlives the server.  The postmaster writes the file at its end: no
 * other process is left then, so it takes no lock, and it raises no error.  The
 * launcher writes the file when something has changed.  The file may be out of date; a
 * task that is in it by mistake is cleared by its trial.
 *
 * A signal to quit may strike between any two stores.  Stores are ordered so that an
 * interruption can only lose a suspect, never add one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "access/table.h"
#include "storage/fd.h"
#include "storage/shmem.h"
#include "storage/spin.h"

#include "../base/clock.h"
#include "../ring/ring.h"
#include "executors.h"
#include "shared.h"
#include "suspects.h"

/* The file, in the data directory. */
#define FILE_NAME		"delay_wheel.crashes"
#define FILE_NEW		FILE_NAME ".tmp"
#define FILE_HEADER		"delay_wheel crashes 1: database, task, crashes, in a batch, when"

/* How often, since its last crash, the run of a suspect is left to a fresh process. */
#define MAX_PUT_OFF		20

DwSuspects *dw_suspects = NULL;

/*---- The array: changed under the spinlock, or by the postmaster alone ----*/

/* The suspect with this id, or NULL. */
static DwSuspect *
find_suspect(Oid database, int64 id)
{
	uint32		n = Min(pg_atomic_read_u32(&dw_suspects->n), DW_MAX_SUSPECTS);

	for (uint32 i = 0; i < n; i++)
		if (dw_suspects->suspects[i].id == id && dw_suspects->suspects[i].database == database)
			return &dw_suspects->suspects[i];
	return NULL;
}

/*
 * Removes the i-th suspect, and moves those behind it forward.
 *
 * If the process is interrupted, a suspect may be without crashes, or there twice; it
 * never has the crashes of another one.
 */
static void
remove_at(uint32 i)
{
	uint32		n = pg_atomic_read_u32(&dw_suspects->n);

	for (; i + 1 < n; i++)
	{
		DwSuspect		next = dw_suspects->suspects[i + 1];
		int			count = next.crashes;

		dw_suspects->suspects[i].crashes = next.crashes = 0;
		pg_write_barrier();
		dw_suspects->suspects[i] = next;
		pg_write_barrier();
		dw_suspects->suspects[i].crashes = count;
	}
	pg_write_barrier();
	pg_atomic_write_u32(&dw_suspects->n, n - 1);
	pg_atomic_write_u32(&dw_suspects->unsaved, 1);
}

/*
 * Appends a suspect.  If the array is full, the oldest one, which is in front, is
 * removed.
 */
static void
add_suspect(const DwSuspect *suspect)
{
	uint32		n;

	if (pg_atomic_read_u32(&dw_suspects->n) >= DW_MAX_SUSPECTS)
		remove_at(0);
	n = pg_atomic_read_u32(&dw_suspects->n);
	dw_suspects->suspects[n] = *suspect;
	pg_write_barrier();
	pg_atomic_write_u32(&dw_suspects->n, n + 1);
	pg_atomic_write_u32(&dw_suspects->unsaved, 1);
}

/*
 * True if the task runs outside of a transaction, and its row was deleted before (mode
 * at_most_once).
 */
static bool
runs_without_row(const DwExecutor *e)
{
	return pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &e->autonomous)) != 0;
}

/*
 * Records that a process died while it ran a task of executor e; "proved" is whether no
 * other process can have been the cause.
 *
 * The task becomes a suspect.  If it is one already, the crash is added only if it is
 * proved and the task was on trial.  Returns the number of crashes, or 0 if nothing was
 * added.  Needs the spinlock, except in the postmaster at its end.
 */
int
dw_suspects_blame(const DwExecutor *e, bool proved)
{
	DwSuspect    *known = find_suspect(e->database, e->current.id);

	if (known == NULL)
	{
		DwSuspect		suspect = {
			.database = e->database,
			.id = e->current.id,
			.crashes = 1,
			.in_batch = e->in_batch,
			.lost = runs_without_row(e),
			.crashed_at = dw_now()
		};

		add_suspect(&suspect);
		return 1;
	}
	if (e->trial != DW_ON_TRIAL || !proved)
		return 0;
	known->crashes = Min(known->crashes + 1, DW_CRASHES_LEFT_ALONE);
	known->in_batch = false;
	known->lost = runs_without_row(e);
	known->put_off = 0;
	known->crashed_at = dw_now();
	pg_atomic_write_u32(&dw_suspects->unsaved, 1);
	return known->crashes;
}

/*
 * Reports a crash of the executor's task in the log; count is what dw_suspects_blame()
 * returned.
 */
void
dw_suspects_report(const DwExecutor *e, int count)
{
	if (count >= DW_CRASHES_LEFT_ALONE)
		ereport(LOG,
				(errmsg("the process that was to set aside delay_wheel task %lld of database %u crashed",
						(long long) e->current.id, e->database),
				 errdetail("The task stays in delay_wheel.task and is not run any more.")));
	else if (count > 0)
		ereport(LOG,
				(errmsg("the process of delay_wheel task %lld of database %u crashed, %d of %d times",
						(long long) e->current.id, e->database, count, DW_MAX_CRASHES),
				 count < DW_MAX_CRASHES ? errdetail("It will be run again alone.") :
				 errdetail("It will not be run again.")));
}

/*---- Reading ----*/

/*
 * How often the process of a task has crashed, 0 if it never has.  If there are no
 * suspects, this costs one atomic read.
 */
int
dw_crashes_of(Oid database, int64 id)
{
	const DwSuspect *suspect;
	int			count;

	if (dw_suspects == NULL || pg_atomic_read_u32(&dw_suspects->n) == 0)
		return 0;
	SpinLockAcquire(&dw_suspects->lock);
	suspect = find_suspect(database, id);
	count = suspect != NULL ? suspect->crashes : 0;
	SpinLockRelease(&dw_suspects->lock);
	return count;
}

/*
 * Number of tasks of a database that are suspected, or were set aside for crashes and
 * not forgotten since.
 */
int
dw_crashes_suspects(Oid database)
{
	int			count = 0;

	SpinLockAcquire(&dw_suspects->lock);
	for (uint32 i = 0; i < Min(pg_atomic_read_u32(&dw_suspects->n), DW_MAX_SUSPECTS); i++)
		count += dw_suspects->suspects[i].database == database &&
			dw_suspects->suspects[i].crashes > 0;
	SpinLockRelease(&dw_suspects->lock);
	return count;
}

/* True if a batch has crashed lately, so that no batch must be begun. */
bool
dw_crashes_forbid_batches(void)
{
	return dw_suspects->no_batches_until != 0 && dw_uptime() < dw_suspects->no_batches_until;
}

/*---- Changing ----*/

/* Wakes the launcher to write the file, if the file is out of date. */
void
dw_suspects_ask_for_save(void)
{
	if (pg_atomic_read_u32(&dw_suspects->unsaved) != 0)
		dw_wake_launcher();
}

/* Removes a suspect; one whose row is lost only if also_lost. */
static void
forget_suspect(Oid database, int64 id, bool also_lost)
{
	DwSuspect    *suspect;

	if (pg_atomic_read_u32(&dw_suspects->n) == 0)
		return;
	SpinLockAcquire(&dw_suspects->lock);
	suspect = find_suspect(database, id);
	if (suspect != NULL && (also_lost || !suspect->lost))
		remove_at(suspect - dw_suspects->suspects);
	SpinLockRelease(&dw_suspects->lock);
	dw_suspects_ask_for_save();
}

/*
 * Removes a suspect, since the task has ended, or another task of the same id may come.
 */
void
dw_crashes_forget(Oid database, int64 id)
{
	forget_suspect(database, id, true);
}

/*
 * Removes a suspect whose row does not exist any more, whichever process has deleted
 * it.
 *
 * Suspects that an executor runs just now after it has deleted the row, and those whose
 * row is lost, stay.
 */
void
dw_crashes_gone(Oid database, int64 id)
{
	Oid			owner;

	if (dw_crashes_of(database, id) > 0 && !dw_executor_runs_autonomous(id, &owner))
		forget_suspect(database, id, false);
}

/* Removes all suspects of a database, since the extension is gone. */
void
dw_crashes_forget_database(Oid database)
{
	if (pg_atomic_read_u32(&dw_suspects->n) == 0)
		return;
	SpinLockAcquire(&dw_suspects->lock);
	for (int i = (int) pg_atomic_read_u32(&dw_suspects->n) - 1; i >= 0; i--)
		if (dw_suspects->suspects[i].database == database)
			remove_at(i);
	SpinLockRelease(&dw_suspects->lock);
	dw_suspects_ask_for_save();
}

/*
 * Notes that the run of a suspect is left to a fresh process.  False if that happened
 * too often already: tasks of other lanes might be taken before it each time.
 */
bool
dw_crashes_put_off(Oid database, int64 id)
{
	DwSuspect    *suspect;
	bool		allowed;

	SpinLockAcquire(&dw_suspects->lock);
	suspect = find_suspect(database, id);
	allowed = suspect != NULL && suspect->put_off < MAX_PUT_OFF;
	if (allowed)
		suspect->put_off++;
	SpinLockRelease(&dw_suspects->lock);
	return allowed;
}

/*
 * Makes the task "to" the suspect instead of the task "from": a run of a recurring task
 * was lost or left out, and "to" is its next run.  If "to" is 0, there is no next run,
 * and the suspect is removed.
 */
void
dw_crashes_pass_on(Oid database, int64 from, int64 to)
{
	DwSuspect    *suspect;

	if (to == 0)
	{
		dw_crashes_forget(database, from);
		return;
	}
	if (pg_atomic_read_u32(&dw_suspects->n) == 0)
		return;
	SpinLockAcquire(&dw_suspects->lock);
	suspect = find_suspect(database, from);
	if (suspect != NULL)
	{
		suspect->id = to;
		suspect->lost = false;
		pg_atomic_write_u32(&dw_suspects->unsaved, 1);
	}
	SpinLockRelease(&dw_suspects->lock);
	dw_suspects_ask_for_save();
}

/*---- The file ----*/

/* Writes the contents of the file; false after an error. */
static bool
write_suspects(FILE *file, const DwSuspect *suspects, uint32 n)
{
	if (fprintf(file, "%s\n", FILE_HEADER) < 0)
		return false;
	for (uint32 i = 0; i < n; i++)
		if (fprintf(file, "%u " INT64_FORMAT " %d %d " INT64_FORMAT "\n",
					suspects[i].database, suspects[i].id, suspects[i].crashes,
					suspects[i].in_batch, suspects[i].crashed_at) < 0)
			return false;
	return true;
}

/*
 * Writes the file, durably; without suspects, removes it.  Raises no error.  If it
 * fails, the server goes on, and may not know a suspect after a restart.
 */
void
dw_suspects_write_file(const DwSuspect *suspects, uint32 n)
{
	FILE	   *file;
	bool		written;

	if (n == 0)
	{
		if (access(FILE_NAME, F_OK) == 0)
			(void) durable_unlink(FILE_NAME, LOG);
		return;
	}
	file = AllocateFile(FILE_NEW, PG_BINARY_W);
	written = file != NULL && write_suspects(file, suspects, n);
	/* close it in any case; an error of buffered data may show only now */
	if (file != NULL && FreeFile(file) != 0)
		written = false;
	if (!written)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", FILE_NEW)));
		(void) unlink(FILE_NEW);
		return;
	}
	(void) durable_rename(FILE_NEW, FILE_NAME, LOG);
}

/*
 * Reads the file into the array.  Called by the postmaster when it sets up shared
 * memory.
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
	/* the file of another version, or not a file of delay_wheel */
	if (fgets(line, sizeof(line), file) == NULL || strcmp(line, FILE_HEADER "\n") != 0)
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is not understood, and ignored", FILE_NAME)));
	else
		/* read no more than the array takes, whatever is in the file */
		for (int i = 0; i < DW_MAX_SUSPECTS && fgets(line, sizeof(line), file) != NULL; i++)
		{
			DwSuspect		suspect = {0};
			long long	id;
			long long	crashed_at;
			int			in_batch;

			if (sscanf(line, "%u %lld %d %d %lld", &suspect.database, &id,
					   &suspect.crashes, &in_batch, &crashed_at) != 5 ||
				suspect.crashes < 1)
				continue;
			suspect.id = id;
			suspect.in_batch = in_batch != 0;
			suspect.crashed_at = crashed_at;
			add_suspect(&suspect);
		}
	(void) FreeFile(file);
	pg_atomic_write_u32(&dw_suspects->unsaved, 0);
}

/* Writes the file if it is out of date.  Called by the launcher. */
void
dw_crashes_save(void)
{
	DwSuspect		copy[DW_MAX_SUSPECTS];
	uint32		n;

	if (pg_atomic_exchange_u32(&dw_suspects->unsaved, 0) == 0)
		return;
	SpinLockAcquire(&dw_suspects->lock);
	n = Min(pg_atomic_read_u32(&dw_suspects->n), DW_MAX_SUSPECTS);
	memcpy(copy, dw_suspects->suspects, n * sizeof(DwSuspect));
	SpinLockRelease(&dw_suspects->lock);
	dw_suspects_write_file(copy, n);
}

/*---- Set-up ----*/

/* Bytes of shared memory for suspects. */
Size
dw_crashes_size(void)
{
	return MAXALIGN(sizeof(DwSuspects));
}

/* Creates the array, or attaches to it; dw_crashes_init() initializes it. */
void
dw_crashes_attach(void)
{
	bool		found;

	dw_suspects = ShmemInitStruct("delay_wheel crashes", sizeof(DwSuspects), &found);
}
