/*-------------------------------------------------------------------------
 *
 * crashes.c
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

#include "access/parallel.h"
#include "access/table.h"
#include "crashes.h"
#include "executor.h"
#include "executor/executor.h"
#include "inject.h"
#include "load.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "task_rows.h"
#include "utils/snapmgr.h"

/* In the data directory. */
#define FILE_NAME		"delay_wheel.crashes"
#define FILE_NEW		FILE_NAME ".tmp"
#define FILE_HEADER		"delay_wheel crashes 1: database, task, crashes, in a batch, when"

#define MAX_SUSPECTS	64

/* Since the last crash. */
#define MAX_PUT_OFF		20

/* The one at fault in a batch may be another than the last: all run alone. */
#define NO_BATCHES_US	USECS_PER_MINUTE

typedef struct Suspect
{
	Oid			database;
	int64		id;
	int			crashes;
	bool		in_batch;		/* at its last crash */
	bool		lost;			/* its row may be gone, though it has not ended:
								 * the next run of a recurring task is suspected */
	int			put_off;		/* so often, for a fresh process */
	TimestampTz crashed_at;
} Suspect;

typedef struct Crashes
{
	pg_atomic_uint32 n;			/* suspects; read without the lock for "none" */
	pg_atomic_uint32 unsaved;	/* the file is out of date */
	slock_t		lock;
	int64		no_batches_until;	/* by dw_uptime(), set by the postmaster only */
	Suspect		suspects[MAX_SUSPECTS];
} Crashes;

static Crashes *crashes = NULL;

/* The executor that this process is a parallel worker of, or NULL. */
static DwExecutor *volatile helped = NULL;

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static emit_log_hook_type prev_emit_log_hook = NULL;

/*---- The array; changes under the lock, or by the postmaster alone ----*/

static Suspect *
find(Oid database, int64 id)
{
	uint32		n = Min(pg_atomic_read_u32(&crashes->n), MAX_SUSPECTS);

	for (uint32 i = 0; i < n; i++)
		if (crashes->suspects[i].id == id && crashes->suspects[i].database == database)
			return &crashes->suspects[i];
	return NULL;
}

/*
 * Who is cut off in the middle leaves a suspect without crashes, or one twice:
 * nobody ever has those of another.
 */
static void
remove_at(uint32 i)
{
	uint32		n = pg_atomic_read_u32(&crashes->n);

	for (; i + 1 < n; i++)
	{
		Suspect		next = crashes->suspects[i + 1];
		int			count = next.crashes;

		crashes->suspects[i].crashes = next.crashes = 0;
		pg_write_barrier();
		crashes->suspects[i] = next;
		pg_write_barrier();
		crashes->suspects[i].crashes = count;
	}
	pg_write_barrier();
	pg_atomic_write_u32(&crashes->n, n - 1);
	pg_atomic_write_u32(&crashes->unsaved, 1);
}

