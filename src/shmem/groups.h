/*-------------------------------------------------------------------------
 *
 * groups.h
 *	  Groups of tasks: their turns and their limits.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_GROUPS_H
#define DW_GROUPS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/itemptr.h"

#include "../ring/ring.h"
#include "group_places.h"
#include "queue_limits.h"
#include "shared.h"

/* What became of an entry that was to be added to its group. */
typedef enum DwGroupAdded
{
	DW_GROUP_ADDED,
	DW_GROUP_LEFT,				/* it has enough ready tasks: the entry can be forgotten, and is loaded
								 * again when it has few */
	DW_GROUP_NO_PLACE,			/* no place for the group is free */
	DW_GROUP_NO_MEMORY			/* the pool has no chunk for the entry */
} DwGroupAdded;

/* Tasks of a group that were left in the table. */
typedef struct DwGroupLeft
{
	uint32		hash;			/* of the group */
	TimestampTz due;			/* the first key */
	int64		id;
	TimestampTz until;			/* the last due time */
} DwGroupLeft;

/* What the view "groups" shows of a group. */
typedef struct DwGroupCopy
{
	uint32		hash;
	DwGroupState state;
	uint32		ready;			/* tasks in memory that are due */
	uint32		running;
	bool		left;			/* others that are due are in the table only */
	TimestampTz first_due;		/* of those that are due; DW_NEVER: there is none */
	int64		first_id;		/* the first one in memory, if there is any */
	TimestampTz wakes_at;		/* if asleep */
	TimestampTz held_until;
} DwGroupCopy;

/* The group of a message that a session has taken, as it was then. */
typedef struct DwGroupTaken
{
	uint32		hash;			/* DW_NO_GROUP: the message is not counted for any group */
	uint32		limit;			/* how many of the group may be received or leased; 0: no limit */
	bool		ordered;		/* the group has an order */
	uint32		running;		/* how many open transactions had taken, this one included */
	uint32		changes;		/* see DwGroup */
	bool		waits;			/* it goes back, since its group is held */
	TimestampTz full_until;		/* with this one the group was full, until its first lease ends;
								 * 0: it was not */
} DwGroupTaken;

extern void dw_lane_groups_init(DwLaneGroups *groups);
extern void dw_groups_leave(DwLane *lane);
extern void dw_groups_reset(DwLane *lane);

extern DwGroupAdded dw_group_add(DwDatabase *db, DwLane *lane, const DwEntry *entry,
								 const ItemPointerData *tid, bool by_reserve);
extern DwGroupAdded dw_group_put_back(DwDatabase *db, DwLane *lane, const DwEntry *entry);
extern bool dw_groups_are_hungry(const DwLane *lane);
extern bool dw_groups_have_places(DwLane *lane);
extern bool dw_groups_feed(DwDatabase *db, DwLane *lane, DwGroupLeft *left, uint32 *room);
extern void dw_group_leave_out(DwDatabase *db, DwLane *lane, const DwGroupLeft *left);
extern void dw_groups_cut(DwLane *lane, TimestampTz due, int64 id);
extern DwGroup *dw_groups_next(DwLane *lane, TimestampTz now);
extern bool dw_group_take(DwDatabase *db, DwGroup *group, DwEntry *entry, ItemPointer tid,
						  TimestampTz now);
extern void dw_group_end(DwDatabase *db, const DwEntry *entry, bool begun, bool settled);
extern bool dw_group_try_other(const DwEntry *entry, int64 id);
extern void dw_groups_set_aside(DwDatabase *db, const DwEntry *entry);
extern bool dw_group_hold(const DwEntry *entry, uint32 changes, TimestampTz until);
extern void dw_group_taken(const DwEntry *entry, DwGroupTaken *taken);
extern bool dw_group_hold_taken(const DwEntry *entry, const DwGroupTaken *taken, TimestampTz until, bool full);
extern TimestampTz dw_group_end_taken(int32 lane, DwGroupTaken *taken, bool begun, TimestampTz leased_until);
extern TimestampTz dw_group_release(DwDatabase *db, int16 queue, uint32 hash);
extern void dw_groups_release_all(DwDatabase *db);
extern uint32 dw_groups_filter(DwDatabase *db, DwLane *lane, DwKeep keep, void *arg);
extern void dw_groups_obey_limits(DwLane *lane);

extern TimestampTz dw_groups_take_news(DwDatabase *db);
extern bool dw_groups_any_open(const DwLane *lane, TimestampTz now);
extern uint32 dw_groups_room(const DwLane *lane, TimestampTz now);
extern DwLimit dw_lane_limit(const DwLane *lane, TimestampTz now, uint32 *room, TimestampTz *until);
extern TimestampTz dw_groups_first_due(const DwLane *lane);
extern int	dw_groups_copy(const DwLane *lane, DwGroupCopy *copies, int most);

/* Makes the entry say its group instead of where its row is. */
static inline void
dw_entry_set_group(DwEntry *entry, uint32 hash)
{
	entry->block = hash;
	entry->offset = DW_ENTRY_GROUP;
}

/*
 * True if no task is to be taken out of the lane's ready list now.  A time too far ahead is of a
 * clock that was set back since, and does not count.
 */
static inline bool
dw_groups_rest(const DwLane *lane, TimestampTz now)
{
	return lane->groups.rests_until > now && lane->groups.rests_until <= now + USECS_PER_SEC;
}

/* True if the entry says its group, instead of where its row is. */
static inline bool
dw_entry_has_group(const DwEntry *entry)
{
	return (entry->offset & DW_ENTRY_GROUP) != 0;
}

#endif							/* DW_GROUPS_H */
