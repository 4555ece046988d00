/*-------------------------------------------------------------------------
 *
 * ring_bench.c
 *	  What the operations of the ring cost.
 *
 *-------------------------------------------------------------------------
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ring.h"

#define NENTRIES	1000000
#define NSLOTS		3600
#define TICK_US		INT64_C(1000000)
#define OUT_MAX		1024

static DwPool *pool;
static DwAccount acct;
static DwRing *ring;
static DwEntry *entries;
static DwEntry out[OUT_MAX];
static uint64 rng_state = 42;

static uint64
rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

static double
now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e9 + ts.tv_nsec;
}

static void
setup(int64 from, int64 ticks)
{
	uint32		nchunks = NENTRIES / DW_CHUNK_ENTRIES + 2 * NSLOTS;

	pool = malloc(dw_pool_size(nchunks));
	ring = malloc(dw_ring_size(NSLOTS));
	entries = malloc(NENTRIES * sizeof(DwEntry));
	if (!pool || !ring || !entries)
		exit(2);
	dw_pool_init(pool, nchunks);
	acct = (DwAccount) {1, 0, nchunks};
	dw_ring_init(ring, NSLOTS, TICK_US);

	memset(entries, 0, NENTRIES * sizeof(DwEntry));
	for (uint32 i = 0; i < NENTRIES; i++)
	{
		entries[i].due = from * TICK_US + (int64) (rng() % (uint64) (ticks * TICK_US));
		entries[i].id = i;
	}
}

static void
teardown(void)
{
	free(pool);
	free(ring);
	free(entries);
}

static void
insert_all(const char *what)
{
	double		start = now_ns();

	for (uint32 i = 0; i < NENTRIES; i++)
	{
		if (!dw_ring_insert(ring, pool, &acct, &entries[i]))
			exit(2);
	}
	printf("%-34s insert     %8.1f ns per entry\n", what, (now_ns() - start) / NENTRIES);
}

static void
take_all(const char *what, int64 ticks)
{
	double		start = now_ns();
	uint64		taken = 0;

	for (int64 tick = 0; tick < ticks; tick++)
	{
		DwTake		take;

		dw_ring_take_begin(ring, tick, dw_ring_last_due(ring, tick), &take);
		while (take.chunks_left > 0)
			taken += dw_ring_take(ring, pool, &acct, &take, out, OUT_MAX);
		dw_ring_advance(ring, tick + 1);
	}
	if (taken != NENTRIES)
		exit(2);
	printf("%-34s take       %8.1f ns per entry\n", what, (now_ns() - start) / NENTRIES);
}

static void
bench_next_due(const char *what, int rounds)
{
	double		best = 1e18;

	/* Other load on the machine only ever adds, so the best batch counts */
	for (int batch = 0; batch < 10; batch++)
	{
		double		start = now_ns();

		for (int i = 0; i < rounds; i++)
			(void) dw_ring_next_due(ring);
		best = Min(best, (now_ns() - start) / rounds);
	}
	printf("%-34s next_due   %8.1f ns\n", what, best);
}

static void
bench(const char *what, int64 ticks)
{
	setup(0, ticks);
	insert_all(what);
	bench_next_due(what, 1000);
	take_all(what, ticks);
	bench_next_due("empty ring", 1000);
	teardown();
}

int
main(void)
{
	bench("due within one turn", NSLOTS);
	bench("due within 24 turns", 24 * NSLOTS);

	/* The worst case: all slots are occupied, none is due in this turn */
	setup(5 * NSLOTS, NSLOTS);
	insert_all("due in the sixth turn");
	bench_next_due("due in the sixth turn", 1000);
	teardown();
	return 0;
}
