/*-------------------------------------------------------------------------
 *
 * ready.c
 *	  Ready lists of lanes, which contain due tasks until executors take them.
 *
 * Run by the timer, which adds tasks, and by executors and receiving sessions, which take tasks.
 * Callers hold the ready lock of the database exclusively, except for functions with another
 * comment.
 *
 * README.md describes whose turn it is.  The lanes of one external queue take turns even if they
 * have different owners.  If the queue of a lane has groups, tasks are in lists of groups, which
 * take turns, see groups.c.
 *
 * A batch is a transaction in which an executor runs several tasks of one lane.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/inject.h"
#include "../base/settings.h"
#include "groups.h"

/*
 * Minimum distance between executors with batches of the same lane, in chunks of the ready list.
 * 16 chunks are 672 tasks, more than an index page has entries.
 *
 * This distance is kept only by executors whose tasks take less than QUICK_US microseconds.
 */
#define APART_CHUNKS	16
#define QUICK_US	100
/* In a lane with groups, executors keep apart from at most so many others. */
#define APART_MOST	8

/* Maximum number of tasks that are moved at a time from a ready list to their groups. */
#define SORT_MAX		64

/* If this number of tasks of its peers was taken in a row, a lane of lower priority goes first. */
#define PASSED_OVER_MAX	15

/*---- Listing lanes with ready tasks ----*/

/* Returns the list that contains the lane while the lane has ready tasks. */
static DwTurns *
turns_of(const DwLane *lane)
{
	return lane->external ? &dw_queues[lane->queue_place].turns : &dw_lane_owner(lane)->turns;
}

/*
 * Puts the lane into its list, after the lane "prev"; DW_NO_LANE: at the front.  If its owner needs
 * an executor now, lists the owner, too.
 */
static void
link_after(DwDatabase *db, DwLane *lane, int32 prev)
{
	DwTurns    *turns = turns_of(lane);
	int32		next = prev != DW_NO_LANE ? dw_lanes[prev].ready_next : turns->first;

	lane->is_listed = true;
	lane->ready_prev = prev;
	lane->ready_next = next;
	if (prev != DW_NO_LANE)
		dw_lanes[prev].ready_next = lane - dw_lanes;
	else
		turns->first = lane - dw_lanes;
	if (next != DW_NO_LANE)
		dw_lanes[next].ready_prev = lane - dw_lanes;
	else
		turns->last = lane - dw_lanes;
	if (turns->n++ == 0 && !lane->external)
		dw_owner_list(db, dw_lane_owner(lane));
}

/*
 * Puts a lane with ready tasks into its list; as a newcomer, unless it has had a turn.  Does nothing
 * if the lane is paused or is in the list.
 */
void
dw_ready_list(DwDatabase *db, DwLane *lane, bool newcomer)
{
	DwTurns    *turns = turns_of(lane);

	if (lane->is_listed || lane->paused != DW_NOT_PAUSED)
		return;
	lane->passed_over = 0;
	lane->waits_since = dw_now();
	lane->is_new = newcomer && turns->jumps < DW_JUMPS_MAX;
	link_after(db, lane, lane->is_new ? turns->newest : turns->last);
	if (!lane->is_new)
		return;
	turns->newest = lane - dw_lanes;
	turns->jumps++;
}

/* Removes the lane from its list.  Does not change the list of owners. */
static void
unlink_lane(DwLane *lane)
{
	DwTurns    *turns = turns_of(lane);

	lane->is_listed = lane->is_new = false;
	/* newcomers are neighbours at the front */
	if (turns->newest == lane - dw_lanes)
		turns->newest = lane->ready_prev;
	if (lane->ready_prev != DW_NO_LANE)
		dw_lanes[lane->ready_prev].ready_next = lane->ready_next;
	else
		turns->first = lane->ready_next;
	if (lane->ready_next != DW_NO_LANE)
		dw_lanes[lane->ready_next].ready_prev = lane->ready_prev;
	else
		turns->last = lane->ready_prev;
	turns->n--;
}

/*
 * Removes a lane from its list.  If the owner has no other lanes in this list, also removes the
 * owner from the list of owners.
 */
