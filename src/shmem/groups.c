/*-------------------------------------------------------------------------
 *
 * groups.c
 *	  Groups of tasks: their turns and their limits.
 *
 * Run by the timer, which adds ready tasks, by executors and sessions that take them,
 * all under the ready lock of the database, exclusively; only what says so needs less.
 *
 * A queue may have groups: a task of it says to which one it belongs, by any text.  There
 * may be millions of groups.  Only those of which tasks are ready or run have a place here,
 * one for each lane.  Tasks of other queues do not come by here.
 *
 * The text is not kept, only a hash of it.  Groups with the same hash share their turns and
 * limits: of a million groups that are in use at once about a hundred pairs do.
 *
 * Turns: groups of a lane with ready tasks are open, and one task of each is taken in turn.
 * So a group with 100,000 tasks holds another one up by one task in each round.  A group
 * that is at a limit is not open; it becomes so again when a task of it ends, or when the
 * clock has come to what its rate allows.
 *
 * Limits hold for a group of a queue as a whole, also where its tasks belong to several
 * lanes: to several owners, or priorities.  Its places in these lanes are siblings; they
 * are in one bucket of the hash table, so what runs is summed up by a walk along that.
 *
 * Memory: a group has HELD_MOST ready tasks here at most, so one with a million leaves the
 * lane's share of memory to others.  Those beyond stay in the table only: left_due and left_id
 * are the first key of these, left_until is the last due time.  When half of the tasks have been
 * taken the group is hungry, and the timer loads more of it by the index of groups, see load.c.
 *
 * Where rows are: the entry of a task with a group says the group where others say the place of
 * the row, and its row is looked for by id.  In the list of a group that is known otherwise; so
 * an entry there says where its row is, without DW_ENTRY_GROUP, if the timer has just read the
 * row.  That of a task that has come by the ring, or was put back, still says the group.  What
 * leaves the list says the group again.
 *
 * Order: tasks of a group of an ordered queue run one at a time.  Memory does not know their
 * order for sure: tasks come back, or come late.  So an executor looks into the table which one
 * comes first, see executor/group_order.c.  If that is one of another lane, or one that cannot
 * begin, the group is held for a while, or until a task of it ends, or another one comes.
 *
 * Messages: those that open transactions have taken are counted here, those that are leased
 * in the table.  So a session that has taken a message counts the leases of the group by a
 * snapshot that is newer than the number of those taken: a message that was leased meanwhile is in
 * one of both.  If the limit is reached, the group is held until the first of the leases ends.
 * The end of a lease by a word of its receiver ends the hold; "changes" tells the session that
 * a lease has ended since it took the message, and was not held back by a hold that came later.
 *
 * There are delay_wheel.max_groups places, in all databases together.  If all are in use, tasks of
 * further groups stay in the list of their lane.  They need a place to be run, and none to
 * wait: a few more places are kept for lanes in which no group is open, so that each lane
 * makes progress.  What is lost meanwhile is the turns of such groups, not their limits.
 * So a group that would be held gives its place back then, and its tasks go to the end of their
 * lane's list: else places could be held by groups that wait for tasks without a place.
 * Lanes that are paused keep the places that they have, these few, too: where more lanes are
 * paused so than there are executors, others may have to wait.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "port/pg_bitutils.h"
#include "storage/shmem.h"
#include "storage/spin.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/settings.h"
#include "../ring/lane_heap.h"
#include "groups.h"
#include "queue_limits.h"
#include "shared.h"

static void give_group_place_back(DwGroup *group);

static DwGroup *take_group_place(DwLane *lane, uint32 hash, bool by_reserve);

static DwGroup *sibling_after(const DwLane *lane, uint32 hash, const DwGroup *after);

static DwGroup *find_group(const DwLane *lane, uint32 hash);

/* In place of a lane: several of them. */
#define MANY_LANES		(-2)

/*
 * How many ready tasks a group has in memory at most; less where that is more than the
 * HELD_PART-th part of its lane's share of memory, but HELD_LEAST at least.
 */
#define HELD_MOST		1000
#define HELD_LEAST		16
#define HELD_PART		64

/*
 * For how long a lane rests when all tasks of its ready list were set aside, in us: doubled each
 * time, until one has begun.
 */
