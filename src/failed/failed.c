/*-------------------------------------------------------------------------
 *
 * failed.c
 *	  The limits for age and number of failed tasks.
 *
 * Run by the sweeper.  README.md describes when it removes which rows.  A role with many failures
 * does not displace failed tasks of other roles.  Age and number can exceed their limits by a
 * hundredth for a while, so that the sweeper removes many rows at a time.
 *
 * A pass consists of slices, each in a transaction of its own.  Its counts take effect at its end:
 * a pass that is aborted has no effect except its deleted rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "../base/inject.h"
#include "../base/settings.h"
#include "../base/worker.h"
#include "../shmem/executors.h"
#include "../sweeper/sweeper.h"
#include "failed.h"

/* A slice ends after this number of deleted rows, or of microseconds. */
#define SLICE_DELETED	1000
#define SLICE_US		5000
/* Rows after which the clock is read again. */
#define SLICE_STEP		16
/* Microseconds before the next try if the table is locked, or after an error. */
#define RETRY_US		(10 * USECS_PER_SEC)
/* The same for a locked row: the session does not inform the sweeper when it releases the lock. */
#define LOCKED_ROW_US	(5 * USECS_PER_MINUTE)
/* The pause after a pass, as a multiple of the time of the pass, and its limits in microseconds. */
#define PAUSE_FACTOR	100
#define PAUSE_MIN		USECS_PER_SEC
#define PAUSE_MAX		USECS_PER_MINUTE

/* A position in the index, whose order is (failed_at, id). */
typedef struct Position
{
	TimestampTz failed_at;
	int64		id;
} Position;

/* An owner of failed tasks. */
typedef struct Owner
{
	Oid			role;
	int64		rows;			/* number of rows counted by this pass */
	int64		surplus;		/* number of rows that the pass must still delete */
} Owner;

/* The sweeper's current pass. */
static struct
{
	enum
	{
		NO_PASS,
		COUNTING,
		DELETING,
		ALL_DELETED
	}			phase;
	int64		began;			/* time of its begin, by dw_uptime() */
	Position	reached;		/* the next slice begins here */
	int64		counted;		/* rows of all owners */
	int64		deleted;		/* rows of all owners */
	uint64		failed;			/* counter of failed tasks when the pass began */
	HTAB	   *owners;			/* table of Owner; NULL if the pass does not count rows */
	int64		surplus;		/* number of rows of all owners that the pass must still delete */
	uint64		limit;			/* the new failed limit; 0: the pass does not count rows */
	bool		any_locked;		/* a row could not be deleted, since it was locked */
	TimestampTz oldest;			/* failed_at of the oldest row that stays; DW_NEVER: no row */
}			pass;

/* Frees the table of owners. */
static void
forget_owners(void)
{
	if (pass.owners != NULL)
		hash_destroy(pass.owners);
	pass.owners = NULL;
}

/*
 * Returns the owner of this failed task.  HASH_ENTER adds an unknown owner.  Returns NULL if the
 * pass has not counted rows, or for HASH_FIND if the owner is not known.
 */
static Owner *
owner_of(Relation rel, HeapTuple tuple, HASHACTION action)
{
	bool		found;
	Oid			role = DatumGetObjectId(dw_row_column(rel, tuple, Anum_failed_owner));
	Owner	   *owner = pass.owners ? hash_search(pass.owners, &role, action, &found) : NULL;

	if (owner != NULL && !found)
		owner->rows = owner->surplus = 0;
	return owner;
}

/* Begins the second part of the pass, with the oldest row. */
static void
begin_deleting(void)
{
	pass.phase = DELETING;
	pass.reached = (Position) {DT_NOBEGIN, PG_INT64_MIN};
}

