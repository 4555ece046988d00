/*-------------------------------------------------------------------------
 *
 * groups.c
 *	  Groups of tasks: their turns and their limits.
 *
 * Run by the timer, which adds ready tasks, and by executors and sessions that take these tasks.
 * Callers hold the ready lock of the database exclusively, except for functions with another
 * comment.  Tasks of queues without groups are not handled here.
 *
 * A queue may have millions of groups.  A group is identified by a hash of its key.  Groups whose
 * hashes collide share turns and limits; among a million active groups about 100 pairs collide.
 *
 * Turns: a group with ready tasks is open.  Executors take one task of each open group, in turn,
 * newcomers first (DW_JUMPS_MAX).  So even a group with 100,000 tasks delays another group by only
 * one task in each round.  An executor with a batch goes round the list on its own (choose_turn()),
 * so it need not take the first turn: other turns keep their places in the list, and the first one
 * becomes the last.  So groups that are neighbours stay neighbours.  A group that is at a limit opens
 * again when one of its tasks ends, or when its rate allows another task.
 *
 * Limits hold for a whole group of a queue, even if its tasks belong to several lanes, with
 * different owners or priorities.  The group's places in these lanes, the siblings, are in one
 * bucket of the hash table, so a walk along the bucket counts all running tasks of the group.
 *
 * Memory: a group has at most HELD_MOST ready tasks here, so a group with a million tasks leaves
 * memory to the other groups.  Its other tasks stay in the table only.  When half of the tasks in
 * memory have been taken, the group is hungry: the timer loads more of its tasks by the index of
 * groups (load.c).  So is a newcomer that the timer has found beyond the lane's cursor.
 *
 * Where rows are: an entry of a grouped task stores the group's hash in place of the row's TID, and
 * executors find its row by id.  Only an entry in the list of its group stores the TID, without
 * DW_ENTRY_GROUP, if the timer has just read the row.
 *
 * Order: tasks of a group of an ordered queue run one at a time.  In memory tasks may be out of
 * order, since tasks come back, or come late.  So an executor reads from the table which task of
 * the group comes first (executor/group_order.c).  If the first task is in another lane, or cannot
 * begin, the group is held (none of its tasks begins) for a while.  The hold ends early if a task
 * of the group ends or arrives.
 *
 * Messages: messages that open transactions have taken are counted in memory.  Leased messages are
 * counted in the table.  A session that takes a message reads the number of taken messages first
 * and counts leases with a newer snapshot, so a message leased in between is never missed.  If the
 * limit is reached, the group is held until the first of its leases ends.  If a receiver ends its
 * lease, this ends the hold, too, and increments "changes".  A session that took a message before
 * this sees the change of "changes", and does not hold the group.
 *
 * All databases share delay_wheel.max_groups places.  If all places are in use, tasks of further
 * groups wait in the list of their lane.  A task needs a place to run, but not to wait.  A few more
 * places are reserved for lanes without an open group, so that each lane makes progress.  Groups
 * without a place lose their turns; their limits still hold.  If places are short, a group is not
 * held: it gives its place back, and its tasks move to the end of their lane's list.  Otherwise
 * held groups could occupy all places, and wait for tasks without a place.  Paused lanes keep their
 * places, reserved ones included.  If more lanes are paused than executors exist, other lanes may
 * have to wait.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "port/pg_bitutils.h"

#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/settings.h"
#include "groups.h"

/* Stands for "more than one lane". */
#define MANY_LANES		(-2)

/*
 * A group has at most HELD_MOST ready tasks in memory.  The limit is lower if 1/HELD_PART of the
 * lane's share of memory is lower, but at least HELD_LEAST.
 */
#define HELD_MOST		1000
#define HELD_LEAST		16
#define HELD_PART		64

/*
 * If all tasks of a lane's ready list were set aside, the lane rests for this time, in us.  The
 * time doubles with each rest, and is reset when a task has begun.
 */
#define REST_LEAST		(100 * 1000)
#define REST_MOST		USECS_PER_SEC

/* Length of a first hold whose end is not known, in us.  The length doubles with each hold. */
#define HOLD_LEAST		(10 * 1000)
#define HOLD_MOST		(10 * USECS_PER_SEC)

/*
 * Executors with batches of the same lane begin at turns that are at least APART_TURNS apart, and
 * choose again after ROUND_TURNS turns.
 */
#define APART_TURNS		64
#define ROUND_TURNS		256

/* If a process finds no place to give back, no process searches again within this time, in us. */
#define TIDY_PAUSE_US	(100 * 1000)

/*---- The places of groups in shared memory: a table by hash, and a free list ----*/

#define NO_PLACE		(-1)

/* Reserved places, for lanes without an open group: one per executor. */
#define RESERVED_PLACES	((uint32) max_worker_processes)

/* All databases share the places, so the table has a spinlock of its own. */
typedef struct Table
{
	slock_t		lock;			/* protects the free list and the buckets */
	int32		free;			/* first free place */
	uint32		nfree;
	uint32		nbuckets;		/* a power of two */
	int32		buckets[FLEXIBLE_ARRAY_MEMBER];	/* first place of each bucket */
} Table;

static Table *table = NULL;
static DwGroup *places = NULL;

static uint32
all_places(void)
{
	return dw_max_groups + RESERVED_PLACES;
}

void
dw_group_places_request(void)
{
	ShmemRequestStruct(.name = "delay_wheel group table",
					   .size = MAXALIGN(add_size(offsetof(Table, buckets),
												 mul_size(pg_nextpower2_32(all_places()), sizeof(int32)))),
					   .ptr = (void **) &table);
	ShmemRequestStruct(.name = "delay_wheel groups",
					   .size = mul_size(all_places(), sizeof(DwGroup)),
					   .ptr = (void **) &places);
}

void
dw_group_places_init(void)
{
	uint32		n = all_places();

	memset(places, 0, n * sizeof(DwGroup));
	SpinLockInit(&table->lock);
	table->nbuckets = pg_nextpower2_32(n);
	for (uint32 i = 0; i < table->nbuckets; i++)
		table->buckets[i] = NO_PLACE;
	for (uint32 i = 0; i < n; i++)
		places[i].next = i + 1 < n ? (int32) i + 1 : NO_PLACE;
	table->free = 0;
	table->nfree = n;
}

static int32 *
bucket_of_group(const DwLane *lane, uint32 hash)
{
	uint32		h = hash_combine(hash, hash_combine(lane->database, (uint16) lane->queue));

	return &table->buckets[h & (table->nbuckets - 1)];
}

/* Returns true if the place belongs to this group of the lane's queue, in any of its lanes. */
static bool
is_of_group(const DwGroup *group, const DwLane *lane, uint32 hash)
{
	const DwLane *other = &dw_lanes[group->lane];

	return group->hash == hash && other->database == lane->database && other->queue == lane->queue;
}

