/*-------------------------------------------------------------------------
 *
 * stats.c
 *	  Counters, and lateness of tasks: histograms of fixed size in shared
 *	  memory.
 *
 * Executors count with atomic additions, views read without a lock.  Buckets
 * of a database are 8 to each power of two microseconds, so that a percentile
 * is right to about 6%.  A lane has but 64: one for what is below 64 us, and 2
 * to each power of two up to a day, for a percentile right to about 20%.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bitutils.h"

#include "../base/clock.h"
#include "../base/settings.h"
#include "../ring/ring.h"
#include "executors.h"
#include "outcome.h"
#include "queue_limits.h"
#include "shared.h"
#include "stats.h"

#define SUB_BITS	3
#define SUB_BUCKETS (1 << SUB_BITS)

#define LANE_LOWEST_BIT	6
/* a bucket that comes to so many halves all of them */
#define LANE_COUNT_MAX	(UINT32_C(1) << 31)

static int
bucket_of(uint64 us)
{
	int			shift;

	if (us < SUB_BUCKETS)
		return (int) us;
	shift = pg_leftmost_one_pos64(us) - SUB_BITS;
	return (shift + 1) * SUB_BUCKETS + (int) ((us >> shift) - SUB_BUCKETS);
}

/* The middle of a bucket. */
static double
bucket_value(int bucket)
{
	int			shift = bucket / SUB_BUCKETS - 1;
	double		width;

	if (bucket < SUB_BUCKETS)
		return bucket;
	width = (double) (UINT64CONST(1) << shift);
	return (SUB_BUCKETS + bucket % SUB_BUCKETS + 0.5) * width;
}

static int
lane_bucket_of(uint64 us)
{
	int			bit;
	int			bucket;

	if (us < 1 << LANE_LOWEST_BIT)
		return 0;
	bit = pg_leftmost_one_pos64(us);
	bucket = 1 + 2 * (bit - LANE_LOWEST_BIT) + (int) ((us >> (bit - 1)) & 1);
	return Min(bucket, DW_LANE_BUCKETS - 1);
}

static double
lane_bucket_value(int bucket)
{
	double		power = (double) (UINT64CONST(1) << (LANE_LOWEST_BIT + (bucket - 1) / 2));

	if (bucket == 0)
		return (1 << LANE_LOWEST_BIT) / 2;
	return power * ((bucket - 1) % 2 == 0 ? 1.25 : 1.75);
}

void
dw_lane_stats_init(DwLane *lane)
{
	pg_atomic_init_u64(&lane->done, 0);
	pg_atomic_init_u64(&lane->failed, 0);
	pg_atomic_init_u64(&lane->retried, 0);
	pg_atomic_init_u64(&lane->cancelled, 0);
	pg_atomic_init_u64(&lane->skipped, 0);
	pg_atomic_init_u64(&lane->lateness_max, 0);
	for (int i = 0; i < DW_LANE_BUCKETS; i++)
		pg_atomic_init_u32(&lane->lateness[i], 0);
}

static void
raise_to(pg_atomic_uint64 *max, uint64 value)
{
	uint64		old = pg_atomic_read_u64(max);

	while (value > old)
		if (pg_atomic_compare_exchange_u64(max, &old, value))
			break;
}

static void
count_lane_lateness(DwLane *lane, uint64 us)
{
	raise_to(&lane->lateness_max, us);
	if (pg_atomic_add_fetch_u32(&lane->lateness[lane_bucket_of(us)], 1) < LANE_COUNT_MAX)
		return;
	for (int i = 0; i < DW_LANE_BUCKETS; i++)
		pg_atomic_write_u32(&lane->lateness[i], pg_atomic_read_u32(&lane->lateness[i]) / 2);
}

void
dw_count_begin(DwDatabase *db, DwExecutor *me, int64 us)
{
	uint64		value = Max(us, 0);

	me->begun = true;
	StaticAssertStmt((64 - SUB_BITS + 1) * SUB_BUCKETS <= DW_LATENESS_BUCKETS,
					 "too few buckets");
	pg_atomic_fetch_add_u64(&db->lateness[bucket_of(value)], 1);
	raise_to(&db->lateness_max, value);
	count_lane_lateness(&dw_lanes[me->current.lane], value);
}