/* Begins a pass.  If there may be too many rows, it counts them first. */
static void
begin_trim_pass(DwDatabase *db)
{
	forget_owners();
	memset(&pass, 0, sizeof(pass));
	pass.began = dw_uptime();
	pass.oldest = DW_NEVER;
	pass.failed = dw_counted(&db->counters, DW_FAILED);
	/*
	 * the counter is read before the rows: each failure is then in the counter, the rows, or both
	 */
	pg_memory_barrier();
	if (dw_failed_max_count >= 0 && pass.failed >= pg_atomic_read_u64(&db->sweeper_news.failed_limit))
	{
		HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(Owner), .hcxt = TopMemoryContext};

		pass.phase = COUNTING;
		pass.reached = (Position) {DT_NOEND, PG_INT64_MAX};
		pass.owners = hash_create("delay_wheel owners of failed tasks", 64, &control,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	else
		begin_deleting();
}

/*
 * Returns true if a slice that has begun at this time, and has read this number of rows, must end.
 */
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

/*
 * Shares delay_wheel.failed_max_count among the owners, and sets the surplus of each.  Owners with
 * few rows keep all of them.  The other owners get equal parts of the rest.  Also sets the new
 * failed limit.
 */
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
	room = Max(dw_failed_max_count - pass.counted, 0) + dw_failed_max_count / 100;
	pass.limit = pass.failed + room + 1;
}

/* Counts a slice of the rows, from the newest row on.  After the last slice, begins to delete. */
static void
count_rows(Relation rel)
{
	DwRowScan *scan = dw_failed_scan_begin(rel, BackwardScanDirection, pass.reached.failed_at,
											  pass.reached.id, GetActiveSnapshot());
	int64		began = dw_uptime();

	for (int n = 0; !slice_is_over(began, n); n++)
	{
		Position	at;
		HeapTuple	tuple = dw_failed_scan_next(scan, &at.failed_at, &at.id);

		if (tuple == NULL)
		{
			share_room();
			begin_deleting();
			break;
		}
		owner_of(rel, tuple, HASH_ENTER)->rows++;
		pass.counted++;
		pass.reached = at;
	}
	dw_row_scan_end(scan);
}

/*
 * Deletes a slice of the rows, from the oldest row on: rows of owners with too many rows, and all
 * rows that are too old.
 */
static void
delete_oldest(Relation rel)
{
	DwRowScan *scan = dw_failed_scan_begin(rel, ForwardScanDirection, pass.reached.failed_at,
											  pass.reached.id, GetActiveSnapshot());
	int64		began = dw_uptime();
	TimestampTz now = dw_now();
	int			deleted = 0;

	for (int n = 0; deleted < SLICE_DELETED && !slice_is_over(began, n); n++)
	{
		HeapTuple	tuple;
		Position	at;
		TM_Result	result;
		Owner	   *owner;
		bool		too_many;

		tuple = dw_failed_scan_next(scan, &at.failed_at, &at.id);
		if (tuple == NULL)
		{
			pass.phase = ALL_DELETED;
			break;
		}
		owner = owner_of(rel, tuple, HASH_FIND);
		too_many = owner != NULL && owner->surplus > 0;
		if (!too_many && (dw_failed_max_age < 0 || at.failed_at > now - dw_failed_max_age_us()))
		{
			pass.oldest = Min(pass.oldest, at.failed_at);
			if (pass.surplus == 0)
			{
				pass.phase = ALL_DELETED;
				break;
			}
			pass.reached = at;
			continue;
		}
		pass.reached = at;
		result = dw_heap_delete(rel, &tuple->t_self, false);
		if (result == TM_BeingModified)
		{
			/* the row does not count as deleted, so that a newer row is deleted instead */
			pass.any_locked = true;
			continue;
		}
		deleted += result == TM_Ok;
		/* a row that another transaction has deleted counts as deleted, too */
		if (too_many)
		{
			owner->surplus--;
			pass.surplus--;
		}
	}
	dw_row_scan_end(scan);
	pass.deleted += deleted;
}

