/*-------------------------------------------------------------------------
 *
 * dispatch.c
 *	  Decides which executors are woken, started and ended.
 *
 * Run by the timer.  README.md has the rules for executors.  An executor, a dynamic background
 * worker, runs the tasks of one role (their owner) in one database.  Each executor needs a place,
 * an element of the array dw_executors.
 *
 * A database may have thousands of owners, each with many lanes, and few executors.  In each round,
 * the timer stops when it has found as many owners as could get an executor.  It checks an owner's
 * lanes only up to the first lane that needs an executor.
 *
 * If few background workers are free (starts.c), an owner whose only executor is stuck has turns
 * like an owner without executors, so that its other tasks run.  Executors take their tasks
 * themselves, so a stuck executor that answers later finds only the tasks that are left.
 *
 * A lane that is paused, or whose queue is at a limit, needs no executor (queue_limits.c).  When
 * the queue's rate allows the next task, the timer checks the lane again.  Other processes report
 * all other changes to the timer.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "timer.h"

/*
 * An executor that an earlier timer has registered must start within this time, in us.  After this
 * time the place is freed, since this timer cannot ask the postmaster whether the process exists.
 */
#define START_LIMIT_US	USECS_PER_MINUTE

/* After this time, in us, an executor that runs the same task, or is starting, counts as stuck. */
#define STUCK_US		USECS_PER_SEC

/* Executors end a short turn for a newcomer at most once in this time, in us. */
#define NEWCOMER_PAUSE_US	(100 * 1000)

/* So many owners without executors are looked at, even if fewer could get a place. */
#define MISSING_MIN		16

/* So many of an owner's lanes are asked for the length of its backlog. */
#define BACKLOG_LANES	8

/* With a backlog of at most so many tasks, a newcomer may get an executor beyond the limit. */
#define FEW_TASKS		100

/* The executors that this timer has started, by place. */
static BackgroundWorkerHandle **handles = NULL;

/* In a round, the timer checks all owners with ready tasks.  DwOwner.round is the owner's last. */
static uint32 this_round = 0;
/* For each place of dw_queues: executors that were woken for tasks of the queue in this round. */
static uint32 *woken = NULL;

/* The owner that has lacked a background worker longest.  executors_lack is its lack. */
static Oid	first_lacking = InvalidOid;

/* Numbers of executors of a database and of one owner. */
typedef struct Staff
{
	uint32		total;			/* of the database */
	uint32		stuck;			/* of the database: stuck.  Executors that do not answer are not
								 * counted in the fields below */
	uint32		leaving;		/* of the database: told to end */
	uint32		kept;			/* of the database: idle, and kept for their owners */
	uint32		idle;			/* of the database: idle, and not kept */
	uint32		of_owner;		/* of the owner */
	uint32		held;			/* of the owner: stuck in a task */
	uint32		arriving;		/* of the owner: not connected yet */
	uint32		coming;			/* of the owner: starting, connecting or woken */
} Staff;

/* Frees a place if its executor ended, or did not start, before it took the place. */
static void
free_if_dead(DwDatabase *db, uint32 place)
{
	DwExecutor *e = &dw_executors[place];

	if (e->state != DW_EXECUTOR_STARTING || e->database != db->oid)
		return;
	if (handles[place] != NULL ? !dw_worker_has_ended(handles[place]) :
		dw_now() - e->since <= START_LIMIT_US)
		return;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	if (e->state == DW_EXECUTOR_STARTING && e->database == db->oid)
	{
		(void) dw_owner_blocked(db, e->owner, DW_BLOCK_NOT_CONNECTED);
		e->generation++;
		e->state = DW_EXECUTOR_FREE;
		e->database = InvalidOid;
	}
	LWLockRelease(dw_ready_lock(db));
	LWLockRelease(dw_shared->table_lock);
}

