/*-------------------------------------------------------------------------
 *
 * lane_heap.h
 *	  Lanes in the order of a key: a time, as a rule.
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
	int			n;
	int32	   *lanes;			/* by place: the first is the lowest */
	int32	   *places;			/* by lane; -1: not there */
	int64	   *keys;			/* by lane */
} DwLaneHeap;

#define DW_NO_LANE		(-1)

extern void dw_lane_heap_reset(DwLaneHeap *heap);

/* Puts a lane in, or at another place. */
extern void dw_lane_heap_set(DwLaneHeap *heap, int32 lane, int64 key);
extern void dw_lane_heap_remove(DwLaneHeap *heap, int32 lane);
extern bool dw_lane_heap_has(const DwLaneHeap *heap, int32 lane);

/* The lane with the lowest key, or DW_NO_LANE; and its key, or DW_NEVER. */
extern int32 dw_lane_heap_first(const DwLaneHeap *heap);
extern int64 dw_lane_heap_first_key(const DwLaneHeap *heap);

#endif							/* DW_LANE_HEAP_H */
