/*-------------------------------------------------------------------------
 *
 * lanes.h
 *	  The table of lanes, and their ready lists.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LANES_H
#define DW_LANES_H

#include "postgres.h"

#include "../ring/ring.h"
#include "shared.h"

/* Set-up. */
extern Size dw_lane_index_size(void);
extern void dw_lane_index_attach(void);
extern void dw_lanes_init(void);
extern void dw_lanes_leave(DwDatabase *db);

/* Entering and leaving. */
extern bool dw_lane_enter(DwDatabase *db, Oid owner, int16 queue, int16 priority, DwLaneRef *ref);
extern void dw_lane_leave(DwDatabase *db, DwLane *lane);
extern DwLaneRef dw_lane_ref(DwLane *lane);

/*
 * Owners: finds or makes the place of one, under the table lock, exclusively.
 * It stays as long as the role has lanes or executors.
 */
extern int	dw_owner_places(void);
extern int32 dw_owner_enter(DwDatabase *db, Oid role);
extern bool dw_owner_has_tasks_elsewhere(Oid owner);
extern DwHint dw_entry_hint(const DwEntry *entry);
extern bool dw_owner_blocked(DwDatabase *db, Oid role, DwBlock reason);
extern void dw_owner_unblocked(DwDatabase *db, DwOwner *owner);
/* Owners whose time has come, or all, may try again.  Under the ready lock. */
extern void dw_owners_retry(DwDatabase *db);
extern void dw_owners_retry_all(DwDatabase *db);
extern bool dw_owners_lack_worker(DwDatabase *db);
/* The one of these who has waited longest may try before all others.  Under the ready lock. */
extern void dw_owners_retry_first(DwDatabase *db);
extern const char *dw_block_text(DwBlock reason);
extern void dw_owner_unlist(DwDatabase *db, DwOwner *owner);
extern void dw_owner_list(DwDatabase *db, DwOwner *owner);

#endif							/* DW_LANES_H */
