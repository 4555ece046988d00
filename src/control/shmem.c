/*-------------------------------------------------------------------------
 *
 * shmem.c
 *	  Request and set-up of shared memory.
 *
 * Run by the postmaster, at its start and after a crash.  Each part of shared memory has
 * a function that returns its size and one that sets it up; this file calls them, as
 * CreateSharedMemoryAndSemaphores() does in PostgreSQL.  All parts are in the main
 * segment.  Their sizes follow from the settings at the start of the server, and do not
 * change while it runs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "postmaster/bgworker_internals.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/settings.h"
#include "../ring/ring.h"
#include "../shmem/committing.h"
#include "../shmem/crash_watch.h"
#include "../shmem/executors.h"
#include "../shmem/group_places.h"
#include "../shmem/lanes.h"
#include "../shmem/owners.h"
#include "../shmem/places.h"
#include "../shmem/queue_limits.h"
#include "../shmem/receivers.h"
#include "../shmem/recovery.h"
#include "../shmem/shared.h"
#include "../shmem/suspects.h"
#include "../shmem/waiters.h"
#include "../shmem/writers.h"
#include "shmem.h"

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/* The hook in which the postmaster asks for the size of shared memory. */
static void
request_memory(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();

	RequestAddinShmemSpace(MAXALIGN(sizeof(DwShared)));
	RequestAddinShmemSpace(dw_pool_size(dw_pool_chunks()));
	RequestAddinShmemSpace(mul_size(dw_max_lanes, sizeof(DwLane)));
	RequestAddinShmemSpace(mul_size(dw_owner_places(), sizeof(DwOwner)));
	RequestAddinShmemSpace(mul_size(dw_executor_places(), sizeof(DwExecutor)));
	RequestAddinShmemSpace(mul_size(dw_max_databases, dw_database_size()));
	RequestAddinShmemSpace(mul_size(dw_max_queues, sizeof(DwQueue)));
	RequestAddinShmemSpace(dw_lane_index_size());
	RequestAddinShmemSpace(dw_owner_index_size());
	RequestAddinShmemSpace(dw_wait_size());
	RequestAddinShmemSpace(dw_committing_size());
	RequestAddinShmemSpace(dw_writers_size());
	RequestAddinShmemSpace(dw_receivers_size());
	RequestAddinShmemSpace(dw_group_places_size());
	RequestAddinShmemSpace(dw_crashes_size());
#ifdef DW_INJECTION
	RequestAddinShmemSpace(dw_inject_size());
#endif
	RequestNamedLWLockTranche("delay_wheel", 1 + 2 * dw_max_databases);
}

/*
 * Counts the background workers that others have registered.  Libraries are loaded before shared
 * memory is set up, so only those are missed that are started later.
 */
static int
count_other_workers(void)
{
	const BackgroundWorker *worker;
	int			n = 0;

	/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
	dw_foreach_registered_worker(worker)
		if (strcmp(worker->bgw_library_name, "delay_wheel") != 0)
			n++;
	return n;
}

/* Initializes all parts.  Pointers to them are set already. */
static void
init_shared(void)
{
	LWLockPadded *locks = GetNamedLWLockTranche("delay_wheel");

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
	pg_atomic_init_u32(&dw_shared->starts_refused, 0);
	pg_atomic_init_u32(&dw_shared->worker_ended, 0);
	pg_atomic_init_u32(&dw_shared->unlooked, InvalidOid);
	pg_atomic_init_u64(&dw_shared->unlooked_at, 0);
	pg_atomic_init_u64(&dw_shared->clock_was, (uint64) PG_INT64_MIN);
	pg_atomic_init_u32(&dw_shared->nquits, 0);
	dw_shared->other_workers = count_other_workers();
	dw_shared->nexecutors = dw_executor_places();
	dw_shared->database_size = dw_database_size();

	dw_pool_init(dw_pool, dw_pool_chunks());

	memset(dw_executors, 0, sizeof(DwExecutor) * dw_executor_places());
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		pg_atomic_init_u32(&dw_executors[i].xid, InvalidTransactionId);
		pg_atomic_init_u32(&dw_executors[i].stop, 0);
		pg_atomic_init_u32(&dw_executors[i].stale, DW_FRESH);
		pg_atomic_init_u32(&dw_executors[i].helpers, 0);
		pg_atomic_init_u64(&dw_executors[i].refused, 0);
		pg_atomic_init_u64(&dw_executors[i].autonomous, 0);
		pg_atomic_init_u64(&dw_executors[i].keeps, 0);
	}

	dw_queues_init();
	dw_group_places_init();

	for (int i = 0; i < dw_max_databases; i++)
	{
		pg_atomic_init_u32(&dw_database(i)->pins, 0);
		dw_database_init(dw_database(i));
	}

	dw_lanes_init();
	dw_owners_init();
	dw_recovery_note();
	dw_crashes_init();
}

/* The hook that allocates the parts, or attaches to them (EXEC_BACKEND). */
static void
startup_memory(void)
{
	bool		found;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	/* reset in case this is a restart within the postmaster */
	dw_shared = NULL;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	dw_pool = ShmemInitStruct("delay_wheel pool", dw_pool_size(dw_pool_chunks()), &found);
	dw_lanes = ShmemInitStruct("delay_wheel lanes",
							   mul_size(dw_max_lanes, sizeof(DwLane)), &found);
	dw_owners = ShmemInitStruct("delay_wheel owners",
								mul_size(dw_owner_places(), sizeof(DwOwner)), &found);
	dw_executors = ShmemInitStruct("delay_wheel executors",
								   mul_size(dw_executor_places(), sizeof(DwExecutor)), &found);
	dw_queues = ShmemInitStruct("delay_wheel queues",
								mul_size(dw_max_queues, sizeof(DwQueue)), &found);
	dw_databases = ShmemInitStruct("delay_wheel databases",
								mul_size(dw_max_databases, dw_database_size()), &found);
	dw_lane_index_attach();
	dw_owner_index_attach();
	dw_wait_attach();
	dw_committing_attach();
	dw_writers_attach();
	dw_receivers_attach();
	dw_group_places_attach();
	dw_crashes_attach();
	dw_shared = ShmemInitStruct("delay_wheel", sizeof(DwShared), &found);
	if (!found)
		init_shared();
#ifdef DW_INJECTION
	dw_inject_init(found);
#endif
	LWLockRelease(AddinShmemInitLock);
}

/* Installs the hooks.  Called once by the postmaster, when the library is preloaded. */
void
dw_shared_install(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_memory;
}
