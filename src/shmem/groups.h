/*-------------------------------------------------------------------------
 *
 * groups.h
 *	  Groups of tasks, and ready lists.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_GROUPS_H
#define DW_GROUPS_H

#include "postgres.h"

#include "executors.h"
#include "queue_limits.h"

/*---- groups.c: the places of groups in shared memory ----*/

/*
 * Value in place of a hash, for tasks without a group.  Tasks without a group take turns like one
 * group.
 */
#define DW_NO_GROUP		0

/* State of a group in a lane. */
typedef enum DwGroupState
{
	DW_GROUP_IDLE = 0,			/* has no ready task */
	DW_GROUP_RESTING,			/* has no task, but its rate is in use */
	DW_GROUP_OPEN,				/* has ready tasks, and waits for its turn */
	DW_GROUP_FULL,				/* has ready tasks, but its limit allows no more running tasks */
	DW_GROUP_ASLEEP				/* has ready tasks, but may begin none before wakes_at */
} DwGroupState;

/* Due tasks of a group that were left in the table. */
typedef struct DwGroupLeft
{
	uint32		hash;			/* of the group */
	TimestampTz due;			/* the first key; DW_NEVER if there are none */
	int64		id;
	TimestampTz until;			/* the last due time */
} DwGroupLeft;

/*
 * The place of a group in a lane: the group's ready tasks, and the number of its running tasks.
 * The place is in use while the group has ready or running tasks, or while the group's rate is in
 * use.  The ready lock protects all fields that name no other lock.
 */
typedef struct DwGroup
{
	/* what each turn needs, in two cache lines */
	int32		lane;			/* index in dw_lanes */
	uint32		hash;			/* hash of the group's name; DW_NO_GROUP: tasks without a group */
	int32		next;			/* next place in the bucket or free list; protected by Table.lock */
	uint32		count;			/* ready tasks */
	uint32		running;		/* tasks that executors have taken and not ended, or messages that
								 * open transactions have taken */
	uint8		state;			/* a DwGroupState */
	bool		is_new;			/* a newcomer; if the state is DW_GROUP_OPEN, in DwLaneGroups.fresh */
	bool		is_early;		/* its first task came as a newcomer, before the load of earlier tasks */
	bool		is_hungry;		/* the group is in DwLaneGroups.hungry */
	bool		has_siblings;	/* the group may also have places in other lanes */
	uint32		turn_number;	/* if open: changes with each turn that the group gets */
	dlist_node	turn;			/* link in DwLaneGroups.open, fresh or resting */
	DwList		more;			/* the ready tasks after the first one */
	DwEntry		first;			/* the first ready task; see groups.c, "Where rows are" */
	DwGroupLeft left;			/* its other due tasks */
	TimestampTz held_until;		/* no task may begin before this time: another task comes first in
								 * order, or leases fill the group; 0: not held */
	dlist_node	hunger;			/* link in DwLaneGroups.hungry */
	DwRateUse	rate_use;		/* use of the group's rate; the latest value of all siblings is
								 * valid */
	TimestampTz wakes_at;		/* if asleep */
	TimestampTz waits_since;	/* when its lane's owner began to wait for a turn in the group; not
								 * brought up to date without siblings */
	int64		hold_us;		/* length of the next hold, if its end is not known */
	int64		tried_id;		/* id of the last task tried because it comes first in order */
	uint32		changes;		/* incremented when a task or lease of the group ends, in any
								 * lane */
	bool		held_full;		/* leases fill the group, so a new task does not end the hold */
	dlist_node	of_lane;		/* in DwLaneGroups.all */
	pairingheap_node sleeper;	/* if asleep: in DwLaneGroups.asleep */
} DwGroup;

extern void dw_group_places_request(void);
extern void dw_group_places_init(void);

extern bool dw_group_places_are_short(void);

/* Result of adding an entry to its group. */
typedef enum DwGroupAdded
{
	DW_GROUP_ADDED,
	DW_GROUP_LEFT,				/* the group has enough ready tasks: the caller may drop the entry,
								 * which is loaded again when few ready tasks are left */
	DW_GROUP_NO_PLACE,			/* no place for the group is free */
	DW_GROUP_NO_MEMORY			/* the pool has no chunk for the entry */
} DwGroupAdded;

/* Data of a group for the view "groups". */
typedef struct DwGroupCopy
{
	uint32		hash;
	DwGroupState state;
	uint32		ready;			/* tasks in memory that are due */
	uint32		running;
	bool		left;			/* other due tasks are in the table only */
	TimestampTz first_due;		/* first due time of its due tasks; DW_NEVER if none is due */
	int64		first_id;		/* id of the first task in memory, if any */
	TimestampTz wakes_at;		/* if asleep */
	TimestampTz held_until;
} DwGroupCopy;

