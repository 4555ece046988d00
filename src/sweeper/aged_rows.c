/*-------------------------------------------------------------------------
 *
 * aged_rows.c
 *	  Removes keys whose period of uniqueness has ended (task/period.c), and old rows of wings.
 *
 * Run by the sweeper.  A session that writes such a key or row requests the job for the end of its
 * time.  A job runs at most once in PAUSE_US, so a row may stay for up to PAUSE_US longer.
 *
 * A pass deletes from the lowest time on, in slices.  Each slice is a transaction.  A slice begins
 * where the slice before has ended, so that it need not skip all deleted rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pgstat.h"
#include "utils/fmgroids.h"

#include "sweeper.h"

/* Maximum number of rows that are deleted in one transaction. */
#define SLICE		1000
/* Time before the next look if the table is locked, or after an error, in us. */
#define RETRY_US	(10 * USECS_PER_SEC)
/* Minimum time between two passes, in us. */
#define PAUSE_US	(5 * USECS_PER_MINUTE)

static DwAged periods = {
	DW_JOB_PERIODS, offsetof(DwCatalog, unique_key), offsetof(DwCatalog, unique_key_until_index),
	Anum_unique_until, DT_NOBEGIN
};

typedef struct Slice
{
	DwAged	   *kind;
	TimestampTz limit;			/* rows are removed if their time is this time or earlier */
	TimestampTz next;			/* the time of the next row; DW_NEVER: no row is left */
} Slice;

/* Returns the OID at this offset of the catalog. */
static Oid
oid_at(const DwCatalog *cat, size_t place)
{
	return *(const Oid *) ((const char *) cat + place);
}

/*
 * Deletes up to SLICE rows whose time is at or before the limit, in the transaction of
 * dw_slice_do().  A row that plain SQL has locked is left for the next pass.
 */
static bool
delete_slice(DwDatabase *db, const DwCatalog *cat, void *state)
{
	Slice	   *slice = state;
	DwAged	   *kind = slice->kind;
	Relation	rel;
	Relation	index;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			n = 0;

	if (!dw_slice_open_both(oid_at(cat, kind->table), oid_at(cat, kind->index), &rel, &index))
		return false;
	ScanKeyInit(&key, kind->column, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				TimestampTzGetDatum(kind->reached));
	scan = systable_beginscan_ordered(rel, index, GetActiveSnapshot(), 1, &key);
	while (slice->next == DW_NEVER &&
		   (tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
	{
		TimestampTz at = DatumGetTimestampTz(dw_row_column(rel, tuple, kind->column));

		CHECK_FOR_INTERRUPTS();
		if (at > slice->limit || n == SLICE)
			slice->next = at;
		else
		{
			(void) dw_heap_delete(rel, &tuple->t_self, false);
			kind->reached = at;
			n++;
		}
	}
	systable_endscan_ordered(scan);
	dw_slice_close_both(rel, index);
	return true;
}

/*
 * Does a slice: removes rows that are older than "age", in us.  Returns when to call this again:
 * PG_INT64_MIN for at once, or DW_NEVER if no row is left.
 */
TimestampTz
dw_aged_remove(DwDatabase *db, DwAged *kind, int64 age)
{
	TimestampTz now = dw_now();
	Slice		slice = {.kind = kind, .limit = now - age, .next = DW_NEVER};

	if (!dw_slice_do(db, delete_slice, &slice))
		return now + RETRY_US;
	/* otherwise autovacuum would not count the deleted rows */
	pgstat_report_stat(true);
	if (slice.next <= slice.limit)
		return PG_INT64_MIN;
	kind->reached = DT_NOBEGIN;
	dw_job_put_off(&db->sweeper_news, kind->job, now + PAUSE_US);
	return slice.next == DW_NEVER ? DW_NEVER : Max(dw_time_add(slice.next, age), now + PAUSE_US);
}

/* Removes the rows of keys whose period has ended.  Result: see dw_aged_remove(). */
TimestampTz
dw_periods_end(DwDatabase *db)
{
	return dw_aged_remove(db, &periods, 0);
}

/*---- The transaction of a slice of a job ----*/

/*
 * Calls work() in a transaction, unless the extension is gone.  Returns false if work() did, or
 * after an error, which was reported: then the caller must try again later.  The sweeper goes on,
 * since it has other jobs.  The caller informs other processes of a slice only afterwards, since
 * the slice may be rolled back before.
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
		/* the defaults may be a level at which slices wait or fail, and read-only */
		XactIsoLevel = XACT_READ_COMMITTED;
		XactReadOnly = false;
		/* notes for the end of the transaction need a pin of the database's place */
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

/* Opens a table for deletes, with a new snapshot.  Returns NULL if the table is locked or gone. */
Relation
dw_slice_open(Oid table)
{
	Relation	rel;

	if (!ConditionalLockRelationOid(table, RowExclusiveLock))
		return NULL;
	/* the table may have been dropped before this process got the lock */
	rel = try_table_open(table, NoLock);
	/* the lock has processed invalidations; the snapshot must be taken after the lock */
	if (rel != NULL)
		PushActiveSnapshot(GetTransactionSnapshot());
	return rel;
}

/* Closes the table and the snapshot of dw_slice_open(). */
void
dw_slice_close(Relation rel)
{
	table_close(rel, NoLock);
	PopActiveSnapshot();
}

/* Opens table and index like dw_slice_open().  Returns false if one is locked or gone. */
bool
dw_slice_open_both(Oid table, Oid index, Relation *rel, Relation *index_rel)
{
	if (!ConditionalLockRelationOid(index, RowExclusiveLock) ||
		(*rel = dw_slice_open(table)) == NULL)
		return false;
	*index_rel = index_open(index, NoLock);
	return true;
}

/* Closes table, index and snapshot of dw_slice_open_both(). */
void
dw_slice_close_both(Relation rel, Relation index_rel)
{
	index_close(index_rel, NoLock);
	dw_slice_close(rel);
}