void
dw_ready_unlist(DwDatabase *db, DwLane *lane)
{
	if (!lane->is_listed)
		return;
	unlink_lane(lane);
	if (dw_lane_owner(lane)->turns.n == 0)
		dw_owner_list(db, dw_lane_owner(lane));
}

/* Adds a lane to its list or removes the lane, after lane->paused has changed. */
void
dw_ready_obey_pause(DwDatabase *db, DwLane *lane)
{
	if (lane->paused != DW_NOT_PAUSED)
		dw_ready_unlist(db, lane);
	else if (dw_ready_count(lane) > 0)
		dw_ready_list(db, lane, false);
}

/*
 * Empties the lists of lanes, owners and external queues of a database, but not the ready lists.
 * Needs the table lock, too.
 */
void
dw_ready_reset(DwDatabase *db)
{
	dw_each_lane(lane, db)
	{
		DwOwner    *owner = dw_lane_owner(lane);

		lane->is_listed = lane->is_new = false;
		dw_turns_init(&owner->turns);
		owner->is_listed = owner->is_new = false;
		owner->round = 0;
	}
	for (int i = 0; i < dw_max_queues; i++)
		if (dw_queues[i].database == db->oid)
			dw_turns_init(&dw_queues[i].turns);
	dlist_init(&db->ready_owners);
	db->newest_owner = NULL;
	dlist_init(&db->blocked_owners);
	db->blocked_until = DW_NEVER;
}

/*---- Adding and taking tasks ----*/

/* If the lane belongs to an external queue, notes that the queue has a new message. */
static void
note_news(const DwLane *lane)
{
	if (lane->external)
		dw_queues[lane->queue_place].has_news = true;
}

/*
 * Adds a due task to its group, if it has a group and the group gets a place.  Otherwise appends
 * the task to the lane's ready list.  Returns false if the pool has no memory for the task.
 *
 * While the ready list is not empty, tasks with groups are appended to this list, too; later
 * sort_into_groups() moves them.  If the group has enough tasks, increments *left: then the task
 * stays in the table.  "tid": see dw_group_add().
 */
static bool
push_entry(DwDatabase *db, DwLane *lane, const DwEntry *entry, const ItemPointerData *tid,
		   uint32 *left)
{
	if (dw_entry_has_group(entry) && lane->ready.count == 0)
	{
		DwGroupAdded added = dw_group_add(db, lane, entry, tid, false);

		if (added == DW_GROUP_LEFT)
			(*left)++;
		if (added != DW_GROUP_NO_PLACE)
			return added != DW_GROUP_NO_MEMORY;
	}
	return dw_list_push(dw_pool, &db->account, &lane->ready, entry);
}

/* Adds a task like push_entry(), but before all other tasks of its lane or group. */
static bool
put_entry_back(DwDatabase *db, DwLane *lane, const DwEntry *entry)
{
	if (dw_entry_has_group(entry))
	{
		DwGroupAdded added = dw_group_put_back(db, lane, entry);

		if (added != DW_GROUP_NO_PLACE)
			return added == DW_GROUP_ADDED;
	}
	return dw_list_put_back(dw_pool, &db->account, &lane->ready, entry);
}

/*
 * Makes a due task of the lane ready.  Returns false if the pool has no memory for the task.  If
 * *left was incremented, the group has enough tasks in memory, and the timer loads this task later.
 * Otherwise the caller counts the task in db->ready.  "tid": see dw_group_add().
 */
bool
dw_ready_push(DwDatabase *db, DwLane *lane, const DwEntry *entry, const ItemPointerData *tid,
			  uint32 *left)
{
	if (!push_entry(db, lane, entry, tid, left))
		return false;
	note_news(lane);
	dw_ready_list(db, lane, true);
	return true;
}

/* Requests a reload of the lane from this task on, since the pool has no memory.  Returns false. */
static bool
have_read_again(DwDatabase *db, DwLane *lane, const DwEntry *entry)
{
	dw_atomic_lower(&lane->reload_from, entry->due);
	dw_lane_dirty(db, lane);
	return false;
}