/* Returns the place of this group in this lane, or NULL. */
static DwGroup *
find_group(const DwLane *lane, uint32 hash)
{
	DwGroup    *found = NULL;

	SpinLockAcquire(&table->lock);
	for (int32 i = *bucket_of_group(lane, hash); i != NO_PLACE && found == NULL; i = places[i].next)
		if (places[i].hash == hash && places[i].lane == lane - dw_lanes)
			found = &places[i];
	SpinLockRelease(&table->lock);
	return found;
}

/* Has the processor load what a turn of the group needs: two cache lines. */
static void
expect(const DwGroup *group)
{
	dw_prefetch(group);
	dw_prefetch(&group->left);
}

/*
 * Has the processor load the place of a group that is needed soon.  The place may be another one,
 * since no lock is held.
 */
void
dw_group_expect(const DwLane *lane, uint32 hash)
{
	int32		first = *bucket_of_group(lane, hash);

	if (first != NO_PLACE)
		expect(&places[first]);
}

/*
 * Returns the next sibling after "after", or the first sibling if "after" is NULL.  A group counts
 * as one of its siblings.  Siblings change only under the ready lock, which the caller holds.
 */
static DwGroup *
sibling_after(const DwLane *lane, uint32 hash, const DwGroup *after)
{
	DwGroup    *found = NULL;

	SpinLockAcquire(&table->lock);
	for (int32 i = after ? after->next : *bucket_of_group(lane, hash);
		 i != NO_PLACE && found == NULL; i = places[i].next)
		if (is_of_group(&places[i], lane, hash))
			found = &places[i];
	SpinLockRelease(&table->lock);
	return found;
}

/* Returns the next sibling of a group of the lane's queue, or NULL. */
static DwGroup *
next_sibling(const DwLane *lane, const DwGroup *group)
{
	return group->has_siblings ? sibling_after(lane, group->hash, group) : NULL;
}

/* Returns the first sibling of the group, which may be the group itself. */
static DwGroup *
first_sibling(const DwGroup *group)
{
	if (!group->has_siblings)
		return unconstify(DwGroup *, group);
	return sibling_after(&dw_lanes[group->lane], group->hash, NULL);
}

/* Notes that all known tasks of the group are in memory. */
static void
forget_left(DwGroup *group)
{
	group->left = (DwGroupLeft) {.hash = group->hash, .due = DW_NEVER, .until = PG_INT64_MIN};
}

/*
 * Takes a free place for a group of the lane, in the state DW_GROUP_IDLE.  Returns NULL if no place
 * is free.  Uses reserved places only if by_reserve is true.
 */
static DwGroup *
new_place(DwLane *lane, uint32 hash, bool by_reserve)
{
	int32	   *bucket = bucket_of_group(lane, hash);
	DwGroup    *group = NULL;
	TimestampTz now = dw_now();

	SpinLockAcquire(&table->lock);
	if (table->nfree > (by_reserve ? 0 : RESERVED_PLACES))
	{
		group = &places[table->free];
		table->free = group->next;
		table->nfree--;
		*group = (DwGroup) {
			.lane = lane - dw_lanes, .hash = hash, .hold_us = HOLD_LEAST, .next = *bucket,
			.waits_since = now,
			/* an executor may still remember a turn of the group that had the place before */
			.turn_number = group->turn_number + 1
		};
		for (int32 i = *bucket; i != NO_PLACE; i = places[i].next)
			if (is_of_group(&places[i], lane, hash))
				places[i].has_siblings = group->has_siblings = true;
		*bucket = group - places;
	}
	SpinLockRelease(&table->lock);
	if (group == NULL)
		return NULL;
	forget_left(group);
	dw_list_init(&group->more);
	dlist_push_tail(&lane->groups.all, &group->of_lane);
	return group;
}

/* Gives the place of an idle group back. */
static void
give_place_back(DwGroup *group)
{
	int32	   *link = bucket_of_group(&dw_lanes[group->lane], group->hash);

	Assert(group->state == DW_GROUP_IDLE && group->running == 0 && group->count == 0 && !group->is_hungry);
	dlist_delete(&group->of_lane);
	SpinLockAcquire(&table->lock);
	while (*link != group - places)
		link = &places[*link].next;
	*link = group->next;
	group->next = table->free;
	table->free = group - places;
	table->nfree++;
	SpinLockRelease(&table->lock);
}

/* Returns true if only reserved places are free.  The answer may be old, so no lock is needed. */
bool
dw_group_places_are_short(void)
{
	return table->nfree <= RESERVED_PLACES;
}

/*---- States ----*/

/* Returns the group of this link in DwLaneGroups.all. */
static DwGroup *
group_of_lane(dlist_node *node)
{
	/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
	return dlist_container(DwGroup, of_lane, node);
}

/* Returns the group of this link in DwLaneGroups.open or DwLaneGroups.resting. */
static DwGroup *
group_in_turn(dlist_node *node)
{
	/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
	return dlist_container(DwGroup, turn, node);
}

/* Returns the group of this node in DwLaneGroups.asleep. */
static DwGroup *
group_asleep(const pairingheap_node *node)
{
	/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
	return pairingheap_container(DwGroup, sleeper, unconstify(pairingheap_node *, node));
}