/* Reserves a place for an executor of the owner.  Returns NULL if no place is free. */
static DwExecutor *
reserve_place(DwDatabase *db, Oid owner)
{
	DwExecutor *place = NULL;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	dw_each_executor(e)
	{
		if (e->state != DW_EXECUTOR_FREE)
			continue;
		place = e;
		e->database = db->oid;
		e->owner = owner;
		e->generation++;
		e->must_exit = false;
		e->put_back = false;
		e->pid = 0;
		e->proc = 0;
		e->current.id = 0;
		e->since = dw_now();
		e->called = 0;
		pg_atomic_write_u32(&e->xid, InvalidTransactionId);
		pg_atomic_write_u32(&e->stale, DW_FRESH);
		e->state = DW_EXECUTOR_STARTING;
		break;
	}
	LWLockRelease(dw_shared->table_lock);
	return place;
}

/* Blocks the owner for some time.  Logs a new reason (dw_owner_blocked()). */
static void
block_owner(DwDatabase *db, Oid owner, DwBlock reason)
{
	static const char *const hints[DW_BLOCK_ENDED + 1] = {
		[DW_BLOCK_NO_WORKER] = "You may need to increase \"max_worker_processes\".",
		[DW_BLOCK_SUPERUSER] =
		"Set \"delay_wheel.superuser_tasks\" to on, or cancel the tasks.",
		[DW_BLOCK_NO_CONNECT] = "Use GRANT CONNECT ON DATABASE, or cancel the tasks.",
		[DW_BLOCK_CLOSED] = "Use ALTER DATABASE ... ALLOW_CONNECTIONS true."
	};
	char	   *name;
	char	   *text;
	bool		news;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	news = dw_owner_blocked(db, owner, reason);
	LWLockRelease(dw_ready_lock(db));
	LWLockRelease(dw_shared->table_lock);
	if (!news)
		return;

	StartTransactionCommand();
	name = GetUserNameFromId(owner, true);
	text = psprintf("cannot run tasks of role \"%s\": %s",
					name ? name : psprintf("%u", owner), dw_block_texts[reason]);
	dw_problem(&db->problem, text);
	ereport(LOG,
			(errcode(reason == DW_BLOCK_NO_WORKER ? ERRCODE_CONFIGURATION_LIMIT_EXCEEDED :
					 ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
			 errmsg_internal("delay_wheel %s", text),
			 hints[reason] ? errhint("%s", hints[reason]) : 0));
	CommitTransactionCommand();
}

/* Registers an executor.  Returns false if no place or no background worker is free. */
static bool
register_executor(DwDatabase *db, Oid owner, bool can_log_in)
{
	DwExecutor *place = reserve_place(db, owner);
	DwExecutorStart start = {.can_log_in = can_log_in};
	int			number;

	if (place == NULL)
		return false;
	number = place - dw_executors;
	start.generation = place->generation;
	if (dw_worker_start("executor", number, &start, sizeof(start), &handles[number]))
		return true;

	/* handles[number] is still needed: count_ended_workers() checks it for the end of the worker */
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	place->state = DW_EXECUTOR_FREE;
	place->database = InvalidOid;
	LWLockRelease(dw_shared->table_lock);
	return false;
}

/* Notes, under the ready lock, since when owners lack a worker.  Returns the first one, or NULL. */
static DwOwner *
note_lack(DwDatabase *db)
{
	DwOwner    *first = dw_owners_first_lacking(db);

	first_lacking = first != NULL ? first->role : InvalidOid;
	dw_lack_note(&db->executors_lack, first != NULL ? first->lacks_since : 0);
	return first;
}

/*
 * Registers an executor if this owner has the turn to get a background worker.  An owner that lacks
 * no executor has the turn only when no process lacks a worker.
 */
static bool
try_start(DwDatabase *db, Oid owner, bool lacks, bool can_log_in)
{
	DwLack	   *lack = NULL;

	if (lacks && (owner == first_lacking || dw_lack_since(&db->executors_lack) == 0))
		lack = &db->executors_lack;
	if (!dw_start_may_be_tried(lack, DW_START_OTHER) || !register_executor(db, owner, can_log_in))
	{
		dw_start_refused(lack, DW_START_OTHER, db->oid);
		if (lack != NULL)
			first_lacking = owner;
		return false;
	}
	if (lacks)
		dw_owner_gets_worker(db, owner);
	if (dw_workers_are_few())
		dw_timers_make_way(false);
	return true;
}

/*
 * Starts an executor.  Returns false if no place or background worker is free.  Blocks the owner if
 * it cannot get an executor, since a login would fail, at the cost of a process and an error in the
 * log.  But an owner that lacks no executor goes on if only a background worker is missing.
 */
static bool
start_executor(DwDatabase *db, Oid owner, bool lacks)
{
	static const DwBlock blocks[DW_ACCESS_CLOSED + 1] = {
		[DW_ACCESS_NO_ROLE] = DW_BLOCK_NO_ROLE,
		[DW_ACCESS_SUPERUSER] = DW_BLOCK_SUPERUSER,
		[DW_ACCESS_NO_CONNECT] = DW_BLOCK_NO_CONNECT,
		[DW_ACCESS_CLOSED] = DW_BLOCK_CLOSED
	};
	MemoryContext context = CurrentMemoryContext;
	DwAccess	access;
	DwBlock		block;

	StartTransactionCommand();
	access = dw_session_access(owner);
	CommitTransactionCommand();
	block = blocks[access];
	if (block == DW_BLOCK_NONE && !try_start(db, owner, lacks, access == DW_ACCESS_LOGIN))
		block = DW_BLOCK_NO_WORKER;
	if (block == DW_BLOCK_NO_ROLE)
		dw_owner_dropped(owner);
	if (block != DW_BLOCK_NONE && (lacks || block != DW_BLOCK_NO_WORKER))
		block_owner(db, owner, block);
	MemoryContextSwitchTo(context);
	return block != DW_BLOCK_NO_WORKER;
}

/* Wakes up to "want" idle executors of the owner, under the ready lock.  Returns their number. */
static uint32
wake_executors(DwDatabase *db, const DwOwner *owner, uint32 want)
{
	uint32		n = 0;

	for (uint32 i = 0; i < dw_shared->nexecutors && n < want; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->database != db->oid || e->owner != owner->role || e->must_exit ||
			e->state != DW_EXECUTOR_IDLE)
			continue;
		e->state = DW_EXECUTOR_WOKEN;
		e->called = dw_now();
		SetLatch(dw_proc_latch(e->proc));
		n++;
	}
	return n;
}

