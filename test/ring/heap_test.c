/*-------------------------------------------------------------------------
 *
 * heap_test.c
 *	  Property test of the heap of lanes.
 *
 * Random operations run against the heap and against a plain array of keys,
 * in which the lowest is searched.  Two heaps in turn, since the timer keeps
 * a lane in more than one.
 *
 *	  heap_test [seed]
 *
 *-------------------------------------------------------------------------
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ring.h"

#define NHEAPS		2
#define MAX_LANES	600
#define NOPS		200000

#define CHECK(cond) \
	do { if (!(cond)) fail(__LINE__, #cond); } while (0)

int			dw_max_lanes;

static DwLaneHeap heaps[NHEAPS];
static bool present[NHEAPS][MAX_LANES];
static int64 keys[NHEAPS][MAX_LANES];

static uint64 seed;
static uint64 rng_state;
static int	opno;
static jmp_buf case_failed;
static const char *case_name;

static void
fail(int line, const char *what)
{
	fprintf(stderr, "FAILED: %s (lanes %d), seed %" PRIu64 ", operation %d, line %d: %s\n",
			case_name, dw_max_lanes, seed, opno, line, what);
	longjmp(case_failed, 1);
}

/* Exact sizes, so that the sanitizer sees what is written beyond. */
void *
test_alloc(Size size)
{
	void	   *p = malloc(size);

	if (p == NULL)
		exit(2);
	memset(p, 0xA5, size);
	return p;
}

/* splitmix64 */
static uint64
rng(void)
{
	uint64		z = (rng_state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

static uint64
below(uint64 n)
{
	return rng() % n;
}

/* Times as they come, often the same ones, and the ends of the range. */
static int64
any_key(void)
{
	switch (below(10))
	{
		case 0:
			return DW_NEVER;
		case 1:
			return PG_INT64_MIN;
		case 2:
		case 3:
			return (int64) below(4);
		default:
			return (int64) rng() >> below(40);
	}
}

/* The lowest key is first, and only what is there can be. */
static void
check_first(int h)
{
	int64		lowest = DW_NEVER;
	int			n = 0;
	int32		first = dw_lane_heap_first(&heaps[h]);

	for (int i = 0; i < dw_max_lanes; i++)
	{
		CHECK(dw_lane_heap_has(&heaps[h], i) == present[h][i]);
		if (!present[h][i])
			continue;
		lowest = Min(lowest, keys[h][i]);
		n++;
	}
	CHECK(heaps[h].n == n);
	CHECK(dw_lane_heap_first_key(&heaps[h]) == lowest);
	CHECK((first == DW_NO_LANE) == (n == 0));
	if (n > 0)
	{
		CHECK(first >= 0 && first < dw_max_lanes && present[h][first]);
		CHECK(keys[h][first] == lowest);
	}
}

static void
set(int h, int32 lane)
{
	keys[h][lane] = any_key();
	present[h][lane] = true;
	dw_lane_heap_set(&heaps[h], lane, keys[h][lane]);
}

/* Also one that is not there, which changes nothing. */
static void
remove_lane(int h, int32 lane)
{
	present[h][lane] = false;
	dw_lane_heap_remove(&heaps[h], lane);
}

/* Taken out one by one, they come in the order of their keys. */
static void
drain(int h)
{
	int64		last = PG_INT64_MIN;

	while (dw_lane_heap_first(&heaps[h]) != DW_NO_LANE)
	{
		int32		lane = dw_lane_heap_first(&heaps[h]);

		CHECK(present[h][lane] && keys[h][lane] >= last);
		last = keys[h][lane];
		remove_lane(h, lane);
	}
	check_first(h);
}

static void
reset(int h)
{
	dw_lane_heap_reset(&heaps[h]);
	memset(present[h], 0, sizeof(present[h]));
}

static void
case_random(void)
{
	for (opno = 0; opno < NOPS; opno++)
	{
		int			h = (int) below(NHEAPS);
		int32		lane = (int32) below((uint64) dw_max_lanes);

		if (below(3 * (uint64) dw_max_lanes) == 0)
			drain(h);
		else if (below(20 * (uint64) dw_max_lanes) == 0)
			reset(h);
		else if (below(3) == 0)
			remove_lane(h, lane);
		else
			set(h, lane);
		if (below(1 + (uint64) dw_max_lanes / 4) == 0)
			check_first(h);
	}
	drain(0);
	drain(1);
}

static void
case_fresh(void)
{
	for (int h = 0; h < NHEAPS; h++)
	{
		check_first(h);
		remove_lane(h, dw_max_lanes - 1);
		check_first(h);
		set(h, dw_max_lanes - 1);
		check_first(h);
		reset(h);
		check_first(h);
	}
}

/* What is in a heap stays right whichever of its lanes goes. */
static void
case_each_removed(void)
{
	for (int32 gone = 0; gone < dw_max_lanes; gone++)
	{
		reset(0);
		for (int32 lane = 0; lane < dw_max_lanes; lane++)
			set(0, lane);
		remove_lane(0, gone);
		check_first(0);
		drain(0);
	}
}

static bool
run_case(const char *name, void (*body) (void))
{
	bool		ok = false;

	case_name = name;
	opno = 0;
	rng_state = seed + (uint64) dw_max_lanes;
	for (int h = 0; h < NHEAPS; h++)
		reset(h);
	if (setjmp(case_failed) == 0)
	{
		body();
		ok = true;
	}
	return ok;
}

int
main(int argc, char **argv)
{
	static const int sizes[] = {1, 2, 3, 7, 64, MAX_LANES};
	int			nsizes = (int) (sizeof(sizes) / sizeof(sizes[0]));
	int			passed = 0;

	seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64) time(NULL);
	printf("seed %" PRIu64 "\n", seed);
	for (int i = 0; i < nsizes; i++)
	{
		dw_max_lanes = sizes[i];
		passed += run_case("a fresh heap", case_fresh);
		passed += run_case("each removed", case_each_removed);
		passed += run_case("random operations", case_random);
		for (int h = 0; h < NHEAPS; h++)
		{
			free(heaps[h].lanes);
			free(heaps[h].positions);
			free(heaps[h].keys);
			heaps[h].lanes = NULL;
		}
	}
	printf("%d passed, %d failed\n", passed, 3 * nsizes - passed);
	return passed < 3 * nsizes;
}
