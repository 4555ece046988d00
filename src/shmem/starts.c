/*-------------------------------------------------------------------------
 *
 * starts.c
 *	  Decides which process may start the next background worker if too few are free.
 *
 * Run by the launcher, which starts timers and looks into databases, and by timers, which start
 * executors and a sweeper.
 *
 * README.md describes the turns.  The process that has the turn tries after 10 ms, and then after
 * twice the last pause, up to a second, since it does not notice when workers of other extensions
 * end.  When a worker of delay_wheel ends, it tries at once.  Other waiting processes check once a
 * second whether they have the turn, and store the time of the check.  So no process removes the
 * notes of other processes.
 *
 * If all databases always have near tasks or a backlog, no timer can rest and no executor is idle.
 * So after TURN_US the process that has the turn ends the process that has used its worker longest.
 * The database of the ended process then waits behind all databases that wait already.
 *
 * A new timer must not take the last background worker that executors can use in turn.  Otherwise
 * all timers could wait for an executor for ever.  If only one such worker is left, starts of
 * timers compete only with each other.  If endless tasks later occupy the other workers, a timer
 * ends.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/settings.h"
#include "executors.h"

/* Shortest and longest pause before the process that has the turn tries again. */
#define PAUSE_MIN_US	(USECS_PER_SEC / 100)
#define PAUSE_MAX_US	USECS_PER_SEC
/* Interval of the checks of other processes, and maximum age of the last check of a valid note. */
#define LOOK_US			USECS_PER_SEC
#define SEEN_US			(3 * USECS_PER_SEC)
/* After a wait of TURN_US the longest turn ends, and then one more turn every NEXT_TURN_US. */
#define TURN_US			(5 * USECS_PER_SEC)
#define NEXT_TURN_US	USECS_PER_SEC

/*
 * Returns true if sweepers and executors still have a background worker to use in turn after one
 * more timer has started.  The first timer may take the last worker.
 */
static bool
timer_leaves_a_worker(void)
{
	int			timers = 0;
	int			held = 0;		/* workers that have been in use for longer than a turn */

	dw_each_database(db)
	{
		if (db->timer.state != DW_PROCESS_NONE)
			timers++;
		if (db->sweeper.state != DW_PROCESS_NONE && dw_uptime() - db->sweeper.started >= TURN_US)
			held++;
	}
	dw_each_executor(e)
	{
		TimestampTz since = e->state == DW_EXECUTOR_BUSY ? e->since : dw_executor_unanswered_since(e);

		if (since != 0 && dw_now() - since >= TURN_US)
			held++;
	}
	return timers == 0 ||
		1 + timers + 1 + held + dw_shared->other_workers < max_worker_processes;
}

/* Returns true if the lack counts: the waiting process has checked recently. */
static bool
counts(DwLack *lack)
{
	return dw_lack_since(lack) != 0 && dw_uptime() - dw_atomic_read(&lack->seen) < SEEN_US;
}

/* If this lack counts and is older than *oldest, sets *oldest to this lack. */
static void
take_older(DwLack *lack, DwLack **oldest)
{
	if (counts(lack) && (*oldest == NULL || dw_lack_since(*oldest) > dw_lack_since(lack)))
		*oldest = lack;
}

/* Returns the oldest lack that competes with this start, or NULL if no process waits. */
static DwLack *
find_oldest(DwStart start)
{
	bool		leaves = timer_leaves_a_worker();
	bool		timers = leaves || start == DW_START_TIMER;
	bool		others = leaves || start == DW_START_OTHER;
	DwLack	   *oldest = NULL;

	if (timers)
		take_older(&dw_shared->launcher.lack, &oldest);
	if (others)
		take_older(&dw_shared->look_lack, &oldest);
	dw_each_database(db)
	{
		if (timers)
			take_older(&db->timer.lack, &oldest);
		if (others)
		{
			take_older(&db->sweeper.lack, &oldest);
			take_older(&db->executors_lack, &oldest);
		}
	}
	return oldest;
}

