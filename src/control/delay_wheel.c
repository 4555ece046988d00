/*-------------------------------------------------------------------------
 *
 * delay_wheel.c
 *	  Entry point of the library, and shared memory.
 *
 * Run once by the postmaster, when the library is preloaded.  All other processes inherit the hooks
 * and callbacks that are installed here.  If the server has not preloaded the library, a session
 * can load it, so that a dump can be restored.  Then the functions raise errors.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "commands/extension.h"
#include "postmaster/bgworker_internals.h"

#include "../backend/backend.h"
#include "../batches/batches.h"
#include "../copies/copies.h"
#include "../ends/ends.h"
#include "../executor/executor.h"
#include "../failed/failed.h"
#include "../history/history.h"
#include "../recurring/recurring.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "../statement/statement.h"
#include "control.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

/* the table lock, and two locks for each database */
#define NUMBER_OF_LOCKS		(1 + 2 * dw_max_databases)

static LWLockPadded *locks = NULL;

/* The only list of all wings. */
static const DwWing *const wings[] = {&dw_copies_wing, &dw_failed_wing, &dw_history_wing, &dw_ends_wing, &dw_recurring_wing, &dw_batches_wing, NULL};

/*---- Shared memory ----*/

/*
 * All parts are in the main segment.  The postmaster sets them up at its start and after a crash.
 * Their sizes follow from the settings at the start of the server, and do not change.
 */

/* Requests all parts. */
static void
request_memory(void *unused)
{
	ShmemRequestStruct(.name = "delay_wheel",
					   .size = sizeof(DwShared),
					   .ptr = (void **) &dw_shared);
	ShmemRequestStruct(.name = "delay_wheel locks",
					   .size = mul_size(NUMBER_OF_LOCKS, sizeof(LWLockPadded)),
					   .ptr = (void **) &locks);
	ShmemRequestStruct(.name = "delay_wheel pool",
					   .size = dw_pool_size(dw_pool_chunks()),
					   .ptr = (void **) &dw_pool);
	/* no more workers can run at once; the number may be 0, and PostgreSQL 19 refuses a size of 0 */
	ShmemRequestStruct(.name = "delay_wheel executors",
					   .size = mul_size(Max(max_worker_processes, 1), sizeof(DwExecutor)),
					   .ptr = (void **) &dw_executors);
	ShmemRequestStruct(.name = "delay_wheel queues",
					   .size = mul_size(dw_max_queues, sizeof(DwQueue)),
					   .ptr = (void **) &dw_queues);
	ShmemRequestStruct(.name = "delay_wheel databases",
					   .size = mul_size(dw_max_databases, dw_database_size()),
					   .ptr = (void **) &dw_databases);
	dw_lanes_request();
	dw_published_request();
	dw_group_places_request();
	dw_each_wing(wing, request_memory)
		wing->request_memory();
#ifdef DW_INJECTION
	dw_inject_request();
#endif
}

/*
 * Counts the background workers that other libraries have registered.  Libraries are loaded before
 * shared memory is initialized, so only workers that start later are missing.
 */
static int
count_other_workers(void)
{
	DwWorkerIter iter;
	int			n = 0;

	dw_foreach_worker(iter)
		/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
		if (strcmp(dw_iter_worker(iter)->bgw_library_name, "delay_wheel") != 0)
			n++;
	return n;
}

