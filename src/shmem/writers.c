/*-------------------------------------------------------------------------
 *
 * writers.c
 *	  Transactions that may yet bring rows of tasks, and of which role.
 *
 * Run by all processes that write tasks; the sweeper reads.
 *
 * A mark of delay_cancel_all() cancels tasks that have lower numbers than the mark.  It
 * stays until all transactions have ended that can still bring such tasks (sweep.c).
 * These have the task table locked for writing, but the lock does not say of which role
 * the tasks are, and most transactions bring tasks of one role only.  So each transaction
 * that may bring tasks says here for which role, in the element of its process in an array.
 *
 * For plain SQL an executor hook does so at the start of the statement, after the
 * rights were checked.  A row that comes without a statement, by COPY or an apply
 * worker, says so in a row trigger, a moment after its number was drawn.
 *
 * Nothing is cleared at the end of a transaction: an element names its transaction, and
 * says nothing of the next one.
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
#include "committing.h"

/*
 * One element for each process, at dw_vxid_number() - 1: the local transaction id in
 * the upper half, and in the lower half the owner of its tasks, InvalidOid for any.
 */
static pg_atomic_uint64 *writers = NULL;

static ExecutorStart_hook_type prev_executor_start = NULL;

/* An element of writers. */
static uint64
writer(LocalTransactionId lxid, Oid owner)
{
	return (uint64) lxid << 32 | owner;
}

/* Requests shared memory for this array. */
void
dw_writers_request(void)
{
	ShmemRequestStruct(.name = "delay_wheel writers",
					   .size = mul_size(MaxBackends, sizeof(pg_atomic_uint64)),
					   .ptr = (void **) &writers);
}

/* Initializes the array.  Called once for each shared memory. */
void
dw_writers_init(void)
{
	for (int i = 0; i < MaxBackends; i++)
		pg_atomic_init_u64(&writers[i], writer(InvalidLocalTransactionId, InvalidOid));
}

/*
 * Says that this transaction may bring tasks of the role; of any role, if it is
 * InvalidOid.
 *
 * The caller has the task table locked for writing, and calls this before it draws a
 * number for a task, or looks at the marks for a task that is moved, tried again or put
 * back.
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
	/* it brings tasks of more than one role: say any role */
	if (known >> 32 == me.localTransactionId && (Oid) known != owner)
		owner = InvalidOid;
	if (known == writer(me.localTransactionId, owner))
		return;
	pg_atomic_write_u64(mine, writer(me.localTransactionId, owner));
	/* this store comes before what follows: the look at the marks, the number */
	pg_memory_barrier();
}

/*
 * True if the transaction, which has the task table locked for writing, may bring rows
 * with task ids that it has drawn already.  Then *owner is the role of these tasks;
 * InvalidOid if they may be of any role, or the role is not known.
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

/* True for the table delay_wheel_data.task. */
static bool
is_task_table(Relation rel)
{
	return strcmp(RelationGetRelationName(rel), "task") == 0 &&
		RelationGetNamespace(rel) == get_namespace_oid("delay_wheel_data", true);
}

/*
 * ExecutorStart hook: a statement that writes to the task table may bring tasks of any
 * role.
 */
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