/*
 * Puts a taken task back, before all other tasks of its lane.  If "alone" is true, the task must
 * not join a batch next time.  If the pool has no memory for the task, returns false: then the
 * caller must wake the timer, which reads the task from the table again.
 */
bool
dw_ready_put_back(DwDatabase *db, const DwEntry *entry, bool alone)
{
	DwLane	   *lane = &dw_lanes[entry->lane];
	DwEntry		again = *entry;

	if (alone)
		again.offset |= DW_ENTRY_ALONE;
	if (put_entry_back(db, lane, &again))
	{
		dw_ready_list(db, lane, false);
		note_news(lane);
		pg_atomic_fetch_add_u64(&db->ready, 1);
		return true;
	}
	return have_read_again(db, lane, entry);
}

/* The place of the next task of a lane. */
typedef struct Place
{
	DwGroup    *group;			/* the task is the first task of this group; NULL: no group */
	DwPosition	position;		/* position in the ready list; the task is the spare if nothing is
								 * there */
	bool		few_left;		/* the timer must load more tasks of some group */
	ItemPointerData tid;		/* TID of a grouped task that was taken, or invalid */
} Place;

/* Returns the task at this position of the ready list, or the ready spare, or NULL. */
static const DwEntry *
first_ready(const DwLane *lane, const DwPosition *position)
{
	const DwEntry *first = dw_list_first(dw_pool, position);

	if (first == NULL && lane->spare_state == DW_SPARE_READY)
		first = &lane->spare;
	return first;
}

/*
 * Returns the ready task of the lane that was due first, or NULL.  A shared ready lock is enough.
 * Tasks in the ready list are in the order of their due times, except for those that came late.
 */
const DwEntry *
dw_ready_first(const DwLane *lane)
{
	DwPosition	head = dw_list_head(dw_pool, &lane->ready);
	const DwEntry *first = first_ready(lane, &head);
	const DwEntry *grouped = dw_groups_first(lane);

	return first == NULL || (grouped != NULL && grouped->due < first->due) ? grouped : first;
}

/* Removes the task that first_ready() has returned. */
static void
take_ungrouped(DwDatabase *db, DwLane *lane, DwPosition *position, DwEntry *entry)
{
	if (!dw_list_pop(dw_pool, &db->account, &lane->ready, position, entry))
	{
		Assert(lane->spare_state == DW_SPARE_READY);
		*entry = lane->spare;
		lane->spare_state = DW_SPARE_FREE;
	}
}

/*
 * Moves up to SORT_MAX tasks from the lane's ready list, or its spare, to their groups.  Stops when
 * a group gets no place.  If no group of the lane is open, the group of the first task may get a
 * reserved place.  Sets *left to true if the timer must load some of the tasks later.
 */
static void
sort_into_groups(DwDatabase *db, DwLane *lane, bool *left)
{
	for (int i = 0; i < SORT_MAX; i++)
	{
		DwPosition	head = dw_list_head(dw_pool, &lane->ready);
		const DwEntry *first = first_ready(lane, &head);
		DwGroupAdded added;
		DwEntry		entry;

		if (first == NULL || !dw_entry_has_group(first))
			return;
		added = dw_group_add(db, lane, first, NULL, lane->groups.nopen == 0);
		if (added != DW_GROUP_ADDED && added != DW_GROUP_LEFT)
			return;
		take_ungrouped(db, lane, &head, &entry);
		if (added == DW_GROUP_LEFT)
		{
			pg_atomic_fetch_sub_u64(&db->ready, 1);
			*left = true;
		}
	}
}

/*
 * Returns the lane's next task, and sets *place.  Returns NULL if limits of groups allow no task to
 * begin now.  Tasks without a group go first, since a lane with groups has few such tasks.
 */
