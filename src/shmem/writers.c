/*-------------------------------------------------------------------------
 *
 * writers.c
 *	  Transactions that may yet bring rows of tasks, and whose.
 *
 * A mark of delay_cancel_all() stays until all transactions have ended that can
 * bring tasks that it hits (sweep.c).  They have the task table locked, but so has
 * anybody who likes: PREPARE of a DELETE, the body of an SQL function and other
 * ways to have a statement analyzed take the lock that the statement would need,
 * and look at no rights.  And most who are to bring tasks bring those of their own
 * role only.  So who brings some says so here, each process in a place of its own.
 *
 * Plain SQL says so when its statement begins, rights having been looked at, by a
 * hook.  A row that comes without one, by COPY or an apply worker, says so in a row
 * trigger: a moment after its number was drawn.
 *
 * Nothing is taken back at the end: what is there is of one transaction, and
 * says nothing of the next one.
 *
 * Run by all who write tasks, and read by the sweeper.
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
#include "writers.h"

/* By dw_vxid_number() - 1: the local transaction, and the owner of its tasks. */
static pg_atomic_uint64 *writers = NULL;

static ExecutorStart_hook_type prev_executor_start = NULL;

static uint64
writer(LocalTransactionId lxid, Oid owner)
{
	return (uint64) lxid << 32 | owner;
}

Size
dw_writers_size(void)
{
	return mul_size(MaxBackends, sizeof(pg_atomic_uint64));
}

void
dw_writers_attach(void)
{
	bool		found;

	writers = ShmemInitStruct("delay_wheel writers", dw_writers_size(), &found);
	for (int i = 0; i < MaxBackends && !found; i++)
		pg_atomic_init_u64(&writers[i], writer(InvalidLocalTransactionId, InvalidOid));
}

/*
 * This transaction may bring tasks of the role, of any if it is InvalidOid.  To be
 * said with the task table locked for writing, before a number is drawn for one,
 * or marks are looked at for one that is moved, tried again or put back.
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
	/* of more than one role */
	if (known >> 32 == me.localTransactionId && (Oid) known != owner)
		owner = InvalidOid;
	if (known == writer(me.localTransactionId, owner))
		return;
	pg_atomic_write_u64(mine, writer(me.localTransactionId, owner));
	/* what follows comes after it: the look at the marks, the number */
	pg_memory_barrier();
}

/*
 * May the transaction, which has the task table locked for writing, bring rows
 * with numbers that it has drawn already?  If so, *owner is whose; InvalidOid if
 * that is not known.
 */
bool
dw_is_writer(VirtualTransactionId vxid, Oid *owner)
{
	uint64		known;

	*owner = InvalidOid;
	/* a prepared one cannot say it any more */
	if (VirtualTransactionIdIsRecoveredPreparedXact(vxid))
		return true;
	known = pg_atomic_read_u64(&writers[dw_vxid_number(vxid) - 1]);
	*owner = (Oid) known;
	return known >> 32 == vxid.localTransactionId;
}

/*---- Plain SQL ----*/

static bool
is_task_table(Relation rel)
{
	return strcmp(RelationGetRelationName(rel), "task") == 0 &&
		RelationGetNamespace(rel) == get_namespace_oid("delay_wheel", true);
}

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

/* Called once by the postmaster. */
void
dw_writers_install(void)
{
	prev_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = note_writing_query;
}
