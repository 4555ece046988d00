/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Hides the differences between PostgreSQL 15, 16, 17, 18 and 19.
 *
 * The code is written for the newest major version.  The macros and inline functions of this file
 * adapt the code to older versions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_COMPAT_H
#define DW_COMPAT_H

#include "postgres.h"

#include "access/amapi.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/hsearch.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "delay_wheel needs PostgreSQL 15 or later"
#endif

/*
 * The number of a process in shared memory.  The number is PostgreSQL's number plus 1, so that 0
 * can mean "no process".
 */
#if PG_VERSION_NUM >= 170000
#define dw_my_proc()		((uint32) MyProcNumber + 1)
#else
#define dw_my_proc()		((uint32) MyProc->pgprocno + 1)
#endif
#define dw_proc_latch(n)	(&GetPGProcByNumber((n) - 1)->procLatch)

/* A wait event set that lives as long as its process. */
#if PG_VERSION_NUM >= 170000
#define dw_create_wait_event_set(n)	CreateWaitEventSet(NULL, n)
#else
#define dw_create_wait_event_set(n)	CreateWaitEventSet(TopMemoryContext, n)
#endif

/*
 * From 17 on, wait events of delay_wheel have names.  All extensions together can have at most
 * DW_MAX_WAIT_EVENTS - 1 names (WAIT_EVENT_CUSTOM_HASH_MAX_SIZE in wait_event.c).  For one more
 * name, PostgreSQL would raise an error, so further wait events have the general name "Extension".
 */
#if PG_VERSION_NUM >= 170000
#define DW_MAX_WAIT_EVENTS	128

/* Returns the wait event with this name, or the general wait event if there are too many names. */
static inline uint32
dw_new_wait_event(const char *name)
{
	int			n;
	char	  **names = GetWaitEventCustomNames(PG_WAIT_EXTENSION, &n);
	bool		found = false;
	int			others = 0;

	for (int i = 0; i < n && !found; i++)
		found = strcmp(names[i], name) == 0;
	pfree(names);
#ifdef PG_WAIT_INJECTIONPOINT
	pfree(GetWaitEventCustomNames(PG_WAIT_INJECTIONPOINT, &others));
#endif
	if (!found && n + others + 1 >= DW_MAX_WAIT_EVENTS)
		return PG_WAIT_EXTENSION;
	return WaitEventExtensionNew(name);
}

/* The wait event with this name.  "cache" is a static uint32 of the caller, initially 0. */
#define dw_wait_event(cache, name) \
	((cache) != 0 ? (cache) : ((cache) = dw_new_wait_event(name)))
#else
#define dw_wait_event(cache, name)	((void) (cache), PG_WAIT_EXTENSION)
#endif

/*
 * Switches off transaction_timeout (new in 17) for this process, since this timeout ends the
 * process, not only the transaction.
 */
#if PG_VERSION_NUM >= 170000
#define dw_no_transaction_timeout() \
	SetConfigOption("transaction_timeout", "0", PGC_USERSET, PGC_S_OVERRIDE)
#else
#define dw_no_transaction_timeout()	((void) 0)
#endif

/*
 * Shared memory.  From 19 on, a library registers two callbacks: request_fn requests the parts, and
 * init_fn initializes them after the pointers are set.  Before 19 there are two hooks, which both
 * call request_fn: the first call reserves memory, the second call sets the pointers.
 */
#if PG_VERSION_NUM < 190000
typedef struct ShmemCallbacks
{
	void		(*request_fn) (void *arg);
	void		(*init_fn) (void *arg);
} ShmemCallbacks;

typedef struct ShmemStructOpts
{
	const char *name;
	Size		size;
	void	  **ptr;
} ShmemStructOpts;

typedef struct ShmemHashOpts
{
	const char *name;
	int64		nelems;
	HASHCTL		hash_info;
	int			hash_flags;
	HTAB	  **ptr;
} ShmemHashOpts;