/* Initializes all parts.  Pointers to them are set already. */
static void
init_memory(void *unused)
{
	int			tranche = LWLockNewTrancheId("delay_wheel");

	for (int i = 0; i < NUMBER_OF_LOCKS; i++)
		LWLockInitialize(&locks[i].lock, tranche);

	memset(dw_shared, 0, sizeof(DwShared));
	dw_shared->table_lock = &locks[0].lock;
	dw_shared->database_locks = &locks[1].lock;
	dw_process_init(&dw_shared->launcher);
	pg_atomic_init_u32(&dw_shared->databases_changed, 0);
	pg_atomic_init_u32(&dw_shared->turned_away, 0);
	pg_atomic_init_u32(&dw_shared->looks_into, InvalidOid);
	pg_atomic_init_u32(&dw_shared->looked, 0);
	pg_atomic_init_u32(&dw_shared->timers, 0);
	pg_atomic_init_u32(&dw_shared->timer_refused, 0);
	dw_lack_init(&dw_shared->look_lack);
	for (int i = 0; i < DW_STARTS; i++)
	{
		pg_atomic_init_u64(&dw_shared->pauses[i].retry_at, 0);
		pg_atomic_init_u64(&dw_shared->pauses[i].us, 0);
		pg_atomic_init_u64(&dw_shared->pauses[i].turn_ended_at, 0);
	}
	pg_atomic_init_u32(&dw_shared->unlooked, InvalidOid);
	pg_atomic_init_u64(&dw_shared->unlooked_at, 0);
	pg_atomic_init_u64(&dw_shared->clock_was, (uint64) PG_INT64_MIN);
	if (!pg_strong_random(&dw_shared->salt, sizeof(dw_shared->salt)))
		dw_shared->salt = (uint64) dw_now();
	dw_logins_init(&dw_shared->logins);
	dw_shared->other_workers = count_other_workers();
	dw_shared->nexecutors = max_worker_processes;
	dw_shared->database_size = dw_database_size();

	dw_pool_init(dw_pool, dw_pool_chunks());

	memset(dw_executors, 0, sizeof(DwExecutor) * max_worker_processes);
	dw_each_executor(e)
	{
		pg_atomic_init_u32(&e->xid, InvalidTransactionId);
		pg_atomic_init_u32(&e->stop, 0);
		pg_atomic_init_u32(&e->stale, DW_FRESH);
		pg_atomic_init_u32(&e->helpers, 0);
		pg_atomic_init_u64(&e->refused, 0);
		pg_atomic_init_u64(&e->autonomous, 0);
		pg_atomic_init_u64(&e->keeps, 0);
	}

	memset(dw_queues, 0, sizeof(DwQueue) * dw_max_queues);
	dw_group_places_init();

	dw_each_database(db)
	{
		pg_atomic_init_u32(&db->pins, 0);
		dw_database_init(db);
	}

	dw_lanes_init();
	dw_published_init();
	dw_each_wing(wing, memory_is_ready)
		wing->memory_is_ready();
	dw_crashes_init();
#ifdef DW_INJECTION
	dw_inject_init();
#endif
}

static const ShmemCallbacks callbacks = {
	.request_fn = request_memory,
	.init_fn = init_memory,
};

/*---- Loading ----*/

/* Installs all hooks and callbacks, and registers the launcher. */
void
_PG_init(void)
{
	dw_wings = wings;
	if (!process_shared_preload_libraries_in_progress)
	{
		if (creating_extension)
			ereport(WARNING,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("no task will run before delay_wheel is loaded via \"%s\"",
							"shared_preload_libraries"),
					 errhint("Add delay_wheel to \"%s\" in postgresql.conf and restart the server.",
							 "shared_preload_libraries")));
		return;
	}

	dw_executor_install();
	dw_define_settings();

	/* a server that pg_upgrade starts must run no process of ours */
	if (IsBinaryUpgrade)
		return;

	RegisterShmemCallbacks(&callbacks);
	dw_touched_install();
	/* received messages end before the commit, and what they do to batches is written after that */
	dw_each_wing(wing, install)
		wing->install();
	dw_receive_install();
	dw_lease_install();
	dw_parameters_install();
	dw_hold_install();
	dw_recycle_install();
	dw_ddl_install();
	dw_task_log_install();
	dw_open_queries_hooks_begin();
	dw_other_nodes_install();
	dw_published_install();
	dw_open_queries_hooks_end();
	dw_launcher_register();
}
