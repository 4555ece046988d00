/*-------------------------------------------------------------------------
 *
 * lane_heap.h
 *	  A heap of lanes, ordered by a key, usually a time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LANE_HEAP_H
#define DW_LANE_HEAP_H

#ifdef DW_STANDALONE
#include "ring_standalone.h"
#else
#include "postgres.h"
#endif

typedef struct DwLaneHeap
{
	int			n;				/* number of lanes in the heap */
	int32	   *lanes;			/* lane at each position; the first lane has the lowest key */
	int32	   *positions;		/* position of each lane; -1: not in the heap */
	int64	   *keys;			/* key of each lane */
} DwLaneHeap;

/* Stands for no lane; lanes are numbers below delay_wheel.max_lanes. */
#define DW_NO_LANE		(-1)

extern void dw_lane_heap_reset(DwLaneHeap *heap);
extern void dw_lane_heap_set(DwLaneHeap *heap, int32 lane, int64 key);
extern void dw_lane_heap_remove(DwLaneHeap *heap, int32 lane);
extern bool dw_lane_heap_has(const DwLaneHeap *heap, int32 lane);
extern int32 dw_lane_heap_first(const DwLaneHeap *heap);
extern int64 dw_lane_heap_first_key(const DwLaneHeap *heap);

#endif							/* DW_LANE_HEAP_H */