#define REST_LEAST		(100 * 1000)
#define REST_MOST		USECS_PER_SEC

/* For how long a group is held if the time is not known, in us: doubled each time. */
#define HOLD_LEAST		(10 * 1000)
#define HOLD_MOST		(10 * USECS_PER_SEC)

/* A process does not look in vain for places that it could give back before this time, in us. */
#define TIDY_PAUSE_US	(100 * 1000)

/*---- Places ----*/

/* The next sibling of a group of the lane's queue, if it has any. */
static DwGroup *
next_sibling(const DwLane *lane, const DwGroup *group)
{
	return group->has_siblings ? sibling_after(lane, group->hash, group) : NULL;
}

/* The first one of the group and its siblings; mostly it has none. */
static DwGroup *
first_sibling(const DwGroup *group)
{
	if (!group->has_siblings)
		return unconstify(DwGroup *, group);
	return sibling_after(&dw_lanes[group->lane], group->hash, NULL);
}

/* No task of the group is in the table only, as far as is known. */
static void
forget_left(DwGroup *group)
{
	group->left_due = DW_NEVER;
	group->left_until = PG_INT64_MIN;
}

/* As take_group_place(), for an idle group, in the list of its lane. */
static DwGroup *
new_place(DwLane *lane, uint32 hash, bool by_reserve)
{
	DwGroup    *group = take_group_place(lane, hash, by_reserve);

	if (group == NULL)
		return NULL;
	group->state = DW_GROUP_IDLE;
	group->running = group->count = 0;
	group->rests = group->is_hungry = false;
	forget_left(group);
	group->held_until = group->tried_id = 0;
	group->held_full = false;
	group->changes = 0;
	group->hold_us = HOLD_LEAST;
	memset(&group->rate_use, 0, sizeof(group->rate_use));
	dw_list_init(&group->more);
	dlist_push_tail(&lane->groups.all, &group->of_lane);
	return group;
}

/* Gives the place of an idle group back. */
static void
give_place_back(DwGroup *group)
{
	Assert(group->state == DW_GROUP_IDLE && group->running == 0 && group->count == 0 && !group->is_hungry);
	dlist_delete(&group->of_lane);
	give_group_place_back(group);
}

/*---- States ----*/

/* The group that this link of a lane's list of all its groups belongs to. */
static DwGroup *
group_of_lane(dlist_node *node)
{
	/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
	return dlist_container(DwGroup, of_lane, node);
}

/* The group that this link of a lane's list of open or resting groups belongs to. */
static DwGroup *
group_in_turn(dlist_node *node)
{
	/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
	return dlist_container(DwGroup, turn, node);
}

/* The group that this node of a lane's heap of sleepers belongs to. */
static DwGroup *
group_asleep(const pairingheap_node *node)
{
	/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
	return pairingheap_container(DwGroup, sleeper, unconstify(pairingheap_node *, node));
}

