/*-------------------------------------------------------------------------
 *
 * timer.h
 *	  Functions that the files of the timer share.
 *
 * If a function returns a time, the timer must call it again then, and earlier if another process
 * reports a change.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TIMER_H
#define DW_TIMER_H

#include "postgres.h"

#include "access/table.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/wing.h"
#include "../base/worker.h"
#include "../ending/ending.h"
#include "../ring/ring.h"
#include "../shmem/groups.h"
#include "../shmem/shared.h"

extern PGDLLEXPORT void dw_timer_main(Datum number);

/*---- call_sweeper.c: starts the sweeper when there are rows to remove ----*/

extern TimestampTz dw_sweeper_look(DwDatabase *db, bool changed);
extern bool dw_sweeper_worker_ended(DwDatabase *db);

/*---- dispatch.c: decides which executors are woken, started and ended ----*/

extern TimestampTz dw_dispatch(DwDatabase *db);
extern void dw_dispatch_expect(DwDatabase *db, DwLane *lane);
extern void dw_dispatch_begin(DwDatabase *db);
extern void dw_dispatch_end_surplus(DwDatabase *db);

/*---- give_way.c ----*/

extern TimestampTz dw_give_way(DwDatabase *db);

/*---- hints.c: handles hints of committed tasks, and remembers rows that loads have read ----*/

extern void dw_hints_begin(DwDatabase *database);
extern void dw_loaded_note(const DwTaskKey *key);
extern void dw_hint_take(const DwHint *hint);
extern void dw_hints_read_rest(void);
extern bool dw_hints_drain_inbox(void);

/*---- lease_watch.c: leases that have ended; sessions that wait for a message ----*/

extern void dw_lease_watch_begin(DwDatabase *db);
extern bool dw_lease_watch_reads(DwDatabase *db, TimestampTz end);
extern TimestampTz dw_lease_watch(DwDatabase *db);
extern TimestampTz dw_wake_receivers(DwDatabase *db);

/*---- load.c: loads tasks of the near future from the table into memory ----*/

extern void dw_load_begin(DwDatabase *database);
extern bool dw_load_some(void);
extern TimestampTz dw_load_next(void);
extern void dw_load_settings_changed(void);
extern void dw_load_tidy(void);
extern TimestampTz dw_load_first_due(void);

/*---- near.c: the tasks of the near future in memory: ring, heap, and ready lists ----*/

/* Lanes in the order of a time. */
typedef struct DwLaneHeap
{
	pairingheap heap;
	bool	   *contains;		/* each lane, by its number: is it in the heap? */
	struct DwLaneTime *times;	/* of these lanes; other elements are not initialized */
} DwLaneHeap;

extern void dw_lane_heap_reset(DwLaneHeap *lanes);
extern void dw_lane_heap_set(DwLaneHeap *lanes, int32 lane, TimestampTz at);
extern void dw_lane_heap_remove(DwLaneHeap *lanes, int32 lane);
extern bool dw_lane_heap_has(const DwLaneHeap *lanes, int32 lane);
extern int32 dw_lane_heap_first(DwLaneHeap *lanes);
extern TimestampTz dw_lane_heap_first_time(DwLaneHeap *lanes);
/* Maximum number of entries that become ready while the ready lock is held once. */
#define DW_PUSH_MAX		32
extern void dw_near_reset(DwDatabase *database);
extern void dw_near_leave_ready(uint32 keep);
extern bool dw_near_add_hard(DwLane *lane, const DwEntry *entry, const ItemPointerData *tid);
extern uint32 dw_near_add_due(const DwEntry *entries, const ItemPointerData *tids, uint32 n);
extern void dw_near_take(const DwEntry *entry, const ItemPointerData *tid, bool whole);
extern bool dw_near_is_before_cursor(const DwLane *lane, TimestampTz due, int64 id);
extern bool dw_near_is_behind(const DwLane *lane, TimestampTz due);
extern uint32 dw_near_limit(void);
extern void dw_near_cut(DwLane *lane, TimestampTz due, int64 id);
extern void dw_near_apply_cuts(void);
extern void dw_near_set_cursor(DwLane *lane, TimestampTz due, int64 id);
extern void dw_near_obey_quota(void);
extern bool dw_near_hand_over(List **expected);
extern TimestampTz dw_near_next(void);

/*---- orphans.c: tasks of roles that do not exist any more ----*/

extern void dw_orphans_begin(DwDatabase *database);
extern void dw_owner_dropped(Oid owner);
extern void dw_orphans_check_all(void);
extern bool dw_orphans_some(void);
extern TimestampTz dw_orphans_next(void);
extern void dw_orphans_wanted(const DwLane *lane);
extern bool dw_orphans_holds(const DwLane *lane);

/*---- queue_watch.c: keeps queues and pauses in shared memory up to date ----*/

extern TimestampTz dw_queues_look(DwDatabase *db, bool changed);
extern void dw_queues_attach_new_lane(DwDatabase *db, DwLane *lane);

/*---- unreceived.c: drops entries of messages that are gone and that nobody receives ----*/

extern TimestampTz dw_unreceived_look(DwDatabase *db);

#endif							/* DW_TIMER_H */