void
dw_count_end(DwDatabase *db, DwLane *lane, DwOutcome outcome)
{
	DwQueue    *queue = dw_lane_queue(lane);

	switch (outcome)
	{
		case DW_DONE:
			pg_atomic_fetch_add_u64(&db->done, 1);
			pg_atomic_fetch_add_u64(&lane->done, 1);
			if (queue)
				pg_atomic_fetch_add_u64(&queue->done, 1);
			break;
		case DW_FAILED:
			dw_failed_recorded(db, 1);
			pg_atomic_fetch_add_u64(&lane->failed, 1);
			if (queue)
				pg_atomic_fetch_add_u64(&queue->failed, 1);
			break;
		case DW_RETRIED:
			pg_atomic_fetch_add_u64(&db->retried, 1);
			pg_atomic_fetch_add_u64(&lane->retried, 1);
			if (queue)
				pg_atomic_fetch_add_u64(&queue->retried, 1);
			break;
		case DW_CANCELLED:
			pg_atomic_fetch_add_u64(&lane->cancelled, 1);
			if (queue)
				pg_atomic_fetch_add_u64(&queue->cancelled, 1);
			break;
		case DW_SKIPPED:
			pg_atomic_fetch_add_u64(&db->skipped, 1);
			pg_atomic_fetch_add_u64(&lane->skipped, 1);
			if (queue)
				pg_atomic_fetch_add_u64(&queue->skipped, 1);
			break;
		case DW_NOT_ENDED:
			break;
	}
}

double
dw_lane_lateness_percentile(DwLane *lane, double fraction)
{
	double		max = (double) pg_atomic_read_u64(&lane->lateness_max);
	uint64		total = 0;
	uint64		seen = 0;

	for (int i = 0; i < DW_LANE_BUCKETS; i++)
		total += pg_atomic_read_u32(&lane->lateness[i]);
	if (total == 0)
		return -1;
	for (int i = 0; i < DW_LANE_BUCKETS - 1 && fraction < 1; i++)
	{
		seen += pg_atomic_read_u32(&lane->lateness[i]);
		if (seen >= fraction * total)
			return Min(lane_bucket_value(i), max);
	}
	return max;
}

/*
 * How many began less than so many microseconds late, which is a power of two from 8 on.
 */
uint64
dw_lateness_below(DwDatabase *db, uint64 us)
{
	uint64		n = 0;

	for (int i = 0; i < bucket_of(us); i++)
		n += pg_atomic_read_u64(&db->lateness[i]);
	return n;
}

double
dw_lateness_percentile(DwDatabase *db, double fraction)
{
	uint64		total = 0;
	uint64		seen = 0;

	for (int i = 0; i < DW_LATENESS_BUCKETS; i++)
		total += pg_atomic_read_u64(&db->lateness[i]);
	if (total == 0)
		return -1;
	for (int i = 0; i < DW_LATENESS_BUCKETS; i++)
	{
		seen += pg_atomic_read_u64(&db->lateness[i]);
		if (seen >= fraction * total)
			return Min(bucket_value(i), (double) pg_atomic_read_u64(&db->lateness_max));
	}
	return (double) pg_atomic_read_u64(&db->lateness_max);
}

int64
dw_failed_max_age_us(void)
{
	return (int64) dw_failed_max_age * USECS_PER_MINUTE;
}

/* Asks for the sweeper to look at failed tasks at that time. */
void
dw_failed_ask(DwDatabase *db, TimestampTz at)
{
	if (!dw_atomic_lower(&db->failed_trim_at, at))
		return;
	/* the timer looks at it when this has changed */
	pg_atomic_fetch_add_u32(&db->control, 1);
	dw_wake_timer(db, DW_AWAKE);
}

/* So many failures were recorded, and committed: counts them. */
void
dw_failed_recorded(DwDatabase *db, uint64 n)
{
	uint64		failed = pg_atomic_add_fetch_u64(&db->failed, n);

	if (dw_failed_max_count >= 0 && failed >= pg_atomic_read_u64(&db->failed_limit))
		dw_failed_ask(db, Max(dw_now(), dw_atomic_read(&db->failed_trim_after)));
	else if (dw_failed_max_age >= 0 && dw_atomic_read(&db->failed_trim_at) == DW_NEVER)
		dw_failed_ask(db, dw_now() + dw_failed_max_age_us());
}