/* For the heap of a lane's sleepers: the one that wakes first is at the top. */
static int
compare_sleepers(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	TimestampTz x = group_asleep(a)->wakes_at;
	TimestampTz y = group_asleep(b)->wakes_at;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* Begins with no group. */
void
dw_lane_groups_init(DwLaneGroups *groups)
{
	dlist_init(&groups->all);
	dlist_init(&groups->open);
	dlist_init(&groups->resting);
	dlist_init(&groups->hungry);
	groups->asleep.ph_compare = compare_sleepers;
	groups->asleep.ph_arg = NULL;
	groups->asleep.ph_root = NULL;
	groups->entries = groups->nopen = groups->set_aside = 0;
	groups->rests_until = 0;
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
	else if (group->rests)
		dlist_delete(&group->turn);
	group->rests = false;
	group->state = DW_GROUP_IDLE;
}

/* Gives the group this state; one that opens is the last in its lane's turns. */
static void
enter_state(DwGroup *group, DwGroupState state)
{
	DwLaneGroups *groups = &dw_lanes[group->lane].groups;

	group->state = state;
	if (state == DW_GROUP_OPEN)
	{
		dlist_push_tail(&groups->open, &group->turn);
		groups->nopen++;
	}
	else if (state == DW_GROUP_ASLEEP)
		pairingheap_add(&groups->asleep, &group->sleeper);
}

/* The limits of one group of the lane's queue; NULL if it has none. */
static const DwQueue *
limits_of(const DwLane *lane, uint32 hash)
{
	const DwQueue *queue = dw_lane_queue(lane);

	if (hash == DW_NO_GROUP || queue == NULL ||
		(queue->group_max_running == 0 && queue->group_rate.starts == 0 && !queue->group_order))
		return NULL;
	return queue;
}

/* How many tasks of the group run, those of all siblings together. */
static uint32
running_of(const DwGroup *group)
{
	const DwLane *lane = &dw_lanes[group->lane];
	uint32		running = 0;

	for (const DwGroup *s = first_sibling(group); s != NULL; s = next_sibling(lane, s))
		running += s->running;
	return running;
}

/* How far the group has used up its rate, by what all siblings know. */
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

/*
 * The state that a group with ready tasks has by its limits; *wakes_at is set if it is
 * DW_GROUP_ASLEEP.
 */
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

/* True if a group without tasks must keep its place, since its rate is in use. */
static bool
rate_is_in_use(const DwGroup *group, TimestampTz now)
{
	const DwQueue *queue = limits_of(&dw_lanes[group->lane], group->hash);

	return queue != NULL && queue->group_rate.starts > 0 &&
		dw_rate_unused_at(&queue->group_rate, &group->rate_use) > now;
}

/*
 * Brings the state of a group up to date.  One that stays open keeps its turn.  The place of
 * one that is not needed any more is given back.
 */
static void
update_state(DwGroup *group, TimestampTz now)
{
	TimestampTz wakes_at = 0;
	DwGroupState state = group->count == 0 ? DW_GROUP_IDLE : state_by_limits(group, now, &wakes_at);

	if (state == DW_GROUP_OPEN && group->state == DW_GROUP_OPEN)
		return;
	leave_state(group);
	group->wakes_at = wakes_at;
	if (state != DW_GROUP_IDLE)
		enter_state(group, state);
	else if (group->running == 0 && group->left_due == DW_NEVER)
	{
		group->rests = rate_is_in_use(group, now);
		if (group->rests)
			dlist_push_tail(&dw_lanes[group->lane].groups.resting, &group->turn);
		else
			give_place_back(group);
	}
}

/* The group is not held any more; who has looked before this must not hold it. */
static void
end_hold(DwGroup *group)
{
	group->held_until = 0;
	group->changes++;
}

/* As end_hold(), and what had been tried before says nothing any more. */
static void
forget_hold(DwGroup *group)
{
	end_hold(group);
	group->hold_us = HOLD_LEAST;
	group->tried_id = 0;
}

/*
 * As update_state(), for the group and all its siblings; release: they are not held any more.
 *
 * Returns the lane in which a group opens, for which an executor or a receiver may have to be
 * woken; DW_NO_LANE if there is none, MANY_LANES if there are several.  goes_on: the caller is an
 * executor of the group's owner, and takes the next task itself: so of lanes of this owner only
 * those count that had no open group.  *wakes_at is lowered to when the first of them wakes.
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
		/* the place of one without a task may be another one's now */
		if (has_task && s->state == DW_GROUP_ASLEEP)
			*wakes_at = Min(*wakes_at, s->wakes_at);
		if (its->groups.nopen > before && (before == 0 || !goes_on || its->owner != lane->owner))
			opened = opened == DW_NO_LANE ? its - dw_lanes : MANY_LANES;
	}
	return opened;
}

/* Gives back the places of groups of the lane of which only the rate was in use. */
static void
tidy_lane(DwLane *lane, TimestampTz now)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &lane->groups.resting)
	{
		DwGroup    *group = group_in_turn(iter.cur);

		/* the rate of those behind it was mostly used later */
		if (rate_is_in_use(group, now))
			break;
		update_state(group, now);
	}
}

/* As tidy_lane(), for all lanes of the database. */
static void
tidy_lanes(DwDatabase *db, TimestampTz now)
{
	static TimestampTz tidied_at = 0;

	if (now >= tidied_at && now - tidied_at < TIDY_PAUSE_US)
		return;
	tidied_at = now;
	for (int32 i = db->lanes; i != DW_NO_LANE; i = dw_lanes[i].next)
		tidy_lane(&dw_lanes[i], now);
}

