/*-------------------------------------------------------------------------
 *
 * process.c
 *	  The published state of timers, sweepers and the launcher.
 *
 * Run by the launcher, timers and sweepers, and by all processes that wake one of them.  The
 * launcher starts timers, and timers start sweepers.
 *
 * These processes work in rounds: they wake, look for work, do it, and sleep.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/compat.h"
#include "parts.h"

/* Initializes the state: no process exists, and none was registered before. */
void
dw_process_init(DwProcess *process)
{
	memset(process, 0, sizeof(DwProcess));
	process->end = DW_PROCESS_NOTED;
	dw_lack_init(&process->lack);
	pg_atomic_init_u32(&process->proc, 0);
	pg_atomic_init_u32(&process->calls, 0);
	pg_atomic_init_u64(&process->sleep_until, (uint64) DW_AWAKE);
	pg_atomic_init_u64(&process->began, 0);
	pg_atomic_init_u64(&process->called, 0);
	pg_atomic_init_u64(&process->told, 0);
}

/*
 * Sets the state: DW_PROCESS_STARTING if the caller is about to register the process, and then
 * DW_PROCESS_RUNNING, or DW_PROCESS_NONE if no background worker was free.  Needs the table lock
 * exclusively.
 */
void
dw_process_set_state(DwProcess *process, DwProcessState state)
{
	process->state = state;
	if (state == DW_PROCESS_STARTING)
		process->started = dw_uptime();
}

/* Notes that this process has started, and will connect.  Needs the table lock exclusively. */
void
dw_process_takes_over(DwProcess *process)
{
	process->pid = MyProcPid;
}

/* Allows other processes to wake this process from now on.  Takes no lock. */
void
dw_process_publish(DwProcess *process)
{
	/* replaces the state of the former process */
	dw_process_sleeps(process, DW_AWAKE);
	pg_atomic_write_u64(&process->called, 0);
	pg_write_barrier();
	pg_atomic_write_u32(&process->proc, dw_my_proc());
	pg_memory_barrier();
}

/* Prevents other processes from waking this process.  Full barrier. */
void
dw_process_withdraw(DwProcess *process)
{
	/* a process that sees this store sees all earlier stores, too */
	pg_write_barrier();
	pg_atomic_write_u32(&process->proc, 0);
	pg_memory_barrier();
}

/*
 * Notes that a registered process counts as dead.  Does not clear the pid, since the process may
 * have started late and be connected.  Needs the table lock exclusively.
 */
void
dw_process_is_lost(DwProcess *process)
{
	pg_atomic_write_u32(&process->proc, 0);
	process->state = DW_PROCESS_NONE;
	process->end = DW_PROCESS_FAILED;
}

/*
 * Notes that this process ends.  Needs the table lock exclusively, except in the launcher: other
 * processes read only the launcher's proc.
 */
void
dw_process_ends(DwProcess *process, DwProcessEnd end)
{
	pg_atomic_write_u32(&process->proc, 0);
	process->state = DW_PROCESS_NONE;
	process->pid = 0;
	process->end = end;
}

/* Wakes the process.  Returns false if no process runs.  Takes no lock and never fails. */
bool
dw_process_wake(DwProcess *process)
{
	uint32		proc = pg_atomic_read_u32(&process->proc);

	if (proc == 0)
		return false;
	if (pg_atomic_read_u64(&process->called) == 0)
	{
		uint64		none = 0;

		(void) pg_atomic_compare_exchange_u64(&process->called, &none, (uint64) dw_uptime());
	}
	/* full barrier; "called" was set before, so the round that this call causes clears "called" */
	pg_atomic_fetch_add_u32(&process->calls, 1);
	SetLatch(dw_proc_latch(proc));
	return true;
}

/*
 * Publishes that this process is about to sleep until this time, or that it is awake (DW_AWAKE).
 * Has no barrier at the end, see dw_wake_timer().
 */
void
dw_process_sleeps(DwProcess *process, TimestampTz until)
{
	if (until == DW_AWAKE)
	{
		/* a reader that sees the process awake also sees "began" */
		pg_atomic_write_u64(&process->began, (uint64) dw_uptime());
		pg_write_barrier();
	}
	pg_atomic_write_u64(&process->sleep_until, (uint64) until);
}

/* Notes that this process begins a round, which answers all calls so far.  Returns their number. */
uint32
dw_process_looks(DwProcess *process)
{
	uint32		calls = dw_process_calls(process);

	/* clear first: a call that is not counted yet causes another round, which clears this again */
	pg_memory_barrier();
	pg_atomic_write_u64(&process->began, (uint64) dw_uptime());
	pg_atomic_write_u64(&process->called, 0);
	return calls;
}

/*
 * Returns for how long the process has been silent, in us, or 0 if it answers or does not exist: it
 * has begun no round since a call, it sleeps longer than planned, or its round does not end.
 * Does not take the table lock, since the silent process may hold this lock.
 */
int64
dw_process_silent_for(DwProcess *process)
{
	int64		called = dw_atomic_read(&process->called);
	TimestampTz until = dw_atomic_read(&process->sleep_until);
	int64		silent;

	pg_read_barrier();
	if (process->state == DW_PROCESS_STARTING)
		silent = dw_uptime() - process->started;
	else if (!dw_process_is_there(process))
		silent = 0;
	else if (called != 0)
		silent = dw_uptime() - called;
	else if (until == DW_AWAKE)
		silent = dw_uptime() - dw_atomic_read(&process->began);
	else
		silent = until == DW_NEVER ? 0 : dw_now() - until;
	return silent >= DW_SILENT_US ? silent : 0;
}

/*
 * Returns how the last process has ended.  Later calls return DW_PROCESS_NOTED.  Calls while a
 * process starts or runs return DW_PROCESS_NOTED, too.  Needs the table lock exclusively.
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