static const DwEntry *
find_first(DwDatabase *db, DwLane *lane, TimestampTz now, Place *place)
{
	const DwEntry *first;

	place->group = NULL;
	place->few_left = false;
	place->position = dw_list_head(dw_pool, &lane->ready);
	first = first_ready(lane, &place->position);
	if (lane->groups.entries == 0 && (first == NULL || !dw_entry_has_group(first)))
		return first;

	if (!dw_groups_rest(lane, now))
		sort_into_groups(db, lane, &place->few_left);
	place->position = dw_list_head(dw_pool, &lane->ready);
	first = first_ready(lane, &place->position);
	if (first != NULL && !dw_entry_has_group(first))
		return first;
	place->group = dw_groups_next(lane, now);
	return place->group ? &place->group->first : NULL;
}

/*
 * Removes the task that find_first() has found.  Returns true if few tasks of the lane or the group
 * are left in memory: then the timer must load more tasks.
 */
static bool
take_ready(DwDatabase *db, DwLane *lane, Place *place, TimestampTz now, DwEntry *entry)
{
	bool		few_left = place->few_left;

	if (place->group)
		few_left |= dw_group_take(db, place->group, entry, &place->tid, now);
	else
		take_ungrouped(db, lane, &place->position, entry);
	pg_atomic_fetch_sub_u64(&db->ready, 1);
	if (lane->load_below == 0 || dw_lane_held_in_turn(lane) >= lane->load_below)
		return few_left;
	lane->load_below = 0;
	return true;
}

/* Calls take_ready(), and makes the entry the executor's current task. */
static bool
take_current(DwDatabase *db, DwExecutor *me, DwLane *lane, Place *place, TimestampTz now)
{
	bool		few_left = take_ready(db, lane, place, now, &me->current);

	if (place->group)
	{
		me->tid = place->tid;
		me->group_changes = place->group->changes;
	}
	me->begun = me->settled = false;
	/*
	 * all parallel workers have ended, but a worker that called exit() has not decremented the
	 * number
	 */
	pg_atomic_write_u32(&me->helpers, 0);
	return few_left;
}

/* Returns true if lane "a" comes before lane "b".  The two lanes are peers with ready tasks. */
static bool
goes_before(const DwLane *a, const DwLane *b)
{
	bool		a_waited = a->passed_over >= PASSED_OVER_MAX;
	bool		b_waited = b->passed_over >= PASSED_OVER_MAX;

	if (a_waited != b_waited)
		return a_waited;
	return a->priority > b->priority;
}

/*
 * Returns true if limits of groups allow a ready task of the lane to begin, and one more executor
 * may run tasks of the lane.
 */
static bool
can_give(const DwLane *lane, TimestampTz now)
{
	return ((dw_ready_ungrouped(lane) > 0 && !dw_groups_rest(lane, now)) ||
			(lane->groups.entries > 0 && dw_groups_any_open(lane, now))) &&
		lane->running < dw_lane_executors();
}

/* Returns the lane of the next task: this lane, or one of its peers. */
static DwLane *
choose_peer(DwLane *lane, TimestampTz now)
{
	DwLane	   *best = lane;

	for (DwLane *peer = &dw_lanes[lane->peer]; peer != lane; peer = &dw_lanes[peer->peer])
		if (can_give(peer, now) && goes_before(peer, best))
			best = peer;
	return best;
}

/*
 * Updates passed_over, since a task of this lane is taken now before ready tasks of lower priority.
 * Called before the task is taken: afterwards the limit of its group may block the peers.
 */
static void
pass_over_peers(DwLane *taken, TimestampTz now)
{
	for (DwLane *peer = &dw_lanes[taken->peer]; peer != taken; peer = &dw_lanes[peer->peer])
		if (peer->priority < taken->priority && can_give(peer, now))
			peer->passed_over++;
	taken->passed_over = 0;
}

/*
 * Moves the lane and its peers to the end of their list, so that the next task comes from another
 * queue, or the next message from another owner.  Moves the owner to the end of the list of owners.
 */
static void
end_turn(DwDatabase *db, DwLane *taken, TimestampTz now)
{
	DwLane	   *lane = taken;
	DwTurns    *turns = turns_of(taken);
	bool		was_new = false;

	do
	{
		lane->waits_since = now;
		was_new |= lane->is_new;
		if (lane->is_listed)
			unlink_lane(lane);
		if (dw_ready_count(lane) > 0 && lane->paused == DW_NOT_PAUSED)
			link_after(db, lane, turns->last);
		lane = &dw_lanes[lane->peer];
	} while (lane != taken);
	if (!was_new)
		turns->jumps = 0;
	if (!taken->external)
		dw_owner_list(db, dw_lane_owner(taken));
}

