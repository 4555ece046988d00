/*-------------------------------------------------------------------------
 *
 * starts.c
 *	  Who may start the next background worker, if not enough of them are free.
 *
 * Run by the launcher, which starts timers and looks into databases, and by timers, which start
 * executors and a sweeper.
 *
 * Whoever was refused a background worker notes since when it lacks one (DwLack).  As long as
 * somebody does, only the one that has lacked it longest may try to start one, so the order is that
 * of waiting, whatever the worker is for.  It tries after 10 ms, and then after twice the last pause,
 * up to a second, since workers of other extensions come and go without a word; a worker of ours
 * that ends has it try at once.  All others look once in a second whether it is their turn.
 *
 * Whoever waits notes each time that it has looked.  One that has not done so for SEEN_US does not
 * count: its process does not answer, or it does not need the worker any more.  So nobody has to
 * take back the notes of others.
 *
 * The one whose turn it is has others give a worker up: timers that may rest, and executors that have
 * been idle for a moment.  Where databases always have something near, or a backlog, that does not
 * help; so after TURN_US it ends the longest turn.  That database waits then, behind all who wait already.
 *
 * A timer may not have the last background worker that is free from time to time: timers that all
 * wait for an executor would wait for ever.  While a timer would be that, timers wait for each other
 * alone, and nobody else for them.  If tasks that do not end have come to hold the others since, a timer
 * ends.
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
#include "shared.h"
#include "starts.h"

/* Shortest and longest pause before the one whose turn it is tries again. */
#define PAUSE_MIN_US	(USECS_PER_SEC / 100)
#define PAUSE_MAX_US	USECS_PER_SEC
/* How often those look whose turn it is not, and when who has not looked does not count. */
#define LOOK_US			USECS_PER_SEC
#define SEEN_US			(3 * USECS_PER_SEC)
/* After so long a wait the longest turn ends that has lasted as long, and then another one each ... */
#define TURN_US			(5 * USECS_PER_SEC)
#define NEXT_TURN_US	USECS_PER_SEC

/*
 * True if another timer leaves a background worker that other processes of ours can have in turn.
 * The first one may have the last worker.
 */
static bool
timer_leaves_a_worker(void)
{
	int			timers = 0;
	int			held = 0;		/* by who has had it for longer than a turn */

	for (int i = 0; i < dw_max_databases; i++)
	{
		DwDatabase *db = dw_database(i);

		if (db->timer.state != DW_PROCESS_NONE)
			timers++;
		if (db->sweeper.state != DW_PROCESS_NONE && dw_uptime() - db->sweeper.started >= TURN_US)
			held++;
	}
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
	{
		const DwExecutor *e = &dw_executors[i];
		TimestampTz since = e->state == DW_EXECUTOR_BUSY ? e->since : dw_executor_unanswered_since(e);

		if (since != 0 && dw_now() - since >= TURN_US)
			held++;
	}
	return timers == 0 ||
		1 + timers + 1 + held + dw_shared->other_workers < max_worker_processes;
}

/* True if the lack counts: it was seen not long ago. */
static bool
counts(DwLack *lack)
{
	return dw_lack_since(lack) != 0 && dw_uptime() - dw_atomic_read(&lack->seen) < SEEN_US;
}

/* Sets *oldest to this lack, and *who to the process that has it, if it is older and counts. */
static void
take_older(DwLack *lack, DwProcess *process, DwLack **oldest, DwProcess **who)
{
	if (!counts(lack) || (*oldest != NULL && dw_lack_since(*oldest) <= dw_lack_since(lack)))
		return;
	*oldest = lack;
	*who = process;
}

/*
 * Of those who wait for what this start needs, the one that has waited longest; NULL if nobody
 * waits.  Sets *who to the process that would start the worker.
 */
static DwLack *
find_oldest(DwStart start, DwProcess **who)
{
	bool		leaves = timer_leaves_a_worker();
	DwLack	   *oldest = NULL;

	*who = NULL;
	if (leaves || start == DW_START_TIMER)
		take_older(&dw_shared->launcher.lack, &dw_shared->launcher, &oldest, who);
	if (leaves || start == DW_START_OTHER)
		take_older(&dw_shared->look_lack, &dw_shared->launcher, &oldest, who);
	for (int i = 0; i < dw_max_databases; i++)
	{
		DwDatabase *db = dw_database(i);

		if (leaves || start == DW_START_TIMER)
			take_older(&db->timer.lack, &dw_shared->launcher, &oldest, who);
		if (leaves || start == DW_START_OTHER)
		{
			take_older(&db->sweeper.lack, &db->timer, &oldest, who);
			take_older(&db->executors_lack, &db->timer, &oldest, who);
		}
	}
	return oldest;
}

/*
 * Step J1: true if this start may be tried: nobody else waits, or it is the turn of this lack, and
 * its pause is over.  lack is NULL if it is for more than is needed.  Takes no lock.
 */
bool
dw_start_may_be_tried(DwLack *lack, DwStart start)
{
	DwProcess  *who;
	DwLack	   *oldest;

	if (lack != NULL)
		pg_atomic_write_u64(&lack->seen, (uint64) dw_uptime());
	if (start == DW_START_TIMER && !timer_leaves_a_worker())
		return false;
	oldest = find_oldest(start, &who);
	return oldest == NULL ||
		(oldest == lack && dw_atomic_read(&dw_shared->pauses[start].retry_at) <= dw_uptime());
}

