/*-------------------------------------------------------------------------
 *
 * writers.c
 *	  Transactions that may still commit tasks, and the owners of these tasks.
 *
 * Run by all processes that write tasks, and by the sweeper, which reads the notes for the marks of
 * delay_cancel_all() (sweep.c, README.md).  Most transactions write tasks of only one role.
 *
 * For plain SQL an executor hook stores the role at the start of the statement, after the check of
 * rights.  For COPY and apply workers, a row trigger stores the role a moment after the task's
 * number was drawn.
 *
 * An element is not cleared at the end of its transaction: it contains the transaction's id, so it
 * does not count for the next transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lock.h"
#include "storage/shmem.h"
#include "utils/rel.h"

#include "../base/compat.h"
#include "shared.h"

/*
 * One element for each process, at index dw_vxid_number() - 1.  The upper half is the local
 * transaction id.  The lower half is the owner of the transaction's tasks; InvalidOid: any owner.
 */
static pg_atomic_uint64 *writers = NULL;

static ExecutorStart_hook_type prev_executor_start = NULL;

/* Returns an element for "writers". */
static uint64
writer(LocalTransactionId lxid, Oid owner)
{
	return (uint64) lxid << 32 | owner;
}

void
dw_writers_request(void)
{
	ShmemRequestStruct(.name = "delay_wheel writers",
					   .size = mul_size(MaxBackends, sizeof(pg_atomic_uint64)),
					   .ptr = (void **) &writers);
}

void
dw_writers_init(void)
{
	for (int i = 0; i < MaxBackends; i++)
		pg_atomic_init_u64(&writers[i], writer(InvalidLocalTransactionId, InvalidOid));
}

/*
 * Notes that this transaction may write tasks of the role, or of any role if "owner" is InvalidOid.
 *
 * The caller has locked the task table for writing.  The caller must call this before it draws a
 * number for a task, or reads the marks for a task that is moved, tried again or put back.
 */
void
dw_writes_for(Oid owner)
{
	VirtualTransactionId me;
	pg_atomic_uint64 *mine;
	uint64		known;

	GET_VXID_FROM_PGPROC(me, *MyProc);
	mine = &writers[dw_vxid_number(me) - 1];
	known = pg_atomic_read_u64(mine);
	/* the transaction writes tasks of more than one role, so note "any role" */
	if (known >> 32 == me.localTransactionId && (Oid) known != owner)
		owner = InvalidOid;
	if (known == writer(me.localTransactionId, owner))
		return;
	pg_atomic_write_u64(mine, writer(me.localTransactionId, owner));
	/* this store must come before the caller reads marks or draws a number */
	pg_memory_barrier();
}

/*
 * Called for a transaction that has locked the task table for writing.  Returns true if the
 * transaction may write tasks with ids that it has drawn already.  If true, *owner is the owner of
 * these tasks, or InvalidOid if they may have several or unknown owners.
 */
bool
dw_is_writer(VirtualTransactionId vxid, Oid *owner)
{
	uint64		known;

	*owner = InvalidOid;
	/* a prepared transaction has no process any more */
	if (VirtualTransactionIdIsRecoveredPreparedXact(vxid))
		return true;
	known = pg_atomic_read_u64(&writers[dw_vxid_number(vxid) - 1]);
	*owner = (Oid) known;
	return known >> 32 == vxid.localTransactionId;
}

/*---- Plain SQL ----*/

/* Returns true for the table delay_wheel_data.task. */
static bool
is_task_table(Relation rel)
{
	return strcmp(RelationGetRelationName(rel), "task") == 0 &&
		RelationGetNamespace(rel) == get_namespace_oid("delay_wheel_data", true);
}

/* ExecutorStart hook: notes that a statement on the task table may write tasks of any role. */
static void
note_writing_query(QueryDesc *query, int flags)
{
	ListCell   *lc;

	if (prev_executor_start)
		prev_executor_start(query, flags);
	else
		standard_ExecutorStart(query, flags);
	foreach(lc, query->estate->es_opened_result_relations)
		if (is_task_table(((ResultRelInfo *) lfirst(lc))->ri_RelationDesc))
			dw_writes_for(InvalidOid);
}

/* Installs the hook.  Called once, by the postmaster. */
void
dw_writers_install(void)
{
	prev_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = note_writing_query;
}