static inline void
dw_request_struct(const ShmemStructOpts *options)
{
	bool		found;

	if (process_shmem_requests_in_progress)
		RequestAddinShmemSpace(CACHELINEALIGN(options->size));
	else
		*options->ptr = ShmemInitStruct(options->name, options->size, &found);
}

static inline void
dw_request_hash(const ShmemHashOpts *options)
{
	HASHCTL		info = options->hash_info;

	if (process_shmem_requests_in_progress)
		RequestAddinShmemSpace(hash_estimate_size(options->nelems, info.entrysize));
	else
		*options->ptr = ShmemInitHash(options->name, options->nelems, options->nelems,
									  &info, options->hash_flags);
}

#define ShmemRequestStruct(...)	dw_request_struct(&(ShmemStructOpts) {__VA_ARGS__})
#define ShmemRequestHash(...)	dw_request_hash(&(ShmemHashOpts) {__VA_ARGS__})

static const ShmemCallbacks *dw_shmem_callbacks;
static shmem_request_hook_type dw_prev_shmem_request;
static shmem_startup_hook_type dw_prev_shmem_startup;

static inline void
dw_shmem_request(void)
{
	if (dw_prev_shmem_request)
		dw_prev_shmem_request();
	dw_shmem_callbacks->request_fn(NULL);
}

static inline void
dw_shmem_startup(void)
{
	if (dw_prev_shmem_startup)
		dw_prev_shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	dw_shmem_callbacks->request_fn(NULL);
	if (!IsUnderPostmaster)
		dw_shmem_callbacks->init_fn(NULL);
	LWLockRelease(AddinShmemInitLock);
}

static inline void
RegisterShmemCallbacks(const ShmemCallbacks *callbacks)
{
	dw_shmem_callbacks = callbacks;
	dw_prev_shmem_request = shmem_request_hook;
	shmem_request_hook = dw_shmem_request;
	dw_prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = dw_shmem_startup;
}

static inline int
dw_new_tranche(const char *name)
{
	int			id = LWLockNewTrancheId();

	LWLockRegisterTranche(id, name);
	return id;
}
#define LWLockNewTrancheId(name)	dw_new_tranche(name)
#endif

/*
 * Signal handlers that need the sender of the signal.  From 19 on, PostgreSQL passes the sender to
 * each handler.
 */
#if PG_VERSION_NUM >= 190000
#define DW_SIGNAL_ARGS		SIGNAL_ARGS
#define dw_signal_sender()	((int) pg_siginfo->pid)
#define dw_die()			die(postgres_signal_arg, pg_siginfo)
#define dw_signal(signo, handler)	pqsignal(signo, handler)
#else
#define DW_SIGNAL_ARGS		int postgres_signal_arg, siginfo_t *pg_siginfo, void *context
#define dw_signal_sender()	((int) pg_siginfo->si_pid)
#define dw_die()			die(postgres_signal_arg)
#ifndef PG_SIG_IGN
#define PG_SIG_IGN			SIG_IGN
#endif

static inline void
dw_signal(int signo, void (*handler) (DW_SIGNAL_ARGS))
{
	struct sigaction act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};

	sigemptyset(&act.sa_mask);
	(void) sigaction(signo, &act, NULL);
}
#endif

/* Headers that have changed in 19. */
#if PG_VERSION_NUM >= 190000
#include "utils/lsyscache.h"	/* get_database_name() */
#else
#include "commands/dbcommands.h"
#endif

/* Switches off the warnings that backslashes in ordinary strings cause before 19. */
#if PG_VERSION_NUM >= 190000
#define dw_no_escape_warning(extra)	((void) (extra))
#else
#define dw_no_escape_warning(extra)	((extra)->escape_string_warning = false)
#endif

/* Called when a row type that was built by hand is complete. */
#if PG_VERSION_NUM < 190000
#define TupleDescFinalize(desc)	((void) (desc))
#endif