/* Returns true if the executor is registered, but not connected yet. */
static bool
is_arriving(const DwExecutor *e)
{
	return e->state == DW_EXECUTOR_STARTING || e->state == DW_EXECUTOR_CONNECTING;
}

/* Returns true if the executor counts as stuck, see the head of this file. */
static bool
counts_as_stuck(const DwExecutor *e, TimestampTz now)
{
	if (e->state == DW_EXECUTOR_BUSY || is_arriving(e))
		return now - e->since >= STUCK_US;
	return dw_executor_is_late(e, now);
}

/* Counts the executors of the database and of the owner. */
static Staff
count_staff(DwDatabase *db, Oid owner)
{
	Staff		staff = {0};
	TimestampTz now = dw_now();

	dw_each_executor(e)
	{
		bool		stuck;

		if (e->state == DW_EXECUTOR_FREE || e->database != db->oid)
			continue;
		staff.total++;
		stuck = counts_as_stuck(e, now);
		staff.stuck += stuck;
		if (stuck && e->state != DW_EXECUTOR_BUSY)
			continue;
		if (e->must_exit)
			staff.leaving++;
		else if (e->state == DW_EXECUTOR_IDLE && dw_executor_is_kept(e, now))
			staff.kept++;
		else if (e->state == DW_EXECUTOR_IDLE)
			staff.idle++;
		if (e->owner == owner)
		{
			staff.of_owner++;
			staff.held += stuck;
			if (is_arriving(e))
				staff.arriving++;
			if (e->state != DW_EXECUTOR_IDLE && e->state != DW_EXECUTOR_BUSY && !e->must_exit &&
				!dw_executor_is_late(e, now))
				staff.coming++;
		}
	}
	return staff;
}