/* The oldest ones are in front; one of them goes if there is no room. */
static void
add(const Suspect *suspect)
{
	uint32		n;

	if (pg_atomic_read_u32(&crashes->n) >= MAX_SUSPECTS)
		remove_at(0);
	n = pg_atomic_read_u32(&crashes->n);
	crashes->suspects[n] = *suspect;
	pg_write_barrier();
	pg_atomic_write_u32(&crashes->n, n + 1);
	pg_atomic_write_u32(&crashes->unsaved, 1);
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
static int
blame(const DwExecutor *e, bool proved)
{
	Suspect    *known = find(e->database, e->current.id);

	if (known == NULL)
	{
		Suspect		suspect = {
			.database = e->database,
			.id = e->current.id,
			.crashes = 1,
			.in_batch = e->in_batch,
			.lost = runs_without_row(e),
			.crashed_at = dw_now()
		};

		add(&suspect);
		return 1;
	}
	if (e->trial != DW_ON_TRIAL || !proved)
		return 0;
	known->crashes = Min(known->crashes + 1, DW_CRASHES_LEFT_ALONE);
	known->in_batch = false;
	known->lost = runs_without_row(e);
	known->put_off = 0;
	known->crashed_at = dw_now();
	pg_atomic_write_u32(&crashes->unsaved, 1);
	return known->crashes;
}

static void
report(const DwExecutor *e, int count)
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

int
dw_crashes_of(Oid database, int64 id)
{
	const Suspect *suspect;
	int			count;

	if (crashes == NULL || pg_atomic_read_u32(&crashes->n) == 0)
		return 0;
	SpinLockAcquire(&crashes->lock);
	suspect = find(database, id);
	count = suspect != NULL ? suspect->crashes : 0;
	SpinLockRelease(&crashes->lock);
	return count;
}

int
dw_crashes_suspects(Oid database)
{
	int			count = 0;

	SpinLockAcquire(&crashes->lock);
	for (uint32 i = 0; i < Min(pg_atomic_read_u32(&crashes->n), MAX_SUSPECTS); i++)
		count += crashes->suspects[i].database == database && crashes->suspects[i].crashes > 0;
	SpinLockRelease(&crashes->lock);
	return count;
}

bool
dw_crashes_forbid_batches(void)
{
	return crashes->no_batches_until != 0 && dw_uptime() < crashes->no_batches_until;
}

/*---- Who changes ----*/

/* The launcher is to write it down. */
static void
ask_for_save(void)
{
	if (pg_atomic_read_u32(&crashes->unsaved) != 0)
		dw_wake_launcher();
}

static void
forget(Oid database, int64 id, bool also_lost)
{
	Suspect    *suspect;

	if (pg_atomic_read_u32(&crashes->n) == 0)
		return;
	SpinLockAcquire(&crashes->lock);
	suspect = find(database, id);
	if (suspect != NULL && (also_lost || !suspect->lost))
		remove_at(suspect - crashes->suspects);
	SpinLockRelease(&crashes->lock);
	ask_for_save();
}

void
dw_crashes_forget(Oid database, int64 id)
{
	forget(database, id, true);
}

/* Not if another executor has it, and is not suspected any less. */
void
dw_crashes_gone(Oid database, int64 id)
{
	Oid			owner;

	if (dw_crashes_of(database, id) > 0 && !dw_executor_runs_autonomous(id, &owner))
		forget(database, id, false);
}

void
dw_crashes_forget_database(Oid database)
{
	if (pg_atomic_read_u32(&crashes->n) == 0)
		return;
	SpinLockAcquire(&crashes->lock);
	for (int i = (int) pg_atomic_read_u32(&crashes->n) - 1; i >= 0; i--)
		if (crashes->suspects[i].database == database)
			remove_at(i);
	SpinLockRelease(&crashes->lock);
	ask_for_save();
}

bool
dw_crashes_put_off(Oid database, int64 id)
{
	Suspect    *suspect;
	bool		allowed;

	SpinLockAcquire(&crashes->lock);
	suspect = find(database, id);
	allowed = suspect != NULL && suspect->put_off < MAX_PUT_OFF;
	if (allowed)
		suspect->put_off++;
	SpinLockRelease(&crashes->lock);
	return allowed;
}

void
dw_crashes_pass_on(Oid database, int64 from, int64 to)
{
	Suspect    *suspect;

	if (to == 0)
		dw_crashes_forget(database, from);
	if (pg_atomic_read_u32(&crashes->n) == 0)
		return;
	SpinLockAcquire(&crashes->lock);
	suspect = find(database, from);
	if (suspect != NULL)
	{
		suspect->id = to;
		suspect->lost = false;
		pg_atomic_write_u32(&crashes->unsaved, 1);
	}
	SpinLockRelease(&crashes->lock);
	ask_for_save();
}

void
dw_crashes_exited(const DwExecutor *me)
{
	int			count;

	SpinLockAcquire(&crashes->lock);
	count = blame(me, true);
	SpinLockRelease(&crashes->lock);
	report(me, count);
	ask_for_save();
}

/*
 * Tasks that were cancelled, or have run in a transaction of somebody else.  A
 * run that was lost just now is to be passed on first.
 */
void
dw_crashes_tidy(DwDatabase *db)
{
	Suspect		copy[MAX_SUSPECTS];
	uint32		n;
	Relation	rel;

	if (pg_atomic_read_u32(&crashes->n) == 0)
		return;
	SpinLockAcquire(&crashes->lock);
	n = pg_atomic_read_u32(&crashes->n);
	memcpy(copy, crashes->suspects, n * sizeof(Suspect));
	SpinLockRelease(&crashes->lock);

	rel = dw_read_begin();
	for (uint32 i = 0; rel != NULL && i < n; i++)
		if (copy[i].database == db->oid && dw_now() - copy[i].crashed_at > USECS_PER_HOUR &&
			dw_task_find(rel, copy[i].id, GetActiveSnapshot()) == NULL)
			dw_crashes_forget(db->oid, copy[i].id);
	dw_read_end(rel);
}

/*---- The file ----*/

static bool
write_suspects(FILE *file, const Suspect *suspects, uint32 n)
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
static void
write_file(const Suspect *suspects, uint32 n)
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

static void
read_file(void)
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
		for (int i = 0; i < MAX_SUSPECTS && fgets(line, sizeof(line), file) != NULL; i++)
		{
			Suspect		suspect = {0};
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
			add(&suspect);
		}
	(void) FreeFile(file);
	pg_atomic_write_u32(&crashes->unsaved, 0);
}