/*
 * Ends the timer that has run longest, for TURN_US at least, and its executors after their tasks.
 * Not that of this database, nor one that was told to end before, and may not answer; nor, but if
 * "waiting", one that lacks its only executor or a sweeper, and would have had its worker in vain.
 * False if there is none.
 */
static bool
end_longest_turn(Oid not_of, bool waiting)
{
	DwDatabase *longest = NULL;
	int64		started = dw_uptime() - TURN_US;

	for (int i = 0; i < dw_max_databases; i++)
	{
		DwDatabase *db = dw_database(i);

		if (db->timer.state == DW_PROCESS_RUNNING && db->timer.started <= started && db->oid != not_of &&
			(waiting || dw_executors_exist(db->oid) ||
			 !(counts(&db->executors_lack) || counts(&db->sweeper.lack))) &&
			dw_restart_asked(&db->timer_news) == DW_RESTART_NONE)
		{
			longest = db;
			started = db->timer.started;
		}
	}
	if (longest == NULL)
		return false;
	dw_call_timer(longest, DW_RESTART_NOW);
	dw_executors_end(longest, InvalidOid);
	return true;
}

/* Has a timer rest that could do so in this way, in whichever database; false if there is none. */
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
 * Background workers are few, or this process lacks one: has a timer that could rest do so; if
 * one is lacking, else one that has but to wait for sessions.  Takes no lock; a timer that is
 * asked in vain only looks.
 */
void
dw_timers_make_way(bool lacking)
{
	if (!make_way(DW_CAN_REST) && lacking)
		(void) make_way(DW_CAN_GIVE_WAY);
}

/* Has sweepers end that only wait for more work, or for a transaction. */
static void
sweepers_make_way(void)
{
	for (int i = 0; i < dw_max_databases; i++)
		if (dw_sweeper_is_told(&dw_database(i)->sweeper_news, DW_SWEEPER_RESTS))
			(void) dw_process_wake(&dw_database(i)->sweeper);
}

/* True if a worker that began then, by dw_uptime(), has had its turn, and somebody waits for one. */
bool
dw_turn_is_over(int64 began)
{
	return dw_uptime() - began >= TURN_US && dw_starts_are_awaited();
}

/* True if somebody waits for a background worker, and those who do nothing are to end. */
bool
dw_starts_are_awaited(void)
{
	DwProcess  *who;

	return find_oldest(DW_START_OTHER, &who) != NULL;
}

/*
 * Has others give a worker up.  database is that of the lack, whose own processes help nobody;
 * InvalidOid: those of all databases do.  since is when the worker was refused first.
 *
 * A timer does not rest as long as there is an executor, so one that only waits for work ends first.
 * With timer_idle_timeout = -1 timers are to be kept, and take no turns.  If executors have tasks
 * that do not end, a timer must go, since there is nobody else.
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
	sweepers_make_way();
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
 * Steps J2 and J3: the start was refused, or may not be tried: notes the lack.  If it is its turn,
 * puts the next try off, and has other databases than this one (InvalidOid: all) give a worker up; if
 * lack is NULL, only if nobody waits.  Takes the table lock, and a ready lock.
 */
void
dw_start_refused(DwLack *lack, DwStart start, Oid database)
{
	DwStartPause *pause = &dw_shared->pauses[start];
	int64		now = dw_uptime();
	int64		us;
	DwProcess  *who;

	if (lack != NULL && dw_lack_since(lack) == 0)
	{
		pg_atomic_write_u64(&lack->seen, (uint64) now);
		pg_atomic_write_u64(&lack->since, (uint64) now);
	}
	if (find_oldest(start, &who) != lack || dw_atomic_read(&pause->retry_at) > now)
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

/* Step J6: how long to wait until this start is looked at again, in us. */
int64
dw_start_wait(const DwLack *lack, DwStart start)
{
	DwProcess  *who;

	if (find_oldest(start, &who) != lack)
		return LOOK_US;
	return Max(dw_atomic_read(&dw_shared->pauses[start].retry_at) - dw_uptime(), 0);
}

/* A background worker may be free: has those try whose turn it is. */
static void
go_on(void)
{
	for (int start = 0; start < DW_STARTS; start++)
	{
		DwProcess  *who;

		pg_atomic_write_u64(&dw_shared->pauses[start].us, 0);
		pg_atomic_write_u64(&dw_shared->pauses[start].retry_at, 0);
		if (find_oldest(start, &who) != NULL)
			(void) dw_process_wake(who);
	}
}

/* Notes since when a worker is lacking for owners of a database, of which some may have got one. */
void
dw_lack_note(DwLack *lack, int64 since)
{
	int64		was;

	if (since == 0 && dw_lack_since(lack) == 0)
		return;
	pg_atomic_write_u64(&lack->seen, (uint64) dw_uptime());
	was = (int64) pg_atomic_exchange_u64(&lack->since, (uint64) since);
	if (was != 0 && was != since)
		go_on();
}

/* Step J4: the start was made, or is not needed any more: the next one has its turn.  Takes no lock. */
void
dw_lack_ends(DwLack *lack)
{
	dw_lack_note(lack, 0);
}

/*
 * Step J5: a background worker of ours is about to end, or has.  The postmaster gives its place to
 * another one some ms after that, which is why the first pauses are short.
 */
void
dw_worker_leaves(void)
{
	pg_memory_barrier();
	go_on();
}
