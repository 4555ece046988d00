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

/* Begins with nothing in memory, whatever a former timer left. */
extern void dw_near_reset(DwDatabase *database);

/*
 * Puts an entry where it belongs: ready list, heap of the open slot, or ring.
 * False if memory has no place for it; then nothing was changed.
 */
extern bool dw_near_place(DwLane *lane, const DwEntry *entry);

/*
 * Like dw_near_place, but takes room from others if need be.  That may cut
 * the lane itself; then the entry is not placed.
 */
extern bool dw_near_place_hard(DwLane *lane, const DwEntry *entry);

/*
 * Is this beyond what waits of the lane, but due?  Then what waits is due, too,
 * and is to be handed over first.
 */
extern bool dw_near_is_behind(const DwLane *lane, TimestampTz due);

/* How many entries a lane should hold at most. */
extern uint32 dw_near_limit(void);

/*
 * What the lane has in memory from (due, id) on is not to be trusted, or to
 * be dropped, and must be loaded.  Pulls the cursor back to there; what is in
 * memory from the cursor on is dropped by dw_near_apply_cuts(), for all lanes
 * in one pass.
 */
extern void dw_near_cut(DwLane *lane, TimestampTz due, int64 id);
extern void dw_near_apply_cuts(void);

/* Sets the lane's cursor and publishes its horizon. */
extern void dw_near_set_cursor(DwLane *lane, TimestampTz due, int64 id);

/* Gives memory back that another database is entitled to. */
extern void dw_near_obey_quota(void);

/* Hands over what is due; true if there is more to do at once. */
extern bool dw_near_hand_over(void);

/*
 * A lane that has a task due soon, of those that were found while handing
 * over; NULL if there is no more.
 */
extern DwLane *dw_near_expected(void);

/* When something in memory is due next. */
extern TimestampTz dw_near_next(void);

#endif							/* DW_NEAR_H */
