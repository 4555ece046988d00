/*-------------------------------------------------------------------------
 *
 * process.c
 *	  Timer and sweeper of a database, and the launcher, as other processes know them.
 *
 * Run by the launcher, which starts timers; by timers, which start sweepers; by
 * sweepers; and by all processes that wake one of them.
 *
 * Each of the three works in rounds: it wakes, looks for work, does it, and sleeps.  It publishes
 * when its round began, and until when it sleeps; who calls it publishes that.  So whoever reads
 * this can tell that the process does not answer: it was called and has begun no round since, it
 * sleeps longer than it wanted to, or its round does not end.  Nobody asks a process that sleeps.
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
	dw_lack_init(&process->lack);
	pg_atomic_init_u32(&process->proc, 0);
	pg_atomic_init_u32(&process->calls, 0);
	pg_atomic_init_u64(&process->sleep_until, (uint64) DW_AWAKE);
	pg_atomic_init_u64(&process->began, 0);
	pg_atomic_init_u64(&process->called, 0);
	pg_atomic_init_u64(&process->told, 0);
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
	if (!registered)
		process->state = DW_PROCESS_NONE;
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
	/* what was published of a former process is out of date */
	dw_process_sleeps(process, DW_AWAKE);
	pg_atomic_write_u64(&process->called, 0);
	pg_write_barrier();
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
	if (pg_atomic_read_u64(&process->called) == 0)
	{
		uint64		none = 0;

		(void) pg_atomic_compare_exchange_u64(&process->called, &none, (uint64) dw_uptime());
	}
	/* a full barrier; after "called", so that the round that this brings about clears that */
	pg_atomic_fetch_add_u32(&process->calls, 1);
	SetLatch(dw_proc_latch(proc));
	return true;
}

/*
 * This process is about to sleep until this time; DW_AWAKE: it does not sleep any more.  No
 * barrier at the end: see dw_wake_timer().
 */
void
dw_process_sleeps(DwProcess *process, TimestampTz until)
{
	if (until == DW_AWAKE)
	{
		/* who sees that it is awake sees since when */
		pg_atomic_write_u64(&process->began, (uint64) dw_uptime());
		pg_write_barrier();
	}
	pg_atomic_write_u64(&process->sleep_until, (uint64) until);
}

/* This process begins to look for work, and so answers all calls so far.  Returns their number. */
uint32
dw_process_looks(DwProcess *process)
{
	uint32		calls = dw_process_calls(process);

	/* in this order: a call that is not counted yet brings about another round, which clears it */
	pg_memory_barrier();
	pg_atomic_write_u64(&process->began, (uint64) dw_uptime());
	pg_atomic_write_u64(&process->called, 0);
	return calls;
}

/*
 * How long the process has been silent, in us; 0 if it answers, or there is none.  Reads without
 * the lock, so that it can be asked of a process that holds it.
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
