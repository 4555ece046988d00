/*-------------------------------------------------------------------------
 *
 * crash_watch.c
 *	  How a process ends: told to quit, or crashed.
 *
 * Run by executors and their parallel workers, by the other workers of delay_wheel,
 * and by the postmaster.  Signal handlers note in an executor's place that it was told
 * to quit, and by whom.  The postmaster looks at these places when all processes are
 * gone and shared memory is about to be given up.  Why that is proof, and what becomes of
 * a suspect, is in suspects.c.
 *
 * A signal may strike between any two stores.  Stores are ordered so that an
 * interruption can only lose a suspect, never add one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/spin.h"

#include "../base/clock.h"
#include "../base/inject.h"
#include "../ring/ring.h"
#include "crash_watch.h"
#include "executors.h"
#include "shared.h"
#include "suspects.h"

/* The executor that this process is a parallel worker of, or NULL. */
static DwExecutor *volatile helped = NULL;
static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static emit_log_hook_type prev_emit_log_hook = NULL;

/* An executor's task has called exit(). */
void
dw_crashes_exited(const DwExecutor *me)
{
	int			count;

	SpinLockAcquire(&dw_suspects->lock);
	count = dw_suspects_blame(me, true);
	SpinLockRelease(&dw_suspects->lock);
	dw_suspects_report(me, count);
	dw_suspects_ask_for_save();
}

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
			dw_suspects_report(e, dw_suspects_blame(e, alone == 1 && died_first(e)));
	}
}

/*
 * What is in shared memory may be damaged: no lock, nothing that could fail,
 * no loop that it bounds.
 */
static void
look_back(int code, Datum arg)
{
	if (MyProcPid != PostmasterPid || dw_suspects == NULL)
		return;
	if (pg_atomic_read_u32(&dw_suspects->n) > DW_MAX_SUSPECTS)
		return;
	/* 0 is a stop that was ordered */
	if (code != 0)
		blame_who_died();
	/* in any case: the launcher may have been about to */
	dw_suspects_write_file(dw_suspects->suspects, pg_atomic_read_u32(&dw_suspects->n));
}

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
start_helping_query(QueryDesc *query, int flags)
{
	if (IsParallelWorker() && dw_suspects != NULL)
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
	ExecutorStart_hook = start_helping_query;
}

/* Registered anew for each shared memory; so it runs before that is given up. */
void
dw_crashes_init(void)
{
	memset(dw_suspects, 0, sizeof(DwSuspects));
	pg_atomic_init_u32(&dw_suspects->n, 0);
	pg_atomic_init_u32(&dw_suspects->unsaved, 0);
	SpinLockInit(&dw_suspects->lock);
	/* it may have come with a copy */
	if (dw_shared->recovered)
		dw_suspects_write_file(NULL, 0);
	else
		dw_suspects_read_file();
	for (uint32 i = 0; i < pg_atomic_read_u32(&dw_suspects->n); i++)
		if (dw_suspects->suspects[i].in_batch)
			dw_suspects->no_batches_until = dw_uptime() + DW_NO_BATCHES_US;
	on_shmem_exit(look_back, (Datum) 0);
}
