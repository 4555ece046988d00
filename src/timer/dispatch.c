/*-------------------------------------------------------------------------
 *
 * dispatch.c
 *	  Which executors are woken, started and ended: decided by the timer.
 *
 * Owners with ready tasks first get their idle executors woken, then a new
 * one, one at a time: those on their way count.  Owners that have none come
 * first, and the last place is only for such.  If all places are taken,
 * the executor that has been idle longest must go, and busy ones give way
 * after their turn (db->starving).
 *
 * There may be thousands of owners, each with many lanes, and few executors:
 * a look ends with as many owners as could get one, and with the lanes of one
 * as soon as it is known to need one.
 *
 * A task may take for ever, and cannot be taken back.  If all executors are
 * stuck, each with one task for more than a second, an owner that has none
 * gets one more, up to twice max_executors: so owners whose tasks hang delay
 * no other.
 *
 * A lane that is paused, or whose queue is at its limit, wants no executor
 * (queue_limits.c).  The timer looks again when the rate allows the next task; of
 * everything else it is told.
 *
 * Executors are dynamic background workers that the postmaster never
 * restarts.  One that cannot be had (no worker slot, a role that may not
 * connect: asked before, so that it costs no process) makes the lanes of its
 * owner wait, longer each time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/memutils.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/settings.h"
#include "../base/worker.h"
#include "../ring/lane_heap.h"
#include "../ring/ring.h"
#include "../shmem/executors.h"
#include "../shmem/lanes.h"
#include "../shmem/queue_limits.h"
#include "../shmem/ready.h"
#include "../shmem/shared.h"
#include "call_sweeper.h"
#include "dispatch.h"
#include "orphans.h"

/* An executor of a former timer that has not come up by then never will. */
#define START_LIMIT_US	USECS_PER_MINUTE

/* An executor is stuck that has run the same task for so long. */
#define STUCK_US		USECS_PER_SEC

/* A rate wakes the timer no more often than that. */
#define COALESCE_US		1000

/* This timer's workers, by place. */
static BackgroundWorkerHandle **handles = NULL;

/* For how many tasks of a queue executors were woken in this round. */
typedef struct Woken
{
	uint32		round;
	uint32		count;
} Woken;

static Woken *woken = NULL;
static uint32 this_round = 0;

/* How many executors a database, and an owner in it, has. */
typedef struct Staff
{
	uint32		total;
	uint32		stuck;
	uint32		leaving;		/* told to end */
	uint32		of_owner;
	uint32		arriving;		/* of the owner, not connected yet */
} Staff;

