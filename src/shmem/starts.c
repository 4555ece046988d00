/*-------------------------------------------------------------------------
 *
 * starts.c
 *	  Who gets the next background worker, if they are too few.
 *
 * Run by the launcher, which starts timers, and by timers, which start executors and sweepers.
 * A start for which no worker is free waits in the one queue of the server, in the order of
 * refusals.  Only the first one is tried: when a process of ours ends, and after pauses that
 * grow, since other extensions' workers end without a word.
 *
 * The queue needs no memory of its own.  An entry is part of the place of a database (its timer,
 * its sweeper), of an owner, or the launcher's one probe.  It leaves the queue when a worker was
 * started, or is not needed any more.  Entries are passed over whose process, which is to try
 * the start, has ended, or does not answer.
 *
 * Timers leave workers to other processes (timer_has_room()): timers that all wait for an executor
 * would wait for ever.  A timer that cannot be started for this reason is held back.  It waits
 * for the end of another timer, not for a worker, and lets others pass.
 *
 * If no worker is free, the process of the first one asks others for theirs: those that have
 * nothing to do, and after TURN_US the one that has had its worker longest.  So databases that
 * always have something near, and owners with a backlog, take turns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lwlock.h"

#include "../base/clock.h"
#include "../base/settings.h"
#include "executors.h"
#include "places.h"
#include "problem.h"
#include "starts.h"

/*
 * Who has waited for this long has another process end its turn, which lasts as long if it is a
 * timer's, at least.
 */
#define TURN_US			(5 * USECS_PER_SEC)

/*
 * Shortest and longest pause before the first one of the queue is tried again; also the longest
 * one for those that wait for the end of a turn.
 */
#define PAUSE_MIN_US	(USECS_PER_SEC / 100)
#define PAUSE_MAX_US	(5 * USECS_PER_SEC)
#define PAUSE_TURN_US	USECS_PER_SEC

/*
 * True if there may be another timer: one worker is left to executors and sweepers, and as many as
 * there are timers while owners wait for an executor.  The first timer may have the last worker.
 */
static bool
timer_has_room(void)
{
	int			workers = max_worker_processes - 1 - dw_shared->other_workers;
	int			most = dw_shared->owners_refused > 0 ? (workers + 1) / 2 : workers - 1;
	int			timers = 0;

	for (int i = 0; i < dw_max_databases; i++)
		if (dw_database(i)->timer.state != DW_PROCESS_NONE)
			timers++;
	return timers == 0 || timers < most;
}

/* True if a timer must wait for the end of another one; has_room is timer_has_room(). */
static bool
is_held_back(const DwRefusal *e, bool has_room)
{
	return e->start == DW_START_TIMER && !has_room;
}

/*
 * The first one of the queue, of those that are held back or of the others; NULL if there is
 * none.  "mine" is the process that asks, or NULL.  Needs the starts lock.
 */
static DwRefusal *
first_one(bool held_back, bool has_room, DwProcess *mine)
{
	dlist_iter	iter;

	dlist_foreach(iter, &dw_shared->refusals)
	{
		DwRefusal  *e = dlist_container(DwRefusal, link, iter.cur);

		if (is_held_back(e, has_room) == held_back &&
			(e->process == mine ||
			 (dw_process_is_there(e->process) && dw_process_silent_for(e->process) == 0)))
			return e;
	}
	return NULL;
}

/* A worker may be free: has the first ones tried at once.  Needs the starts lock. */
static void
call_first(void)
{
	bool		has_room = timer_has_room();

	for (int held_back = 0; held_back <= 1; held_back++)
	{
		DwRefusal  *first = first_one(held_back, has_room, NULL);

		if (first == NULL)
			continue;
		first->retry_at = first->pause = 0;
		(void) dw_process_wake(first->process);
	}
}

/*---- Who gives a worker up ----*/