/* Compares groups for DwLaneGroups.asleep: the group that wakes first is at the top. */
static int
compare_sleepers(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	TimestampTz x = group_asleep(a)->wakes_at;
	TimestampTz y = group_asleep(b)->wakes_at;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* Initializes the groups of a lane without groups; all bytes are 0. */
void
dw_lane_groups_init(DwLaneGroups *groups)
{
	dlist_init(&groups->all);
	dlist_init(&groups->open);
	dlist_init(&groups->fresh);
	dlist_init(&groups->resting);
	dlist_init(&groups->hungry);
	groups->asleep.ph_compare = compare_sleepers;
	groups->rest_us = REST_LEAST;
}

/* Takes the group out of the list or heap of its state. */
static void
leave_state(DwGroup *group)
{
	DwLaneGroups *groups = &dw_lanes[group->lane].groups;

	if (group->state == DW_GROUP_OPEN)
	{
		dlist_delete(&group->turn);
		groups->nopen--;
	}
	else if (group->state == DW_GROUP_ASLEEP)
		pairingheap_remove(&groups->asleep, &group->sleeper);
	else if (group->state == DW_GROUP_RESTING)
		dlist_delete(&group->turn);
	group->state = DW_GROUP_IDLE;
	group->is_new = false;
}

/*
 * Sets the state of the group.  A group that becomes open gets the last turn of its lane, or, as a
 * newcomer, the last turn of the newcomers.
 */
static void
enter_state(DwGroup *group, DwGroupState state, bool newcomer)
{
	DwLaneGroups *groups = &dw_lanes[group->lane].groups;

	group->state = state;
	if (state == DW_GROUP_OPEN)
	{
		group->is_new = newcomer;
		group->turn_number++;
		dlist_push_tail(newcomer ? &groups->fresh : &groups->open, &group->turn);
		groups->nopen++;
	}
	else if (state == DW_GROUP_ASLEEP)
		pairingheap_add(&groups->asleep, &group->sleeper);
	else if (state == DW_GROUP_RESTING)
		dlist_push_tail(&groups->resting, &group->turn);
}

/* Returns the limits of this group of the lane's queue, or NULL if it has none. */
static const DwQueue *
limits_of(const DwLane *lane, uint32 hash)
{
	const DwQueue *queue = dw_lane_queue(lane);

	if (hash == DW_NO_GROUP || queue == NULL ||
		(queue->group_max_running == 0 && queue->group_rate.starts == 0 && !queue->group_order))
		return NULL;
	return queue;
}

/* Returns how many tasks of the group run, in all siblings together. */
static uint32
running_of(const DwGroup *group)
{
	const DwLane *lane = &dw_lanes[group->lane];
	uint32		running = 0;

	for (const DwGroup *s = first_sibling(group); s != NULL; s = next_sibling(lane, s))
		running += s->running;
	return running;
}

/* Returns the use of the group's rate: the latest value among its siblings. */
static const DwRateUse *
rate_use_of(const DwGroup *group)
{
	const DwLane *lane = &dw_lanes[group->lane];
	const DwRateUse *latest = &group->rate_use;

	for (DwGroup *s = first_sibling(group); s != NULL; s = next_sibling(lane, s))
		if (s->rate_use.next_start > latest->next_start)
			latest = &s->rate_use;
	return latest;
}

/* Returns the state of a group with ready tasks.  If it is DW_GROUP_ASLEEP, sets *wakes_at. */
static DwGroupState
state_by_limits(const DwGroup *group, TimestampTz now, TimestampTz *wakes_at)
{
	const DwLane *lane = &dw_lanes[group->lane];
	const DwQueue *queue = limits_of(lane, group->hash);

	if (queue == NULL)
		return DW_GROUP_OPEN;
	if (group->held_until > now)
	{
		*wakes_at = group->held_until;
		return DW_GROUP_ASLEEP;
	}
	if ((queue->group_max_running > 0 || queue->group_order) &&
		running_of(group) >= (queue->group_order ? 1 : (uint32) queue->group_max_running))
		return DW_GROUP_FULL;
	if (queue->group_rate.starts > 0)
	{
		*wakes_at = dw_rate_next(&queue->group_rate, rate_use_of(group), now);
		if (*wakes_at > now)
			return DW_GROUP_ASLEEP;
	}
	return DW_GROUP_OPEN;
}

/* Returns true if a group without tasks must keep its place, since its rate is in use. */
static bool
rate_is_in_use(const DwGroup *group, TimestampTz now)
{
	const DwQueue *queue = limits_of(&dw_lanes[group->lane], group->hash);

	return queue != NULL && queue->group_rate.starts > 0 &&
		dw_rate_unused_at(&queue->group_rate, &group->rate_use) > now;
}

/*
 * Brings the state of a group up to date.  A group that stays open keeps its turn.  If the place is
 * not needed any more, gives it back.
 */
static void
update_state(DwGroup *group, TimestampTz now)
{
	TimestampTz wakes_at = 0;
	DwGroupState state = group->count == 0 ? DW_GROUP_IDLE : state_by_limits(group, now, &wakes_at);
	bool		newcomer = group->is_new;

	if (state == DW_GROUP_OPEN && group->state == DW_GROUP_OPEN)
		return;
	leave_state(group);
	group->wakes_at = wakes_at;
	if (state == DW_GROUP_IDLE && group->running == 0 && group->left.due == DW_NEVER)
	{
		if (!rate_is_in_use(group, now))
		{
			give_place_back(group);
			return;
		}
		state = DW_GROUP_RESTING;
	}
	enter_state(group, state, newcomer);
}

/* Ends the hold of the group.  Processes that read its state before must not hold the group. */
static void
end_hold(DwGroup *group)
{
	group->held_until = 0;
	group->changes++;
}

/* Ends the hold like end_hold(), and resets data of earlier attempts. */
static void
forget_hold(DwGroup *group)
{
	end_hold(group);
	group->hold_us = HOLD_LEAST;
	group->tried_id = 0;
}

/*
 * Updates the states of the group and its siblings.  If "release" is true, also ends their holds.
 * Lowers *wakes_at to the time when the first of these groups wakes.
 *
 * Returns the lane in which a group has opened, DW_NO_LANE if none has, or MANY_LANES.  If a group
 * has opened, the caller may have to wake an executor or a receiver.  "goes_on": the caller is an
 * executor of the group's owner, and takes the next task itself.  In this case a lane of this owner
 * counts only if it had no open group.
 */
static int32
update_group(DwGroup *group, bool release, bool goes_on, TimestampTz now, TimestampTz *wakes_at)
{
	const DwLane *lane = &dw_lanes[group->lane];
	uint32		hash = group->hash;
	int32		opened = DW_NO_LANE;
	DwGroup    *next;

	if (limits_of(lane, hash) == NULL)
	{
		update_state(group, now);
		return DW_NO_LANE;
	}
	for (DwGroup *s = first_sibling(group); s != NULL; s = next)
	{
		const DwLane *its = &dw_lanes[s->lane];
		uint32		before = its->groups.nopen;
		bool		has_task = s->count > 0;

		next = next_sibling(lane, s);
		if (release)
			end_hold(s);
		update_state(s, now);
		/* the place of a sibling without a task may belong to another group now */
		if (has_task && s->state == DW_GROUP_ASLEEP)
			*wakes_at = Min(*wakes_at, s->wakes_at);
		if (its->groups.nopen > before && (before == 0 || !goes_on || its->owner != lane->owner))
			opened = opened == DW_NO_LANE ? its - dw_lanes : MANY_LANES;
	}
	return opened;
}

/* Gives back places that groups of the lane occupied only because their rates were in use. */
static void
tidy_lane(DwLane *lane, TimestampTz now)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &lane->groups.resting)
	{
		DwGroup    *group = group_in_turn(iter.cur);

		/* the list is roughly ordered by the use of rates */
		if (rate_is_in_use(group, now))
			break;
		update_state(group, now);
	}
}

/* Calls tidy_lane() for all lanes of the database. */
static void
tidy_lanes(DwDatabase *db, TimestampTz now)
{
	static TimestampTz tidied_at = 0;

	if (now >= tidied_at && now - tidied_at < TIDY_PAUSE_US)
		return;
	tidied_at = now;
	dw_each_lane(lane, db)
		tidy_lane(lane, now);
}

