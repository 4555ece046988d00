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

/*---- owners.c: the table of owners of lanes, and which of them get an executor ----*/

extern int	dw_owner_places(void);
extern void dw_owners_request(void);
extern void dw_owners_init(void);

extern int32 dw_owner_enter(DwDatabase *db, Oid role);
extern void dw_owner_leave(DwOwner *owner);
extern bool dw_owner_blocked(DwDatabase *db, Oid role, DwBlock reason);
extern void dw_owner_unblocked(DwDatabase *db, DwOwner *owner);
extern void dw_owner_lacks_none(DwDatabase *db, DwOwner *owner);
extern void dw_owners_retry(DwDatabase *db);
extern void dw_owners_retry_all(DwDatabase *db);
extern DwOwner *dw_owners_first_lacking(DwDatabase *db);
extern bool dw_owners_are_blocked(DwDatabase *db);
extern void dw_owner_retry_first(DwDatabase *db, DwOwner *owner);
extern void dw_owner_gets_worker(DwDatabase *db, Oid role);
extern const char *dw_block_text(DwBlock reason);
extern void dw_owner_list(DwDatabase *db, DwOwner *owner);

#endif							/* DW_LANES_H */
