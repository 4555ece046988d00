/*-------------------------------------------------------------------------
 *
 * group_places.h
 *	  The places of groups in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_GROUP_PLACES_H
#define DW_GROUP_PLACES_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "lib/ilist.h"
#include "lib/pairingheap.h"

#include "../ring/ring.h"
#include "rate.h"
#include "shared.h"

/* In place of a hash: tasks without a group, which take turns as if they were one. */
#define DW_NO_GROUP		0

/* Where a group of a lane stands. */
typedef enum DwGroupState
{
	DW_GROUP_IDLE = 0,			/* has no ready task */
	DW_GROUP_OPEN,				/* has ready tasks, and waits for its turn */
	DW_GROUP_FULL,				/* has ready tasks, and as many run as may */
	DW_GROUP_ASLEEP				/* has ready tasks, and may begin none before wakes_at */
} DwGroupState;

/*
 * The tasks of a lane that belong to one group of its queue: those that are ready, and how
 * many run.  A place is in use while there are any, or while the rate of the group
 * is not unused.  Ready lock, but for what says otherwise.
 */
typedef struct DwGroup
{
	int32		lane;			/* index in dw_lanes */
	uint32		hash;			/* of the group's name; DW_NO_GROUP: tasks without a group */
	DwGroupState state;
	uint32		running;		/* tasks that executors have taken and not ended; messages that open
								 * transactions have taken */
	uint32		count;			/* ready tasks */
	DwEntry		first;			/* the first of these; see groups.c, "Where rows are" */
	DwList		more;			/* the others */
	TimestampTz left_due;		/* tasks of it from this key on may be due and in the table only, */
	int64		left_id;		/* since it had enough here; DW_NEVER: there is none */
	TimestampTz left_until;		/* the last due time of these */
	bool		is_hungry;		/* the timer is to load these: in DwLaneGroups.hungry */
	dlist_node	hunger;			/* in that list */
	DwRateUse	rate_use;		/* of the whole group, if no sibling's is later */
	TimestampTz wakes_at;		/* if asleep */
	TimestampTz held_until;		/* it may not begin a task before then, since another one comes first in
								 * its order, or leases fill it; 0: it is not held */
	bool		held_full;		/* it is held since leases fill it, whatever comes */
	uint32		changes;		/* raised when a task or a lease of it, or of a sibling, has ended */
	int64		hold_us;		/* how long it is held the next time, if the time is not known */
	int64		tried_id;		/* the task that an executor has taken last since it came first */
	dlist_node	of_lane;		/* in DwLaneGroups.all */
	dlist_node	turn;			/* if open: in DwLaneGroups.open; if idle, and only its rate
								 * is in use: in DwLaneGroups.resting */
	bool		rests;			/* it is in DwLaneGroups.resting */
	bool		has_siblings;	/* the group may have places in other lanes, too */
	pairingheap_node sleeper;	/* if asleep: in DwLaneGroups.asleep */
	int32		next;			/* next place of its bucket, or next free place; the spinlock
								 * of group_places.c */
} DwGroup;

extern void dw_group_places_request(void);
extern void dw_group_places_init(void);

extern DwGroup *dw_group_find(const DwLane *lane, uint32 hash);
extern DwGroup *dw_group_sibling(const DwLane *lane, uint32 hash, const DwGroup *after);
extern DwGroup *dw_group_place_take(DwLane *lane, uint32 hash, bool by_reserve);
extern void dw_group_place_give_back(DwGroup *group);
extern bool dw_group_places_are_short(void);

#endif							/* DW_GROUP_PLACES_H */
