/*-------------------------------------------------------------------------
 *
 * suspects.c
 *	  Tasks that crash the server: who is suspected, and set aside.
 *
 * A task that crashes its process restarts the server; being overdue then, it
 * would be run again at once, and so on for ever.  So it is to be set aside,
 * but no other task that happened to run beside it.
 *
 * Blame needs proof.  When a process crashes, the postmaster tells all others
 * to quit; so the one that died without having been told is the one that did
 * it.  Executors note in their place that they were told, and by whom.  The
 * postmaster looks at these places when all processes are gone and shared
 * memory is about to be given up: what died untold while it ran a task makes
 * that a suspect.  Where a stop is ordered everybody is told, or the postmaster
 * itself is dead: nobody is blamed.
 *
 * A suspect is run again on trial (trial.c).  It counts against it only if it
 * is the one process that died untold then, and was gone already when others
 * were told; a process that ignores the signal, and is killed in the end, is
 * not.  Parallel workers that run a part of a task's query count as its process.
 * The second such crash, the third in all, sets it aside (verdict.c); any
 * other end clears it.  To be set aside it has to be claimed, which is done on
 * trial, too: if that crashes the server it is not looked at any more.
 *
 * Suspects are in a small array in shared memory, under a spinlock, and in a
 * file of the data directory, to outlive it.  The file is written by the
 * postmaster, which takes no lock, since nobody else is left, and raises no
 * error; and by the launcher, when something has changed.  It may be behind:
 * who is there in error is cleared by his trial.
 *
 * A signal to quit may strike between any two stores.  So they are made in an
 * order in which what stands there meanwhile says less than is known, never
 * more: a crash may be forgotten, but nobody is suspected for what another did.
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

/* In the data directory. */
#define FILE_NAME		"delay_wheel.crashes"
#define FILE_NEW		FILE_NAME ".tmp"
#define FILE_HEADER		"delay_wheel crashes 1: database, task, crashes, in a batch, when"

/* Since the last crash. */
#define MAX_PUT_OFF		20

DwSuspects *dw_suspects = NULL;

/*---- The array; changes under the lock, or by the postmaster alone ----*/

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
 * Who is cut off in the middle leaves a suspect without crashes, or one twice:
 * nobody ever has those of another.
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

/* The oldest ones are in front; one of them goes if there is no room. */
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

/* Its mode is at_most_once, and it was begun. */
static bool
runs_without_row(const DwExecutor *e)
{
	return pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &e->autonomous)) != 0;
}

/*
 * A process has died while it ran its task.  Is that proved to be the task's
 * own doing?  Returns how often that one has crashed now; 0 if there is nothing
 * new to be said.
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

void
dw_suspects_report(const DwExecutor *e, int count)
{
	if (count >= DW_CRASHES_LEFT_ALONE)
		ereport(LOG,
				(errmsg("the process that was to set aside delay_wheel task %lld of database %u crashed",
						(long long) e->current.id, e->database),
				 errdetail("The task is left alone.")));
	else if (count > 0)
		ereport(LOG,
				(errmsg("the process of delay_wheel task %lld of database %u crashed, %d of %d times",
						(long long) e->current.id, e->database, count, DW_MAX_CRASHES),
				 count < DW_MAX_CRASHES ? errdetail("It will be run again alone.") :
				 errdetail("It will not be run again.")));
}

/*---- Who looks ----*/

/*
 * How often the process of a task has crashed; 0 is never, which is cheap to say.
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
 * How many tasks of a database are suspected, or were set aside and not forgotten.
 */
int
dw_crashes_suspects(Oid database)
{
	int			count = 0;

	SpinLockAcquire(&dw_suspects->lock);
	for (uint32 i = 0; i < Min(pg_atomic_read_u32(&dw_suspects->n), DW_MAX_SUSPECTS); i++)
		count += dw_suspects->suspects[i].database == database && dw_suspects->suspects[i].crashes > 0;
	SpinLockRelease(&dw_suspects->lock);
	return count;
}

/* Some batch was crashed lately: none is to be begun for a while. */
bool
dw_crashes_forbid_batches(void)
{
	return dw_suspects->no_batches_until != 0 && dw_uptime() < dw_suspects->no_batches_until;
}

/*---- Who changes ----*/

/* The launcher is to write it down. */
void
dw_suspects_ask_for_save(void)
{
	if (pg_atomic_read_u32(&dw_suspects->unsaved) != 0)
		dw_wake_launcher();
}

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

void
dw_crashes_forget(Oid database, int64 id)
{
	forget_suspect(database, id, true);
}

/*
 * There is no row of it any more, whoever has removed that.
 *
 * Not if another executor has it, and is not suspected any less.
 */
void
dw_crashes_gone(Oid database, int64 id)
{
	Oid			owner;

	if (dw_crashes_of(database, id) > 0 && !dw_executor_runs_autonomous(id, &owner))
		forget_suspect(database, id, false);
}

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
 * A suspect is to be run by another executor.  False if it was put off too
 * often: tasks of other lanes may come before it each time.
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
 * A run of a recurring task was lost or left out, and another one takes its place; 0: none does.
 */
void
dw_crashes_pass_on(Oid database, int64 from, int64 to)
{
	DwSuspect    *suspect;

	if (to == 0)
		dw_crashes_forget(database, from);
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

/* Durably; if that fails the server goes on, and a suspect may not be known as one. */
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
	/* also if that failed; what was buffered may fail only now */
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
	/* of another version, or no file of ours */
	if (fgets(line, sizeof(line), file) == NULL || strcmp(line, FILE_HEADER "\n") != 0)
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is not understood, and ignored", FILE_NAME)));
	else
		/* no more than were written, whatever it has become */
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

/* For the launcher: writes down what has changed. */
void
dw_crashes_save(void)
{
	DwSuspect		copy[DW_MAX_SUSPECTS];
	uint32		n;

	if (pg_atomic_exchange_u32(&dw_suspects->unsaved, 0) == 0)
		return;
	SpinLockAcquire(&dw_suspects->lock);
	n = pg_atomic_read_u32(&dw_suspects->n);
	memcpy(copy, dw_suspects->suspects, n * sizeof(DwSuspect));
	SpinLockRelease(&dw_suspects->lock);
	dw_suspects_write_file(copy, n);
}

/*---- Set-up ----*/

Size
dw_crashes_size(void)
{
	return MAXALIGN(sizeof(DwSuspects));
}

void
dw_crashes_attach(void)
{
	bool		found;

	dw_suspects = ShmemInitStruct("delay_wheel crashes", sizeof(DwSuspects), &found);
}