/* Returns true if the owner has no executor, or only one executor, which is stuck in a task. */
static bool
lacks_executor(const Staff *staff)
{
	return staff->of_owner == 0 || (staff->of_owner == 1 && staff->held == 1);
}

/*
 * Returns the number of the database's executors at which this owner gets no more executors.  Kept
 * executors do not count.  "few": the owner is a newcomer with few tasks, which gets an executor
 * beyond the limit, because otherwise another executor would have to end.
 */
static uint32
places_for(const Staff *staff, bool few)
{
	uint32		limit = dw_max_executors;
	uint32		beyond = few ? dw_executors_beyond() : Min(staff->kept, dw_executors_beyond());

	if (staff->of_owner > 0)
		return limit - 1 + beyond;
	if (staff->stuck >= limit)
		return Min(staff->stuck + 1, 2 * limit);
	return limit + beyond;
}

/* Returns true if "e" is an executor of the database and was not told to end. */
static bool
is_in_service(DwDatabase *db, const DwExecutor *e)
{
	return e->database == db->oid && e->state != DW_EXECUTOR_FREE && !e->must_exit;
}

/* Ends the executor that has been idle longest, at least "idle_for" us, and not of this owner. */
static void
end_idle_executor(DwDatabase *db, Oid not_of, int64 idle_for)
{
	DwExecutor *idle;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	idle = dw_executor_idle_longest(db->oid, true, not_of, idle_for);
	if (idle)
		dw_executor_end(idle);
	LWLockRelease(dw_ready_lock(db));
}

/* Returns how long to wait until an executor may be ended, in us: soon if one is kept, see there. */
static int64
wait_for_end(DwDatabase *db, TimestampTz now)
{
	dw_each_executor(e)
		if (e->database == db->oid && e->state == DW_EXECUTOR_IDLE && e->kept_until > now)
			return DW_QUICK_US;
	return STUCK_US;
}

/* Ends executors beyond delay_wheel.max_executors, idle ones first, busy ones after their task. */
void
dw_dispatch_end_surplus(DwDatabase *db)
{
	int			surplus = -dw_max_executors;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_each_executor(e)
		if (is_in_service(db, e))
			surplus++;
	for (uint32 i = 0; i < 2 * dw_shared->nexecutors && surplus > 0; i++)
	{
		DwExecutor *e = &dw_executors[i % dw_shared->nexecutors];

		if (!is_in_service(db, e) ||
			(i < dw_shared->nexecutors && e->state != DW_EXECUTOR_IDLE))
			continue;
		dw_executor_end(e);
		surplus--;
	}
	LWLockRelease(dw_ready_lock(db));
}

/*
 * Starts another executor for the owner, or ends an idle executor of another owner, if fewer
 * executors are already ending than this owner and the "waiting" owners before it need.  For an
 * owner with executors, only executors that have been idle for STUCK_US end.  "few": see
 * places_for(); if an executor is idle, it ends instead.  Returns false if the owner has to wait.
 */
static bool
provide_executor(DwDatabase *db, Oid owner, uint32 waiting, bool few)
{
	Staff		staff = count_staff(db, owner);

	if (staff.total < places_for(&staff, false) &&
		start_executor(db, owner, lacks_executor(&staff)))
		return true;
	if (few && staff.idle == 0 && staff.total < places_for(&staff, true) && !dw_workers_are_few() &&
		start_executor(db, owner, false))
		return true;
	/* the owner has as many executors as one owner may have */
	if (staff.of_owner > 0 && staff.of_owner + 1 >= (uint32) dw_max_executors)
		return true;
	if (staff.leaving <= waiting)
		end_idle_executor(db, owner, staff.of_owner == 0 ? 0 : STUCK_US);
	return false;
}