/* Has a timer rest that could do so in this way, in whichever database; false if there is none. */
static bool
timer_makes_way(DwCanRest how)
{
	static int	next = 0;

	for (int n = 0; n < dw_max_databases; n++)
	{
		DwDatabase *db = dw_database(next);

		next = (next + 1) % dw_max_databases;
		if (!OidIsValid(db->oid) || pg_atomic_read_u32(&db->timer_news.can_rest) != how ||
			!dw_process_is_there(&db->timer))
			continue;
		dw_can_rest(&db->timer_news, DW_CANNOT_REST);
		dw_news_tell(&db->timer_news, DW_NEWS_REST);
		dw_wake_timer(db, DW_AWAKE);
		return true;
	}
	return false;
}

/* Has a sweeper end that only waits, in whichever database; false if there is none. */
static bool
sweeper_makes_way(void)
{
	for (int i = 0; i < dw_max_databases; i++)
	{
		DwDatabase *db = dw_database(i);

		if (OidIsValid(db->oid) && dw_sweeper_take(&db->sweeper_news, DW_SWEEPER_RESTS) &&
			dw_process_wake(&db->sweeper))
			return true;
	}
	return false;
}

/* When the turn of a database began: with the first executor of its timer, or before with the timer. */
static int64
turn_began(const DwDatabase *db)
{
	return Max(db->timer.started, db->served_at);
}

/* True if owners of the database wait for an executor, and have had none in its turn. */
static bool
is_poor(const DwDatabase *db)
{
	return db->served_at < db->timer.started && db->timer.refused > 0;
}

/*
 * Ends the timer that has had its turn longest, for TURN_US at least, and its executors after their
 * tasks.  Its database waits for its next turn then, behind all that wait already.  A database
 * that is_poor() keeps its timer as long as there are others.
 */
static void
end_longest_timer(Oid not_in)
{
	DwDatabase *longest = NULL;
	int64		over = dw_uptime() - TURN_US;

	/* those that wait need a moment to have what the last one has left */
	if (dw_uptime() - dw_shared->timer_ended_at < PAUSE_TURN_US)
		return;
	for (int i = 0; i < dw_max_databases; i++)
	{
		DwDatabase *db = dw_database(i);

		/* not one that was told before: it may not answer; nor one that cannot start */
		if (db->timer.state == DW_PROCESS_NONE || db->oid == not_in ||
			dw_restart_asked(&db->timer_news) != DW_RESTART_NONE ||
			(db->timer.state == DW_PROCESS_STARTING && turn_began(db) <= over))
			continue;
		if (longest == NULL || (is_poor(db) == is_poor(longest) ?
								turn_began(db) < turn_began(longest) : is_poor(longest)))
			longest = db;
	}
	if (longest == NULL || turn_began(longest) > over)
		return;
	dw_shared->timer_ended_at = dw_uptime();
	dw_call_timer(longest, DW_RESTART_NOW);
	dw_executors_end(longest, InvalidOid);
}

/*
 * No worker was free for the first one of the queue: has another process give one up.  A timer
 * does not rest as long as there is an executor or a sweeper, so those end that only wait for work.
 * If that does not help one that is due (has waited TURN_US), another process ends its turn: an executor, or else a
 * timer, unless timers are to be kept.  Owners of one database take turns in another way (dispatch.c).
 */
static void
ask_for_worker(const DwRefusal *e, bool held_back, bool is_due)
{
	Oid			not_in = e->start == DW_START_EXECUTOR ? e->database : InvalidOid;
	bool		timer_ends = timer_makes_way(DW_CAN_REST);
	bool		other_ends = dw_executor_end_idle_elsewhere(not_in);

	other_ends |= sweeper_makes_way();
	/* only the end of a timer is of use to one that is held back */
	other_ends &= !held_back;
	if (!timer_ends && !other_ends && !timer_makes_way(DW_CAN_GIVE_WAY) && is_due &&
		(held_back || !dw_executor_end_turn_elsewhere(not_in)) && dw_timer_idle_timeout >= 0)
		end_longest_timer(e->database);
}

