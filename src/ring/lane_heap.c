/*-------------------------------------------------------------------------
 *
 * lane_heap.c
 *	  A heap of lanes, ordered by a key, usually a time.
 *
 * Run by the timer, in its private memory.
 *
 * A lane is only a number here.  The heap stores the position of each lane, so that the key of any
 * lane can be changed.
 *
 * This file is also compiled without a server, with DW_STANDALONE, into a test.
 *
 *-------------------------------------------------------------------------
 */
#include "ring.h"
#ifndef DW_STANDALONE
#include "utils/memutils.h"

#include "../base/clock.h"
#include "../base/settings.h"
#endif

/* Makes the heap empty.  The first call allocates the heap's memory, which is never freed. */
void
dw_lane_heap_reset(DwLaneHeap *heap)
{
	if (heap->lanes == NULL)
	{
		heap->lanes = MemoryContextAlloc(TopMemoryContext, dw_max_lanes * sizeof(int32));
		heap->positions = MemoryContextAlloc(TopMemoryContext, dw_max_lanes * sizeof(int32));
		heap->keys = MemoryContextAlloc(TopMemoryContext, dw_max_lanes * sizeof(int64));
	}
	heap->n = 0;
	for (int i = 0; i < dw_max_lanes; i++)
		heap->positions[i] = -1;
}

static void
put_lane_at(DwLaneHeap *heap, int position, int32 lane)
{
	heap->lanes[position] = lane;
	heap->positions[lane] = position;
}

/* Puts a lane at the position, and moves it up while its key is lower than the parent's key. */
static void
sift_up(DwLaneHeap *heap, int position, int32 lane)
{
	while (position > 0 && heap->keys[lane] < heap->keys[heap->lanes[(position - 1) / 2]])
	{
		put_lane_at(heap, position, heap->lanes[(position - 1) / 2]);
		position = (position - 1) / 2;
	}
	put_lane_at(heap, position, lane);
}

/* Puts a lane at the position, and moves it down while its key is higher than a child's key. */
static void
sift_down(DwLaneHeap *heap, int position, int32 lane)
{
	for (;;)
	{
		int			child = 2 * position + 1;

		if (child >= heap->n)
			break;
		if (child + 1 < heap->n &&
			heap->keys[heap->lanes[child + 1]] < heap->keys[heap->lanes[child]])
			child++;
		if (heap->keys[lane] <= heap->keys[heap->lanes[child]])
			break;
		put_lane_at(heap, position, heap->lanes[child]);
		position = child;
	}
	put_lane_at(heap, position, lane);
}

/* Puts a lane into the heap, or changes its key if the lane is in the heap. */
void
dw_lane_heap_set(DwLaneHeap *heap, int32 lane, int64 key)
{
	int			position = heap->positions[lane];
	int64		former = heap->keys[lane];

	heap->keys[lane] = key;
	if (position < 0)
		sift_up(heap, heap->n++, lane);
	else if (key < former)
		sift_up(heap, position, lane);
	else
		sift_down(heap, position, lane);
}

/* Removes a lane from the heap, if the lane is in the heap. */
void
dw_lane_heap_remove(DwLaneHeap *heap, int32 lane)
{
	int			position = heap->positions[lane];
	int32		last;

	if (position < 0)
		return;
	heap->positions[lane] = -1;
	last = heap->lanes[--heap->n];
	if (last == lane)
		return;
	/* the last lane takes the free position, and moves up or down from there */
	if (heap->keys[last] < heap->keys[lane])
		sift_up(heap, position, last);
	else
		sift_down(heap, position, last);
}

/* Returns true if the lane is in the heap. */
bool
dw_lane_heap_has(const DwLaneHeap *heap, int32 lane)
{
	return heap->positions[lane] >= 0;
}

/* Returns the lane with the lowest key, or DW_NO_LANE. */
int32
dw_lane_heap_first(const DwLaneHeap *heap)
{
	return heap->n > 0 ? heap->lanes[0] : DW_NO_LANE;
}

/* Returns the lowest key, or DW_NEVER. */
int64
dw_lane_heap_first_key(const DwLaneHeap *heap)
{
	return heap->n > 0 ? heap->keys[heap->lanes[0]] : DW_NEVER;
}
