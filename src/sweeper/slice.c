/*-------------------------------------------------------------------------
 *
 * slice.c
 *	  A slice of one of the sweeper's jobs: the transaction around it.
 *
 * Run by the sweeper.  Each job does its work in slices, each a transaction.  An error ends
 * the slice, and not the sweeper, which has other jobs.  What others must learn of a slice
 * belongs behind dw_slice_do(): before, the slice may yet be rolled back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/genam.h"
#include "access/xact.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

#include "../task/my_session.h"
#include "slice.h"

/*
 * Calls work() in a transaction.  If there is no extension, nothing is called, and the state
 * stays as it is.
 *
 * Returns true if the transaction was committed.  False: the caller must try again after a
 * while, since work() returned false, or an error has undone it.  The error was reported.
 */
bool
dw_slice_do(DwDatabase *db, DwSliceWork work, void *state)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool done = false;

	PG_TRY();
	{
		DwCatalog	cat;
		bool		could;

		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		/* default_transaction_isolation may be serializable, which could wait or fail */
		XactIsoLevel = XACT_READ_COMMITTED;
		/* what is noted for the end of the transaction needs the pin */
		(void) dw_my_database();
		could = !dw_catalog_lookup(&cat) || work(db, &cat, state);
		CommitTransactionCommand();
		done = could;
	}
	PG_CATCH();
	{
		dw_end_failed_transaction(context);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	return done;
}

/* For work(): opens a table to delete from it, with a new snapshot; NULL if it is locked or gone. */
Relation
dw_slice_open(Oid table)
{
	Relation	rel;

	if (!ConditionalLockRelationOid(table, RowExclusiveLock))
		return NULL;
	/* it may have been dropped before we had the lock */
	rel = try_table_open(table, NoLock);
	/* the lock brought invalidations of caches; the snapshot must be taken after the lock */
	if (rel != NULL)
		PushActiveSnapshot(GetTransactionSnapshot());
	return rel;
}

/* Closes the table, and gives back the snapshot of dw_slice_open(). */
void
dw_slice_close(Relation rel)
{
	table_close(rel, NoLock);
	PopActiveSnapshot();
}

/* As dw_slice_open(), with an index of the table; false if one of them is locked, or gone. */
bool
dw_slice_open_both(Oid table, Oid index, Relation *rel, Relation *index_rel)
{
	if (!ConditionalLockRelationOid(index, RowExclusiveLock) ||
		(*rel = dw_slice_open(table)) == NULL)
		return false;
	*index_rel = index_open(index, NoLock);
	return true;
}

/* Closes what dw_slice_open_both() has opened. */
void
dw_slice_close_both(Relation rel, Relation index_rel)
{
	index_close(index_rel, NoLock);
	dw_slice_close(rel);
}