/* Finds or makes the place of a group.  Returns NULL if no place is free. */
static DwGroup *
find_or_place(DwDatabase *db, DwLane *lane, uint32 hash, bool by_reserve)
{
	DwGroup    *group = find_group(lane, hash);

	if (group == NULL)
		group = new_place(lane, hash, false);
	if (group == NULL)
	{
		tidy_lanes(db, dw_now());
		group = new_place(lane, hash, by_reserve);
	}
	return group;
}

/*---- Ready tasks of groups ----*/

/* Returns how many ready tasks a group may have in memory. */
static uint32
held_most(const DwDatabase *db)
{
	uint32		share = db->account.quota * DW_CHUNK_ENTRIES / Max(db->nlanes, 1);

	return Max(Min(HELD_MOST, share / HELD_PART), HELD_LEAST);
}

/*
 * Makes the group hungry if it has few tasks in memory and more tasks in the table.  If the group
 * was not hungry before, returns true: then the timer must look at the lane.
 */
static bool
feel_hunger(DwDatabase *db, DwGroup *group)
{
	if (group->left.due == DW_NEVER || group->is_hungry || group->count > held_most(db) / 2)
		return false;
	group->is_hungry = true;
	dlist_push_tail(&dw_lanes[group->lane].groups.hungry, &group->hunger);
	return true;
}

/* Ends the group's hunger. */
static void
still_hunger(DwGroup *group)
{
	if (group->is_hungry)
		dlist_delete(&group->hunger);
	group->is_hungry = false;
}

/* Notes that the task with this key, and others due by "until", are in the table only. */
static void
leave_out(DwGroup *group, TimestampTz due, int64 id, TimestampTz until)
{
	group->left.until = Max(group->left.until, until);
	if (group->left.due != DW_NEVER &&
		(due > group->left.due || (due == group->left.due && id >= group->left.id)))
		return;
	group->left.due = due;
	group->left.id = id;
}

/* Adds "by" to the number of the group's ready tasks. */
static void
count_ready(DwGroup *group, int by)
{
	DwLaneGroups *groups = &dw_lanes[group->lane].groups;

	group->count += by;
	groups->entries += by;
	if (group->is_early)
		groups->early += by;
}

/*
 * Notes whether the group's tasks are in memory before their turn: its first task came beyond the
 * lane's cursor, and no load has reached the group since.
 */
static void
note_early(DwGroup *group, const DwEntry *entry)
{
	DwLane	   *lane = &dw_lanes[group->lane];
	bool		beyond = !dw_entry_is_before(entry, lane->cursor_due, lane->cursor_id) &&
		!(entry->due == lane->cursor_due && entry->id == lane->cursor_id);
	bool		early = beyond && (group->count == 0 || group->is_early);

	if (group->is_early && !early)
		lane->groups.early -= group->count;
	group->is_early = early;
}

/* Returns a copy of the group's first entry, with the group's hash. */
static DwEntry
first_with_group(const DwGroup *group)
{
	DwEntry		entry = group->first;

	dw_entry_set_group(&entry, group->hash);
	entry.offset |= group->first.offset & DW_ENTRY_ALONE;
	return entry;
}

/* Ends the group's hold if leases do not fill the group, since a new task may come first. */
static void
may_come_first(DwGroup *group)
{
	if (!group->held_full)
		group->held_until = 0;
	update_state(group, dw_now());
}

/*
 * Appends a ready task to its group.  "tid" is the row's TID, or NULL.  If "by_reserve" is true,
 * the group may get a reserved place.  Changes a list only if the result is DW_GROUP_ADDED.
 */
DwGroupAdded
dw_group_add(DwDatabase *db, DwLane *lane, const DwEntry *entry, const ItemPointerData *tid,
			 bool by_reserve)
{
	DwGroup    *group = find_or_place(db, lane, entry->block, by_reserve);
	DwEntry		own = *entry;

	if (group == NULL)
		return DW_GROUP_NO_PLACE;
	/* tasks that were left in the table are due earlier than this task, and must run before it */
	if (entry->block != DW_NO_GROUP &&
		(group->count >= held_most(db) ||
		 (group->left.due != DW_NEVER && !dw_entry_is_before(entry, group->left.due, group->left.id))))
	{
		leave_out(group, entry->due, entry->id, entry->due);
		if (feel_hunger(db, group))
			dw_lane_dirty(db, lane);
		/* an executor that takes a task of the group finds this task in the table */
		if (group->count > 0 && dw_entry_is_before(entry, group->first.due, group->first.id))
			may_come_first(group);
		return DW_GROUP_LEFT;
	}
	if (tid != NULL)
	{
		own.block = ItemPointerGetBlockNumber(tid);
		own.offset = ItemPointerGetOffsetNumber(tid);
	}
	note_early(group, entry);
	if (group->count == 0)
	{
		if (group->has_siblings)
			group->waits_since = dw_now();
		group->first = own;
		/* otherwise it has had a turn */
		group->is_new = group->running == 0 && group->left.due == DW_NEVER;
	}
	else if (!dw_list_push(dw_pool, &db->account, &group->more, &own))
		return DW_GROUP_NO_MEMORY;
	count_ready(group, 1);
	if (group->count == 1 || group->held_until != 0)
		may_come_first(group);
	return DW_GROUP_ADDED;
}

/* Adds a task like dw_group_add(), but before all other tasks of the group. */
DwGroupAdded
dw_group_put_back(DwDatabase *db, DwLane *lane, const DwEntry *entry)
{
	DwGroup    *group = find_or_place(db, lane, entry->block, true);

	if (group == NULL)
		return DW_GROUP_NO_PLACE;
	if (group->count > 0 && !dw_list_put_back(dw_pool, &db->account, &group->more, &group->first))
		return DW_GROUP_NO_MEMORY;
	group->first = *entry;
	count_ready(group, 1);
	if (group->count == 1)
		update_state(group, dw_now());
	return DW_GROUP_ADDED;
}

/* Takes the first task out of the group. */
static void
pop_first(DwDatabase *db, DwGroup *group)
{
	DwPosition	head = dw_list_head(dw_pool, &group->more);

	(void) dw_list_pop(dw_pool, &db->account, &group->more, &head, &group->first);
	count_ready(group, -1);
}

/*
 * Wakes the lane's groups whose time has come.  Returns the group whose turn it is, or NULL if no
 * group may begin a task now.
 */
