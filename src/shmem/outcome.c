/*-------------------------------------------------------------------------
 *
 * outcome.c
 *	  Outcomes of tasks and attempts, their counters, and histograms that show how late tasks start.
 *
 * Run by executors, and by timers, which move tasks of dropped roles to the failed tasks.  Counters
 * and histograms change by atomic additions.  Views read without a lock.
 *
 * Lateness is the time from the due time to the start of the SQL, in microseconds.  Histograms have
 * a fixed size.  A database has 8 buckets for each power of two, so a percentile is right to about
 * 6%.  A lane has only 64 buckets: one for all values below 64 us, and 2 for each power of two up
 * to a day, so a percentile is right to about 20%.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bitutils.h"

#include "parts.h"

/* A histogram has 2^sub_bits buckets for each power of two. */
#define SUB_BITS		3
#define LANE_SUB_BITS	1

/* The first bucket of a lane contains two units of this length, in us. */
#define LANE_UNIT_US	32

/* When a bucket of a lane reaches this count, all buckets of the lane are halved. */
#define LANE_COUNT_MAX	(UINT32_C(1) << 31)

const char *const dw_outcome_names[] = {
	[DW_DONE] = "done",
	[DW_FAILED] = "failed",
	[DW_RETRIED] = "retried",
	[DW_SKIPPED] = "skipped",
	[DW_CANCELLED] = "cancelled"
};

void
dw_counters_init(DwCounters *counters)
{
	for (int i = 0; i < DW_OUTCOMES; i++)
		pg_atomic_init_u64(&counters->n[i], 0);
}

uint64
dw_counted(DwCounters *counters, DwOutcome outcome)
{
	return pg_atomic_read_u64(&counters->n[outcome]);
}

/* Adds n to the number of this outcome, and returns the new number. */
uint64
dw_count(DwCounters *counters, DwOutcome outcome, uint64 n)
{
	return pg_atomic_add_fetch_u64(&counters->n[outcome], n);
}

/*---- Lateness ----*/

/* Returns the bucket of a value.  The first 2^sub_bits buckets are for one value each. */
static int
bucket_of(uint64 value, int sub_bits)
{
	int			shift;

	if (value >> sub_bits == 0)
		return (int) value;
	shift = pg_leftmost_one_pos64(value) - sub_bits;
	return (shift << sub_bits) + (int) (value >> shift);
}

/* Returns the middle of a bucket. */
static double
bucket_value(int bucket, int sub_bits)
{
	int			sub_buckets = 1 << sub_bits;
	int			shift = bucket / sub_buckets - 1;

	if (shift < 0)
		return bucket;
	return (sub_buckets + bucket % sub_buckets + 0.5) * (UINT64CONST(1) << shift);
}

void
dw_lateness_init(DwLateness *lateness)
{
	StaticAssertStmt((64 - SUB_BITS + 1) << SUB_BITS <= DW_LATENESS_BUCKETS,
					 "too few buckets");
	pg_atomic_init_u64(&lateness->max, 0);
	for (int i = 0; i < DW_LATENESS_BUCKETS; i++)
		pg_atomic_init_u64(&lateness->buckets[i], 0);
}

void
dw_lane_lateness_init(DwLaneLateness *lateness)
{
	pg_atomic_init_u64(&lateness->max, 0);
	for (int i = 0; i < DW_LANE_BUCKETS; i++)
		pg_atomic_init_u32(&lateness->buckets[i], 0);
}

/* Raises a maximum to the value, if the value is higher. */
static void
raise_to(pg_atomic_uint64 *max, uint64 value)
{
	uint64		old = pg_atomic_read_u64(max);

	while (value > old)
		if (pg_atomic_compare_exchange_u64(max, &old, value))
			break;
}

/* Counts a task of the database that is "us" microseconds late. */
void
dw_count_lateness(DwLateness *lateness, uint64 us)
{
	pg_atomic_fetch_add_u64(&lateness->buckets[bucket_of(us, SUB_BITS)], 1);
	raise_to(&lateness->max, us);
}

/* Counts a task of the lane.  While buckets are halved, counts of other executors may be lost. */
void
dw_count_lane_lateness(DwLaneLateness *lateness, uint64 us)
{
	int			bucket = bucket_of(us / LANE_UNIT_US, LANE_SUB_BITS) - 1;

	bucket = Max(Min(bucket, DW_LANE_BUCKETS - 1), 0);
	raise_to(&lateness->max, us);
	if (pg_atomic_add_fetch_u32(&lateness->buckets[bucket], 1) < LANE_COUNT_MAX)
		return;
	for (int i = 0; i < DW_LANE_BUCKETS; i++)
		pg_atomic_write_u32(&lateness->buckets[i], pg_atomic_read_u32(&lateness->buckets[i]) / 2);
}

/* Adds the histogram of a lane to a sum of histograms.  A bucket stops at its maximum. */
void
dw_lane_lateness_add(DwLaneLateness *sum, DwLaneLateness *lateness)
{
	raise_to(&sum->max, pg_atomic_read_u64(&lateness->max));
	for (int i = 0; i < DW_LANE_BUCKETS; i++)
	{
		uint64		n = (uint64) pg_atomic_read_u32(&sum->buckets[i]) + pg_atomic_read_u32(&lateness->buckets[i]);

		pg_atomic_write_u32(&sum->buckets[i], Min(n, PG_UINT32_MAX));
	}
}

/* Returns a percentile of the lane's lateness, in us, or -1 if no task was counted. */
double
dw_lane_lateness_percentile(DwLaneLateness *lateness, double fraction)
{
	double		max = (double) pg_atomic_read_u64(&lateness->max);
	uint64		total = 0;
	uint64		seen = 0;

	for (int i = 0; i < DW_LANE_BUCKETS; i++)
		total += pg_atomic_read_u32(&lateness->buckets[i]);
	if (total == 0)
		return -1;
	for (int i = 0; i < DW_LANE_BUCKETS - 1 && fraction < 1; i++)
	{
		seen += pg_atomic_read_u32(&lateness->buckets[i]);
		if (seen >= fraction * total)
			return Min(bucket_value(i + 1, LANE_SUB_BITS) * LANE_UNIT_US, max);
	}
	return max;
}

/*
 * Returns the number of the database's tasks that were less than "us" microseconds late.  "us" must
 * be a power of two, at least 8.
 */
uint64
dw_lateness_below(DwLateness *lateness, uint64 us)
{
	uint64		n = 0;

	for (int i = 0; i < bucket_of(us, SUB_BITS); i++)
		n += pg_atomic_read_u64(&lateness->buckets[i]);
	return n;
}

/* Returns a percentile of the database's lateness, in us, or -1 if no task was counted. */
double
dw_lateness_percentile(DwLateness *lateness, double fraction)
{
	double		max = (double) pg_atomic_read_u64(&lateness->max);
	uint64		total = 0;
	uint64		seen = 0;

	for (int i = 0; i < DW_LATENESS_BUCKETS; i++)
		total += pg_atomic_read_u64(&lateness->buckets[i]);
	if (total == 0)
		return -1;
	for (int i = 0; i < DW_LATENESS_BUCKETS && fraction < 1; i++)
	{
		seen += pg_atomic_read_u64(&lateness->buckets[i]);
		if (seen >= fraction * total)
			return Min(bucket_value(i, SUB_BITS), max);
	}
	return max;
}
