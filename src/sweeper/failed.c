/*-------------------------------------------------------------------------
 *
 * failed.c
 *	  How long failed tasks are kept.
 *
 * Failed tasks go when they are older than delay_wheel.failed_max_age, or
 * when there are more than delay_wheel.failed_max_count: then the oldest of those
 * owners that have most, until each has as many, so that no role makes room by
 * throwing away what is another one's.  The sweeper removes them (dw_failed_trim), and nobody looks before there
 * is something to remove: db->failed_trim_at is when the oldest one is to go,
 * and whoever records a failure lowers it if nothing is known, or if
 * there may be too many by now.  The count of failures since the server's
 * start tells that: the sweeper, having counted the rows, says in
 * db->failed_limit up to which it may grow.
 *
 * Both limits can be exceeded by a hundredth for a while, so that it is many
 * rows that go at a time.
 *
 * A pass counts the rows of each owner, if there may be too many, which finds
 * how many of whose are to go, and then deletes from the oldest one on.  Each slice of it is a transaction; the place that it
 * has come to is kept, or each slice would step over what those before it
 * have deleted.  What was counted holds when the pass has come to its end: one
 * that is given up, also by the end of the process, is as if it had not begun.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "../base/clock.h"
#include "../base/inject.h"
#include "../base/settings.h"
#include "../rows/catalog.h"
#include "../rows/lane_scan.h"
#include "../shmem/progress.h"
#include "../shmem/shared.h"
#include "../shmem/stats.h"
#include "../task/my_session.h"
#include "failed.h"

/* What ends a slice; the clock is read after so many rows. */
#define SLICE_DELETED	1000
#define SLICE_US		5000
#define SLICE_STEP		16
/* the table is locked, or an error struck */
#define RETRY_US		USECS_PER_MINUTE
/* whoever has locked a row ends without a word */
#define LOCKED_ROW_US	(5 * USECS_PER_MINUTE)
/* passes for the number of rows may take a hundredth of the time */
#define PAUSE_FACTOR	100
#define PAUSE_MIN		USECS_PER_SEC
#define PAUSE_MAX		USECS_PER_MINUTE

/* A place in the order of (failed_at, id). */
typedef struct Place
{
	TimestampTz failed_at;
	int64		id;
} Place;

typedef struct Owner
{
	Oid			role;
	int64		rows;
	int64		surplus;		/* so many of them are yet to go */
} Owner;

/* What the sweeper knows of its current pass. */
static struct
{
	enum
	{
		NO_PASS,
		COUNTING,
		DELETING
	}			phase;
	int64		began;			/* by dw_uptime() */
	Place		reached;
	int64		counted;
	int64		deleted;
	uint64		failed;			/* db->failed when the counting began */
	HTAB	   *owners;			/* of Owner, while rows are counted, and after */
	int64		surplus;		/* so many are yet to go, of all */
	uint64		limit;			/* failed_limit by that; 0: they were not counted */
	bool		any_locked;
	TimestampTz oldest;			/* of those that stay; DW_NEVER: there is none */
}			pass;

/*---- The sweeper ----*/

/* For the sweeper: what it has counted does not hold any more. */
void
dw_failed_restart(void)
{
	pass.phase = NO_PASS;
}

static void
forget_owners(void)
{
	if (pass.owners != NULL)
		hash_destroy(pass.owners);
	pass.owners = NULL;
}

static Owner *
owner_of(Relation rel, HeapTuple tuple, HASHACTION action)
{
	bool		isnull;
	bool		found;
	Oid			role = DatumGetObjectId(heap_getattr(tuple, Anum_failed_owner, RelationGetDescr(rel), &isnull));
	Owner	   *owner = pass.owners ? hash_search(pass.owners, &role, action, &found) : NULL;

	if (owner != NULL && !found)
		owner->rows = owner->surplus = 0;
	return owner;
}

static void
begin_deleting(void)
{
	static const Place before_all = {DT_NOBEGIN, PG_INT64_MIN};

	pass.phase = DELETING;
	pass.reached = before_all;
}