/* The place of the entry's group in the lane, a new one if necessary; NULL if none is free. */
static DwGroup *
group_of_entry(DwDatabase *db, DwLane *lane, const DwEntry *entry, bool by_reserve)
{
	DwGroup    *group = find_group(lane, entry->block);

	if (group == NULL)
		group = new_place(lane, entry->block, false);
	if (group == NULL)
	{
		tidy_lanes(db, dw_now());
		group = new_place(lane, entry->block, by_reserve);
	}
	return group;
}

/*---- Ready tasks of groups ----*/

/* The group that this link of a lane's list of hungry groups belongs to. */
static DwGroup *
group_that_hungers(dlist_node *node)
{
	/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
	return dlist_container(DwGroup, hunger, node);
}

/* True if the entry's key is before (due, id). */
static bool
is_before_key(const DwEntry *entry, TimestampTz due, int64 id)
{
	return entry->due < due || (entry->due == due && entry->id < id);
}

/* How many ready tasks a group may have in memory. */
static uint32
held_most(const DwDatabase *db)
{
	uint32		share = db->account.quota * DW_CHUNK_ENTRIES / Max(db->nlanes, 1);

	return Max(Min(HELD_MOST, share / HELD_PART), HELD_LEAST);
}

/*
 * Makes the group hungry if tasks of it were left in the table and it has few here.  True if it
 * was not hungry before: the timer is to look at the lane.
 */
static bool
feel_hunger(DwDatabase *db, DwGroup *group)
{
	if (group->left_due == DW_NEVER || group->is_hungry || group->count > held_most(db) / 2)
		return false;
	group->is_hungry = true;
	dlist_push_tail(&dw_lanes[group->lane].groups.hungry, &group->hunger);
	return true;
}

/* The group is not hungry any more. */
static void
still_hunger(DwGroup *group)
{
	if (group->is_hungry)
		dlist_delete(&group->hunger);
	group->is_hungry = false;
}

/* Notes that the task of this key is in the table only. */
static void
leave_out(DwGroup *group, TimestampTz due, int64 id)
{
	group->left_until = Max(group->left_until, due);
	if (group->left_due != DW_NEVER &&
		(due > group->left_due || (due == group->left_due && id >= group->left_id)))
		return;
	group->left_due = due;
	group->left_id = id;
}

/* The group's first entry, so that it says the group. */
static DwEntry
first_with_group(const DwGroup *group)
{
	DwEntry		entry = group->first;

	dw_entry_set_group(&entry, group->hash);
	entry.offset |= group->first.offset & DW_ENTRY_ALONE;
	return entry;
}

/* A task of the group has come that may be the one that comes first: then it is not held any more. */
static void
may_come_first(DwGroup *group)
{
	if (!group->held_full)
		group->held_until = 0;
	update_state(group, dw_now());
}

/*
 * Appends a ready task to its group.  tid: where its row is, or NULL if that is not known.
 * by_reserve: if there is no other place for the group, it gets a reserved one.  Changes no list
 * unless the result is DW_GROUP_ADDED.
 */
DwGroupAdded
dw_group_add(DwDatabase *db, DwLane *lane, const DwEntry *entry, const ItemPointerData *tid,
			 bool by_reserve)
{
	DwGroup    *group = group_of_entry(db, lane, entry, by_reserve);
	DwEntry		own = *entry;

	if (group == NULL)
		return DW_GROUP_NO_PLACE;
	/* one that is due after those that were left out does not go before them */
	if (entry->block != DW_NO_GROUP &&
		(group->count >= held_most(db) ||
		 (group->left_due != DW_NEVER && !is_before_key(entry, group->left_due, group->left_id))))
	{
		leave_out(group, entry->due, entry->id);
		if (feel_hunger(db, group))
			dw_lane_dirty(db, lane);
		/* who takes one of those in memory finds it in the table */
		if (group->count > 0 && is_before_key(entry, group->first.due, group->first.id))
			may_come_first(group);
		return DW_GROUP_LEFT;
	}
	if (tid != NULL)
	{
		own.block = ItemPointerGetBlockNumber(tid);
		own.offset = ItemPointerGetOffsetNumber(tid);
	}
	if (group->count == 0)
		group->first = own;
	else if (!dw_list_push(dw_pool, &db->account, &group->more, &own))
		return DW_GROUP_NO_MEMORY;
	group->count++;
	lane->groups.entries++;
	if (group->count == 1 || group->held_until != 0)
		may_come_first(group);
	return DW_GROUP_ADDED;
}