/* Returns the process that tries to end this lack. */
static DwProcess *
waiting_process(const DwLack *lack)
{
	dw_each_database(db)
		if (lack == &db->sweeper.lack || lack == &db->executors_lack)
			return &db->timer;
	return &dw_shared->launcher;
}

/*
 * Step J1: returns true if this start may be tried: no process waits, or this lack has the turn and
 * its pause is over.  "lack" is NULL if the worker is useful, but not needed.  Takes no lock.
 */
bool
dw_start_may_be_tried(DwLack *lack, DwStart start)
{
	DwLack	   *oldest;

	if (lack != NULL)
		pg_atomic_write_u64(&lack->seen, (uint64) dw_uptime());
	if (start == DW_START_TIMER && !timer_leaves_a_worker())
		return false;
	oldest = find_oldest(start);
	return oldest == NULL ||
		(oldest == lack && dw_atomic_read(&dw_shared->pauses[start].retry_at) <= dw_uptime());
}

/*
 * Ends the timer that has run longest, if it has run for TURN_US, and its executors after their
 * tasks.  Skips the timer of the database "not_of", and timers that were told to end before, since
 * they may not answer.  If "waiting" is false, also skips a timer that lacks its only executor or a
 * sweeper, since it has not used its worker yet.  Returns false if no timer was ended.
 */
static bool
end_longest_turn(Oid not_of, bool waiting)
{
	DwDatabase *longest = NULL;
	int64		started = dw_uptime() - TURN_US;

	dw_each_database(db)
		if (db->timer.state == DW_PROCESS_RUNNING && db->timer.started <= started && db->oid != not_of &&
			(waiting || dw_executors_exist(db->oid) ||
			 !(counts(&db->executors_lack) || counts(&db->sweeper.lack))) &&
			dw_restart_asked(&db->timer_news) == DW_RESTART_NONE)
		{
			longest = db;
			started = db->timer.started;
		}
	if (longest == NULL)
		return false;
	dw_call_timer(longest, DW_RESTART_NOW);
	dw_executors_end(longest, InvalidOid);
	return true;
}

/* Asks a timer that can rest in this way to rest.  Returns false if no such timer exists. */
static bool
make_way(DwCanRest how)
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

/*
 * Asks a timer to rest, since few background workers are free, or this process lacks a worker
 * ("lacking").  If no timer can rest and "lacking" is true, chooses a timer that only waits for
 * sessions.  Takes no lock.  A timer that cannot rest any more ignores the request.
 */
void
dw_timers_make_way(bool lacking)
{
	if (!make_way(DW_CAN_REST) && lacking)
		(void) make_way(DW_CAN_GIVE_WAY);
}

/* Returns true if the turn of a worker that began at this time is over, and a process waits. */
bool
dw_turn_is_over(int64 began)
{
	return dw_uptime() - began >= TURN_US && dw_starts_are_awaited();
}

/* Returns true if a process waits for a background worker: then idle processes must end. */
bool
dw_starts_are_awaited(void)
{
	return find_oldest(DW_START_OTHER) != NULL;
}

/*
 * Makes other processes end, to free a worker.  "database" is the database that lacks the worker;
 * its processes do not end.  InvalidOid means that processes of all databases can end.  "since" is
 * the time when the start was first refused.
 *
 * A timer does not rest while its database has an executor, so idle executors end first.  With
 * timer_idle_timeout = -1, timers do not end, and take no turns.  If all executors have endless
 * tasks, only a timer can end.
 */
