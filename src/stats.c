/*-------------------------------------------------------------------------
 *
 * stats.c
 *	  Lateness of tasks: a histogram of fixed size in shared memory.
 *
 * Executors count with atomic additions, views read without a lock.  Buckets
 * are 8 to each power of two microseconds, so that a percentile is right to
 * about 6%.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bitutils.h"
#include "stats.h"

#define SUB_BITS	3
#define SUB_BUCKETS (1 << SUB_BITS)

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

void
dw_count_lateness(DwDatabase *db, int64 us)
{
	uint64		value = Max(us, 0);
	uint64		old = pg_atomic_read_u64(&db->lateness_max);

	StaticAssertStmt((64 - SUB_BITS + 1) * SUB_BUCKETS <= DW_LATENESS_BUCKETS,
					 "too few buckets");
	pg_atomic_fetch_add_u64(&db->lateness[bucket_of(value)], 1);
	while (value > old)
		if (pg_atomic_compare_exchange_u64(&db->lateness_max, &old, value))
			break;
}

/* In microseconds; less than 0 if nothing was counted. */
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