/* As dw_group_add(), but before all other tasks of the group. */
DwGroupAdded
dw_group_put_back(DwDatabase *db, DwLane *lane, const DwEntry *entry)
{
	DwGroup    *group = group_of_entry(db, lane, entry, true);

	if (group == NULL)
		return DW_GROUP_NO_PLACE;
	if (group->count > 0 && !dw_list_put_back(dw_pool, &db->account, &group->more, &group->first))
		return DW_GROUP_NO_MEMORY;
	group->first = *entry;
	group->count++;
	lane->groups.entries++;
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
	group->count--;
	dw_lanes[group->lane].groups.entries--;
}

/*
 * The group of the lane whose turn it is; NULL if none may begin a task now.  Wakes those
 * whose rate allows a task again.
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
		/* it may go on sleeping, since a sibling was faster; then it wakes later */
		update_state(first, now);
	}
	tidy_lane(lane, now);
	return dlist_is_empty(&groups->open) ? NULL : group_in_turn(dlist_head_node(&groups->open));
}

/*
 * True if the lane must not be given back: something of its groups is known that would be
 * forgotten, if only how far a rate is used up.
 */
bool
dw_groups_have_places(DwLane *lane)
{
	tidy_lane(lane, dw_now());
	return !dlist_is_empty(&lane->groups.all);
}

/* True if the timer is to load more tasks of some group of the lane. */
bool
dw_groups_are_hungry(const DwLane *lane)
{
	return !dlist_is_empty(unconstify(dlist_head *, &lane->groups.hungry));
}

/*
 * Takes the next hungry group of the lane; false if there is none.  Tells which group it is, from
 * which key on and until which due time its tasks are to be loaded, and how many: what the
 * caller leaves, it tells by dw_group_leave_out().
 */
bool
dw_groups_feed(DwDatabase *db, DwLane *lane, DwGroupLeft *left, uint32 *room)
{
	DwGroup    *group;
	uint32		most = held_most(db);

	if (!dw_groups_are_hungry(lane))
		return false;
	group = group_that_hungers(dlist_head_node(&lane->groups.hungry));
	still_hunger(group);
	left->hash = group->hash;
	left->due = group->left_due;
	left->id = group->left_id;
	left->until = group->left_until;
	*room = most > group->count ? most - group->count : 0;
	forget_left(group);
	/* its place stays while it has a task to come */
	if (group->count == 0)
		update_state(group, dw_now());
	return true;
}

/* Notes that these tasks of a group are still in the table only. */
void
dw_group_leave_out(DwDatabase *db, DwLane *lane, const DwGroupLeft *left)
{
	const DwEntry entry = {.due = left->due, .id = left->id, .block = left->hash, .offset = DW_ENTRY_GROUP, .lane = lane - dw_lanes};
	DwGroup    *group = group_of_entry(db, lane, &entry, true);

	if (group == NULL)
	{
		/* no place is left to remember it by: the lane is loaded again */
		dw_atomic_lower(&lane->reload_from, left->due);
		dw_lane_dirty(db, lane);
		return;
	}
	leave_out(group, left->due, left->id);
	group->left_until = Max(group->left_until, left->until);
	if (feel_hunger(db, group))
		dw_lane_dirty(db, lane);
}

/*
 * The lane is loaded again from this key on: forgets that tasks from there on were left in
 * the table.
 */
void
dw_groups_cut(DwLane *lane, TimestampTz due, int64 id)
{
	TimestampTz now = dw_now();
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &lane->groups.all)
	{
		DwGroup    *group = group_of_lane(iter.cur);

		if (group->left_due == DW_NEVER || group->left_due < due ||
			(group->left_due == due && group->left_id < id))
			continue;
		forget_left(group);
		still_hunger(group);
		if (group->count == 0)
			update_state(group, now);
	}
}

/*
 * Takes the first task of an open group, and ends its turn.  *tid is set to where its row is, and
 * is invalid if that is not known.  A task that an executor takes is counted until
 * dw_group_end(), a message of a group until dw_group_end_taken().  True if the timer is to load
 * more tasks of the group.
 */