/* Ends the pass, and publishes its results.  Returns the time of the next pass. */
static TimestampTz
end_trim_pass(DwDatabase *db)
{
	TimestampTz now = dw_now();
	int64		pause = Min(Max((dw_uptime() - pass.began) * PAUSE_FACTOR, PAUSE_MIN), PAUSE_MAX);
	TimestampTz next = DW_NEVER;

	pass.phase = NO_PASS;
	forget_owners();
	/* reports the deleted rows to autovacuum */
	pgstat_report_stat(true);
	dw_job_put_off(&db->sweeper_news, DW_JOB_FAILED, now + pause);
	if (pass.limit != 0)
		dw_failed_limit_set(&db->sweeper_news, pass.limit);
	if (dw_failed_max_age >= 0 && pass.oldest != DW_NEVER)
	{
		/* wait longer than the age, up to an hour, so that many rows are deleted at a time */
		next = dw_time_add(pass.oldest, dw_failed_max_age_us());
		next = dw_time_add(next, Min(dw_failed_max_age_us() / 100, USECS_PER_HOUR));
		next = Max(next, now + pause);
	}
	if (pass.any_locked)
		next = Min(next, now + LOCKED_ROW_US);
	/*
	 * A process may have requested a pass after this pass had counted the rows.  This pass has
	 * cleared the request, so check the limit again.
	 */
	if (dw_failed_max_count >= 0 &&
		dw_counted(&db->counters, DW_FAILED) >= pg_atomic_read_u64(&db->sweeper_news.failed_limit))
		next = Min(next, now + pause);
	return next;
}

/* Does a slice of a pass, in the transaction of dw_slice_do().  Begins a pass if there is none. */
static bool
trim_slice(DwDatabase *db, const DwCatalog *cat, void *state)
{
	bool	   *called = state;
	Relation	rel;

	/* called before the snapshot is taken, since it reads the counter */
	if (pass.phase == NO_PASS)
		begin_trim_pass(db);
	rel = dw_slice_open(cat->failed);
	if (rel == NULL)
		return false;
	dw_worker_activity(STATE_RUNNING, pass.phase == COUNTING ?
					   "delay_wheel: counting rows of failed tasks" : "delay_wheel: removing old rows of failed tasks");
	*called = true;
	if (pass.phase == COUNTING)
		count_rows(rel);
	else
		delete_oldest(rel);
	dw_slice_close(rel);
	DW_INJECT("trim-before-commit");
	return true;
}

/* The job: removes a slice of the failed tasks that are too old or too many.  See DwWingJob. */
static TimestampTz
trim_failed(DwDatabase *db)
{
	bool		called = false;
	int64		before = pass.phase == NO_PASS ? 0 : pass.counted + pass.deleted;
	bool		done = dw_slice_do(db, trim_slice, &called);

	if (!done || !called)
	{
		/* the slice was rolled back, or the table is gone: begin a new pass */
		pass.phase = NO_PASS;
		return done ? DW_NEVER : dw_now() + RETRY_US;
	}
	dw_worker_progress(pass.counted + pass.deleted - before);
	return pass.phase == ALL_DELETED ? end_trim_pass(db) : PG_INT64_MIN;
}

/*---- The wing ----*/

/*
 * If there may be failed tasks, asks the sweeper to check all of them.  In the sweeper itself,
 * aborts the current pass.
 */
static void
doubt_failed(DwDatabase *db, bool settings)
{
	/* settings or the clock have changed, so the limits of the pass are wrong */
	pass.phase = NO_PASS;
	if (!settings)
		dw_job_put_off(&db->sweeper_news, DW_JOB_FAILED, PG_INT64_MIN);
	if (!settings && !dw_any_may_have_rows(offsetof(DwCatalog, failed), 1))
		return;
	dw_failed_limit_set(&db->sweeper_news, 0);
	dw_ask_sweeper(db, DW_JOB_FAILED, dw_now());
}

static const DwWingJob jobs[] = {{DW_JOB_FAILED, trim_failed}};

const DwWing dw_failed_wing = {
	.jobs_in_doubt = doubt_failed,
	.jobs = jobs,
	.njobs = lengthof(jobs)
};