/*
 * Starts an executor for the lane, which has a task due soon, if the lane's owner has no executor
 * and may have one.  Does not wake existing executors before the due time.
 */
void
dw_dispatch_expect(DwDatabase *db, DwLane *lane)
{
	Staff		staff = count_staff(db, lane->owner);
	uint32		room;
	TimestampTz until;
	DwLimit		limit;

	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	limit = dw_lane_limit(lane, dw_now(), &room, &until);
	LWLockRelease(dw_ready_lock(db));
	if (limit == DW_LIMIT_NONE && !lane->external && !dw_database_is_disabled(db) &&
		dw_lane_owner(lane)->retry_at <= dw_now() &&
		staff.of_owner == 0 && staff.total < places_for(&staff, false))
		(void) start_executor(db, lane->owner, false);
}

/*
 * Wakes idle executors for the tasks of the lane that may begin now.  Returns how many executors
 * are missing.  Subtracts from *coming, the executors that are about to take tasks of the owner,
 * those that the lane uses.  Lowers *look_again to the time when limits allow more tasks of the
 * lane.
 */
static uint32
lane_lacks(DwDatabase *db, DwLane *lane, TimestampTz now, uint32 *coming, TimestampTz *look_again)
{
	uint32		unlimited = 0;
	/* a queue without a place has no limits */
	uint32	   *count = dw_lane_queue(lane) ? &woken[lane->queue_place] : &unlimited;
	uint32		room;
	TimestampTz until;
	uint32		want = 0;

	DW_COUNT("lanes-dispatched");
	if (lane->running >= dw_lane_executors())
		return 0;
	if (dw_lane_limit(lane, now, &room, &until) == DW_LIMIT_NONE)
	{
		uint32		n;

		if (room > *count)
			want = Min(Min(dw_groups_room(lane, now), dw_lane_executors() - lane->running),
					   room - *count);
		n = Min(want, *coming);
		*coming -= n;
		want -= n;
		n = want > 0 ? wake_executors(db, dw_lane_owner(lane), want) : 0;
		want -= n;
		*count += n;
		/* tasks of woken executors use the rate, and the timer checks the rate afterwards */
		if (n == 0)
			until = DW_NEVER;
	}
	if (until != DW_NEVER)
		*look_again = Min(*look_again, Max(until, now + DW_COALESCE_US));
	return want;
}

/*
 * Wakes idle executors of the owner for its lanes with ready tasks, beginning with the lane "from".
 * Returns the first lane that needs another executor, or NULL.
 */
static DwLane *
lane_in_need(DwDatabase *db, DwOwner *owner, int32 from, TimestampTz now, TimestampTz *look_again)
{
	uint32		coming = count_staff(db, owner->role).coming;
	int32		next;

	for (int32 i = from; i != DW_NO_LANE; i = next)
	{
		DwLane	   *lane = &dw_lanes[i];

		next = lane->ready_next;
		if (dw_ready_count(lane) == 0)
			dw_ready_unlist(db, lane);
		else if (lane_lacks(db, lane, now, &coming, look_again) > 0)
			return lane;
	}
	return NULL;
}

/* Compares two owners by the time when their first lanes began to wait for a turn. */
static int
compare_waits(const ListCell *a, const ListCell *b)
{
	const DwOwner *first = lfirst(a);
	const DwOwner *second = lfirst(b);
	TimestampTz waits = dw_lanes[first->turns.first].waits_since;
	TimestampTz others = dw_lanes[second->turns.first].waits_since;

	return (waits > others) - (waits < others);
}

/*
 * Wakes idle executors of all owners, even of blocked owners, which get no further executor.  Begins
 * with the owner that has waited longest, since a limited queue may have room for one task only.
 */