/* Frees a place whose worker is gone without ever having taken it. */
static void
free_if_dead(DwDatabase *db, uint32 place)
{
	DwExecutor *e = &dw_executors[place];
	bool		dead;
	pid_t		pid;

	if (e->state != DW_EXECUTOR_STARTING || e->database != db->oid)
		return;
	if (handles[place] != NULL)
		dead = GetBackgroundWorkerPid(handles[place], &pid) == BGWH_STOPPED;
	else
		dead = dw_now() - e->since > START_LIMIT_US;
	if (!dead)
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

/* Reserves a place; -1 if there is none. */
static int
reserve_place(DwDatabase *db, Oid owner)
{
	int			place = -1;

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	for (uint32 i = 0; i < dw_shared->nexecutors && place < 0; i++)
		if (dw_executors[i].state == DW_EXECUTOR_FREE)
			place = i;
	if (place >= 0)
	{
		DwExecutor *e = &dw_executors[place];

		e->database = db->oid;
		e->owner = owner;
		e->generation++;
		e->must_exit = false;
		e->put_back = false;
		e->pid = 0;
		e->proc = 0;
		e->current.id = 0;
		e->since = dw_now();
		pg_atomic_write_u32(&e->xid, InvalidTransactionId);
		pg_atomic_write_u32(&e->stale, DW_FRESH);
		e->state = DW_EXECUTOR_STARTING;
	}
	LWLockRelease(dw_shared->table_lock);
	return place;
}

static const char *
hint_for(DwBlock reason)
{
	switch (reason)
	{
		case DW_BLOCK_NO_WORKER:
			return "You may need to increase \"max_worker_processes\".";
		case DW_BLOCK_NO_CONNECT:
			return "Use GRANT CONNECT ON DATABASE, or cancel the tasks.";
		case DW_BLOCK_CLOSED:
			return "Use ALTER DATABASE ... ALLOW_CONNECTIONS true.";
		default:
			return NULL;
	}
}

/* The owner must wait.  Said once, and again when the reason is another one. */
static void
block_owner(DwDatabase *db, Oid owner, DwBlock reason)
{
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
					name ? name : psprintf("%u", owner), dw_block_text(reason));
	dw_problem(db, text);
	ereport(LOG,
			(errcode(reason == DW_BLOCK_NO_WORKER ? ERRCODE_CONFIGURATION_LIMIT_EXCEEDED :
					 ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
			 errmsg_internal("delay_wheel %s", text),
			 hint_for(reason) ? errhint("%s", hint_for(reason)) : 0));
	CommitTransactionCommand();
}

/* Asks what a login would find out by failing, and by a line in the log. */
static DwBlock
ask_access(Oid owner, bool *can_log_in)
{
	DwAccess	access;

	StartTransactionCommand();
	access = dw_session_access(owner);
	CommitTransactionCommand();

	*can_log_in = access == DW_ACCESS_LOGIN;
	switch (access)
	{
		case DW_ACCESS_NO_ROLE:
			return DW_BLOCK_NO_ROLE;
		case DW_ACCESS_NO_CONNECT:
			return DW_BLOCK_NO_CONNECT;
		case DW_ACCESS_CLOSED:
			return DW_BLOCK_CLOSED;
		default:
			return DW_BLOCK_NONE;
	}
}

static void
free_place(int place)
{
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	dw_executors[place].state = DW_EXECUTOR_FREE;
	dw_executors[place].database = InvalidOid;
	LWLockRelease(dw_shared->table_lock);
}

/* False if there is no place, or no background worker to be had. */
static bool
register_executor(DwDatabase *db, Oid owner, bool can_log_in)
{
	int			place = reserve_place(db, owner);
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
	};
	DwExecutorStart start = {.can_log_in = can_log_in};
	BackgroundWorkerHandle *handle;
	MemoryContext context;
	bool		registered;

	if (place < 0)
		return false;
	start.generation = dw_executors[place].generation;
	snprintf(worker.bgw_name, BGW_MAXLEN, "delay_wheel executor");
	snprintf(worker.bgw_type, BGW_MAXLEN, "delay_wheel executor");
	strlcpy(worker.bgw_library_name, "delay_wheel", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "dw_executor_main", BGW_MAXLEN);
	worker.bgw_main_arg = Int32GetDatum(place);
	memcpy(worker.bgw_extra, &start, sizeof(start));
	worker.bgw_notify_pid = MyProcPid;
	/* the handle is kept */
	context = MemoryContextSwitchTo(TopMemoryContext);
	registered = RegisterDynamicBackgroundWorker(&worker, &handle);
	MemoryContextSwitchTo(context);
	if (!registered)
	{
		/* that of the one before still tells when its worker can be had */
		free_place(place);
		return false;
	}
	if (handles[place])
		pfree(handles[place]);
	handles[place] = handle;
	return true;
}

/*
 * False if there is no worker for it.  An owner that cannot have any is
 * blocked; one that only gets no other one goes on with what it has.
 */
static bool
start_executor(DwDatabase *db, Oid owner, bool is_first)
{
	MemoryContext context = CurrentMemoryContext;
	bool		can_log_in;
	DwBlock		block = ask_access(owner, &can_log_in);

	if (block == DW_BLOCK_NONE && !register_executor(db, owner, can_log_in))
		block = DW_BLOCK_NO_WORKER;
	if (block == DW_BLOCK_NO_ROLE)
		dw_owner_dropped(db, owner);
	if (block != DW_BLOCK_NONE && (is_first || block != DW_BLOCK_NO_WORKER))
		block_owner(db, owner, block);
	MemoryContextSwitchTo(context);
	return block != DW_BLOCK_NO_WORKER;
}

/* Wakes up to so many idle executors of an owner; returns how many. */
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
		SetLatch(dw_proc_latch(e->proc));
		n++;
	}
	return n;
}

/* Executors that are about to take a task of the owner, each one of them. */
static uint32
executors_coming(DwDatabase *db, const DwOwner *owner)
{
	uint32		n = 0;

	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->database == db->oid && e->owner == owner->role && !e->must_exit &&
			e->state != DW_EXECUTOR_IDLE && e->state != DW_EXECUTOR_BUSY &&
			e->state != DW_EXECUTOR_FREE)
			n++;
	}
	return n;
}

