/*-------------------------------------------------------------------------
 *
 * crash_watch.c
 *	  Finds out whether a process was told to quit or has crashed.
 *
 * Run by executors and their parallel workers, by the other workers of delay_wheel, and by the
 * postmaster.  Signal handlers note that the postmaster has told the process to quit, and the
 * postmaster reads the notes (look_back).  README.md explains how this proves a crash.
 *
 * A process is "told" if the postmaster sent SIGQUIT to it, or SIGABRT if send_abort_for_crash is
 * on.  A "helper" is a parallel worker of a task's query.  The executor's place counts its helpers.
 * The order of stores ensures that a signal between any two of them cannot add a suspect.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"

#include "../base/inject.h"
#include "executors.h"

/* The executor of the task for which this parallel worker runs; NULL in other processes. */
static DwExecutor *volatile helped = NULL;
static emit_log_hook_type prev_emit_log_hook = NULL;

/* After a start with suspects, dw_crashes_are_recent() is true for this time, in us. */
#define CAREFUL_US	USECS_PER_MINUTE

/*---- Blame ----*/

/*
 * Returns true if the executor or a helper has crashed during a task.  A crashed process died
 * without being told to quit, and before other processes were told.
 *
 * The number of helpers is below 0 if a helper was told to quit just when it began or ended.
 */
static bool
has_crashed(const DwExecutor *e)
{
	int32		helpers = pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &e->helpers));

	return e->state == DW_EXECUTOR_BUSY && e->current.id != 0 &&
		(helpers > 0 || (!e->blameless && !e->outlived));
}

/*
 * on_shmem_exit callback of the postmaster, called when all processes are gone.  Blames the tasks
 * whose processes have crashed, and saves all suspects.
 *
 * Shared memory may be damaged.  So this function takes no lock, does nothing that could fail, and
 * has no loop whose end depends on shared memory.
 */
static void
look_back(int code, Datum arg)
{
	if (MyProcPid != PostmasterPid || dw_shared == NULL)
		return;
	/* exit code 0 means an ordered stop, which blames no task */
	for (int i = 0; code != 0 && i < max_worker_processes; i++)
		if (has_crashed(&dw_executors[i]))
			dw_suspects_blame(&dw_executors[i]);
	dw_suspects_write_file();
}

/*---- Signals and PANIC ----*/

/*
 * Notes that this executor or helper does not end because of its task.  Signal handlers call this,
 * too.
 *
 * If a signal arrives between the last two stores, the helper is subtracted twice, and the crash of
 * another helper may be missed.
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
 * Notes that this process was told to quit.  Called in signal handlers.
 *
 * Marks all executors that still exist, since none of them died first.  kill() does not find the
 * process that died first, since the postmaster has reaped that process.
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

/*
 * SIGQUIT handler, like PostgreSQL's SignalHandlerForCrashExit.  The process counts as told only if
 * the postmaster sent the signal.
 */
static void
quit(int signo, siginfo_t *info, void *context)
{
	if (info->si_pid == PostmasterPid)
		note_quit();
	_exit(2);
}

/*
 * SIGABRT handler: the postmaster sends SIGABRT if send_abort_for_crash is on.  If this process
 * calls abort(), the handler runs, too, but the process does not count as told.
 */
static void
abort_after_crash(int signo, siginfo_t *info, void *context)
{
	if (info->si_code == SI_USER && info->si_pid == PostmasterPid)
		note_quit();
	/* SA_RESETHAND has reset the handler: this ends the process */
	(void) raise(SIGABRT);
}

/*
 * Installs the signal handlers, which note when the postmaster tells this process to quit.  Called
 * by each worker of delay_wheel.
 */
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

/*
 * Returns true if the machine has caused the error: by its SQLSTATE (insufficient resources, system
 * error), or by EROFS or EDQUOT, which have no such SQLSTATE.
 */
static bool
is_of_machine(const ErrorData *edata)
{
	int			category = ERRCODE_TO_CATEGORY(edata->sqlerrcode);

	return category == ERRCODE_INSUFFICIENT_RESOURCES || category == ERRCODE_SYSTEM_ERROR ||
		edata->saved_errno == EROFS || edata->saved_errno == EDQUOT;
}

/* Log hook: if the machine has caused a PANIC, notes that the task is not to blame. */
static void
note_panic(ErrorData *edata)
{
	if (edata->elevel >= PANIC && is_of_machine(edata))
		note_blameless();
	if (prev_emit_log_hook)
		prev_emit_log_hook(edata);
}

/* Installs the log hook.  Called by executors and helpers. */
void
dw_crashes_watch_panics(void)
{
	prev_emit_log_hook = emit_log_hook;
	emit_log_hook = note_panic;
}

/*---- Parallel workers ----*/

/* before_shmem_exit callback of a helper: subtracts the helper from the count. */
static void
end_helping(int code, Datum arg)
{
	/* the code is below 0 if the SQL of the task has called exit() */
	if (code >= 0)
		note_blameless();
}

/*
 * Called before a query begins.  If this process is a parallel worker of a task's query, counts it,
 * once, in the place of the executor.
 *
 * First sets up the callback and the handlers, which subtract the worker again.  If a signal
 * arrives after "helped" is set and before the worker is counted, the count is too low by one.
 */
void
dw_crashes_watch_query(void)
{
	static bool looked = false;
	DwExecutor *e;

	if (looked || !IsParallelWorker() || dw_shared == NULL)
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

/*---- Set-up ----*/

/*
 * Initializes the suspects from the file, and registers look_back().  Called by the postmaster
 * whenever shared memory is created, so that look_back() runs before the memory is freed.
 */
void
dw_crashes_init(void)
{
	DwNotes    *suspects = &dw_shared->suspects;

	pg_atomic_init_u32(&suspects->used, 0);
	SpinLockInit(&suspects->lock);
	pg_atomic_init_u32(&dw_shared->quits.used, 0);
	SpinLockInit(&dw_shared->quits.lock);
	on_shmem_exit(look_back, (Datum) 0);
	/* a single-user process does not read the file, since no postmaster would write it again */
	if (MyProcPid == PostmasterPid)
		dw_suspects_read_file();
	/* this server may be a copy, and the file may come from the original server */
	if (dw_shared->recovered)
	{
		memset(suspects->notes, 0, sizeof(suspects->notes));
		pg_atomic_write_u32(&suspects->used, 0);
	}
	else if (pg_atomic_read_u32(&suspects->used) > 0)
		dw_shared->careful_until = dw_uptime() + CAREFUL_US;
}