DwGroup *
dw_groups_next(DwLane *lane, TimestampTz now)
{
	DwLaneGroups *groups = &lane->groups;

	while (!pairingheap_is_empty(&groups->asleep))
	{
		DwGroup    *first = group_asleep(pairingheap_first(&groups->asleep));

		if (first->wakes_at > now)
			break;
		/* if a sibling has begun a task, the group sleeps longer */
		update_state(first, now);
	}
	tidy_lane(lane, now);
	if (!dlist_is_empty(&groups->fresh) && (groups->jumps < DW_JUMPS_MAX || dlist_is_empty(&groups->open)))
		return group_in_turn(dlist_head_node(&groups->fresh));
	return dlist_is_empty(&groups->open) ? NULL : group_in_turn(dlist_head_node(&groups->open));
}

/*
 * Returns the turn of an open group that is no newcomer, for an executor whose turn was "before".
 *
 * A round of the executor has ROUND_TURNS turns.  Groups that open again get the last turn, so
 * without an end of the round the executor might never come to the first turn.
 */
DwTurn
dw_group_turn(DwGroup *group, const DwTurn *before)
{
	return (DwTurn) {
		group, group->turn_number,
		dw_group_of_turn(before, &dw_lanes[group->lane]) == group ? before->left : ROUND_TURNS
	};
}

/*
 * Returns the turn after "turn", which is valid.  The last one in the list is before the first, and
 * the last one of a round is before no turn.
 */
DwTurn
dw_group_turn_after(const DwTurn *turn)
{
	DwGroup    *group = turn->group;
	dlist_head *open = &dw_lanes[group->lane].groups.open;
	DwGroup    *next = group_in_turn(dlist_has_next(open, &group->turn) ? group->turn.next :
								   dlist_head_node(open));

	if (turn->left <= 1)
		return (DwTurn) {NULL};
	return (DwTurn) {next, next->turn_number, turn->left - 1};
}

/* Returns the group of a turn; NULL if there is no turn, or it was taken. */
DwGroup *
dw_group_of_turn(const DwTurn *turn, const DwLane *lane)
{
	DwGroup    *group = turn->group;

	/* the place may be another group's now */
	return group != NULL && group->state == DW_GROUP_OPEN && !group->is_new &&
		group->lane == lane - dw_lanes && group->turn_number == turn->number ? group : NULL;
}

/*
 * Returns the first open group of the lane that has APART_TURNS turns before the next turn of one
 * of n others.  Returns the first open group if there is none.
 */
DwGroup *
dw_groups_apart(DwLane *lane, const DwTurn *others, int n)
{
	DwGroup    *found = NULL;
	int			met = 0;
	int			skip = 0;
	int			free = 0;
	dlist_iter	iter;

	dlist_foreach(iter, &lane->groups.open)
	{
		DwGroup    *group = group_in_turn(iter.cur);

		for (int i = 0; i < n; i++)
			if (others[i].group == group)
			{
				met++;
				skip = APART_TURNS;
				free = 0;
			}
		if (skip-- > 0)
			continue;
		if (free++ == 0)
			found = group;
		if (free == APART_TURNS || met == n)
		{
			if (met > 0)
				DW_COUNT("turns-apart");
			return found;
		}
	}
	return group_in_turn(dlist_head_node(&lane->groups.open));
}

/*
 * Returns true if a group has a place in the lane, even if it is needed only for the group's rate.
 * A lane with places of groups must not be given back.
 */
bool
dw_groups_have_places(DwLane *lane)
{
	tidy_lane(lane, dw_now());
	return !dlist_is_empty(&lane->groups.all);
}

/* Returns true if the timer must load more tasks of some group of the lane. */
bool
dw_groups_are_hungry(const DwLane *lane)
{
	return !dlist_is_empty(unconstify(dlist_head *, &lane->groups.hungry));
}

/*
 * Takes the next hungry group of the lane.  Returns false if no group is hungry.  Stores in *left
 * the group, and the first key and the last due time of the tasks to load.  Sets *room to the
 * number of tasks to load.  The caller passes tasks that it does not load to dw_group_leave_out().
 */
bool
dw_groups_feed(DwDatabase *db, DwLane *lane, DwGroupLeft *left, uint32 *room)
{
	DwGroup    *group;
	uint32		most = held_most(db);

	if (!dw_groups_are_hungry(lane))
		return false;
	/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
	group = dlist_container(DwGroup, hunger, dlist_head_node(&lane->groups.hungry));
	still_hunger(group);
	*left = group->left;
	*room = most > group->count ? most - group->count : 0;
	forget_left(group);
	/* a group without a task may give its place back */
	if (group->count == 0)
		update_state(group, dw_now());
	return true;
}

/*
 * Returns true if no task of this group and lane is in memory or known to be in the table, and none
 * runs.
 */
bool
dw_group_is_newcomer(const DwLane *lane, uint32 hash)
{
	const DwGroup *group = hash == DW_NO_GROUP ? NULL : find_group(lane, hash);

	if (group == NULL)
		return hash != DW_NO_GROUP;
	return group->count == 0 && group->running == 0 && group->left.due == DW_NEVER;
}

/* Notes that these tasks of a group are still in the table only. */
void
dw_group_leave_out(DwDatabase *db, DwLane *lane, const DwGroupLeft *left)
{
	DwGroup    *group = find_or_place(db, lane, left->hash, true);

	if (group == NULL)
	{
		/* the group has no place for the note, so the lane is loaded again */
		dw_atomic_lower(&lane->reload_from, left->due);
		dw_lane_dirty(db, lane);
		return;
	}
	leave_out(group, left->due, left->id, left->until);
	if (feel_hunger(db, group))
		dw_lane_dirty(db, lane);
}

/*
 * Called when the lane is loaded again from this key on.  Removes notes of tasks that were left in
 * the table from this key on.
 */
void
dw_groups_cut(DwLane *lane, TimestampTz due, int64 id)
{
	TimestampTz now = dw_now();
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &lane->groups.all)
	{
		DwGroup    *group = group_of_lane(iter.cur);

		if (group->left.due == DW_NEVER || group->left.due < due ||
			(group->left.due == due && group->left.id < id))
			continue;
		forget_left(group);
		still_hunger(group);
		if (group->count == 0)
			update_state(group, now);
	}
}

/*
 * Has the processor load what the turns of this list need, from the first one on.  The places of
 * groups and their chunks are far apart, so each turn would wait for memory several times, under
 * the ready lock.
 */
static void
expect_turns(dlist_head *list, dlist_node *first)
{
	dlist_node *end = &list->head;
	dlist_node *second = first->next;
	dlist_node *third = second->next;

	if (first == end || second == end || third == end)
		return;
	dw_list_expect(dw_pool, &group_in_turn(first)->more, true);
	dw_list_expect(dw_pool, &group_in_turn(second)->more, false);
	expect(group_in_turn(third));
}