static Staff
count_staff(DwDatabase *db, Oid owner)
{
	Staff		staff = {0};
	TimestampTz now = dw_now();

	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->state == DW_EXECUTOR_FREE || e->database != db->oid)
			continue;
		staff.total++;
		if (e->must_exit)
			staff.leaving++;
		if (e->owner == owner)
		{
			staff.of_owner++;
			if (e->state == DW_EXECUTOR_STARTING || e->state == DW_EXECUTOR_CONNECTING)
				staff.arriving++;
		}
		if (e->state == DW_EXECUTOR_BUSY && now - e->since >= STUCK_US)
			staff.stuck++;
	}
	return staff;
}

/* How many executors there may be before an owner gets another one. */
static uint32
places_for(const Staff *staff)
{
	uint32		limit = dw_max_executors;

	if (staff->of_owner > 0)
		return limit - 1;
	if (staff->stuck >= limit)
		return Min(staff->stuck + 1, 2 * limit);
	return limit;
}

/* Is it one that does not end anyway? */
static bool
is_in_service(DwDatabase *db, const DwExecutor *e)
{
	return e->database == db->oid && e->state != DW_EXECUTOR_FREE && !e->must_exit;
}

/*
 * Of the others' executors the one that has been idle longest ends, if it has
 * been for so long.
 */
static void
end_idle_executor(DwDatabase *db, Oid not_of, int64 idle_for)
{
	DwExecutor *idle = NULL;
	TimestampTz since = dw_now() - idle_for;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->database == db->oid && e->owner != not_of &&
			e->state == DW_EXECUTOR_IDLE && !e->must_exit && e->since <= since)
		{
			idle = e;
			since = e->since;
		}
	}
	if (idle)
	{
		idle->must_exit = true;
		SetLatch(dw_proc_latch(idle->proc));
	}
	LWLockRelease(dw_ready_lock(db));
}

/*
 * Makes those executors end that delay_wheel.max_executors does not allow.
 *
 * Idle ones first; busy ones end after their task.
 */
void
dw_dispatch_end_surplus(DwDatabase *db)
{
	int			surplus = -dw_max_executors;

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (is_in_service(db, &dw_executors[i]))
			surplus++;
	for (uint32 i = 0; i < 2 * dw_shared->nexecutors && surplus > 0; i++)
	{
		DwExecutor *e = &dw_executors[i % dw_shared->nexecutors];

		if (!is_in_service(db, e) ||
			(i < dw_shared->nexecutors && e->state != DW_EXECUTOR_IDLE))
			continue;
		e->must_exit = true;
		if (e->proc != 0)
			SetLatch(dw_proc_latch(e->proc));
		surplus--;
	}
	LWLockRelease(dw_ready_lock(db));
}

/* Makes all executors of the database end. */
void
dw_dispatch_end_all(DwDatabase *db)
{
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		if (e->database != db->oid || e->state == DW_EXECUTOR_FREE)
			continue;
		e->must_exit = true;
		if (e->proc != 0)
			SetLatch(dw_proc_latch(e->proc));
	}
	LWLockRelease(dw_ready_lock(db));
}

/*
 * Gives an owner another executor if it may have one; else one of somebody
 * else's that is not needed makes room, unless enough do so already for those
 * who wait before it.  An owner that has none gets the place of any idle one.
 * Returns false if it has to wait.
 */
static bool
provide_executor(DwDatabase *db, Oid owner, uint32 waiting)
{
	Staff		staff = count_staff(db, owner);

	if (staff.total < places_for(&staff) &&
		start_executor(db, owner, staff.of_owner == 0))
		return true;
	/* as many as one may have */
	if (staff.of_owner > 0 && staff.of_owner + 1 >= (uint32) dw_max_executors)
		return true;
	if (staff.leaving <= waiting)
		end_idle_executor(db, owner, staff.of_owner == 0 ? 0 : STUCK_US);
	return false;
}

/* Starts an executor ahead of time, if the lane's owner has none. */
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
	if (limit == DW_LIMIT_NONE && pg_atomic_read_u32(&db->disabled) == 0 &&
		dw_lane_owner(lane)->retry_at <= dw_now() &&
		staff.of_owner == 0 && staff.total < places_for(&staff))
		(void) start_executor(db, lane->owner, true);
}

/* A right was granted, or the like: those who wait may try at once. */
static void
unblock_all(DwDatabase *db)
{
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_owners_retry_all(db);
	LWLockRelease(dw_ready_lock(db));
}

/* The count of this round for the lane's queue; NULL if it has no limits. */
static uint32 *
woken_for_queue(const DwLane *lane)
{
	Woken	   *w;

	if (dw_lane_queue(lane) == NULL)
		return NULL;
	w = &woken[lane->queue_place];
	if (w->round != this_round)
	{
		w->round = this_round;
		w->count = 0;
	}
	return &w->count;
}