/*
 * Returns true if a task of the lane may be taken now, by limits and pauses.  Otherwise lowers
 * *look_again to the time of the next try.
 */
static bool
may_take(DwDatabase *db, DwLane *lane, TimestampTz now, TimestampTz *look_again)
{
	uint32		room;
	TimestampTz until;
	DwLimit		limit = dw_lane_limit(lane, now, &room, &until);

	if (limit == DW_LIMIT_NONE && !lane->external && dw_limits_keep_for_other(db, lane, now))
	{
		/* the turn is reserved for another owner; the timer must wake an executor of that owner */
		*look_again = now;
		limit = dw_lane_limit(lane, now, &room, &until);
	}
	if (limit != DW_LIMIT_NONE && until != DW_NEVER)
		*look_again = Min(*look_again, Max(until, now + DW_COALESCE_US));
	return limit == DW_LIMIT_NONE;
}

/*
 * Returns true if tasks of the lane's queue may share a transaction.  Limits count tasks when they
 * begin, so tasks of a limited queue run one by one.  Limits of groups count each task of a batch,
 * so a queue with group_max_running allows batches.
 */
static bool
queue_allows_batch(const DwLane *lane)
{
	const DwQueue *queue = dw_lane_queue(lane);

	return queue == NULL || (queue->batch && queue->max_running == 0 && queue->rate.starts == 0 &&
							 queue->group_rate.starts == 0 && !queue->group_order);
}

/* Returns true if another executor runs quick tasks of the lane in a batch. */
static bool
is_quick_in(const DwExecutor *me, const DwExecutor *e, const DwLane *lane, TimestampTz now)
{
	return e != me && e->database == me->database && e->in_batch &&
		e->current.lane == lane - dw_lanes && now - e->since < QUICK_US;
}

/*
 * Chooses the group, among the open groups of the lane that are no newcomers, of the next task of a
 * batch.
 *
 * As in choose_position(), executors keep apart.  Each goes round the list of turns on its own, and
 * so visits all groups equally often.  If another executor has taken its next turn, or the group is
 * not open any more, it chooses another place.
 */
static DwGroup *
choose_turn(const DwExecutor *me, DwLane *lane, TimestampTz now)
{
	DwGroup    *group = dw_group_of_turn(&me->turn, lane);
	DwTurn		others[APART_MOST];
	int			n = 0;

	if (group != NULL)
		return group;
	if (lane->running > 1)
		dw_each_executor(e)
			if (n < APART_MOST && is_quick_in(me, e, lane, now) && dw_group_of_turn(&e->turn, lane) != NULL)
				others[n++] = e->turn;
	return dw_groups_apart(lane, others, n);
}

/*
 * Replaces the group of *place, which has the first turn, by the group that the executor's batch
 * chooses, if its first task is due by "until".  Returns the task.
 *
 * The executor remembers this turn until pass_turn(): if the task cannot join the batch, it is the
 * first task after the batch.  Otherwise a task that must run alone would be passed over in each round.
 */
static const DwEntry *
take_turn(DwExecutor *me, DwLane *lane, TimestampTz until, TimestampTz now, Place *place)
{
	DwGroup    *group = choose_turn(me, lane, now);

	if (group->first.due <= until)
		place->group = group;
	me->turn = dw_group_turn(place->group, &me->turn);
	return &place->group->first;
}

/* Called before the task of *place is taken: if this is the executor's turn, goes on to the next turn. */
static void
pass_turn(DwExecutor *me, DwLane *lane, const Place *place)
{
	if (place->group != NULL && dw_group_of_turn(&me->turn, lane) == place->group)
		me->turn = dw_group_turn_after(&me->turn);
}

