/*-------------------------------------------------------------------------
 *
 * ready.h
 *	  Ready lists: tasks that are due, lane by lane, until an executor takes them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_READY_H
#define DW_READY_H

#include "postgres.h"

#include "../ring/ring.h"
#include "executors.h"
#include "shared.h"

extern bool dw_ready_pop(DwDatabase *db, DwOwner *owner, DwEntry *entry, TimestampTz *look_again);
extern bool dw_ready_pop_next(DwDatabase *db, DwExecutor *me, TimestampTz until, DwEntry *entry);
extern bool dw_ready_may_batch(const DwLane *lane, const DwEntry *entry);
extern bool dw_ready_put_back(DwDatabase *db, DwLane *lane, const DwEntry *entry);
extern DwList dw_ready_take_away(DwDatabase *db, DwLane *lane);

/* Ready lists; caller holds the ready lock exclusively, as for the above. */
extern bool dw_ready_push(DwDatabase *db, DwLane *lane, const DwEntry *entry);
extern void dw_ready_unlist(DwDatabase *db, DwLane *lane);
extern void dw_ready_list(DwDatabase *db, DwLane *lane);
extern void dw_ready_obey_pause(DwDatabase *db, DwLane *lane);
extern void dw_ready_reset(DwDatabase *db);

#endif							/* DW_READY_H */