static void
wake_idle(DwDatabase *db, TimestampTz now, TimestampTz *look_again)
{
	List	   *idle = NIL;
	ListCell   *lc;

	dw_each_executor(e)
	{
		DwOwner    *owner = &dw_owners[e->owner_place];

		if (e->database != db->oid || e->state != DW_EXECUTOR_IDLE ||
			!owner->is_listed || owner->round == this_round || owner->turns.first == DW_NO_LANE)
			continue;
		idle = lappend(idle, owner);
		owner->round = this_round;
	}
	list_sort(idle, compare_waits);
	foreach(lc, idle)
	{
		DwOwner    *owner = lfirst(lc);

		owner->in_need = lane_in_need(db, owner, owner->turns.first, now, look_again);
	}
	list_free(idle);
}

/* Returns how many background workers of this timer have ended since the last call. */
static uint32
count_ended_workers(DwDatabase *db)
{
	uint32		n = dw_sweeper_worker_ended(db) ? 1 : 0;

	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		/* free_if_dead() handles executors that are starting */
		if (handles[i] == NULL ||
			(e->state == DW_EXECUTOR_STARTING && e->database == db->oid) ||
			!dw_worker_has_ended(handles[i]))
			continue;
		pfree(handles[i]);
		handles[i] = NULL;
		n++;
	}
	return n;
}

/* Returns the number of owners that lack a background worker, at most the number of places. */
static uint32
count_without_worker(DwDatabase *db)
{
	uint32		n = 0;
	dlist_iter	iter;

	dlist_foreach(iter, &db->blocked_owners)
	{
		DwOwner    *owner = dw_linked_owner(iter.cur);
		Staff		staff;

		if (owner->block != DW_BLOCK_NO_WORKER || n >= dw_shared->nexecutors)
			break;
		staff = count_staff(db, owner->role);
		n += lacks_executor(&staff);
	}
	return n;
}

/* Returns the number of ready tasks in the owner's first BACKLOG_LANES ready lanes. */
static uint64
backlog_of(const DwOwner *owner)
{
	uint64		n = 0;
	int32		lane = owner->turns.first;

	for (int i = 0; i < BACKLOG_LANES && lane != DW_NO_LANE; i++)
	{
		n += dw_lanes[lane].ready.count + dw_lanes[lane].groups.entries;
		lane = dw_lanes[lane].ready_next;
	}
	return n;
}

/*
 * Inserts a newcomer into the list of owners without executors, whose last n are newcomers with
 * these backlogs, before those with a longer backlog: so newcomers wait least in all.  Increments
 * *few if its backlog is short.
 */
static List *
insert_newcomer(List *missing, const DwOwner *owner, uint64 *backlogs, uint32 n, uint32 *few)
{
	uint64		backlog = backlog_of(owner);
	int			at = list_length(missing);

	for (; n > 0 && backlogs[n - 1] > backlog; n--, at--)
		backlogs[n] = backlogs[n - 1];
	backlogs[n] = backlog;
	*few += backlog <= FEW_TASKS;
	return list_insert_nth_oid(missing, at, owner->role);
}

/*
 * Wakes idle executors, and appends the owners that need another executor to *missing: first owners
 * without executors, then other owners, each part in the order of turns, but newcomers by their
 * backlog.  Sets *newcomers to the number of newcomers, which are the first in *missing, and *few to
 * the number of those with few tasks, which are the first of them.  Sets *left_out to true if more
 * owners without executors exist than could get a place.  Lowers *look_again to the time when limits
 * allow more tasks.  Returns the number of owners that lack a background worker.
 */