/* Takes the next task of the executor's owner that is due by until_due, if one exists. */
static bool
pop_until(DwDatabase *db, DwExecutor *me, TimestampTz until_due, TimestampTz now, DwPopped *popped)
{
	DwOwner    *owner = &dw_owners[me->owner_place];
	DwLimit		limit;
	int32		next;

	for (int32 i = owner->turns.first; i != DW_NO_LANE; i = next)
	{
		DwLane	   *lane = &dw_lanes[i];
		DwLane	   *peer;
		const DwEntry *first;
		Place		place;
		Place		place_of_peer;
		TimestampTz until;
		uint32		room;

		next = lane->ready_next;
		DW_COUNT("lanes-popped");
		if (lane->running >= dw_lane_executors())
			continue;
		if (dw_ready_count(lane) == 0)
		{
			dw_ready_unlist(db, lane);
			continue;
		}
		first = find_first(db, lane, now, &place);
		if (first != NULL && first->due > until_due)
			continue;
		if (!may_take(db, lane, now, &popped->look_again) || first == NULL)
			continue;

		peer = choose_peer(lane, now);
		/* the peer's groups may sleep longer, if their siblings have begun tasks */
		first = peer == lane ? NULL : find_first(db, peer, now, &place_of_peer);
		if (first != NULL && first->due <= until_due)
		{
			lane = peer;
			place = place_of_peer;
		}
		/* the next batch goes on where the last one has ended */
		if (place.group != NULL && !place.group->is_new && dw_group_of_turn(&me->turn, lane) != NULL)
			(void) take_turn(me, lane, until_due, now, &place);
		pass_turn(me, lane, &place);
		pass_over_peers(lane, now);
		popped->few_left = take_current(db, me, lane, &place, now);
		popped->may_batch = lane->alone == 0 && !(me->current.offset & DW_ENTRY_ALONE) &&
			dw_ready_count(lane) > 0 && queue_allows_batch(lane);
		dw_limits_take(lane, now);
		end_turn(db, lane, now);
		/* if a rate is used up, the timer must look when the rate allows the next task */
		limit = dw_lane_limit(lane, now, &room, &until);
		if ((limit == DW_LIMIT_RATE || limit == DW_LIMIT_GROUP) && until != DW_NEVER)
			popped->look_again = Min(popped->look_again, Max(until, now + DW_COALESCE_US));
		return true;
	}
	return false;
}

/*
 * Takes the next task of the executor's owner that is due by "until".  The owner's queues take
 * turns.  Makes the task the executor's current task, and counts it as running.  Returns false if
 * no task may run now.
 */
bool
dw_ready_pop(DwDatabase *db, DwExecutor *me, TimestampTz until, DwPopped *popped)
{
	TimestampTz now = dw_now();

	popped->may_batch = popped->few_left = false;
	popped->look_again = DW_NEVER;
	if (dw_database_is_disabled(db))
		return false;
	/* due tasks come before tasks that the timer has handed over a little early */
	return pop_until(db, me, Min(until, now), now, popped) ||
		(until > now && pop_until(db, me, until, now, popped));
}

/*
 * Puts a taken task, and the other tasks of its group, at the end of the lane's ready list, since
 * no task of the group may begin.  Returns false if the pool has no memory for the task: then the
 * timer reads the lane again.
 */
bool
dw_ready_set_aside(DwDatabase *db, const DwEntry *entry)
{
	DwLane	   *lane = &dw_lanes[entry->lane];

	if (!dw_list_push(dw_pool, &db->account, &lane->ready, entry))
		return have_read_again(db, lane, entry);
	pg_atomic_fetch_add_u64(&db->ready, 1);
	dw_ready_list(db, lane, false);
	dw_groups_set_aside(db, entry);
	return true;
}

/*
 * Puts a taken task of a group back, and sets the entry to another task of this group and lane.
 * Returns false if the pool has no memory to put the task back.
 */
bool
dw_ready_exchange(DwDatabase *db, DwEntry *current, TimestampTz due, int64 id)
{
	DwLane	   *lane = &dw_lanes[current->lane];

	if (!put_entry_back(db, lane, current))
		return false;
	/* the task that was put back may be the lane's only ready task now */
	dw_ready_list(db, lane, false);
	pg_atomic_fetch_add_u64(&db->ready, 1);
	current->due = due;
	current->id = id;
	current->offset &= ~DW_ENTRY_ALONE;
	return true;
}

