/*-------------------------------------------------------------------------
 *
 * near.h
 *	  The tasks of the near future in memory: ring, heap, and what is due.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_NEAR_H
#define DW_NEAR_H

#include "postgres.h"

#include "storage/itemptr.h"

#include "../ring/ring.h"
#include "../shmem/shared.h"

extern void dw_near_reset(DwDatabase *database);
extern void dw_near_leave_ready(uint32 keep);
extern bool dw_near_add(DwLane *lane, const DwEntry *entry, const ItemPointerData *tid);
extern bool dw_near_add_hard(DwLane *lane, const DwEntry *entry, const ItemPointerData *tid);
extern bool dw_near_is_behind(const DwLane *lane, TimestampTz due);
extern uint32 dw_near_limit(void);
extern void dw_near_cut(DwLane *lane, TimestampTz due, int64 id);
extern void dw_near_apply_cuts(void);
extern void dw_near_set_cursor(DwLane *lane, TimestampTz due, int64 id);
extern void dw_near_obey_quota(void);
extern bool dw_near_hand_over(void);
extern DwLane *dw_near_expected(void);
extern TimestampTz dw_near_next(void);

#endif							/* DW_NEAR_H */
