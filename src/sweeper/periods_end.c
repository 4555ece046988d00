/*-------------------------------------------------------------------------
 *
 * periods_end.c
 *	  The sweeper removes the rows of keys whose period of uniqueness has ended.
 *
 * Run by the sweeper.  The rows are those of delay_wheel.unique_key, see task/period.c.  A
 * session that writes one asks for this job at its end.  The job is not done more often than
 * once in PAUSE_US, so rows stay for up to that longer; they have no effect any more.
 *
 * A pass deletes from the lowest time on, in slices, each a transaction.  Each begins where the
 * one before has ended; otherwise it would have to step over all deleted rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/shared.h"
#include "periods_end.h"
#include "slice.h"

/* Rows that are deleted in one transaction. */
#define SLICE		1000
/* Time before the next look if the table is locked, or after an error, in us. */
#define RETRY_US	(10 * USECS_PER_SEC)
/* Minimum time between two passes, in us. */
#define PAUSE_US	(5 * USECS_PER_MINUTE)

typedef struct Slice
{
	TimestampTz now;			/* when it began */
	TimestampTz next;			/* when the period of the next row ends; DW_NEVER: no row is left */
} Slice;

/* Where the next slice of this pass begins. */
static TimestampTz reached = DT_NOBEGIN;

/*
 * Deletes up to SLICE rows whose period has ended.  Returns when the period of the next row
 * ends; DW_NEVER if there is none.  A row that plain SQL has locked is left for the next pass.
 */
static TimestampTz
delete_some(Relation rel, Relation index, TimestampTz now)
{
	TimestampTz next = DW_NEVER;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			n = 0;

	ScanKeyInit(&key, Anum_unique_until, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				TimestampTzGetDatum(reached));
	scan = systable_beginscan_ordered(rel, index, GetActiveSnapshot(), 1, &key);
	while (next == DW_NEVER &&
		   (tuple = systable_getnext_ordered(scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;
		TimestampTz until = DatumGetTimestampTz(dw_row_column(rel, tuple, Anum_unique_until, &isnull));

		CHECK_FOR_INTERRUPTS();
		if (until > now || n == SLICE)
			next = until;
		else
		{
			(void) dw_heap_delete(rel, &tuple->t_self, false);
			reached = until;
			n++;
		}
	}
	systable_endscan_ordered(scan);
	return next;
}

/* Does a slice in the transaction of dw_slice_do(). */
static bool
delete_slice(DwDatabase *db, const DwCatalog *cat, void *state)
{
	Slice	   *slice = state;
	Relation	rel;
	Relation	index;

	if (!ConditionalLockRelationOid(cat->unique_key_until_index, RowExclusiveLock) ||
		(rel = dw_slice_open(cat->unique_key)) == NULL)
		return false;
	index = index_open(cat->unique_key_until_index, NoLock);
	slice->next = delete_some(rel, index, slice->now);
	index_close(index, NoLock);
	dw_slice_close(rel);
	return true;
}

/*
 * Does a slice.  Sets *more to true if it must be called again at once.  Otherwise returns
 * when it must be called again; DW_NEVER if no row is left.
 */
TimestampTz
dw_periods_end(DwDatabase *db, bool *more)
{
	Slice		slice = {.now = dw_now(), .next = DW_NEVER};

	*more = false;
	if (!dw_slice_do(db, delete_slice, &slice))
		return slice.now + RETRY_US;
	if (slice.next <= slice.now)
	{
		*more = true;
		return DW_NEVER;
	}
	reached = DT_NOBEGIN;
	dw_job_put_off(&db->sweeper_news, DW_JOB_PERIODS, slice.now + PAUSE_US);
	return slice.next == DW_NEVER ? DW_NEVER : Max(slice.next, slice.now + PAUSE_US);
}