void
dw_crashes_save(void)
{
	Suspect		copy[MAX_SUSPECTS];
	uint32		n;

	if (pg_atomic_exchange_u32(&crashes->unsaved, 0) == 0)
		return;
	SpinLockAcquire(&crashes->lock);
	n = pg_atomic_read_u32(&crashes->n);
	memcpy(copy, crashes->suspects, n * sizeof(Suspect));
	SpinLockRelease(&crashes->lock);
	write_file(copy, n);
}

/*---- The postmaster, when all processes are gone ----*/

/* Below 0: one who was told to quit just when he came or went. */
static bool
helper_died(const DwExecutor *e)
{
	return (int32) pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &e->helpers)) > 0;
}

static bool
died_untold(const DwExecutor *e)
{
	return e->state == DW_EXECUTOR_BUSY && e->current.id != 0 &&
		(!e->blameless || helper_died(e));
}

/* Was it, or a parallel worker of it, what the others were told to quit for? */
static bool
died_first(const DwExecutor *e)
{
	return died_untold(e) && (e->blameless || !e->outlived);
}

static void
blame_who_died(void)
{
	uint32		places = max_worker_processes;
	int			alone = 0;

	for (uint32 i = 0; i < places; i++)
		if (died_first(&dw_executors[i]))
			alone++;
	for (uint32 i = 0; i < places; i++)
	{
		const DwExecutor *e = &dw_executors[i];

		if (died_untold(e))
			report(e, blame(e, alone == 1 && died_first(e)));
	}
}

/*
 * What is in shared memory may be damaged: no lock, nothing that could fail,
 * no loop that it bounds.
 */
static void
look_back(int code, Datum arg)
{
	if (MyProcPid != PostmasterPid || crashes == NULL)
		return;
	if (pg_atomic_read_u32(&crashes->n) > MAX_SUSPECTS)
		return;
	/* 0 is a stop that was ordered */
	if (code != 0)
		blame_who_died();
	/* in any case: the launcher may have been about to */
	write_file(crashes->suspects, pg_atomic_read_u32(&crashes->n));
}

/*---- Our workers ----*/

/*
 * In signal handlers, too.  If one strikes before a helper has forgotten whom he
 * helps, he is taken off twice, so that another's crash may not count.
 */
static void
note_blameless(void)
{
	if (dw_this_executor != NULL)
		dw_this_executor->blameless = true;
	if (helped != NULL)
		pg_atomic_fetch_sub_u32(&helped->helpers, 1);
	helped = NULL;
}

/*
 * In signal handlers: marks this process as told, and who is still there as
 * not the one that began.  That one's parent has taken notice of its end.
 */
static void
note_quit(void)
{
	note_blameless();
	for (int i = 0; i < max_worker_processes; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e != dw_this_executor && e->state == DW_EXECUTOR_BUSY && kill(e->pid, 0) == 0)
			e->outlived = true;
	}
}