/*
 * Requests that the timer loads more tasks of the current task's lane.  Called without the lock,
 * after "few_left" was true.
 */
void
dw_ready_ask_for_load(DwDatabase *db, const DwExecutor *me)
{
	dw_lane_dirty(db, &dw_lanes[me->current.lane]);
	dw_wake_timer(db, DW_AWAKE);
}

/*---- Messages ----*/

/*
 * Returns the first message of this lane and its place, like find_first().  If the timer must load
 * more messages of a group, lowers *look_again to now, since the caller may take no message.
 */
static const DwEntry *
first_message(DwDatabase *db, DwLane *lane, TimestampTz now, Place *place, TimestampTz *look_again)
{
	const DwEntry *first = find_first(db, lane, now, place);

	if (place->few_left)
	{
		dw_lane_dirty(db, lane);
		*look_again = Min(*look_again, now);
	}
	return first;
}

/*
 * Returns the lane of an external queue whose turn it is, or NULL.  Sets *place to the lane's first
 * message that may be taken now.  Lowers *look_again to the time when a limit of the queue ends.
 */
static DwLane *
lane_with_message(DwDatabase *db, DwQueue *queue, TimestampTz now, Place *place, TimestampTz *look_again)
{
	int32		next;

	if (dw_database_is_disabled(db))
		return NULL;
	for (int32 i = queue->turns.first; i != DW_NO_LANE; i = next)
	{
		DwLane	   *lane = &dw_lanes[i];
		DwLane	   *peer;
		Place		place_of_peer;

		next = lane->ready_next;
		if (dw_ready_count(lane) == 0)
		{
			dw_ready_unlist(db, lane);
			continue;
		}
		if (!may_take(db, lane, now, look_again) ||
			first_message(db, lane, now, place, look_again) == NULL)
			continue;
		peer = choose_peer(lane, now);
		/* the peer's groups may sleep longer, if their siblings have begun tasks */
		if (peer != lane && first_message(db, peer, now, &place_of_peer, look_again) != NULL)
		{
			lane = peer;
			*place = place_of_peer;
		}
		return lane;
	}
	return NULL;
}

/*
 * Returns true if a message of this external queue can probably be taken now.  Does not check
 * whether leases fill the group of the message.  Lowers *look_again to the time when a limit of the
 * queue ends.
 */
bool
dw_ready_has_message(DwDatabase *db, DwQueue *queue, TimestampTz *look_again)
{
	Place		place;

	return lane_with_message(db, queue, dw_now(), &place, look_again) != NULL;
}

/*
 * Returns false if this message must be received alone, and other messages were taken before.
 * Updates *alone for the next message.
 */
static bool
may_be_next(DwDatabase *db, const DwEntry *entry, DwAlone *alone)
{
	if (*alone == DW_ALONE_NO_MATTER)
		return true;
	if (dw_rollbacks_of(&db->rollbacks, entry->id) <= DW_ROLLBACKS_FREE)
	{
		*alone = DW_ALONE_REFUSED;
		return true;
	}
	if (*alone == DW_ALONE_REFUSED)
		return false;
	*alone = DW_ALONE_TAKEN;
	return true;
}

/*
 * Takes the next message of this external queue into *entry.  Returns false if no message can be
 * taken now, or if *alone forbids the message.  Updates *alone.  Lanes of several owners take
 * turns.  If the timer must load more messages of the lane, marks the lane as dirty and sets
 * *few_left to true: then the caller wakes the timer.
 */
