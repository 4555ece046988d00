/*-------------------------------------------------------------------------
 *
 * process.c
 *	  Timer and sweeper of a database, as other processes know them.
 *
 * Run by the launcher, which starts timers; by timers, which start sweepers; by
 * sweepers; and by all processes that wake one of them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "process.h"

/* There is no such process, and none was registered before. */
void
dw_process_init(DwProcess *process)
{
	memset(process, 0, sizeof(DwProcess));
	process->end = DW_PROCESS_NOTED;
	pg_atomic_init_u32(&process->proc, 0);
	pg_atomic_init_u32(&process->calls, 0);
}

/* The caller is about to register the process.  Needs the table lock, exclusively. */
void
dw_process_starts(DwProcess *process)
{
	process->state = DW_PROCESS_STARTING;
	process->started = dw_uptime();
}

/*
 * The process was registered, and may have started already; or no background worker was
 * free.  Needs the table lock, exclusively.
 */
void
dw_process_registered(DwProcess *process, bool registered)
{
	process->refused = !registered;
	if (!registered)
		process->state = DW_PROCESS_NONE;
}

/* Nobody lacks the process.  Needs no lock. */
void
dw_process_not_needed(DwProcess *process)
{
	process->refused = false;
}

/* This process takes the role, and will connect.  Needs the table lock, exclusively. */
void
dw_process_takes_over(DwProcess *process)
{
	process->pid = MyProcPid;
}

/* The process is at work.  Needs the table lock, exclusively. */
void
dw_process_runs(DwProcess *process)
{
	process->state = DW_PROCESS_RUNNING;
}

/* From now on, this process is woken as the one described here.  Takes no lock. */
void
dw_process_publish(DwProcess *process)
{
	pg_atomic_write_u32(&process->proc, dw_my_proc());
	pg_memory_barrier();
}

/* This process is not to be woken any more, but may be published again.  Full barrier. */
void
dw_process_withdraw(DwProcess *process)
{
	/* what others need to know who find no process was stored before */
	pg_write_barrier();
	pg_atomic_write_u32(&process->proc, 0);
	pg_memory_barrier();
}

/*
 * The process was registered, and counts as dead.  Its pid stays: a process that comes up
 * late may be connected.  Needs the table lock, exclusively.
 */
void
dw_process_is_lost(DwProcess *process)
{
	pg_atomic_write_u32(&process->proc, 0);
	process->state = DW_PROCESS_NONE;
	process->end = DW_PROCESS_FAILED;
}

/*
 * This process ends.  Needs the table lock, exclusively, but for the launcher, of which
 * only proc is read.
 */
void
dw_process_ends(DwProcess *process, DwProcessEnd end)
{
	pg_atomic_write_u32(&process->proc, 0);
	process->state = DW_PROCESS_NONE;
	process->pid = 0;
	process->end = end;
}

/* Wakes the process; false if there is none.  Takes no lock, never fails. */
bool
dw_process_wake(DwProcess *process)
{
	uint32		proc = pg_atomic_read_u32(&process->proc);

	if (proc == 0)
		return false;
	/* a full barrier */
	pg_atomic_fetch_add_u32(&process->calls, 1);
	SetLatch(dw_proc_latch(proc));
	return true;
}

/*
 * How the last process has ended; tells it once.  DW_PROCESS_NOTED also while a process
 * starts or runs.  Needs the table lock, exclusively.
 */
DwProcessEnd
dw_process_take_end(DwProcess *process)
{
	DwProcessEnd end = process->end;

	if (process->state != DW_PROCESS_NONE)
		return DW_PROCESS_NOTED;
	process->end = DW_PROCESS_NOTED;
	return end;
}