/* As SignalHandlerForCrashExit.  Anybody else's signal is not for us to obey unseen. */
static void
quit(int signo, siginfo_t *info, void *context)
{
	if (info->si_pid == PostmasterPid)
		note_quit();
	_exit(2);
}

/* So it is with send_abort_for_crash; abort() of our own comes here as well. */
static void
abort_after_crash(int signo, siginfo_t *info, void *context)
{
	if (info->si_code == SI_USER && info->si_pid == PostmasterPid)
		note_quit();
	/* the handler is reset: this ends us */
	(void) raise(SIGABRT);
}

void
dw_crashes_watch_signals(void)
{
	struct sigaction action = {.sa_sigaction = quit, .sa_flags = SA_SIGINFO | SA_RESTART};

	sigemptyset(&action.sa_mask);
	(void) sigaction(SIGQUIT, &action, NULL);
	action.sa_sigaction = abort_after_crash;
	action.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER;
	(void) sigaction(SIGABRT, &action, NULL);
}

/* Insufficient resources, errors of the system; some that have no code of their own. */
static bool
is_of_machine(const ErrorData *edata)
{
	int			category = ERRCODE_TO_CATEGORY(edata->sqlerrcode);

	return category == ERRCODE_INSUFFICIENT_RESOURCES || category == ERRCODE_SYSTEM_ERROR ||
		edata->saved_errno == EROFS || edata->saved_errno == EDQUOT;
}

static void
note_panic(ErrorData *edata)
{
	if (edata->elevel >= PANIC && is_of_machine(edata))
		note_blameless();
	if (prev_emit_log_hook)
		prev_emit_log_hook(edata);
}

void
dw_crashes_watch_panics(void)
{
	prev_emit_log_hook = emit_log_hook;
	emit_log_hook = note_panic;
}

/*---- Parallel workers of executors ----*/

static void
end_helping(int code, Datum arg)
{
	/* not if it was the task that has called exit() */
	if (code >= 0)
		note_blameless();
}

/*
 * Whoever is counted takes that back when he is told to quit: so first all that
 * does so.  If it does before he is counted, he is taken off in vain.
 */
static void
begin_helping(void)
{
	static bool looked = false;
	DwExecutor *e;

	if (looked)
		return;
	looked = true;
	e = dw_executor_served();
	if (e == NULL)
		return;
	before_shmem_exit(end_helping, (Datum) 0);
	dw_crashes_watch_signals();
	dw_crashes_watch_panics();
	DW_INJECT("helper-watches");
	helped = e;
	DW_INJECT("helper-comes");
	pg_atomic_fetch_add_u32(&helped->helpers, 1);
	DW_INJECT("helper-is-there");
}

static void
start_query(QueryDesc *query, int flags)
{
	if (IsParallelWorker() && crashes != NULL)
		begin_helping();
	if (prev_ExecutorStart)
		prev_ExecutorStart(query, flags);
	else
		standard_ExecutorStart(query, flags);
}

void
dw_crashes_install(void)
{
	prev_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = start_query;
}

/*---- Set-up ----*/

Size
dw_crashes_size(void)
{
	return MAXALIGN(sizeof(Crashes));
}

void
dw_crashes_attach(void)
{
	bool		found;

	crashes = ShmemInitStruct("delay_wheel crashes", sizeof(Crashes), &found);
}

/* Registered anew for each shared memory; so it runs before that is given up. */
void
dw_crashes_init(void)
{
	memset(crashes, 0, sizeof(Crashes));
	pg_atomic_init_u32(&crashes->n, 0);
	pg_atomic_init_u32(&crashes->unsaved, 0);
	SpinLockInit(&crashes->lock);
	/* it may have come with a copy */
	if (dw_shared->recovered)
		write_file(NULL, 0);
	else
		read_file();
	for (uint32 i = 0; i < pg_atomic_read_u32(&crashes->n); i++)
		if (crashes->suspects[i].in_batch)
			crashes->no_batches_until = dw_uptime() + NO_BATCHES_US;
	on_shmem_exit(look_back, (Datum) 0);
}