bool
dw_group_take(DwDatabase *db, DwGroup *group, DwEntry *entry, ItemPointer tid, TimestampTz now)
{
	DwLane	   *lane = &dw_lanes[group->lane];
	const DwQueue *queue = limits_of(lane, group->hash);
	TimestampTz wakes_at = DW_NEVER;
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
	if (queue != NULL && queue->group_rate.starts > 0)
	{
		group->rate_use = *rate_use_of(group);
		dw_rate_start(&queue->group_rate, &group->rate_use, now);
	}
	hungry = feel_hunger(db, group);
	leave_state(group);
	/* mostly no limit is reached, neither for the group nor for its siblings */
	if (group->count > 0 && state_by_limits(group, now, &group->wakes_at) == DW_GROUP_OPEN)
		enter_state(group, DW_GROUP_OPEN);
	else
		(void) update_group(group, false, true, now, &wakes_at);
	return hungry;
}

/*
 * Counts the end of a task of the group; begun is whether it had begun.  release: those that were
 * held may look again.  Returns as update_group().
 */
static int32
end_in_group(DwGroup *group, bool begun, bool release, TimestampTz *wakes_at)
{
	DwLane	   *lane = &dw_lanes[group->lane];
	const DwQueue *queue = limits_of(lane, group->hash);

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
	/* a group that is open was not at its limit, and so were its siblings not; but these may be held */
	if (group->state == DW_GROUP_OPEN && (queue == NULL || (!queue->group_order && !lane->external)))
		return DW_NO_LANE;
	/* another one may come first now */
	return update_group(group, release, !lane->external, dw_now(), wakes_at);
}

/*
 * Counts the end of a task that an executor has taken; begun is whether its SQL had begun, settled
 * whether its row is gone or was written again, without that, too.  Nothing if the entry has no
 * group.
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
 * When the timer is to look for groups that the ends of tasks have opened, and whose tasks none
 * has taken since, or that wake after these; DW_NEVER if there is none.
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
 * An executor that has taken this task would rather take the one with that id, which comes
 * first.  False if that was tried last, too: then it cannot begin, and the group is to be held.
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
 * For a task that an executor has taken, that may not begin, and that stands at the end of
 * its lane's ready list again: puts the others of its group there, too.  So all that stand there
 * are tried in turn.  If it was the turn of each, and none could begin, the lane rests for a
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
 * Holds the group of a task that an executor has taken, and will put back, until this time;
 * DW_NEVER: for a while.  It is not held any more when a task of it ends, is changed or comes.
 * It is held for HOLD_MOST at most: nobody tells that plain SQL has a task locked no more, or that
 * logical replication has deleted one.
 *
 * changes is that of the group when the task was taken.  False if it has another value now: what
 * the caller has seen is out of date, and the group is not held.
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

/* Notes the group of a message that a session has just taken; none if the entry has none. */
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
 * Holds the group of a message that a session has taken, and will put back, as dw_group_hold().
 * full: until then leases fill the group, whatever comes.  False if a task or a lease of the group
 * has ended since the message was taken: the caller has to look again.
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

/* When the timer is to look for receivers, after update_group(); DW_NEVER if it need not. */
static TimestampTz
news_for_receivers(const DwQueue *queue, int32 opened, TimestampTz wakes_at)
{
	if (queue == NULL || (queue->waiting == 0 && !queue->notifies))
		return DW_NEVER;
	return opened != DW_NO_LANE ? DW_AWAKE : wakes_at;
}

/*
 * Holds a group that leases fill until then, with all its siblings: who took a message of it now
 * would find that out, and have looked in vain.
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
 * Counts that a message that a session had taken from this lane is received no more, and forgets
 * its group; begun is whether it was received, leased_until the end of its lease, or 0.  Returns
 * when the timer is to look for receivers.
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
	/* if nothing of the group has ended since */
	stays_full = leased_until != 0 && taken->full_until != 0 && group->changes == taken->changes;
	if (stays_full)
		hold_full(group, Min(taken->full_until, leased_until));
	/* one that goes back since others fill the group is not why any of these waits */
	opened = end_in_group(group, begun, !taken->waits && !stays_full, &wakes_at);
	return news_for_receivers(queue, opened, wakes_at);
}

/*---- What others end that may hold groups ----*/