/*---- The queue ----*/

/* An entry comes into the queue, or leaves it.  Needs the starts lock. */
static void
count_refused(const DwRefusal *me, int change)
{
	me->process->refused += change;
	if (me->start == DW_START_EXECUTOR)
		dw_shared->owners_refused += change;
}

/* Takes an entry out of the queue, if it is there, and has the next ones tried. */
static void
leave_queue(DwRefusal *me)
{
	LWLockAcquire(dw_shared->starts_lock, LW_EXCLUSIVE);
	if (me != NULL && dw_refusal_waits(me))
	{
		dlist_delete(&me->link);
		me->link.next = NULL;
		me->goes_first = false;
		count_refused(me, -1);
	}
	call_first();
	LWLockRelease(dw_shared->starts_lock);
}

/*
 * No worker is free for this start, or it is not its turn: it waits.  If it is the first one, asks
 * for a worker, and puts the next try off.
 */
static void
refuse(DwRefusal *me)
{
	bool		has_room = timer_has_room();
	bool		held_back = is_held_back(me, has_room);
	int64		now = dw_uptime();
	bool		is_tried;
	bool		is_due;

	LWLockAcquire(dw_shared->starts_lock, LW_EXCLUSIVE);
	if (!dw_refusal_waits(me))
	{
		dlist_push_tail(&dw_shared->refusals, &me->link);
		count_refused(me, 1);
		me->since = now;
		me->retry_at = me->pause = 0;
	}
	is_due = now - me->since >= TURN_US;
	is_tried = first_one(held_back, has_room, me->process) == me && me->retry_at <= now;
	if (is_tried)
	{
		me->pause = Min(Max(me->pause * 2, PAUSE_MIN_US), is_due ? PAUSE_TURN_US : PAUSE_MAX_US);
		me->retry_at = now + me->pause;
		if (!is_due)
			me->retry_at = Min(me->retry_at, me->since + TURN_US);
	}
	LWLockRelease(dw_shared->starts_lock);
	if (is_tried)
		ask_for_worker(me, held_back, is_due);
}

/* True if anybody lacks a worker.  Full barrier. */
bool
dw_starts_are_refused(void)
{
	pg_memory_barrier();
	return !dlist_is_empty(&dw_shared->refusals);
}

/*
 * True if a start may be tried now; the caller then calls dw_start_was_tried().  Else it
 * waits in the queue.  me is NULL for one that is only tried if nobody waits.
 */
bool
dw_start_may_be_tried(DwRefusal *me)
{
	bool		has_room = timer_has_room();
	bool		may = me == NULL || !is_held_back(me, has_room);

	if (may && dw_starts_are_refused())
	{
		DwRefusal  *first;

		LWLockAcquire(dw_shared->starts_lock, LW_SHARED);
		first = first_one(false, has_room, me != NULL ? me->process : NULL);
		may = first == NULL || (first == me && me->retry_at <= dw_uptime());
		LWLockRelease(dw_shared->starts_lock);
	}
	if (!may && me != NULL)
		refuse(me);
	return may;
}

/* A start was tried: the postmaster had a worker for it, or had none. */
void
dw_start_was_tried(DwRefusal *me, bool started)
{
	if (!started && me != NULL)
		refuse(me);
	if (!started)
		return;
	if (me != NULL && me->start == DW_START_EXECUTOR)
	{
		/* this process is its timer, so it keeps its place */
		DwDatabase *db = dw_database_find(me->database);

		if (db->served_at < db->timer.started)
			db->served_at = dw_uptime();
	}
	/* there may be workers for others, too */
	if (dw_starts_are_refused())
		leave_queue(me);
}

/* This start is not needed any more, if it waits.  May be called under other locks of ours. */
void
dw_refusal_ends(DwRefusal *me)
{
	if (dw_refusal_waits(me))
		leave_queue(me);
}