/*
 * How many tasks of the lane may begin now, beyond those that *coming
 * executors take, and those that are woken for: those are woken here.  If a
 * limit is the reason, *look_again is lowered.
 */
static uint32
lane_lacks(DwDatabase *db, DwLane *lane, TimestampTz now, uint32 *coming,
		   TimestampTz *look_again)
{
	uint32		unlimited = 0;
	uint32	   *count = woken_for_queue(lane);
	uint32		room;
	TimestampTz until;
	uint32		want = 0;

	DW_COUNT("lanes-dispatched");
	if (count == NULL)
		count = &unlimited;
	if (lane->running >= dw_lane_executors())
		return 0;
	if (dw_lane_limit(lane, now, &room, &until) == DW_LIMIT_NONE)
	{
		uint32		n;

		if (room > *count)
			want = Min(Min(dw_ready_count(lane), dw_lane_executors() - lane->running),
					   room - *count);
		n = Min(want, *coming);
		*coming -= n;
		want -= n;
		n = want > 0 ? wake_executors(db, dw_lane_owner(lane), want) : 0;
		want -= n;
		*count += n;
		/* those who were woken use up what the rate allows now */
		if (n == 0)
			until = DW_NEVER;
	}
	if (until != DW_NEVER)
		*look_again = Min(*look_again, Max(until, now + COALESCE_US));
	return want;
}

/*
 * Wakes idle executors of an owner, for its lanes from this one on.  Returns
 * the first for which there are not enough, or NULL.
 */
static DwLane *
lane_in_need(DwDatabase *db, DwOwner *owner, int32 from, TimestampTz now,
			 TimestampTz *look_again)
{
	uint32		coming = executors_coming(db, owner);
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

/*
 * Wakes executors for all owners that have idle ones, also for those far back
 * in the list, or who can have no other one.
 */
static void
wake_idle(DwDatabase *db, TimestampTz now, TimestampTz *look_again)
{
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];
		DwOwner    *owner = &dw_owners[e->owner_place];

		if (e->database != db->oid || e->state != DW_EXECUTOR_IDLE ||
			owner->list == DW_OWNER_UNLISTED || owner->round == this_round)
			continue;
		owner->in_need = lane_in_need(db, owner, owner->ready_head, now, look_again);
		owner->round = this_round;
	}
}

/* How many of this timer's background workers ended since the last look. */
static uint32
count_ended_workers(DwDatabase *db)
{
	uint32		n = dw_sweeper_worker_ended(db) ? 1 : 0;
	pid_t		pid;

	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		DwExecutor *e = &dw_executors[i];

		/* of those on their way see free_if_dead */
		if (handles[i] == NULL ||
			(e->state == DW_EXECUTOR_STARTING && e->database == db->oid) ||
			GetBackgroundWorkerPid(handles[i], &pid) != BGWH_STOPPED)
			continue;
		pfree(handles[i]);
		handles[i] = NULL;
		n++;
	}
	return n;
}

/* Does anybody but the owners of this database wait for a background worker? */
static bool
others_lack_worker(DwDatabase *db)
{
	if (db->sweeper_refused)
		return true;
	for (int i = 0; i < dw_max_databases; i++)
	{
		DwDatabase *other = dw_database(i);

		if (other != db && OidIsValid(other->oid) &&
			(other->timer_refused || other->sweeper_refused || dw_owners_lack_worker(other)))
			return true;
	}
	return false;
}

/*
 * Background workers that have come free are for those who wait for one.  The
 * postmaster wakes us when it has taken notice of the end of one of ours.
 * Nobody wakes sweepers, and others than us: if some of them wait, all just try
 * from time to time, or they would never find one free.
 */
static void
retry_without_worker(DwDatabase *db)
{
	if (!dw_owners_lack_worker(db) || others_lack_worker(db))
		return;
	for (uint32 n = count_ended_workers(db); n > 0; n--)
	{
		LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
		dw_owners_retry_first(db);
		LWLockRelease(dw_ready_lock(db));
	}
}

/*
 * Of those who can have no executor, how many wait for a background worker.
 * There is no use in more than there may be executors.
 */
static uint32
count_without_worker(DwDatabase *db)
{
	uint32		n = 0;

	for (int32 i = db->blocked_owners.head; i != DW_NO_OWNER; i = dw_owners[i].next)
	{
		if (dw_owners[i].block != DW_BLOCK_NO_WORKER || n >= dw_shared->nexecutors)
			break;
		n += count_staff(db, dw_owners[i].role).of_owner == 0;
	}
	return n;
}

