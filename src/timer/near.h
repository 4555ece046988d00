/*-------------------------------------------------------------------------
 *
 * near.h
 *	  The near future in memory: the timer's side of ring and lanes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_NEAR_H
#define DW_NEAR_H

#include "postgres.h"

#include "../ring/ring.h"
#include "../shmem/shared.h"

extern void dw_near_reset(DwDatabase *database);
extern bool dw_near_place(DwLane *lane, const DwEntry *entry);
extern bool dw_near_place_hard(DwLane *lane, const DwEntry *entry);
extern bool dw_near_is_behind(const DwLane *lane, TimestampTz due);
extern uint32 dw_near_limit(void);

/*
 * What the lane has in memory from (due, id) on is not to be trusted, or to
 * be dropped, and must be loaded.  Pulls the cursor back to there; what is in
 * memory from the cursor on is dropped by dw_near_apply_cuts(), for all lanes
 * in one pass.
 */
extern void dw_near_cut(DwLane *lane, TimestampTz due, int64 id);
extern void dw_near_apply_cuts(void);
extern void dw_near_set_cursor(DwLane *lane, TimestampTz due, int64 id);
extern void dw_near_obey_quota(void);
extern bool dw_near_hand_over(void);
extern DwLane *dw_near_expected(void);
extern TimestampTz dw_near_next(void);

#endif							/* DW_NEAR_H */