/* Plans a query without values of its parameters. */
#if PG_VERSION_NUM >= 190000
#define dw_plan_query(query, sql, options) pg_plan_query(query, sql, options, NULL, NULL)
#define DwJumbleState const JumbleState
#else
#define dw_plan_query(query, sql, options) pg_plan_query(query, sql, options, NULL)
#define DwJumbleState JumbleState
#endif

/* Builds a jsonb value, by pushJsonbValue(). */
#if PG_VERSION_NUM < 190000
typedef struct JsonbInState
{
	JsonbValue *result;
	JsonbParseState *parseState;
} JsonbInState;

static inline void
dw_push_jsonb(JsonbInState *state, JsonbIteratorToken token, JsonbValue *value)
{
	state->result = pushJsonbValue(&state->parseState, token, value);
}
#define pushJsonbValue(state, token, value) dw_push_jsonb(state, token, value)
#endif

/* CLUSTER, which is a form of REPACK from 19 on */
#if PG_VERSION_NUM < 190000
#define RepackStmt			ClusterStmt
#define T_RepackStmt		T_ClusterStmt
#define REPACK_COMMAND_CLUSTER	1
#define dw_repack_command(stmt)	((void) (stmt), REPACK_COMMAND_CLUSTER)
#else
#define dw_repack_command(stmt)	((stmt)->command)
#endif

/* ALTER SUBSCRIPTION ... REFRESH PUBLICATION; and WAIT FOR, which is new in 19 */
#if PG_VERSION_NUM < 190000
#define ALTER_SUBSCRIPTION_REFRESH_PUBLICATION	ALTER_SUBSCRIPTION_REFRESH
#define T_WaitStmt			T_Invalid
#endif

/* The part of a setting's record that depends on the setting's type */
#if PG_VERSION_NUM >= 190000
#define dw_int_setting(setting)		(&(setting)->_int)
#define dw_string_setting(setting)	(&(setting)->_string)
#else
#define dw_int_setting(setting)		((struct config_int *) (setting))
#define dw_string_setting(setting)	((const struct config_string *) (setting))
#endif

#if PG_VERSION_NUM >= 190000
#define dw_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0, SO_NONE)
#define dw_beginscan_tidrange(rel, snapshot, first, last) \
	table_beginscan_tidrange(rel, snapshot, first, last, SO_NONE)
#else
#define dw_beginscan_tidrange(rel, snapshot, first, last) \
	table_beginscan_tidrange(rel, snapshot, first, last)
#if PG_VERSION_NUM >= 180000
#define dw_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, NULL, nkeys, 0)
#else
#define dw_index_beginscan(heap, index, snapshot, nkeys) \
	index_beginscan(heap, index, snapshot, nkeys, 0)
#endif
#endif

/* Runs a portal to its end, as a top-level statement. */
#if PG_VERSION_NUM >= 180000
#define dw_portal_run(portal, dest, qc) PortalRun(portal, FETCH_ALL, true, dest, dest, qc)
#else
#define dw_portal_run(portal, dest, qc) PortalRun(portal, FETCH_ALL, true, true, dest, dest, qc)
#endif

/* The process of a virtual transaction.  NULL if the transaction has ended or was prepared. */
#if PG_VERSION_NUM >= 170000
#include "storage/procarray.h"
#define dw_vxid_proc(vxid)	ProcNumberGetProc((vxid).procNumber)
#define dw_proc_lxid(proc)	((proc)->vxid.lxid)
/* the number of the process of a virtual transaction, from 1 to MaxBackends */
#define dw_vxid_number(vxid)	((vxid).procNumber + 1)
#else
#include "storage/sinvaladt.h"
#define dw_vxid_proc(vxid)	BackendIdGetProc((vxid).backendId)
#define dw_proc_lxid(proc)	((proc)->lxid)
#define dw_vxid_number(vxid)	((vxid).backendId)
#endif

/* Background workers can connect as any role from 17 on.  Before 17 the role needs LOGIN. */
#if PG_VERSION_NUM >= 170000
#define DW_ANY_ROLE_CONNECTS	1
#define DW_CONNECT_FLAGS		BGWORKER_BYPASS_ROLELOGINCHECK
#else
#define DW_ANY_ROLE_CONNECTS	0
#define DW_CONNECT_FLAGS		0
#endif