/*
 * Wakes idle executors, and lists owners who could use another one: those who
 * have none before the others, and either in turn.  No more are listed than
 * there may be places; *left_out tells of others.  Returns how many wait for a
 * background worker.
 */
static uint32
find_missing(DwDatabase *db, TimestampTz now, List **missing, bool *left_out,
			 TimestampTz *look_again)
{
	List	   *more = NIL;
	uint32		without_worker;
	int32		next;

	this_round++;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_owners_retry(db);
	without_worker = count_without_worker(db);
	wake_idle(db, now, look_again);
	for (int32 i = db->ready_owners.head; i != DW_NO_OWNER && !*left_out; i = next)
	{
		DwOwner    *owner = &dw_owners[i];
		DwLane	   *lane;
		Staff		staff;
		TimestampTz turn;

		next = owner->next;
		lane = owner->round == this_round ? owner->in_need :
			lane_in_need(db, owner, owner->ready_head, now, look_again);
		if (lane == NULL)
			continue;
		staff = count_staff(db, owner->role);
		/* not somebody else's place for each task that a limit lets in */
		while (lane != NULL && staff.of_owner == 0 && staff.total >= places_for(&staff) &&
			   !dw_limits_is_turn(lane, now, &turn))
		{
			*look_again = Min(*look_again, turn);
			lane = lane_in_need(db, owner, lane->ready_next, now, look_again);
		}
		if (lane == NULL || staff.arriving > 0)
			continue;
		else if (staff.of_owner > 0)
			more = lappend_oid(more, owner->role);
		else if (list_length(*missing) >= 2 * dw_max_executors)
			*left_out = true;
		else
			*missing = lappend_oid(*missing, owner->role);
	}
	LWLockRelease(dw_ready_lock(db));
	*missing = list_concat(*missing, more);
	list_free(more);
	return without_worker;
}

/*
 * Brings due tasks and executors together.  Returns when to look again at the
 * latest, DW_NEVER if a change will be told.
 */
TimestampTz
dw_dispatch(DwDatabase *db)
{
	TimestampTz now = dw_now();
	TimestampTz look_again = DW_NEVER;
	List	   *missing = NIL;
	ListCell   *lc;
	bool		left_out = false;
	uint32		starving;
	uint32		waiting = 0;

	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		free_if_dead(db, i);
	if (pg_atomic_exchange_u32(&db->rights_changed, 0) != 0)
		unblock_all(db);
	if (pg_atomic_read_u32(&db->disabled) != 0)
	{
		pg_atomic_write_u32(&db->starving, 0);
		return DW_NEVER;
	}

	retry_without_worker(db);
	starving = find_missing(db, now, &missing, &left_out, &look_again);
	foreach(lc, missing)
	{
		if (provide_executor(db, lfirst_oid(lc), waiting))
			continue;
		waiting++;
		if (count_staff(db, lfirst_oid(lc)).of_owner == 0)
			starving++;
	}
	list_free(missing);
	/* some may just have been blocked */
	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	look_again = Min(look_again, db->blocked_until);
	LWLockRelease(dw_ready_lock(db));
	pg_atomic_write_u32(&db->starving, starving);
	if (dw_owners_lack_worker(db))
		dw_sweeper_ask_to_make_way(db);

	if (waiting > 0)
		/* by then, others may be stuck, or have been idle for long */
		look_again = Min(look_again, now + STUCK_US);
	else if (left_out)
		/* those in front could not have one */
		look_again = now;
	return look_again;
}

/*
 * What a timer before has left may be by a clock that was set back since:
 * everybody may try at once, and what runs has just begun.
 */
static void
forget_times(DwDatabase *db)
{
	TimestampTz now = dw_now();

	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_owners_retry_all(db);
	dw_limits_forget_times(db);
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == db->oid && dw_executors[i].since > now)
			dw_executors[i].since = now;
	LWLockRelease(dw_ready_lock(db));
}

/*
 * To be called first.  Executors that a former timer started are there and
 * go on by themselves.
 */
void
dw_dispatch_begin(DwDatabase *db)
{
	handles = MemoryContextAllocZero(TopMemoryContext,
									 dw_shared->nexecutors * sizeof(*handles));
	woken = MemoryContextAllocZero(TopMemoryContext, dw_max_queues * sizeof(*woken));
	forget_times(db);
}