/*
 * A lease of this group has ended, or a transaction that had locked, changed or ended a task of
 * it: the group is not held any more.  Returns when the timer is to look; DW_NEVER if it need not.
 */
TimestampTz
dw_group_release(DwDatabase *db, int16 queue, uint32 hash)
{
	const DwLane of_queue = {.database = db->oid, .queue = queue};
	DwGroup    *group = sibling_after(&of_queue, hash, NULL);
	const DwQueue *place = group != NULL ? dw_lane_queue(&dw_lanes[group->lane]) : NULL;
	TimestampTz wakes_at = DW_NEVER;
	int32		opened;

	/* a group without a place is not held, and nobody has taken a task of it */
	if (group == NULL)
		return DW_NEVER;
	for (DwGroup *s = group; s != NULL; s = sibling_after(&of_queue, hash, s))
		forget_hold(s);
	opened = update_group(group, false, false, dw_now(), &wakes_at);
	if (place != NULL && place->external)
		return news_for_receivers(place, opened, wakes_at);
	return opened != DW_NO_LANE ? DW_AWAKE : wakes_at;
}

/* As dw_group_release(), for all groups of the database.  The caller looks for executors and receivers. */
void
dw_groups_release_all(DwDatabase *db)
{
	for (int32 i = db->lanes; i != DW_NO_LANE; i = dw_lanes[i].next)
		dw_groups_obey_limits(&dw_lanes[i]);
}

/*---- All groups of a lane ----*/

/*
 * Calls keep() for each ready task of the lane's groups, drops those for which it returns
 * false, and returns their number.
 */
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
		group->count -= count;
		lane->groups.entries -= count;
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
 * Forgets all ready tasks of the lane, whose memory is reclaimed otherwise; those that run
 * are still counted.
 */
void
dw_groups_reset(DwLane *lane)
{
	TimestampTz now = dw_now();
	dlist_mutable_iter iter;

	lane->groups.entries = 0;
	dlist_foreach_modify(iter, &lane->groups.all)
	{
		DwGroup    *group = group_of_lane(iter.cur);

		dw_list_init(&group->more);
		group->count = 0;
		forget_left(group);
		still_hunger(group);
		update_state(group, now);
	}
}

/* Gives back the places of a lane that is given back, and has no task. */
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
	lane->groups.entries = 0;
}

/* The limits of the lane's queue, or the clock, may have changed. */
void
dw_groups_obey_limits(DwLane *lane)
{
	TimestampTz now = dw_now();
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &lane->groups.all)
	{
		DwGroup    *group = group_of_lane(iter.cur);

		/* what held it may not hold any more */
		forget_hold(group);
		update_state(group, now);
	}
}

/*---- What views and the timer ask; the ready lock, shared, is enough ----*/

/* When the next sleeping group of the lane wakes; DW_NEVER if none sleeps. */
static TimestampTz
wake_time(const DwLane *lane)
{
	pairingheap *asleep = unconstify(pairingheap *, &lane->groups.asleep);

	if (pairingheap_is_empty(asleep))
		return DW_NEVER;
	return group_asleep(pairingheap_first(asleep))->wakes_at;
}

/* True if a group of the lane may begin a task now. */
bool
dw_groups_any_open(const DwLane *lane, TimestampTz now)
{
	return lane->groups.nopen > 0 || wake_time(lane) <= now;
}

/*
 * Why the lane must not begin a task now, and if it may, how many, and until when: as
 * dw_queue_limit(), with the limits of groups.
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

/* How many of the lane's ready tasks its groups allow to begin now, at most. */
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

/* The earliest due time of the lane's groups; DW_NEVER if none has a ready task. */
TimestampTz
dw_groups_first_due(const DwLane *lane)
{
	TimestampTz first = DW_NEVER;
	dlist_iter	iter;

	dlist_foreach(iter, unconstify(dlist_head *, &lane->groups.all))
	{
		const DwGroup *group = group_of_lane(iter.cur);

		if (group->count > 0)
			first = Min(first, group->first.due);
	}
	return first;
}

/*---- For the view "groups"; the ready lock, shared, is enough ----*/