static uint32
find_missing(DwDatabase *db, TimestampTz now, List **missing, uint32 *newcomers, uint32 *few,
			 bool *left_out, TimestampTz *look_again)
{
	List	   *more = NIL;
	int			longest = Max(2 * dw_max_executors, MISSING_MIN);
	uint64	   *backlogs = palloc_array(uint64, longest);
	DwOwner    *first;
	uint32		without_worker;
	dlist_mutable_iter iter;

	this_round++;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	memset(woken, 0, db->queue_places * sizeof(*woken));
	dw_owners_retry(db);
	first = note_lack(db);
	if (first != NULL && dw_start_may_be_tried(&db->executors_lack, DW_START_OTHER))
		dw_owner_retry_first(db, first);
	without_worker = count_without_worker(db);
	wake_idle(db, now, look_again);
	dlist_foreach_modify(iter, &db->ready_owners)
	{
		DwOwner    *owner = dw_linked_owner(iter.cur);
		DwLane	   *lane;
		Staff		staff;
		TimestampTz turn;

		if (*left_out)
			break;
		lane = owner->round == this_round ? owner->in_need :
			lane_in_need(db, owner, owner->turns.first, now, look_again);
		if (lane == NULL)
		{
			/* for example, its lanes are at a limit of a queue */
			dw_owner_lacks_none(db, owner);
			continue;
		}
		staff = count_staff(db, owner->role);
		/* another owner's executor must not end for each single task that a rate allows */
		while (lane != NULL && staff.of_owner == 0 && staff.total >= places_for(&staff, false) &&
			   !dw_limits_is_turn(lane, now, &turn))
		{
			*look_again = Min(*look_again, turn);
			lane = lane_in_need(db, owner, lane->ready_next, now, look_again);
		}
		if (lane == NULL || staff.arriving > 0)
			continue;
		else if (staff.of_owner > 0)
			more = lappend_oid(more, owner->role);
		else if (list_length(*missing) >= longest)
			*left_out = true;
		else if (owner->is_new)
			*missing = insert_newcomer(*missing, owner, backlogs, (*newcomers)++, few);
		else
			*missing = lappend_oid(*missing, owner->role);
	}
	LWLockRelease(dw_ready_lock(db));
	*missing = list_concat(*missing, more);
	list_free(more);
	pfree(backlogs);
	return without_worker;
}

/*
 * Asks an executor to end its turn early if a newcomer could get no executor ("late").  Returns when
 * to ask again, since each time costs the end and the start of a process.
 */
static TimestampTz
ask_for_newcomer(DwDatabase *db, bool late, TimestampTz now)
{
	static TimestampTz asked = 0;

	if (late && now - asked < NEWCOMER_PAUSE_US && now >= asked)
		return asked + NEWCOMER_PAUSE_US;
	dw_newcomer_set(&db->timer_news, late);
	if (late)
		asked = now;
	return DW_NEVER;
}

/*
 * Returns how many executors must end their turn since more than max_executors have been busy for a
 * second.  Executors beyond the limit are for owners with few tasks, but then such an owner may have
 * got many.  Does not count if all are stuck, see places_for().  Lowers *look_again.
 */
static uint32
count_surplus(DwDatabase *db, TimestampTz now, TimestampTz *look_again)
{
	static TimestampTz since = 0;
	uint32		limit = dw_max_executors;
	uint32		busy = 0;
	uint32		stuck = 0;

	dw_each_executor(e)
	{
		if (!is_in_service(db, e) || e->state != DW_EXECUTOR_BUSY)
			continue;
		busy++;
		stuck += counts_as_stuck(e, now);
	}
	if (busy <= limit || stuck >= limit)
	{
		since = 0;
		return 0;
	}
	if (since == 0 || since > now)
		since = now;
	if (now - since < STUCK_US)
	{
		*look_again = Min(*look_again, since + STUCK_US);
		return 0;
	}
	*look_again = Min(*look_again, now + STUCK_US);
	return busy - limit;
}

/* Returns the next time at which an executor without an answer counts as late, stuck or silent. */
static TimestampTz
next_answer(DwDatabase *db, TimestampTz now)
{
	static const int64 limits[] = {DW_LATE_US, STUCK_US, DW_SILENT_US};
	TimestampTz next = DW_NEVER;

	dw_each_executor(e)
	{
		TimestampTz since = dw_executor_unanswered_since(e);

		if (e->database != db->oid || since == 0)
			continue;
		for (int j = 0; j < (int) lengthof(limits); j++)
			if (since + limits[j] > now)
				next = Min(next, since + limits[j]);
	}
	return next;
}