static void
make_others_leave(DwStart start, Oid database, int64 since)
{
	pg_atomic_uint64 *turn_ended_at = &dw_shared->pauses[start].turn_ended_at;
	int64		now = dw_uptime();
	bool		timers_go = dw_timer_idle_timeout >= 0;
	bool		executors_help = start == DW_START_OTHER || timer_leaves_a_worker();
	bool		idle_ended = false;

	dw_timers_make_way(true);
	/* sweepers that only wait for more work, or for a transaction, end */
	dw_each_database(db)
		if (dw_sweeper_is_told(&db->sweeper_news, DW_SWEEPER_RESTS))
			(void) dw_process_wake(&db->sweeper);
	if (executors_help || timers_go)
		idle_ended = dw_executor_end_idle_elsewhere(database);
	if (now - since < TURN_US || now - dw_atomic_read(turn_ended_at) < NEXT_TURN_US)
		return;
	pg_atomic_write_u64(turn_ended_at, (uint64) now);
	if (start == DW_START_TIMER && timers_go && end_longest_turn(database, false))
		return;
	if (!executors_help || idle_ended || dw_executor_end_turn_elsewhere(database))
		return;
	if (timers_go && !end_longest_turn(database, false))
		(void) end_longest_turn(database, true);
}

/*
 * Steps J2 and J3: notes the lack, since the start was refused or may not be tried.  If this lack
 * has the turn, delays the next try, and makes processes of other databases (InvalidOid: of all)
 * end.  If "lack" is NULL, makes such processes end only if no process waits.  Takes the table
 * lock, and a ready lock.
 */
void
dw_start_refused(DwLack *lack, DwStart start, Oid database)
{
	DwStartPause *pause = &dw_shared->pauses[start];
	int64		now = dw_uptime();
	int64		us;

	if (lack != NULL && dw_lack_since(lack) == 0)
	{
		pg_atomic_write_u64(&lack->seen, (uint64) now);
		pg_atomic_write_u64(&lack->since, (uint64) now);
	}
	if (find_oldest(start) != lack || dw_atomic_read(&pause->retry_at) > now)
		return;
	if (lack != NULL)
	{
		us = dw_atomic_read(&pause->us);
		us = us == 0 ? PAUSE_MIN_US : Min(us * 2, PAUSE_MAX_US);
		pg_atomic_write_u64(&pause->us, (uint64) us);
		pg_atomic_write_u64(&pause->retry_at, (uint64) (now + us));
	}
	make_others_leave(start, database, lack != NULL ? dw_lack_since(lack) : now);
}

/* Step J6: returns how long to wait before the next check of this start, in us. */
int64
dw_start_wait(const DwLack *lack, DwStart start)
{
	if (find_oldest(start) != lack)
		return LOOK_US;
	return Max(dw_atomic_read(&dw_shared->pauses[start].retry_at) - dw_uptime(), 0);
}

/*
 * Step J5: wakes the processes that have the turn to try at once, since a background worker may be
 * free.  Called when a background worker of delay_wheel is about to end, or has ended.  The
 * postmaster frees its place some ms later, so the first pauses are short.
 */
void
dw_worker_leaves(void)
{
	pg_memory_barrier();
	for (int start = 0; start < DW_STARTS; start++)
	{
		DwLack	   *oldest;

		pg_atomic_write_u64(&dw_shared->pauses[start].us, 0);
		pg_atomic_write_u64(&dw_shared->pauses[start].retry_at, 0);
		oldest = find_oldest(start);
		if (oldest != NULL)
			(void) dw_process_wake(waiting_process(oldest));
	}
}

/*
 * Notes since when an owner of the database lacks a worker, or 0.  If the time has changed, an
 * owner may have got a worker, so wakes the processes that have the turn.
 */
void
dw_lack_note(DwLack *lack, int64 since)
{
	int64		was;

	if (since == 0 && dw_lack_since(lack) == 0)
		return;
	pg_atomic_write_u64(&lack->seen, (uint64) dw_uptime());
	was = (int64) pg_atomic_exchange_u64(&lack->since, (uint64) since);
	if (was != 0 && was != since)
		dw_worker_leaves();
}

/*
 * Step J4: ends the lack, since the start was made or is not needed any more.  The next lack gets
 * the turn.  Takes no lock.
 */
void
dw_lack_ends(DwLack *lack)
{
	dw_lack_note(lack, 0);
}