/*
 * Takes the first task of an open group, and ends the group's turn.  Sets *tid to the row's TID, or
 * to an invalid TID.  A task counts as running until dw_group_end(), a message until
 * dw_group_end_taken().  Returns true if the timer must load more tasks of the group.
 */
bool
dw_group_take(DwDatabase *db, DwGroup *group, DwEntry *entry, ItemPointer tid, TimestampTz now)
{
	DwLane	   *lane = &dw_lanes[group->lane];
	const DwQueue *queue = limits_of(lane, group->hash);
	TimestampTz wakes_at = DW_NEVER;
	dlist_head *turns = group->is_new ? &lane->groups.fresh : &lane->groups.open;
	dlist_node *after = group->turn.next;
	bool		is_first = group->is_new || dlist_head_node(turns) == &group->turn;
	bool		hungry;

	Assert(group->state == DW_GROUP_OPEN);
	if (dw_entry_has_group(&group->first))
		ItemPointerSetInvalid(tid);
	else
		ItemPointerSet(tid, group->first.block, group->first.offset);
	*entry = first_with_group(group);
	pop_first(db, group);
	if (!lane->external || group->hash != DW_NO_GROUP)
		group->running++;
	if (group->has_siblings)
		group->waits_since = now;
	if (queue != NULL && queue->group_rate.starts > 0)
	{
		group->rate_use = *rate_use_of(group);
		dw_rate_start(&queue->group_rate, &group->rate_use, now);
	}
	hungry = feel_hunger(db, group);
	lane->groups.jumps = group->is_new ? lane->groups.jumps + 1 : 0;
	/* usually no limit of the group is reached */
	if (group->count == 0 || state_by_limits(group, now, &group->wakes_at) != DW_GROUP_OPEN)
	{
		leave_state(group);
		(void) update_group(group, false, true, now, &wakes_at);
	}
	else if (is_first)
	{
		leave_state(group);
		enter_state(group, DW_GROUP_OPEN, false);
	}
	else
		group->turn_number++;
	expect_turns(turns, after);
	return hungry;
}

/*
 * Returns the sibling whose owner has waited longest for a task of this group to end: DW_TURN_US or
 * more, and longer than the owner of this lane.  Returns NULL if there is none.
 */
static DwGroup *
waiting_sibling(const DwGroup *group, TimestampTz now)
{
	const DwLane *lane = &dw_lanes[group->lane];
	DwGroup    *longest = NULL;
	TimestampTz least = Min(group->waits_since, now - DW_TURN_US + 1);

	for (DwGroup *s = first_sibling(group); s != NULL; s = next_sibling(lane, s))
	{
		const DwLane *its = &dw_lanes[s->lane];

		if (s->count == 0 || s->waits_since >= least || its->owner == lane->owner || its->paused ||
			dw_lane_owner(its)->retry_at > now)
			continue;
		longest = s;
		least = s->waits_since;
	}
	return longest;
}

/*
 * Lets another owner have the next turn in a group that has just opened, if the owner has waited too
 * long: an executor takes the next task at once, so one owner could occupy the group.  The hold ends
 * when a task of the other owner ends.
 */
static void
give_turn(DwGroup *group, TimestampTz now, TimestampTz *wakes_at)
{
	DwGroup    *other = NULL;

	if (group->has_siblings && group->state == DW_GROUP_OPEN)
		other = waiting_sibling(group, now);
	if (other == NULL)
		return;
	/* if the turn is not used, the next one comes later */
	other->waits_since = now + DW_UNUSED_TURN_US - DW_TURN_US;
	group->held_until = now + DW_TURN_US;
	leave_state(group);
	group->wakes_at = group->held_until;
	enter_state(group, DW_GROUP_ASLEEP, false);
	*wakes_at = Min(*wakes_at, group->wakes_at);
}

/*
 * Counts the end of a task of the group.  "begun" is true if the task had begun.  If "release" is
 * true, ends the holds of the group and its siblings.  Returns the result of update_group().
 */
static int32
end_in_group(DwGroup *group, bool begun, bool release, TimestampTz *wakes_at)
{
	DwLane	   *lane = &dw_lanes[group->lane];
	const DwQueue *queue = limits_of(lane, group->hash);
	bool		has_task = group->count > 0;
	TimestampTz now;
	int32		opened;

	Assert(group->running > 0);
	group->running--;
	if (!begun && queue != NULL && queue->group_rate.starts > 0)
		dw_rate_not_begun(&queue->group_rate, &group->rate_use);
	if (begun)
	{
		lane->groups.set_aside = 0;
		lane->groups.rests_until = 0;
		group->hold_us = HOLD_LEAST;
		group->tried_id = 0;
	}
	/* the group was open, so no sibling was at a limit; but siblings may be held */
	if (group->state == DW_GROUP_OPEN && (queue == NULL || (!queue->group_order && !lane->external)))
		return DW_NO_LANE;
	/* another task may come first now */
	now = dw_now();
	opened = update_group(group, release, !lane->external, now, wakes_at);
	/*
	 * The place of a group without a task may belong to another group now.  In an ordered group the
	 * order tells which task is next.
	 */
	if (has_task && !lane->external && queue != NULL && !queue->group_order)
		give_turn(group, now, wakes_at);
	return opened;
}

/*
 * Counts the end of a task that an executor has taken.  "begun" is true if its SQL had begun.
 * "settled" is true if its row is gone or was written again, even if the SQL had not begun.  Does
 * nothing if the entry has no group.
 */
void
dw_group_end(DwDatabase *db, const DwEntry *entry, bool begun, bool settled)
{
	DwGroup    *group = dw_entry_has_group(entry) ? find_group(&dw_lanes[entry->lane], entry->block) : NULL;
	int32		opened;

	if (group == NULL)
		return;
	opened = end_in_group(group, begun, begun || settled, &db->group_wakes_at);
	if (opened != DW_NO_LANE)
		db->group_opened = db->group_opened == DW_NO_LANE ? opened : MANY_LANES;
}

/*
 * Returns when the timer must look for open groups.  The time is now if the end of a task has
 * opened a group and nobody has taken a task of this group since.  Otherwise returns when the next
 * group wakes, or DW_NEVER.
 */
TimestampTz
dw_groups_take_news(DwDatabase *db)
{
	int32		opened = db->group_opened;
	TimestampTz wakes_at = db->group_wakes_at;

	db->group_opened = DW_NO_LANE;
	db->group_wakes_at = DW_NEVER;
	if (opened == MANY_LANES || (opened != DW_NO_LANE && dw_lanes[opened].groups.nopen > 0))
		return DW_AWAKE;
	return wakes_at == DW_NEVER ? DW_NEVER : wakes_at + DW_COALESCE_US;
}