/*
 * Copies the groups of the lane of which tasks are due or run, and returns their number.  Looks
 * at no more than "most" places: those that have been in use for longest.
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
		if (group->count == 0 && group->running == 0 && group->left_due == DW_NEVER)
			continue;
		copies[n++] = (DwGroupCopy) {
			.hash = group->hash,
			.state = group->state,
			.ready = group->count,
			.running = group->running,
			.left = group->left_due != DW_NEVER,
			.first_due = group->count > 0 ? group->first.due : group->left_due,
			.first_id = group->first.id,
			.wakes_at = group->wakes_at,
			.held_until = group->held_until
		};
	}
	return n;
}

/*---- The places of groups in shared memory: a table by hash, and a free list ----*/

/*
 * Run by the timer, executors and sessions, under the ready lock of the database.  All
 * databases share the places, so the table has a spinlock of its own.
 *
 * There are delay_wheel.max_groups places for all, and some more that only lanes without an
 * open group get.  A group has one for each lane in which it has tasks: these are siblings,
 * and stand in one bucket.
 */

#define NO_PLACE		(-1)

/* What all databases share. */
typedef struct Table
{
	slock_t		lock;			/* protects the free list and the buckets */
	int32		free;			/* first free place */
	uint32		nfree;
	uint32		nbuckets;		/* a power of two */
	int32		buckets[FLEXIBLE_ARRAY_MEMBER];	/* first place of each */
} Table;

static Table *table = NULL;
static DwGroup *places = NULL;

/* Places that only lanes without an open group get: each executor may need one. */
static uint32
reserved_places(void)
{
	return dw_executor_places();
}

static uint32
all_places(void)
{
	return dw_max_groups + reserved_places();
}

static Size
table_size(void)
{
	return MAXALIGN(add_size(offsetof(Table, buckets),
							 mul_size(pg_nextpower2_32(all_places()), sizeof(int32))));
}

/* Requests shared memory. */
void
dw_group_places_request(void)
{
	ShmemRequestStruct(.name = "delay_wheel group table",
					   .size = table_size(),
					   .ptr = (void **) &table);
	ShmemRequestStruct(.name = "delay_wheel groups",
					   .size = mul_size(all_places(), sizeof(DwGroup)),
					   .ptr = (void **) &places);
}

/* Makes all places free.  Called once for each shared memory. */
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

/* True if the place is that of this group of the lane's queue, in any of the queue's lanes. */
static bool
is_of_group(const DwGroup *group, const DwLane *lane, uint32 hash)
{
	const DwLane *other = &dw_lanes[group->lane];

	return group->hash == hash && other->database == lane->database && other->queue == lane->queue;
}

/* The place of this group in this lane, or NULL. */
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

/*
 * The next sibling of a group, itself included; after: the one before, NULL: the first one.
 * Siblings come and go only under the ready lock, which the caller holds.
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

/*
 * Takes a free place for a group of the lane, which is in no list of the lane yet; NULL if none is
 * free, or only reserved ones are and by_reserve is false.
 */
static DwGroup *
take_group_place(DwLane *lane, uint32 hash, bool by_reserve)
{
	int32	   *bucket = bucket_of_group(lane, hash);
	DwGroup    *group = NULL;

	SpinLockAcquire(&table->lock);
	if (table->nfree > (by_reserve ? 0 : reserved_places()))
	{
		group = &places[table->free];
		table->free = group->next;
		table->nfree--;
		group->lane = lane - dw_lanes;
		group->hash = hash;
		group->has_siblings = false;
		for (int32 i = *bucket; i != NO_PLACE; i = places[i].next)
			if (is_of_group(&places[i], lane, hash))
				places[i].has_siblings = group->has_siblings = true;
		group->next = *bucket;
		*bucket = group - places;
	}
	SpinLockRelease(&table->lock);
	return group;
}

/* Gives a place back that is in no list of its lane any more. */
static void
give_group_place_back(DwGroup *group)
{
	int32	   *link = bucket_of_group(&dw_lanes[group->lane], group->hash);

	SpinLockAcquire(&table->lock);
	while (*link != group - places)
		link = &places[*link].next;
	*link = group->next;
	group->next = table->free;
	table->free = group - places;
	table->nfree++;
	SpinLockRelease(&table->lock);
}

/* True if groups get reserved places only.  The answer may be old, so no lock is needed. */
bool
dw_group_places_are_short(void)
{
	return table->nfree <= reserved_places();
}