/*
 * True if the log is to be told that this start has been refused for this long: once while it
 * waits, and once in DW_LOG_INTERVAL_US.
 */
bool
dw_refusal_is_news(DwRefusal *me, int64 lasting)
{
	int64		now = dw_uptime();
	bool		result;

	LWLockAcquire(dw_shared->starts_lock, LW_EXCLUSIVE);
	result = dw_refusal_waits(me) && now - me->since >= lasting &&
		(me->told_at == 0 ||
		 (me->told_at < me->since && now - me->told_at >= DW_LOG_INTERVAL_US));
	if (result)
		me->told_at = now;
	LWLockRelease(dw_shared->starts_lock);
	return result;
}

/* Since when this start has been refused; 0 if it is not, or not for long yet. */
TimestampTz
dw_refusal_since(DwRefusal *me)
{
	int64		waited = 0;

	LWLockAcquire(dw_shared->starts_lock, LW_SHARED);
	if (dw_refusal_waits(me))
		waited = dw_uptime() - me->since;
	LWLockRelease(dw_shared->starts_lock);
	return waited >= DW_LASTING_US ? dw_now() - waited : 0;
}

/* The start that this process, a timer, is to try now, or NULL. */
DwRefusal *
dw_starts_turn(DwProcess *process)
{
	DwRefusal  *first;

	if (process->refused == 0)
		return NULL;
	LWLockAcquire(dw_shared->starts_lock, LW_SHARED);
	first = first_one(false, timer_has_room(), process);
	if (first != NULL && (first->process != process || first->retry_at > dw_uptime()))
		first = NULL;
	LWLockRelease(dw_shared->starts_lock);
	return first;
}

/*
 * When this process must look at its starts that were refused, by dw_uptime(): to try the first one
 * of the queue, or since the first one's process may not answer.  DW_NEVER if it has none.
 */
int64
dw_starts_look_at(DwProcess *process)
{
	int64		at = dw_uptime() + DW_SILENT_US;

	if (process->refused == 0)
		return DW_NEVER;
	LWLockAcquire(dw_shared->starts_lock, LW_SHARED);
	for (int held_back = 0; held_back <= 1; held_back++)
	{
		DwRefusal  *first = first_one(held_back, timer_has_room(), process);

		if (first != NULL && first->process == process)
			at = Min(at, first->retry_at);
	}
	LWLockRelease(dw_shared->starts_lock);
	return at;
}

/*
 * An executor of this database has had its turn, and another owner waits: true if the executor is to
 * end for it.  If the owner waits for a worker, it comes before others then.  So owners of a
 * database take their short turns among them; but not while one of another database is due.
 */
bool
dw_start_owner_first(DwDatabase *db)
{
	bool		has_room = timer_has_room();
	bool		result = true;
	DwRefusal  *first = NULL;
	dlist_iter	iter;

	LWLockAcquire(dw_shared->starts_lock, LW_EXCLUSIVE);
	dlist_foreach(iter, &dw_shared->refusals)
	{
		DwRefusal  *e = dlist_container(DwRefusal, link, iter.cur);

		if (e->goes_first || is_held_back(e, has_room) || dw_process_silent_for(e->process) > 0)
			continue;
		first = first == NULL ? e : first;
		if (e->start != DW_START_EXECUTOR || e->database != db->oid)
			continue;
		result = e == first || dw_uptime() - first->since < TURN_US;
		if (result && e != first)
		{
			dlist_delete(&e->link);
			dlist_insert_before(&first->link, &e->link);
		}
		e->goes_first = result;
		break;
	}
	LWLockRelease(dw_shared->starts_lock);
	return result;
}

/*
 * This process, a background worker of ours, is about to end: has the first ones tried that lack a
 * worker.
 */
void
dw_worker_leaves(void)
{
	if (dw_starts_are_refused())
		leave_queue(NULL);
}