/*
 * Called by an executor that has taken this task, but tries the task "id" instead, which comes
 * first in the group.  Returns false if the last try for the group was "id", too: then "id" cannot
 * begin, and the group must be held.
 */
bool
dw_group_try_other(const DwEntry *entry, int64 id)
{
	DwGroup    *group = find_group(&dw_lanes[entry->lane], entry->block);

	if (group == NULL || group->tried_id == id)
		return false;
	group->tried_id = id;
	return true;
}

/*
 * Called after an executor could not begin this task and has put it at the end of its lane's ready
 * list.  Moves the other tasks of the group to the end of this list, too, so that all tasks of the
 * list are tried in turn.  If all tasks were tried and none could begin, the lane rests for a
 * while.
 */
void
dw_groups_set_aside(DwDatabase *db, const DwEntry *entry)
{
	DwLane	   *lane = &dw_lanes[entry->lane];
	DwGroup    *group = find_group(lane, entry->block);

	while (group != NULL && group->count > 0)
	{
		DwEntry		first = first_with_group(group);

		if (!dw_list_push(dw_pool, &db->account, &lane->ready, &first))
			break;
		pop_first(db, group);
	}
	if (group != NULL)
		update_state(group, dw_now());
	if (++lane->groups.set_aside > dw_ready_ungrouped(lane))
	{
		lane->groups.set_aside = 0;
		lane->groups.rests_until = dw_now() + lane->groups.rest_us;
		lane->groups.rest_us = Min(lane->groups.rest_us * 2, REST_MOST);
	}
}

/*
 * Holds the group of a task until this time, or for a while if the time is DW_NEVER.  An executor
 * has taken the task and will put it back.  The hold ends when a task of the group ends, changes or
 * arrives, and after HOLD_MOST at the latest, since delay_wheel does not notice when plain SQL
 * unlocks a task, or logical replication deletes a task.
 *
 * "changes" is the value of DwGroup.changes when the task was taken.  If the value has changed,
 * returns false and does not hold the group: the caller's information is out of date.
 */
bool
dw_group_hold(const DwEntry *entry, uint32 changes, TimestampTz until)
{
	DwGroup    *group = find_group(&dw_lanes[entry->lane], entry->block);
	TimestampTz now = dw_now();

	if (group == NULL || group->changes != changes)
		return false;
	if (until == DW_NEVER)
	{
		until = now + group->hold_us;
		group->hold_us = Min(group->hold_us * 2, HOLD_MOST);
	}
	group->held_until = Min(until, now + HOLD_MOST);
	group->tried_id = 0;
	return true;
}

/*---- Messages of groups ----*/

/* Stores in *taken the group of a message that a session has just taken, or DW_NO_GROUP. */
void
dw_group_taken(const DwEntry *entry, DwGroupTaken *taken)
{
	const DwLane *lane = &dw_lanes[entry->lane];
	const DwQueue *queue;
	const DwGroup *group;

	memset(taken, 0, sizeof(DwGroupTaken));
	if (!dw_entry_has_group(entry) || entry->block == DW_NO_GROUP)
		return;
	group = find_group(lane, entry->block);
	taken->hash = group->hash;
	queue = limits_of(lane, group->hash);
	if (queue == NULL || (queue->group_max_running == 0 && !queue->group_order))
		return;
	taken->ordered = queue->group_order;
	taken->limit = queue->group_order ? 1 : (uint32) queue->group_max_running;
	taken->running = running_of(group);
	taken->changes = group->changes;
}

/*
 * Holds a group like dw_group_hold(), for a message that a session has taken and will put back.  If
 * "full" is true, leases fill the group until this time, even if new messages arrive.  Returns
 * false if a task or lease of the group has ended since the message was taken: then the caller must
 * look again.
 */
bool
dw_group_hold_taken(const DwEntry *entry, const DwGroupTaken *taken, TimestampTz until, bool full)
{
	DwGroup    *group;

	if (!dw_group_hold(entry, taken->changes, until))
		return false;
	group = find_group(&dw_lanes[entry->lane], taken->hash);
	group->held_full = full;
	update_state(group, dw_now());
	return true;
}

/*
 * Returns when the timer must look for receivers, or DW_NEVER.  Arguments are results of
 * update_group().
 */
static TimestampTz
news_for_receivers(const DwQueue *queue, int32 opened, TimestampTz wakes_at)
{
	if (queue == NULL || (queue->waiting == 0 && !queue->notifies))
		return DW_NEVER;
	return opened != DW_NO_LANE ? DW_AWAKE : wakes_at;
}

/*
 * Holds a group and its siblings until this time, since leases fill the group.  Without the hold,
 * sessions would take messages of the group in vain.
 */
static void
hold_full(DwGroup *group, TimestampTz until)
{
	const DwLane *lane = &dw_lanes[group->lane];

	for (DwGroup *s = sibling_after(lane, group->hash, NULL); s != NULL;
		 s = next_sibling(lane, s))
	{
		s->held_until = Min(until, dw_now() + HOLD_MOST);
		s->held_full = true;
	}
}

/*
 * Ends the count of a message that a session had taken from this lane, and clears *taken.  "begun"
 * is true if the message was received.  "leased_until" is the end of its lease, or 0.  Returns when
 * the timer must look for receivers.
 */
TimestampTz
dw_group_end_taken(int32 lane, DwGroupTaken *taken, bool begun, TimestampTz leased_until)
{
	const DwQueue *queue = dw_lane_queue(&dw_lanes[lane]);
	DwGroup    *group = find_group(&dw_lanes[lane], taken->hash);
	TimestampTz wakes_at = DW_NEVER;
	bool		stays_full;
	int32		opened;

	if (taken->hash == DW_NO_GROUP || group == NULL)
		return DW_NEVER;
	taken->hash = DW_NO_GROUP;
	/* true if no task or lease of the group has ended since the message was taken */
	stays_full = leased_until != 0 && taken->full_until != 0 && group->changes == taken->changes;
	if (stays_full)
		hold_full(group, Min(taken->full_until, leased_until));
	/* if the message goes back because its group is held, no other message has waited for it */
	opened = end_in_group(group, begun, !taken->waits && !stays_full, &wakes_at);
	return news_for_receivers(queue, opened, wakes_at);
}

/*---- Ends of holds ----*/

/*
 * Ends the hold of this group.  Called after a lease of the group has ended.  Also called at the
 * end of a transaction that had locked, changed or ended a task of the group.  Returns when the
 * timer must look.
 */