static void
begin_trim_pass(DwDatabase *db)
{
	static const Place after_all = {DT_NOEND, PG_INT64_MAX};

	forget_owners();
	memset(&pass, 0, sizeof(pass));
	pass.began = dw_uptime();
	pass.oldest = DW_NEVER;
	pass.failed = pg_atomic_read_u64(&db->failed);
	/* before what it stands for is read */
	pg_memory_barrier();
	if (dw_failed_max_count >= 0 && pass.failed >= pg_atomic_read_u64(&db->failed_limit))
	{
		HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(Owner), .hcxt = TopMemoryContext};

		pass.phase = COUNTING;
		pass.reached = after_all;
		pass.owners = hash_create("delay_wheel owners of failed tasks", 64, &control,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	else
		begin_deleting();
}

/* Has the slice lasted long enough? */
static bool
slice_is_over(int64 began, int rows)
{
	CHECK_FOR_INTERRUPTS();
	return rows % SLICE_STEP == SLICE_STEP - 1 && dw_uptime() - began > SLICE_US;
}

static int
compare_owners_by_rows(const void *a, const void *b)
{
	int64		left = (*(Owner *const *) a)->rows;
	int64		right = (*(Owner *const *) b)->rows;

	return left < right ? -1 : left > right;
}

/* Those that have least keep all; what is left is shared among the others. */
static void
share_room(void)
{
	int			n = hash_get_num_entries(pass.owners);
	Owner	  **owners = palloc(Max(n, 1) * sizeof(Owner *));
	int64		room = dw_failed_max_count;
	HASH_SEQ_STATUS all;

	hash_seq_init(&all, pass.owners);
	for (int i = 0; i < n; i++)
		owners[i] = hash_seq_search(&all);
	hash_seq_term(&all);
	qsort(owners, n, sizeof(Owner *), compare_owners_by_rows);
	for (int i = 0; i < n; i++)
	{
		int64		kept = Min(owners[i]->rows, room / (n - i));

		owners[i]->surplus = owners[i]->rows - kept;
		pass.surplus += owners[i]->surplus;
		room -= kept;
	}
	pfree(owners);
}

static void
count_rows(Relation rel)
{
	DwFailedScan *scan = dw_failed_scan_begin(rel, BackwardScanDirection, pass.reached.failed_at,
											  pass.reached.id, GetActiveSnapshot());
	int64		began = dw_uptime();
	bool		ended = false;

	for (int n = 0; !slice_is_over(began, n); n++)
	{
		Place		place;
		HeapTuple	tuple = dw_failed_scan_next(scan, &place.failed_at, &place.id);

		if (tuple == NULL)
		{
			ended = true;
			break;
		}
		owner_of(rel, tuple, HASH_ENTER)->rows++;
		pass.counted++;
		pass.reached = place;
	}
	dw_failed_scan_end(scan);
	if (ended)
	{
		int64		room = Max(dw_failed_max_count - pass.counted, 0) + dw_failed_max_count / 100;

		pass.limit = pass.failed + room + 1;
		share_room();
		begin_deleting();
	}
}

/*
 * The oldest ones go, of those owners that have too many, and of all if they are
 * too old.  Returns whether that was all.
 */
static bool
delete_oldest(Relation rel)
{
	DwFailedScan *scan = dw_failed_scan_begin(rel, ForwardScanDirection, pass.reached.failed_at,
											  pass.reached.id, GetActiveSnapshot());
	int64		began = dw_uptime();
	TimestampTz now = dw_now();
	bool		ended = false;
	int			deleted = 0;

	for (int n = 0; deleted < SLICE_DELETED && !slice_is_over(began, n); n++)
	{
		HeapTuple	tuple;
		Place		place;
		TM_FailureData failure;
		TM_Result	result;
		Owner	   *owner;
		bool		too_many;

		tuple = dw_failed_scan_next(scan, &place.failed_at, &place.id);
		if (tuple == NULL)
		{
			ended = true;
			break;
		}
		owner = owner_of(rel, tuple, HASH_FIND);
		too_many = owner != NULL && owner->surplus > 0;
		if (!too_many && (dw_failed_max_age < 0 || place.failed_at > now - dw_failed_max_age_us()))
		{
			pass.oldest = Min(pass.oldest, place.failed_at);
			if (pass.surplus == 0)
			{
				ended = true;
				break;
			}
			pass.reached = place;
			continue;
		}
		pass.reached = place;
		result = heap_delete(rel, &tuple->t_self, GetCurrentCommandId(true),
							 InvalidSnapshot, false, &failure, false);
		if (result == TM_Ok)
		{
			deleted++;
			if (too_many)
			{
				owner->surplus--;
				pass.surplus--;
			}
		}
		else if (result == TM_BeingModified)
			pass.any_locked = true;
	}
	dw_failed_scan_end(scan);
	pass.deleted += deleted;
	return ended;
}

/* Returns when the next pass is needed. */
static TimestampTz
end_trim_pass(DwDatabase *db)
{
	TimestampTz now = dw_now();
	int64		pause = Min(Max((dw_uptime() - pass.began) * PAUSE_FACTOR, PAUSE_MIN), PAUSE_MAX);
	TimestampTz next = DW_NEVER;

	pass.phase = NO_PASS;
	forget_owners();
	dw_progress_end(db, DW_WORK_FAILED);
	/* autovacuum is to know */
	pgstat_report_stat(true);
	pg_atomic_write_u64(&db->failed_trim_after, (uint64) (now + pause));
	if (pass.limit != 0)
		pg_atomic_write_u64(&db->failed_limit, pass.limit);
	if (dw_failed_max_age >= 0 && pass.oldest != DW_NEVER)
	{
		/* not for each row: up to an hour's worth at a time */
		next = dw_time_add(pass.oldest, dw_failed_max_age_us());
		next = dw_time_add(next, Min(dw_failed_max_age_us() / 100, USECS_PER_HOUR));
		next = Max(next, now + pause);
	}
	if (pass.any_locked)
		next = Min(next, now + LOCKED_ROW_US);
	/* whoever asked while it lasted was heard by a slice that could not do it */
	if (dw_failed_max_count >= 0 &&
		pg_atomic_read_u64(&db->failed) >= pg_atomic_read_u64(&db->failed_limit))
		next = Min(next, now + pause);
	return next;
}

/* One slice.  False if the table is locked; *gone: there is none. */
static bool
trim_slice(DwDatabase **db, bool *gone, bool *ended)
{
	DwCatalog	cat;
	Relation	rel;

	if (!dw_catalog_lookup(&cat))
	{
		*gone = true;
		return false;
	}
	*db = dw_my_database();
	if (*db == NULL)
		return false;
	if (!ConditionalLockRelationOid(cat.failed, RowExclusiveLock))
	{
		dw_progress_begin(*db, DW_WORK_FAILED, DW_PHASE_WAITING);
		return false;
	}
	/* invalidations came with the lock; the snapshot comes after both */
	if (pass.phase == NO_PASS)
		begin_trim_pass(*db);
	PushActiveSnapshot(GetTransactionSnapshot());
	rel = table_open(dw_catalog()->failed, NoLock);
	dw_progress_begin(*db, DW_WORK_FAILED,
					  pass.phase == COUNTING ? DW_PHASE_COUNTING : DW_PHASE_DELETING);
	if (pass.phase == COUNTING)
		count_rows(rel);
	else
		*ended = delete_oldest(rel);
	table_close(rel, NoLock);
	PopActiveSnapshot();
	return true;
}

/* What is committed. */
static void
note_trim_progress(DwDatabase *db)
{
	if (pass.phase == COUNTING)
		dw_progress_set(db, DW_WORK_FAILED, pass.counted,
						Max(pass.counted, dw_failed_max_count));
	else
		dw_progress_set(db, DW_WORK_FAILED, pass.deleted, DW_TOTAL_UNKNOWN);
}

/*
 * For the sweeper: removes failed tasks that are too old or too many, a slice
 * of them, in a transaction of its own.  Sets *more if there is more to do at
 * once; if not, returns when there will be, as far as is known by now.
 */
TimestampTz
dw_failed_trim(bool *more)
{
	MemoryContext context = CurrentMemoryContext;
	DwDatabase *volatile db = NULL;
	volatile bool ok = false;
	volatile bool gone = false;
	volatile bool ended = false;

	*more = false;
	PG_TRY();
	{
		DwDatabase *my_db = NULL;
		bool		no_table = false;
		bool		no_more = false;

		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		/* the server's default may be one that waits or fails */
		XactIsoLevel = XACT_READ_COMMITTED;
		ok = trim_slice(&my_db, &no_table, &no_more);
		DW_INJECT("trim-before-commit");
		CommitTransactionCommand();
		db = my_db;
		gone = no_table;
		ended = no_more;
	}
	PG_CATCH();
	{
		ok = false;
		dw_end_failed_transaction(context);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);

	if (!ok)
	{
		/* from the beginning: what was deleted is deleted no more */
		pass.phase = NO_PASS;
		return gone ? DW_NEVER : dw_now() + RETRY_US;
	}
	note_trim_progress(db);
	if (ended)
		return end_trim_pass(db);
	*more = true;
	return DW_NEVER;
}