/*
 * dw_can_set_role() is true if a role may become another role by SET ROLE: from 16 on a membership
 * may exclude this.  dw_check_table_rights() raises an error if the current user lacks the rights
 * on the tables of a plan.  dw_new_storage() gives a table new, empty storage; the old storage is
 * removed when the transaction commits.  Summarizing indexes (BRIN) are new in 16.
 */
#if PG_VERSION_NUM >= 160000
#define dw_database_aclcheck(database, role, mode) object_aclcheck(DatabaseRelationId, database, role, mode)
#define dw_schema_aclcheck(schema, role, mode) object_aclcheck(NamespaceRelationId, schema, role, mode)
#define dw_function_aclcheck(function, role, mode) object_aclcheck(ProcedureRelationId, function, role, mode)
#define dw_owns_database(database, role) object_ownercheck(DatabaseRelationId, database, role)
#define dw_owns_relation(relation, role) object_ownercheck(RelationRelationId, relation, role)
#define dw_can_set_role(member, role) member_can_set_role(member, role)
#define dw_check_table_rights(plan) ExecCheckPermissions((plan)->rtable, (plan)->permInfos, true)
#define dw_new_storage(rel)	RelationSetNewRelfilenumber(rel, (rel)->rd_rel->relpersistence)
#define dw_index_is_summarizing(index)	((index)->rd_indam->amsummarizing)
#else
#define dw_database_aclcheck(database, role, mode) pg_database_aclcheck(database, role, mode)
#define dw_schema_aclcheck(schema, role, mode) pg_namespace_aclcheck(schema, role, mode)
#define dw_function_aclcheck(function, role, mode) pg_proc_aclcheck(function, role, mode)
#define dw_owns_database(database, role) pg_database_ownercheck(database, role)
#define dw_owns_relation(relation, role) pg_class_ownercheck(relation, role)
#define dw_can_set_role(member, role) is_member_of_role(member, role)
#define dw_check_table_rights(plan) ExecCheckRTPerms((plan)->rtable, true)
#define dw_new_storage(rel)	RelationSetNewRelfilenode(rel, (rel)->rd_rel->relpersistence)
#define dw_index_is_summarizing(index)	false

/* the indexes that need new entries after an update of a row */
typedef enum TU_UpdateIndexes
{
	TU_None,
	TU_All,
	TU_Summarizing
} TU_UpdateIndexes;
#endif

/* Updates a row like heap_update(), and sets *indexes to the indexes that need new entries. */
static inline TM_Result
dw_heap_update(Relation rel, ItemPointer tid, HeapTuple tuple, TU_UpdateIndexes *indexes)
{
	TM_FailureData failure;
	LockTupleMode mode;
#if PG_VERSION_NUM >= 190000
	return heap_update(rel, tid, tuple, GetCurrentCommandId(true), 0, InvalidSnapshot, true,
					   &failure, &mode, indexes);
#elif PG_VERSION_NUM >= 160000
	return heap_update(rel, tid, tuple, GetCurrentCommandId(true), InvalidSnapshot, true,
					   &failure, &mode, indexes);
#else
	TM_Result	result = heap_update(rel, tid, tuple, GetCurrentCommandId(true), InvalidSnapshot,
									 true, &failure, &mode);

	*indexes = HeapTupleIsHeapOnly(tuple) ? TU_None : TU_All;
	return result;
#endif
}

/*
 * Deletes a row like heap_delete().  If another transaction has locked the row, waits for the end
 * of the transaction, or returns TM_BeingModified if "wait" is false.
 */
static inline TM_Result
dw_try_heap_delete(Relation rel, ItemPointer tid, bool wait, TM_FailureData *failure)
{
#if PG_VERSION_NUM >= 190000
	return heap_delete(rel, tid, GetCurrentCommandId(true), 0, InvalidSnapshot, wait, failure);
#else
	return heap_delete(rel, tid, GetCurrentCommandId(true), InvalidSnapshot, wait, failure, false);
#endif
}