TimestampTz
dw_group_release(DwDatabase *db, int16 queue, uint32 hash)
{
	const DwLane of_queue = {.database = db->oid, .queue = queue};
	DwGroup    *group = sibling_after(&of_queue, hash, NULL);
	const DwQueue *place = group != NULL ? dw_lane_queue(&dw_lanes[group->lane]) : NULL;
	TimestampTz wakes_at = DW_NEVER;
	int32		opened;

	/* a group without a place is not held, and none of its tasks is taken */
	if (group == NULL)
		return DW_NEVER;
	for (DwGroup *s = group; s != NULL; s = sibling_after(&of_queue, hash, s))
		forget_hold(s);
	opened = update_group(group, false, false, dw_now(), &wakes_at);
	if (place != NULL && place->external)
		return news_for_receivers(place, opened, wakes_at);
	return opened != DW_NO_LANE ? DW_AWAKE : wakes_at;
}

/*---- All groups of a lane ----*/

/* Drops ready tasks of the lane's groups if keep() returns false.  Returns their number. */
uint32
dw_groups_filter(DwDatabase *db, DwLane *lane, DwKeep keep, void *arg)
{
	TimestampTz now = dw_now();
	uint32		before = lane->groups.entries;
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &lane->groups.all)
	{
		DwGroup    *group = group_of_lane(iter.cur);
		uint32		count = group->more.count;

		if (group->count == 0)
			continue;
		dw_list_filter(dw_pool, &db->account, &group->more, keep, arg);
		count -= group->more.count;
		count_ready(group, -(int) count);
		if (!keep(&group->first, arg))
			pop_first(db, group);
		if (feel_hunger(db, group))
			dw_lane_dirty(db, lane);
		if (group->count == 0)
			update_state(group, now);
	}
	return before - lane->groups.entries;
}

/*
 * Resets the lists of ready tasks of the lane's groups, without freeing memory.  Does not change
 * the counts of running tasks.
 */
void
dw_groups_reset(DwLane *lane)
{
	TimestampTz now = dw_now();
	dlist_mutable_iter iter;

	lane->groups.entries = lane->groups.early = 0;
	dlist_foreach_modify(iter, &lane->groups.all)
	{
		DwGroup    *group = group_of_lane(iter.cur);

		dw_list_init(&group->more);
		group->count = 0;
		group->is_early = false;
		forget_left(group);
		still_hunger(group);
		update_state(group, now);
	}
}

/* Gives back all group places of a lane that has no task and is being given back. */
void
dw_groups_leave(DwLane *lane)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &lane->groups.all)
	{
		DwGroup    *group = group_of_lane(iter.cur);

		leave_state(group);
		still_hunger(group);
		group->running = group->count = 0;
		give_place_back(group);
	}
	lane->groups.entries = lane->groups.early = 0;
}

/* Updates the lane's groups, since the limits of its queue, or the clock, may have changed. */
void
dw_groups_obey_limits(DwLane *lane)
{
	TimestampTz now = dw_now();
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &lane->groups.all)
	{
		DwGroup    *group = group_of_lane(iter.cur);

		/* the reason for a hold may be gone */
		forget_hold(group);
		update_state(group, now);
	}
}

/*---- For views and the timer; a shared ready lock is enough ----*/

/* Returns when the next sleeping group of the lane wakes, or DW_NEVER if none sleeps. */
static TimestampTz
wake_time(const DwLane *lane)
{
	pairingheap *asleep = unconstify(pairingheap *, &lane->groups.asleep);

	if (pairingheap_is_empty(asleep))
		return DW_NEVER;
	return group_asleep(pairingheap_first(asleep))->wakes_at;
}

/* Returns true if a group of the lane may begin a task now. */
bool
dw_groups_any_open(const DwLane *lane, TimestampTz now)
{
	return lane->groups.nopen > 0 || wake_time(lane) <= now;
}

/*
 * Returns the reason why the lane must not begin a task now.  Includes the limits of groups.  Sets
 * *room and *until like dw_queue_limit().
 */
DwLimit
dw_lane_limit(const DwLane *lane, TimestampTz now, uint32 *room, TimestampTz *until)
{
	DwLimit		limit = dw_queue_limit(lane, now, room, until);
	const DwQueue *queue = dw_lane_queue(lane);
	TimestampTz wakes_at;

	if (limit != DW_LIMIT_NONE || queue == NULL ||
		(lane->groups.entries == 0 && !dw_groups_rest(lane, now)))
		return limit;
	wakes_at = wake_time(lane);
	if ((dw_ready_ungrouped(lane) == 0 || dw_groups_rest(lane, now)) && !dw_groups_any_open(lane, now))
	{
		*until = dw_ready_ungrouped(lane) == 0 ? wakes_at : Min(wakes_at, lane->groups.rests_until);
		return DW_LIMIT_GROUP;
	}
	*until = Min(*until, wakes_at);
	return DW_LIMIT_NONE;
}

/* Returns how many ready tasks of the lane the limits of groups allow to begin now. */
uint32
dw_groups_room(const DwLane *lane, TimestampTz now)
{
	const DwQueue *queue = dw_lane_queue(lane);
	uint64		ready = dw_ready_count(lane);
	uint64		of_each;

	if (lane->groups.entries == 0 || queue == NULL || wake_time(lane) <= now)
		return ready;
	of_each = queue->group_order ? 1 : queue->group_max_running;
	return of_each == 0 ? ready : Min(ready, dw_ready_ungrouped(lane) + lane->groups.nopen * of_each);
}

/* Returns the ready task of the lane's groups that was due first, or NULL. */
const DwEntry *
dw_groups_first(const DwLane *lane)
{
	const DwEntry *first = NULL;
	dlist_iter	iter;

	dlist_foreach(iter, unconstify(dlist_head *, &lane->groups.all))
	{
		const DwGroup *group = group_of_lane(iter.cur);

		if (group->count > 0 && (first == NULL || group->first.due < first->due))
			first = &group->first;
	}
	return first;
}

/*---- For the view "groups"; a shared ready lock is enough ----*/

/*
 * Copies the groups of the lane that have due or running tasks, and returns their number.  Reads at
 * most "most" places, the oldest first.
 */
int
dw_groups_copy(const DwLane *lane, DwGroupCopy *copies, int most)
{
	int			looked_at = 0;
	int			n = 0;
	dlist_iter	iter;

	dlist_foreach(iter, unconstify(dlist_head *, &lane->groups.all))
	{
		const DwGroup *group = group_of_lane(iter.cur);

		if (looked_at++ >= most)
			break;
		if (group->count == 0 && group->running == 0 && group->left.due == DW_NEVER)
			continue;
		copies[n++] = (DwGroupCopy) {
			.hash = group->hash,
			.state = group->state,
			.ready = group->count,
			.running = group->running,
			.left = group->left.due != DW_NEVER,
			.first_due = group->count > 0 ? group->first.due : group->left.due,
			.first_id = group->first.id,
			.wakes_at = group->wakes_at,
			.held_until = group->held_until
		};
	}
	return n;
}