/* Notes that no owner lacks an executor, since the database runs no tasks. */
static void
forget_lacks(DwDatabase *db)
{
	DwOwner    *owner;

	dw_starving_set(&db->timer_news, 0);
	if (dw_lack_since(&db->executors_lack) != 0)
	{
		LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
		while ((owner = dw_owners_first_lacking(db)) != NULL)
			dw_owner_lacks_none(db, owner);
		LWLockRelease(dw_ready_lock(db));
	}
	dw_lack_ends(&db->executors_lack);
}

/* Wakes, starts and ends executors, so that ready tasks get an executor. */
TimestampTz
dw_dispatch(DwDatabase *db)
{
	TimestampTz now = dw_now();
	TimestampTz look_again = DW_NEVER;
	List	   *missing = NIL;
	ListCell   *lc;
	bool		left_out = false;
	uint32		starving;
	bool		lacking;
	uint32		waiting = 0;
	uint32		newcomers = 0;
	uint32		few = 0;
	bool		late = false;

	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		free_if_dead(db, i);
	if (dw_news_take(&db->timer_news, DW_NEWS_RIGHTS))
	{
		/* rights have changed: all blocked owners may try again at once */
		LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
		dw_owners_retry_all(db);
		LWLockRelease(dw_ready_lock(db));
	}
	dw_silence_report(db);
	if (dw_database_is_disabled(db))
	{
		forget_lacks(db);
		return next_answer(db, now);
	}

	/* the postmaster wakes this process after the end of one of its workers */
	if (dw_lack_since(&db->executors_lack) != 0 && count_ended_workers(db) > 0)
		dw_worker_leaves();
	look_again = dw_wake_receivers(db);
	starving = find_missing(db, now, &missing, &newcomers, &few, &left_out, &look_again);
	foreach(lc, missing)
	{
		if (provide_executor(db, lfirst_oid(lc), waiting, foreach_current_index(lc) < (int) few))
			continue;
		waiting++;
		late |= foreach_current_index(lc) < (int) newcomers;
		if (count_staff(db, lfirst_oid(lc)).of_owner == 0)
			starving++;
	}
	list_free(missing);
	/* provide_executor() may have blocked owners */
	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	look_again = Min(Min(look_again, db->blocked_until), next_answer(db, now));
	lacking = note_lack(db) != NULL;
	LWLockRelease(dw_ready_lock(db));
	dw_starving_set(&db->timer_news, starving + count_surplus(db, now, &look_again));
	look_again = Min(look_again, ask_for_newcomer(db, late, now));
	if (lacking)
		look_again = Min(look_again, dw_time_add(now, dw_start_wait(&db->executors_lack,
																	DW_START_OTHER)));

	if (waiting > 0)
		/* at this time more executors may be stuck, or may have been idle long enough to end */
		look_again = Min(look_again, now + wait_for_end(db, now));
	else if (left_out)
		/* the owners in "missing" have executors or are blocked: continue with the other owners */
		look_again = now;
	return look_again;
}

/*
 * Initializes this file.  Executors that a former timer has started are not affected.  Resets times
 * that it has stored in shared memory, since the clock may have been set back: blocked owners may
 * try again at once, and running tasks count as just begun.
 */
void
dw_dispatch_begin(DwDatabase *db)
{
	TimestampTz now = dw_now();

	handles = MemoryContextAllocZero(TopMemoryContext, dw_shared->nexecutors * sizeof(*handles));
	woken = MemoryContextAllocZero(TopMemoryContext, dw_max_queues * sizeof(*woken));
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_owners_retry_all(db);
	dw_limits_forget_times(db);
	dw_each_lane(lane, db)
		dw_groups_obey_limits(lane);
	dw_each_executor(e)
	{
		if (e->database != db->oid)
			continue;
		e->since = Min(e->since, now);
		e->called = Min(e->called, now);
	}
	LWLockRelease(dw_ready_lock(db));
}