/* Returns all settings.  The caller must not free the array, since on 15 PostgreSQL owns it. */
#if PG_VERSION_NUM >= 160000
#define dw_all_settings(n)	get_guc_variables(n)
#else
#define dw_all_settings(n)	(*(n) = GetNumConfigOptions(), get_guc_variables())
#endif

/* The list of background workers that are registered.  Only for the postmaster. */
#if PG_VERSION_NUM >= 180000
#define DwWorkerIter	dlist_iter
#define dw_foreach_worker(iter)	dlist_foreach(iter, &BackgroundWorkerList)
#define dw_iter_worker(i)	(&dlist_container(RegisteredBgWorker, rw_lnode, (i).cur)->rw_worker)
#else
#define DwWorkerIter	slist_iter
#define dw_foreach_worker(iter)	slist_foreach(iter, &BackgroundWorkerList)
#define dw_iter_worker(i)	(&slist_container(RegisteredBgWorker, rw_lnode, (i).cur)->rw_worker)
#endif

/* MERGE has RETURNING from 17 on. */
#ifndef SPI_OK_MERGE_RETURNING
#define SPI_OK_MERGE_RETURNING	19
#endif

/* Rebuilds the indexes of a table and of its TOAST table. */
#if PG_VERSION_NUM >= 170000
#define dw_reindex_table(table) \
	reindex_relation(NULL, table, REINDEX_REL_PROCESS_TOAST, &(ReindexParams) {0})
#else
#define dw_reindex_table(table) \
	reindex_relation(table, REINDEX_REL_PROCESS_TOAST, &(ReindexParams) {0})
#endif

/* Intervals can be infinite from 17 on. */
#if PG_VERSION_NUM >= 170000
#define dw_interval_is_finite(i) (!INTERVAL_NOT_FINITE(i))
#else
#define dw_interval_is_finite(i) ((void) (i), true)
#endif

/*
 * Returns the record of a setting, with the source of its value, or NULL if the setting is unknown.
 * Ignores the case of the name.
 */
static inline struct config_generic *
dw_find_setting(const char *name)
{
#if PG_VERSION_NUM >= 160000
	return find_option(name, false, true, 0);
#else
	int			n;
	struct config_generic **all = dw_all_settings(&n);

	for (int i = 0; i < n; i++)
		if (pg_strcasecmp(all[i]->name, name) == 0)
			return all[i];
	return NULL;
#endif
}

/*
 * Returns when a timeout would end the running statement or its transaction, or PG_INT64_MAX if no
 * timeout is active.  transaction_timeout is new in 17.
 */
static inline TimestampTz
dw_statement_ends_at(void)
{
	TimestampTz end = PG_INT64_MAX;

	if (get_timeout_active(STATEMENT_TIMEOUT))
		end = get_timeout_finish_time(STATEMENT_TIMEOUT);
#if PG_VERSION_NUM >= 170000
	if (get_timeout_active(TRANSACTION_TIMEOUT))
		end = Min(end, get_timeout_finish_time(TRANSACTION_TIMEOUT));
#endif
	return end;
}

/*
 * The events that end a session's wait for its client: on its socket, its latch and the postmaster.
 * The declaration is copied from libpq/libpq.h, since that file needs headers of GSSAPI, which may
 * not be installed.
 */
extern PGDLLIMPORT WaitEventSet *FeBeWaitSet;
#define DW_CLIENT_SOCKET	0

/* The parameter execute_once, which ExecutorRun() has before 18, for definitions and calls */
#if PG_VERSION_NUM >= 180000
#define DW_ONCE_PARAMETER
#define DW_ONCE
#define DW_NOT_ONCE
#else
#define DW_ONCE_PARAMETER	, bool execute_once
#define DW_ONCE				, execute_once
#define DW_NOT_ONCE			, false
#endif

#endif							/* DW_COMPAT_H */