/* The group of a message, as it was when a session took the message. */
typedef struct DwGroupTaken
{
	uint32		hash;			/* DW_NO_GROUP: the message is not counted for any group */
	uint32		limit;			/* maximum of received and leased messages of the group; 0: no
								 * limit */
	bool		ordered;		/* the group has an order */
	uint32		running;		/* messages of the group that open transactions had taken, including
								 * this message */
	uint32		changes;		/* see DwGroup */
	bool		waits;			/* the message goes back, since its group is held */
	TimestampTz full_until;		/* if this message filled the group: end of the group's first lease;
								 * else 0 */
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
extern void dw_group_expect(const DwLane *lane, uint32 hash);
extern bool dw_group_is_newcomer(const DwLane *lane, uint32 hash);
extern void dw_group_leave_out(DwDatabase *db, DwLane *lane, const DwGroupLeft *left);
extern void dw_groups_cut(DwLane *lane, TimestampTz due, int64 id);
extern DwGroup *dw_groups_next(DwLane *lane, TimestampTz now);
extern DwTurn dw_group_turn(DwGroup *group, const DwTurn *before);
extern DwTurn dw_group_turn_after(const DwTurn *turn);
extern DwGroup *dw_group_of_turn(const DwTurn *turn, const DwLane *lane);
extern DwGroup *dw_groups_apart(DwLane *lane, const DwTurn *others, int n);
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
extern uint32 dw_groups_filter(DwDatabase *db, DwLane *lane, DwKeep keep, void *arg);
extern void dw_groups_obey_limits(DwLane *lane);

extern TimestampTz dw_groups_take_news(DwDatabase *db);
extern bool dw_groups_any_open(const DwLane *lane, TimestampTz now);
extern uint32 dw_groups_room(const DwLane *lane, TimestampTz now);
extern DwLimit dw_lane_limit(const DwLane *lane, TimestampTz now, uint32 *room, TimestampTz *until);
extern const DwEntry *dw_groups_first(const DwLane *lane);
extern int	dw_groups_copy(const DwLane *lane, DwGroupCopy *copies, int most);

/* Stores the group's hash in the entry, in place of the row's TID. */
static inline void
dw_entry_set_group(DwEntry *entry, uint32 hash)
{
	entry->block = hash;
	entry->offset = DW_ENTRY_GROUP;
}

/* Returns true if no task may be taken out of the lane's ready list now. */
static inline bool
dw_groups_rest(const DwLane *lane, TimestampTz now)
{
	return dw_is_ahead(lane->groups.rests_until, now, USECS_PER_SEC);
}

/* Returns true if the entry stores its group's hash in place of the row's TID. */
static inline bool
dw_entry_has_group(const DwEntry *entry)
{
	return (entry->offset & DW_ENTRY_GROUP) != 0;
}

/*---- ready.c: ready lists of lanes, which contain due tasks until executors take them ----*/

/* Instructions for the caller, after a task was taken or no task was found. */
typedef struct DwPopped
{
	bool		may_batch;		/* the task may share a transaction with the next task */
	bool		few_left;		/* the timer must load more tasks of the lane */
	TimestampTz look_again;		/* when the timer must look again, or DW_NEVER */
} DwPopped;

/* Shows whether a message that must be received alone may be taken next, see rollbacks.c. */
typedef enum DwAlone
{
	DW_ALONE_NO_MATTER,			/* for leases */
	DW_ALONE_ALLOWED,			/* no message was taken yet */
	DW_ALONE_REFUSED,
	DW_ALONE_TAKEN				/* a message that must be received alone was taken, so no other
								 * message may be taken */
} DwAlone;

extern bool dw_ready_pop(DwDatabase *db, DwExecutor *me, TimestampTz until, DwPopped *popped);
extern bool dw_ready_pop_next(DwDatabase *db, DwExecutor *me, TimestampTz until, TimestampTz now,
							  bool *few_left);
extern bool dw_ready_set_aside(DwDatabase *db, const DwEntry *entry);
extern bool dw_ready_exchange(DwDatabase *db, DwEntry *current, TimestampTz due, int64 id);
extern void dw_ready_ask_for_load(DwDatabase *db, const DwExecutor *me);
extern bool dw_ready_put_back(DwDatabase *db, const DwEntry *entry, bool alone);
extern const DwEntry *dw_ready_first(const DwLane *lane);
extern DwList dw_ready_take_away(DwDatabase *db, DwLane *lane);

extern bool dw_ready_has_message(DwDatabase *db, DwQueue *queue, TimestampTz *look_again);
extern bool dw_ready_pop_message(DwDatabase *db, DwQueue *queue, DwAlone *alone, DwEntry *entry,
								 bool *few_left);

extern bool dw_ready_push(DwDatabase *db, DwLane *lane, const DwEntry *entry,
						  const ItemPointerData *tid, uint32 *left);
extern void dw_ready_unlist(DwDatabase *db, DwLane *lane);
extern void dw_ready_list(DwDatabase *db, DwLane *lane, bool newcomer);
extern void dw_ready_obey_pause(DwDatabase *db, DwLane *lane);
extern void dw_ready_reset(DwDatabase *db);

#endif							/* DW_GROUPS_H */