bool
dw_ready_pop_message(DwDatabase *db, DwQueue *queue, DwAlone *alone, DwEntry *entry, bool *few_left)
{
	TimestampTz now = dw_now();
	TimestampTz look_again = DW_NEVER;
	const DwEntry *first;
	DwLane	   *lane;
	Place		place;

	if (*alone == DW_ALONE_TAKEN)
		return false;
	lane = lane_with_message(db, queue, now, &place, &look_again);
	/* the timer must load more messages of a group, even if no message may be taken now */
	if (look_again <= now)
		*few_left = true;
	first = lane == NULL ? NULL : place.group != NULL ? &place.group->first : first_ready(lane, &place.position);
	if (first == NULL || !may_be_next(db, first, alone))
		return false;
	pass_over_peers(lane, now);
	if (take_ready(db, lane, &place, now, entry))
	{
		dw_lane_dirty(db, lane);
		*few_left = true;
	}
	dw_limits_take(lane, now);
	end_turn(db, lane, now);
	return true;
}

/*---- Batches ----*/

/* Returns true if another executor in a batch takes quick tasks at this position of the lane. */
static bool
is_busy_at(const DwExecutor *me, const DwLane *lane, const DwPosition *position, TimestampTz now)
{
	dw_each_executor(e)
		if (is_quick_in(me, e, lane, now) &&
			e->position.chunk == position->chunk && e->position.serial == position->serial)
			return true;
	return false;
}

/*
 * Chooses the position in the ready list where a batch takes its tasks.
 *
 * Neighbours in the list are usually neighbours in tables and indexes, too.  If executors took
 * neighbours in turn, they would wait for each other's pages.  So a batch begins at a position
 * where no other executor works (in steps of APART_CHUNKS), or at the head if all positions are
 * busy.  Tasks stay in the list until an executor takes them.  The next batch may begin at tasks
 * that an earlier batch has left.
 */
static DwPosition
choose_position(const DwExecutor *me, const DwLane *lane)
{
	TimestampTz now = dw_now();
	DwPosition	head = dw_list_head(dw_pool, &lane->ready);
	DwPosition	position = head;

	while (position.chunk != DW_NO_CHUNK && is_busy_at(me, lane, &position, now))
		position = dw_list_ahead(dw_pool, &position, APART_CHUNKS);
	if (position.chunk == DW_NO_CHUNK)
		return head;
	if (position.chunk != head.chunk)
		DW_COUNT("positions-apart");
	return position;
}

/*
 * Takes another task for the executor's batch from the same lane, at the position that the executor
 * has chosen.  Makes this task the current task, since "now".  Returns false if the batch must end.
 * *few_left: see DwPopped.
 *
 * The batch goes on if the next task is due by "until" and may share a transaction, the lane is not
 * paused, and no peer of the lane comes first.
 */
bool
dw_ready_pop_next(DwDatabase *db, DwExecutor *me, TimestampTz until, TimestampTz now, bool *few_left)
{
	DwLane	   *lane = &dw_lanes[me->current.lane];
	bool		by_groups = lane->grouped || lane->groups.entries > 0;
	Place		place = {.position = me->position};
	const DwEntry *first;

	if (by_groups)
	{
		first = find_first(db, lane, now, &place);
		if (place.group != NULL && !place.group->is_new)
			first = take_turn(me, lane, until, now, &place);
	}
	else
	{
		first = dw_list_first(dw_pool, &place.position);
		if (first == NULL)
		{
			place.position = choose_position(me, lane);
			first = first_ready(lane, &place.position);
		}
		me->position = place.position;
	}
	if (first == NULL || first->due > until || (first->offset & DW_ENTRY_ALONE) ||
		lane->paused || !queue_allows_batch(lane) || choose_peer(lane, now) != lane ||
		dw_database_is_disabled(db))
		return false;
	pass_turn(me, lane, &place);
	pass_over_peers(lane, now);
	*few_left = take_current(db, me, lane, &place, now);
	me->since = now;
	me->position = place.position;
	return true;
}

/*
 * Removes the whole ready list from a lane and returns the list, so that the timer can filter it
 * without the lock.  Makes executors in batches of the lane forget their positions.
 */
DwList
dw_ready_take_away(DwDatabase *db, DwLane *lane)
{
	DwList		list = lane->ready;

	dw_list_init(&lane->ready);
	dw_each_executor(e)
		if (e->database == db->oid && e->in_batch && e->current.lane == lane - dw_lanes)
			e->position.chunk = DW_NO_CHUNK;
	return list;
}
