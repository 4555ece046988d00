/*-------------------------------------------------------------------------
 *
 * lanes.h
 *	  The table of lanes, and their ready lists.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LANES_H
#define DW_LANES_H

#include "shared.h"

/*
 * A flag in the offset of an entry: it is to be run in a transaction of its
 * own.  An offset needs 14 bits at most.
 */
#define DW_ENTRY_ALONE	0x8000

static inline OffsetNumber
dw_entry_offset(const DwEntry *entry)
{
	return entry->offset & ~DW_ENTRY_ALONE;
}

static inline DwOwner *
dw_lane_owner(const DwLane *lane)
{
	return &dw_owners[lane->owner_place];
}

/* Tasks of the lane's ready list.  Under the ready lock. */
static inline uint32
dw_ready_count(const DwLane *lane)
{
	return lane->ready.count + (lane->spare_state == DW_SPARE_READY ? 1 : 0);
}

/* All of the lane that is in memory. */
static inline uint32
dw_lane_held(const DwLane *lane)
{
	return lane->waiting + dw_ready_count(lane);
}

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

/* May the owner have tasks that are not done, in databases but this one? */
extern bool dw_owner_has_tasks_elsewhere(Oid owner);

/* The hint that brings an entry back to the timer. */
extern DwHint dw_entry_hint(const DwEntry *entry);

/*
 * Takes the next task of an owner, from its queues in turn; false if there is
 * none that may run now.  The counts of running tasks are raised.  The timer
 * is to look again at *look_again, if that is not DW_NEVER.
 */
extern bool dw_ready_pop(DwDatabase *db, DwOwner *owner, DwEntry *entry, TimestampTz *look_again);

/*
 * Takes another task of the lane of the executor's current one, at a place of
 * the list that it keeps to, if it is due until then, may share a transaction
 * with the one before, and no other lane of the same owner and queue has its
 * turn.
 */
extern bool dw_ready_pop_next(DwDatabase *db, DwExecutor *me, TimestampTz until, DwEntry *entry);

/* May the task that was just taken from the lane begin a batch with the next one? */
extern bool dw_ready_may_batch(const DwLane *lane, const DwEntry *entry);

/*
 * Puts a task back before all others of the lane; false if the pool has no
 * place for it.
 */
extern bool dw_ready_put_back(DwDatabase *db, DwLane *lane, const DwEntry *entry);

/*
 * Takes the whole ready list away, so that it can be worked on without the lock;
 * no executor has its place there any more.
 */
extern DwList dw_ready_take_away(DwDatabase *db, DwLane *lane);

/* Ready lists; caller holds the ready lock exclusively, as for the above. */
extern bool dw_ready_push(DwDatabase *db, DwLane *lane, const DwEntry *entry);
extern void dw_ready_unlist(DwDatabase *db, DwLane *lane);
extern void dw_ready_list(DwDatabase *db, DwLane *lane);
/* The lane was paused, or is not paused any more. */
extern void dw_ready_obey_pause(DwDatabase *db, DwLane *lane);
/* Nothing is ready.  Under the table lock and the ready lock. */
extern void dw_ready_reset(DwDatabase *db);

/* How many executors one lane may have. */
extern uint32 dw_lane_executors(void);

/*
 * No executor can be had for an owner: its lanes wait, longer each time, up
 * to a time that depends on the reason.  Returns whether that is news: the
 * first time for this reason, and for want of a background worker no more than
 * once a minute.  Under the table lock and the ready lock.
 */
extern bool dw_owner_blocked(DwDatabase *db, Oid role, DwBlock reason);
/* An executor of the owner works.  Under the ready lock. */
extern void dw_owner_unblocked(DwDatabase *db, DwOwner *owner);
/* Owners whose time has come, or all, may try again.  Under the ready lock. */
extern void dw_owners_retry(DwDatabase *db);
extern void dw_owners_retry_all(DwDatabase *db);
/*
 * Are there owners who wait for a background worker, and may use it?  Without a
 * lock: may be out of date.
 */
extern bool dw_owners_lack_worker(DwDatabase *db);
/* The one of these who has waited longest may try before all others.  Under the ready lock. */
extern void dw_owners_retry_first(DwDatabase *db);
extern const char *dw_block_text(DwBlock reason);

#endif							/* DW_LANES_H */
