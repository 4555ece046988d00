/*-------------------------------------------------------------------------
 *
 * lanes.h
 *	  The table of lanes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LANES_H
#define DW_LANES_H

#include "postgres.h"

#include "../ring/ring.h"
#include "shared.h"

extern void dw_lanes_request(void);
extern void dw_lanes_init(void);
extern void dw_lanes_leave(DwDatabase *db);

extern bool dw_lane_enter(DwDatabase *db, Oid owner, int16 queue, int16 priority, DwLaneRef *ref);
extern bool dw_lane_leave(DwDatabase *db, DwLane *lane);
extern DwLaneRef dw_lane_ref(DwLane *lane);

extern bool dw_owner_has_tasks_elsewhere(Oid owner);
extern DwHint dw_entry_hint(const DwEntry *entry);

#endif							/* DW_LANES_H */
