/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  The process that starts a timer for each database.
 *
 * Run by the launcher; dw_look_main() is run by a background worker of its own.  The
 * postmaster starts the one launcher of the server when recovery has finished, and
 * restarts it if it ends.  The launcher is connected to the shared catalogs only, so no
 * command on a database has to wait for it.
 *
 * A database that is served has a place: its part of shared memory, of which there are
 * delay_wheel.max_databases.  The launcher cannot see which databases have the extension.
 * So at its start it gives places to those that were served before, by the file that it
 * keeps, and starts a timer in each other database, one after the other; a timer
 * that finds no extension ends at once.  We call that a probe.  Later the launcher probes new
 * databases, which may be copies of one that has the extension.  It starts a timer when
 * a process asks for one (DW_NEWS_START): after CREATE EXTENSION, and when a task is
 * scheduled while there is no timer.  A timer that ends for another reason is started
 * again, unless a command holds the database (hold.c).  In between the launcher sleeps on
 * its latch.
 *
 * A timer may rest: it has ended since it has nothing to do up to some time, which it has
 * published (timer/rest.c).  The launcher starts one ahead of that time, by dw_rest_margin().
 * Sessions that have something to tell lower the time, and wake the launcher.  The time is
 * one of the clock, so the launcher sleeps as timers do, and notices when the clock is set
 * forward; when it is set back all timers start, since what one waits for may be earlier now.
 * They also start when settings have changed that say how long old rows are kept, or whether
 * tasks are run.
 *
 * If more databases have the extension than there are places, some databases wait.  A
 * session there that finds no place sets DwShared.turned_away.  When a place is free
 * again, the launcher probes all databases without a place.  While no place is free, the
 * launcher cannot start timers to probe databases.  It starts a worker that needs no
 * place instead, which looks for the extension and ends (dw_look_main()).  So the log
 * reports that databases wait, also if nobody connects to them after a restart, and only if
 * there are such databases: an operator who has more databases than places learns whether
 * that matters.
 *
 * A server that came out of recovery may have to wait for its DBA before it serves any
 * database, see copies/recovery.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "postmaster/bgworker.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "../base/alarm.h"
#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/settings.h"
#include "../base/wing.h"
#include "../base/worker.h"
#include "../ring/ring.h"
#include "../shmem/executors.h"
#include "../shmem/lanes.h"
#include "../shmem/places.h"
#include "../shmem/queue_limits.h"
#include "../shmem/ready.h"
#include "../shmem/shared.h"
#include "../shmem/starts.h"
#include "../shmem/suspects.h"
#include "control.h"

static void write_served(List *databases);

static List *read_served(void);

/* Shortest and longest pause before a timer that ended by itself is started again. */
#define BACKOFF_MIN_US	(USECS_PER_SEC / 10)
#define BACKOFF_MAX_US	USECS_PER_MINUTE
/* Pause before the next look into a database if a look was terminated. */
#define LOOK_PAUSE_US	(5 * USECS_PER_SEC)
/* A timer that lived this long is started again without a pause. */
#define HEALTHY_US		(10 * USECS_PER_SEC)
/*
 * Maximum time in which a timer that a former launcher has registered must have started;
 * after that it counts as dead.
 */
#define START_LIMIT_US	USECS_PER_MINUTE

/*
 * Maximum time for which the start of a timer keeps others from starting: one whose owner has
 * locked a catalog may take as long as it likes.  Less than dw_rest_margin().
 */
#define START_TURN_US	USECS_PER_SEC

/* What only the launcher knows of a place.  Times are by dw_uptime(), in us. */
typedef struct Place
{
	BackgroundWorkerHandle *handle;	/* the timer that this launcher registered, or NULL */
	int64		start_after;	/* start no timer before this time */
	int64		backoff;		/* the last pause before a start; 0: there was none */
	int64		shown;			/* the DwLack.since of its timer that was reported */
	Oid			told_of;		/* the database whose timer the log was told of */
	int64		told_at;		/* when it was */
	bool		is_probed;		/* nobody knows whether its database has the extension */
	bool		is_served;		/* a timer has found the extension, now or before a restart */
} Place;

static Place *places = NULL;	/* one for each place in shared memory, by its index */
static uint32 wait_event = 0;

/* OIDs of databases that the launcher must probe. */
static List *to_probe = NIL;

/* OIDs of databases that the launcher has probed. */
static List *probed = NIL;

/* The DwLack.since of a probe that the log was told of. */
static int64 probe_told = 0;

/* The OIDs in the file of databases that were served. */
static List *served = NIL;

/* When the first timer must be started of those that rest; a time of the clock. */
static TimestampTz first_rest_ends = DW_NEVER;

/* True if databases may have been dropped, or have become templates, since the last look. */
static bool databases_may_be_gone = false;

/*
 * The worker that runs dw_look_main(), or NULL; and before when none is started, since one was
 * terminated.
 */
static BackgroundWorkerHandle *look_worker = NULL;
static int64 look_after = 0;

/*
 * Gives back the place of a database, unless a transaction has pinned it or executors
 * still use it.  Only the launcher does so, when the database has neither timer nor
 * extension.  The caller holds the table lock exclusively.
 */
static void
dw_database_leave(DwDatabase *db)
{
	Oid			database = db->oid;
	Place	   *place = &places[dw_database_number(db)];

	/* its executors are about to end, but use the place until then */
	for (uint32 i = 0; i < dw_shared->nexecutors; i++)
		if (dw_executors[i].database == database)
			return;

	if (!dw_database_give_back(db))
		return;
	place->is_served = false;
	LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
	dw_ready_reset(db);
	LWLockRelease(dw_ready_lock(db));
	dw_lanes_leave(db);
	dw_queues_leave(database);
	dw_pool_reclaim(dw_pool, &db->account);
}

/* Registers the launcher with the postmaster.  Called once by the postmaster. */
void
dw_launcher_register(void)
{
	BackgroundWorker worker;

	dw_worker_describe(&worker, "launcher");
	worker.bgw_restart_time = 1;
	RegisterBackgroundWorker(&worker);
}

/* Exit callback of the launcher: clears the launcher's entries in shared memory. */
static void
leave(int code, Datum arg)
{
	dw_process_ends(&dw_shared->launcher, DW_PROCESS_NOTED);
	pg_atomic_write_u32(&dw_shared->looks_into, InvalidOid);
}

/*
 * True if a timer can and should connect to the database.  Templates are not served, so
 * that they can be copied.
 */
static bool
is_to_be_served(Form_pg_database database)
{
	/* a limit of -2 marks a database whose DROP was interrupted */
	return database->datallowconn && !database->datistemplate && database->datconnlimit != -2;
}

/* Adds one database to to_probe, or to *known if it was probed before. */
static void
list_database(Form_pg_database database, List **known)
{
	DwDatabase *db = dw_database_find(database->oid);

	/* the database may have become a template: end its timer, so that it can be copied */
	if (db != NULL && database->datistemplate)
		dw_call_timer(db, DW_RESTART_NOW);
	if (!is_to_be_served(database))
		return;
	if (list_member_oid(probed, database->oid))
		*known = lappend_oid(*known, database->oid);
	else if (!list_member_oid(to_probe, database->oid))
		to_probe = lappend_oid(to_probe, database->oid);
}

/*
 * Reads the list of databases: adds new ones to to_probe, and removes dropped ones from
 * probed.
 */
static void
list_databases(void)
{
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;
	List	   *known = NIL;

	StartTransactionCommand();
	/* default_transaction_isolation may be serializable, deferrable, which waits */
	XactIsoLevel = XACT_READ_COMMITTED;
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		MemoryContext context = MemoryContextSwitchTo(TopMemoryContext);

		list_database((Form_pg_database) GETSTRUCT(tuple), &known);
		MemoryContextSwitchTo(context);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(TopMemoryContext);

	list_free(probed);
	probed = known;
}

/* True if the database with this OID exists, and is_to_be_served(). */
static bool
database_is_to_be_served(Oid oid)
{
	Relation	rel;
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	bool		result;

	StartTransactionCommand();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_database_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(oid));
	/* without a database, the index can be used only if the relcache init file had it */
	scan = systable_beginscan(rel, DatabaseOidIndexId, criticalSharedRelcachesBuilt, NULL, 1, &key);
	tuple = systable_getnext(scan);
	result = HeapTupleIsValid(tuple) && is_to_be_served((Form_pg_database) GETSTRUCT(tuple));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(TopMemoryContext);
	return result;
}

/* The name of a database, in TopMemoryContext; its OID if it is gone. */
static char *
name_of_database(Oid oid)
{
	char	   *name;

	StartTransactionCommand();
	name = get_database_name(oid);
	name = name == NULL ? psprintf("%u", oid) : name;
	name = MemoryContextStrdup(TopMemoryContext, name);
	CommitTransactionCommand();
	MemoryContextSwitchTo(TopMemoryContext);
	return name;
}

/*
 * A background worker is lacking to find out whether a database has the extension.  Shows that in
 * the view status, and in the log.
 */
static void
probe_is_refused(Oid oid, const DwLack *lack)
{
	char	   *name;

	if (!dw_lack_lasts(lack))
		return;
	if (pg_atomic_read_u32(&dw_shared->unlooked) != oid)
	{
		pg_atomic_write_u64(&dw_shared->unlooked_at, (uint64) dw_now());
		pg_atomic_write_u32(&dw_shared->unlooked, oid);
	}
	pg_atomic_write_u32(&dw_shared->timer_refused, 1);
	if (probe_told == dw_lack_since(lack))
		return;
	probe_told = dw_lack_since(lack);
	name = name_of_database(oid);
	ereport(LOG,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("delay_wheel could not look into database \"%s\": no background worker is free",
					name),
			 errdetail("If it has the extension, its tasks wait."),
			 errhint("You may need to increase \"%s\".", "max_worker_processes")));
	pfree(name);
}

/* The database whose turn it is to be looked into has been, or is gone. */
static void
probe_is_begun(void)
{
	dw_lack_ends(&dw_shared->launcher.lack);
	dw_lack_ends(&dw_shared->look_lack);
	pg_atomic_write_u32(&dw_shared->unlooked, InvalidOid);
}

/*
 * A background worker is lacking for the timer of a place.  Reports that, once; to the log only if it
 * was not told of this database just now: where databases take turns, each is refused again and again.
 */
static void
timer_is_refused(int number)
{
	DwDatabase *db = dw_database(number);
	Place	   *place = &places[number];
	char	   *name;

	if (!dw_lack_lasts(&db->timer.lack) || place->shown == dw_lack_since(&db->timer.lack))
		return;
	place->shown = dw_lack_since(&db->timer.lack);
	pg_atomic_write_u32(&dw_shared->timer_refused, 1);
	dw_problem(&db->problem, DW_TIMER_REFUSED);
	if (place->told_of == db->oid && dw_uptime() - place->told_at < DW_LOG_INTERVAL_US)
		return;
	place->told_of = db->oid;
	place->told_at = dw_uptime();
	name = name_of_database(db->oid);
	ereport(LOG,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("could not start delay_wheel timer of database \"%s\"", name),
			 errhint("You may need to increase \"%s\".", "max_worker_processes")));
	pfree(name);
}

/* What is noted if a background worker is lacking for the timer of a place, or its probe. */
static DwLack *
lack_of(int number)
{
	return places[number].is_probed ? &dw_shared->launcher.lack : &dw_database(number)->timer.lack;
}

/* Sets the pause before the next start of a timer to twice the last pause. */
static void
put_start_off(Place *place)
{
	place->backoff = place->backoff == 0 ? BACKOFF_MIN_US : Min(place->backoff * 2, BACKOFF_MAX_US);
	place->start_after = dw_uptime() + place->backoff;
}

/* Starts the timer of a place.  False if no background worker is free, or others wait for one. */
static bool
start_timer(int number)
{
	DwDatabase *db = dw_database(number);
	Place	   *place = &places[number];
	bool		registered = dw_start_may_be_tried(lack_of(number), DW_START_TIMER);

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	dw_process_starts(&db->timer);
	/* from here on the timer does not rest: it reads what sessions have told before */
	dw_rest_publish(&db->timer_news, DW_AWAKE);
	db->absent = false;
	/* a restart was asked of the last timer: the new one reads all settings anew */
	dw_restart_forget(&db->timer_news);
	LWLockRelease(dw_shared->table_lock);

	registered = registered &&
		dw_worker_start("timer", number, &db->oid, sizeof(Oid), &place->handle);
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	dw_process_registered(&db->timer, registered);
	LWLockRelease(dw_shared->table_lock);
	if (registered)
	{
		dw_lack_ends(&db->timer.lack);
		if (place->is_probed)
			probe_is_begun();
		pg_atomic_write_u32(&dw_shared->timer_refused, 0);
		if (dw_workers_are_few())
			dw_timers_make_way(false);
		return true;
	}
	dw_start_refused(lack_of(number), DW_START_TIMER, db->oid);
	if (place->is_probed)
		probe_is_refused(db->oid, &dw_shared->launcher.lack);
	else
		timer_is_refused(number);
	return false;
}

/* Resets the state of a timer that was registered, but has died without doing so. */
static void
notice_dead_timer(int number)
{
	DwDatabase *db = dw_database(number);
	BackgroundWorkerHandle *handle = places[number].handle;
	bool		dead = handle != NULL ? dw_worker_has_ended(handle) :
		db->timer.state == DW_PROCESS_STARTING &&
		dw_uptime() - db->timer.started > START_LIMIT_US;

	if (db->timer.state == DW_PROCESS_NONE || !dead)
		return;
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	dw_process_is_lost(&db->timer);
	LWLockRelease(dw_shared->table_lock);
}

/* True if a session has asked for the timer of this place. */
static bool
is_asked_for(DwDatabase *db)
{
	return dw_news_is_told(&db->timer_news, DW_NEWS_START) ||
		dw_news_is_told(&db->timer_news, DW_NEWS_CREATED);
}

/*
 * True if the timer rests, and need not be started yet: lowers first_rest_ends to when it
 * must.
 */
static bool
goes_on_resting(DwDatabase *db)
{
	TimestampTz start_at;

	if (!dw_process_rests(&db->timer) || is_asked_for(db))
		return false;
	start_at = dw_time_add(dw_rest_until(&db->timer_news), -dw_rest_margin());
	if (start_at <= dw_now())
		return false;
	first_rest_ends = Min(first_rest_ends, start_at);
	return true;
}

/* Has all timers started that rest: what they wait for may have to be done earlier. */
static void
end_all_rests(void)
{
	bool		earlier;

	for (int i = 0; i < dw_max_databases; i++)
		if (OidIsValid(dw_database(i)->oid))
			(void) dw_rest_end_ask(&dw_database(i)->timer_news, DW_AWAKE, &earlier);
}

/*
 * The clock was set back by so many microseconds: tells users, and has all timers started that
 * rest.  Others end by themselves, and this process starts the next ones.
 */
static void
clock_was_set_back(int64 back)
{
	TimestampTz was = Max(dw_now() + back, dw_atomic_read(&dw_shared->clock_was));
	char		text[128];

	pg_atomic_write_u64(&dw_shared->clock_was, (uint64) was);
	snprintf(text, sizeof(text), "the clock was set back by %.3f s: tasks wait until they are due by the new time",
			 back / 1000000.0);
	for (int i = 0; i < dw_max_databases; i++)
		if (OidIsValid(dw_database(i)->oid))
			dw_problem(&dw_database(i)->problem, text);
	end_all_rests();
}

/*
 * The settings were read: publishes those of the server that sessions ask for.  If some have
 * changed by which timers that rest would do something at another time, or which they note for
 * views, ends all rests.  The first call only remembers them.
 */
static void
obey_reload(void)
{
	static int	known[DW_RETENTION_SETTINGS + 2] = {INT_MIN};
	int			set[DW_RETENTION_SETTINGS + 2];

	dw_logins_publish(&dw_shared->logins);
	dw_retention_settings(set);
	set[DW_RETENTION_SETTINGS] = dw_timer_idle_timeout;
	/* it may be another one in some databases, which only their timers know */
	set[DW_RETENTION_SETTINGS + 1] = dw_enabled;
	if (known[0] != INT_MIN && memcmp(known, set, sizeof(set)) != 0)
		end_all_rests();
	memcpy(known, set, sizeof(set));
}

/* If a timer ran at this place, and has ended, decides when the next one may start. */
static void
note_ended_timer(DwDatabase *db, Place *place)
{
	if (place->handle == NULL)
		return;
	pfree(place->handle);
	place->handle = NULL;
	if (db->timer.end == DW_PROCESS_FINISHED || db->timer.end == DW_PROCESS_RESTS ||
		db->timer.started + HEALTHY_US < dw_uptime())
		place->backoff = place->start_after = 0;
	else if (!db->absent)
		put_start_off(place);
}

/*
 * Decides about a place whose timer does not run: gives the place back, or starts a
 * timer, or leaves that for later.  Sets *starting if a timer is starting, and lowers
 * *look_again to the time of the next decision.
 */
static void
serve_place(int number, bool *starting, int64 *look_again)
{
	DwDatabase *db = dw_database(number);
	Place	   *place = &places[number];
	bool		resting;
	bool		wanted;

	notice_dead_timer(number);
	if (db->timer.state == DW_PROCESS_RUNNING || dw_process_rests(&db->timer))
		place->is_served = true;
	if (db->oid == InvalidOid || db->timer.state == DW_PROCESS_RUNNING)
		return;
	if (db->timer.state == DW_PROCESS_STARTING)
	{
		int64		turn_ends = db->timer.started + START_TURN_US;

		if (dw_uptime() < turn_ends)
		{
			*starting = true;
			*look_again = Min(*look_again, turn_ends);
		}
		if (place->handle == NULL)
			*look_again = Min(*look_again, db->timer.started + START_LIMIT_US);
		return;
	}

	/* a command holds the database; the end of the hold wakes the launcher */
	if (dw_database_is_held(db))
		return;
	/* one timer starts at a time; the launcher is woken when that one is there */
	resting = goes_on_resting(db);
	if (resting)
		dw_lack_ends(&db->timer.lack);
	if ((resting || *starting) && !databases_may_be_gone)
	{
		/* it still waits */
		dw_lack_note(&db->timer.lack, dw_lack_since(&db->timer.lack));
		note_ended_timer(db, place);
		return;
	}

	wanted = dw_news_take(&db->timer_news, DW_NEWS_START);
	wanted |= dw_news_take(&db->timer_news, DW_NEWS_CREATED);
	if (!database_is_to_be_served(db->oid))
	{
		/* the database was dropped, or is a template */
		LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
		db->absent = true;
		LWLockRelease(dw_shared->table_lock);
		dw_executors_end(db, InvalidOid);
		dw_crashes_forget_database(db->oid);
		wanted = false;
	}
	if (db->absent)
		place->is_served = false;
	if (db->absent && !wanted)
	{
		LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
		if (!is_asked_for(db))
			dw_database_leave(db);
		LWLockRelease(dw_shared->table_lock);
		place->backoff = 0;
		place->start_after = 0;
		return;
	}

	note_ended_timer(db, place);
	if (resting && !wanted)
		return;
	if (!*starting && place->start_after <= dw_uptime() && start_timer(number))
	{
		*starting = true;
		return;
	}
	/* keep the request for later: without it the place might be given back */
	if (wanted)
		dw_news_tell(&db->timer_news, DW_NEWS_START);
	if (place->start_after > dw_uptime())
		*look_again = Min(*look_again, place->start_after);
	else if (!*starting)
		*look_again = Min(*look_again, dw_uptime() + dw_start_wait(lack_of(number), DW_START_TIMER));
}

/*
 * Main function of the worker that looks for the extension in a database for which there
 * is no place.  If it is there, sets turned_away: the database waits for a place.
 */
void
dw_look_main(Datum arg)
{
	Oid			database;

	/* this process runs no query that a cancel could stop */
	pqsignal(SIGINT, PG_SIG_IGN);
	dw_crashes_watch_signals();
	dw_worker_begin();
	memcpy(&database, MyBgworkerEntry->bgw_extra, sizeof(Oid));
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	StartTransactionCommand();
	if (OidIsValid(get_extension_oid("delay_wheel", true)))
		pg_atomic_write_u32(&dw_shared->turned_away, 1);
	CommitTransactionCommand();
	pg_atomic_write_u32(&dw_shared->looked, 1);
	/* the postmaster tells the launcher (bgw_notify_pid) */
	proc_exit(0);
}

/*
 * Starts a worker that looks for the extension in a database.  Returns true if the
 * database is done with: the worker is started, or the database is not to be served.
 * False if the launcher must try again: now another worker runs, or no background worker
 * is free, or turned_away is set.
 */
static bool
start_look(Oid oid, int64 *look_again)
{
	DwLack	   *lack = &dw_shared->look_lack;

	/*
	 * with turned_away set, another look tells nothing new: all databases are probed when
	 * a place is free
	 */
	if (pg_atomic_read_u32(&dw_shared->turned_away) != 0)
	{
		probe_is_begun();
		return false;
	}
	if (look_worker != NULL)
		return false;
	if (!database_is_to_be_served(oid))
		return true;
	if (look_after > dw_uptime())
	{
		*look_again = Min(*look_again, look_after);
		return false;
	}
	if (dw_start_may_be_tried(lack, DW_START_OTHER))
	{
		/*
		 * from here on, a command that needs this database without sessions waits
		 * (hold.c)
		 */
		pg_atomic_write_u32(&dw_shared->looked, 0);
		pg_atomic_write_u32(&dw_shared->looks_into, oid);
		pg_memory_barrier();
		if (dw_worker_start("look", 0, &oid, sizeof(Oid), &look_worker))
		{
			probe_is_begun();
			return true;
		}
		pg_atomic_write_u32(&dw_shared->looks_into, InvalidOid);
	}
	dw_start_refused(lack, DW_START_OTHER, InvalidOid);
	probe_is_refused(oid, lack);
	*look_again = Min(*look_again, dw_uptime() + dw_start_wait(lack, DW_START_OTHER));
	return false;
}

/*
 * Takes notice that the worker has ended.  If it was terminated before it had an answer,
 * the database is added to to_probe again.
 */
static void
notice_end_of_look(void)
{
	Oid			oid = pg_atomic_read_u32(&dw_shared->looks_into);

	if (look_worker == NULL || !dw_worker_has_ended(look_worker))
		return;
	pfree(look_worker);
	look_worker = NULL;
	pg_atomic_write_u32(&dw_shared->looks_into, InvalidOid);
	if (pg_atomic_read_u32(&dw_shared->looked) != 0)
		return;
	probed = list_delete_oid(probed, oid);
	to_probe = list_append_unique_oid(to_probe, oid);
	look_after = dw_uptime() + LOOK_PAUSE_US;
}

/*
 * Finds out whether a database has the extension, by starting its timer if there is a
 * place, else by start_look().  False if the launcher must try again.
 */
static bool
probe(Oid oid, bool *starting, int64 *look_again)
{
	bool		known = dw_database_find(oid) != NULL;
	DwDatabase *db = dw_database_enter(oid, false);
	Place	   *place;

	if (db == NULL)
		return start_look(oid, look_again);
	place = &places[dw_database_number(db)];
	if (db->timer.state == DW_PROCESS_NONE && !dw_process_rests(&db->timer))
		dw_news_tell(&db->timer_news, DW_NEWS_START);
	place->is_probed = !known;
	serve_place(dw_database_number(db), starting, look_again);
	place->is_probed = false;

	/*
	 * No background worker was free for the timer: give the place back, so that other
	 * databases can have it.
	 */
	if (known || *starting || db->oid != oid || dw_database_is_held(db))
		return true;
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	dw_database_leave(db);
	LWLockRelease(dw_shared->table_lock);
	/* the place could not be given back if a task was just scheduled there */
	return db->oid == oid;
}

/*
 * Gives places to the databases that were served before, as the file says.  They need not be
 * probed: a timer that finds no extension there ends.
 */
static void
enter_served(void)
{
	ListCell   *lc;

	served = read_served();
	foreach(lc, served)
	{
		Oid			oid = lfirst_oid(lc);
		DwDatabase *db = database_is_to_be_served(oid) ? dw_database_enter(oid, false) : NULL;

		if (db == NULL)
			continue;
		places[dw_database_number(db)].is_served = true;
		probed = list_append_unique_oid(probed, oid);
		LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
		if (db->timer.state == DW_PROCESS_NONE)
			db->absent = false;
		LWLockRelease(dw_shared->table_lock);
	}
}

/* Writes the file anew if other databases are served than it says. */
static void
note_served(void)
{
	List	   *now = NIL;

	for (int i = 0; i < dw_max_databases; i++)
		if (places[i].is_served)
			now = lappend_oid(now, dw_database(i)->oid);
	if (list_difference_oid(now, served) == NIL && list_difference_oid(served, now) == NIL)
	{
		list_free(now);
		return;
	}
	write_served(now);
	list_free(served);
	served = now;
}

/* Logs that databases wait for a place, once until no database waits any more. */
static void
report_no_place(void)
{
	static bool reported = false;
	bool		waiting = pg_atomic_read_u32(&dw_shared->turned_away) != 0;

	if (waiting && !reported)
		ereport(LOG,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("delay_wheel has no place for another database: the limit of %d is reached",
						dw_max_databases),
				 errdetail("Tasks of the other databases wait until there is a place."),
				 errhint("Increase \"%s\" and restart the server.", "delay_wheel.max_databases")));
	reported = waiting;
}

/*
 * Number of background workers that Citus may have in a database, if it is loaded: its
 * maintenance daemon, and those that rebalance, one of which watches the others.
 */
static int
workers_of_citus(void)
{
	const char *executors = GetConfigOption("citus.max_background_task_executors", true, false);

	return executors == NULL ? 0 : 2 + atoi(executors);
}

/*
 * Warns if max_worker_processes is less than what the databases that are served, or were before
 * a restart, may need, but for those whose timers rest; one database counts in any case.  Later
 * warns again only if the number needed has grown, or max_executors has changed.
 */
static void
check_worker_slots(void)
{
	static int	told = 0;
	static int	told_executors = 0;
	int			databases = 0;
	int			citus = workers_of_citus();
	int			others = dw_shared->other_workers;
	int			each = 2 + dw_max_executors + citus;
	int			needed;

	for (int i = 0; i < dw_max_databases; i++)
		if (places[i].is_served && !dw_process_rests(&dw_database(i)->timer))
			databases++;
	databases = Max(databases, 1);
	needed = 1 + databases * each + others;

	if (dw_max_executors != told_executors)
		told = 0;
	told_executors = dw_max_executors;
	if (needed <= max_worker_processes || needed <= told)
		return;
	told = needed;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("delay_wheel may need %d background workers, but \"%s\" is %d",
					needed, "max_worker_processes", max_worker_processes),
			 citus > 0 ?
			 errdetail("A launcher, for each database a timer, a sweeper, up to %d executors, and up to %d workers of Citus, and those that others have registered: 1 + %d * (2 + %d + %d) + %d = %d.",
					   dw_max_executors, citus, databases, dw_max_executors, citus, others, needed) :
			 errdetail("A launcher, for each database a timer, a sweeper and up to %d executors, and those that others have registered: 1 + %d * (2 + %d) + %d = %d.",
					   dw_max_executors, databases, dw_max_executors, others, needed),
			 errhint("Set \"%s\" to %d, higher by %d for each further database with the extension, and by what parallel query, subscriptions and other extensions use, or lower \"%s\".",
					 "max_worker_processes", needed, each, "delay_wheel.max_executors")));
}

/*
 * Looks at all places and probes databases.  Returns when the launcher must do so again
 * at the latest, by dw_uptime(); DW_NEVER if it can sleep until it is woken.
 */
static int64
serve_all(void)
{
	int64		look_again = DW_NEVER;
	bool		starting = false;

	first_rest_ends = DW_NEVER;
	databases_may_be_gone = pg_atomic_exchange_u32(&dw_shared->databases_changed, 0) != 0;
	if (databases_may_be_gone)
		list_databases();
	/* those for which sessions ask come before those that are looked into in any case */
	for (int i = 0; i < dw_max_databases; i++)
		if (is_asked_for(dw_database(i)))
			serve_place(i, &starting, &look_again);
	for (int i = 0; i < dw_max_databases; i++)
		serve_place(i, &starting, &look_again);
	notice_end_of_look();

	if (pg_atomic_read_u32(&dw_shared->turned_away) != 0 && dw_database_place_free())
	{
		pg_atomic_write_u32(&dw_shared->turned_away, 0);
		pg_memory_barrier();
		list_free(probed);
		probed = NIL;
		list_databases();
	}
	/* one probe at a time: background workers are few */
	while (to_probe != NIL && !starting)
	{
		Oid			oid = linitial_oid(to_probe);

		if (!probe(oid, &starting, &look_again))
			break;
		/* the database may be gone, for which no worker was free */
		if (dw_lack_since(&dw_shared->launcher.lack) != 0 || dw_lack_since(&dw_shared->look_lack) != 0)
			probe_is_begun();
		to_probe = list_delete_first(to_probe);
		probed = list_append_unique_oid(probed, oid);
	}
	report_no_place();
	note_served();
	/* while timers start one after the other, it is not known how many will rest */
	if (!starting)
		check_worker_slots();
	return look_again;
}

/*
 * True if the launcher must look again before it sleeps: its latch was reset if it had to
 * wait for a lock or a buffer meanwhile.  calls is how often the launcher had been woken
 * before it last looked.
 */
static bool
may_have_missed(uint32 calls)
{
	if (dw_process_calls(&dw_shared->launcher) != calls || dw_worker_is_signalled())
		return true;
	if (look_worker != NULL && dw_worker_has_ended(look_worker))
		return true;
	/* of a worker that ends before it is a timer, only the postmaster tells */
	for (int i = 0; i < dw_max_databases; i++)
		if (places[i].handle != NULL && dw_database(i)->timer.state == DW_PROCESS_STARTING &&
			dw_worker_has_ended(places[i].handle))
			return true;
	return false;
}

/* True if a wing lets no task run on this server yet. */
static bool
wings_hold(void)
{
	bool		held = false;

	dw_each_wing(wing, stays_held)
		held |= wing->stays_held();
	return held;
}

/* Main function of the launcher. */
void
dw_launcher_main(Datum arg)
{
	bool		held = true;	/* the launcher must wait for the DBA, see copies/recovery.c */

	/* this process runs no query that a cancel could stop */
	pqsignal(SIGINT, PG_SIG_IGN);
	dw_crashes_watch_signals();
	dw_worker_begin();
	before_shmem_exit(leave, (Datum) 0);
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	dw_alarm_create();
	obey_reload();
	places = MemoryContextAllocZero(TopMemoryContext, dw_max_databases * sizeof(Place));
	dw_process_takes_over(&dw_shared->launcher);
	dw_process_publish(&dw_shared->launcher);

	for (;;)
	{
		int64		until = DW_NEVER;
		int64		back;
		TimestampTz wakes_at;
		uint32		calls;

		ResetLatch(MyLatch);
		calls = dw_process_looks(&dw_shared->launcher);
		/* who has called since has stored before what is read from here on */
		pg_memory_barrier();
		if (dw_worker_interrupts())
			obey_reload();
		back = dw_worker_clock_set_back();
		if (back > 0)
			clock_was_set_back(back);
		if (held && !(held = wings_hold()))
		{
			enter_served();
			list_databases();
		}
		if (!held)
			until = serve_all();
		DW_INJECT("launcher-before-sleep");
		if (may_have_missed(calls))
			continue;
		dw_worker_activity(STATE_IDLE, "delay_wheel: waiting for databases to serve");
		wakes_at = until == DW_NEVER ? DW_NEVER : dw_time_add(dw_now(), until - dw_uptime());
		dw_process_sleeps(&dw_shared->launcher, Min(first_rest_ends, wakes_at));
		dw_alarm_wait(first_rest_ends, until, dw_wait_event(wait_event, "DelayWheelLauncher"));
		dw_process_sleeps(&dw_shared->launcher, DW_AWAKE);
	}
}

/*---- The file that tells which databases were served ----*/

/*
 * Run by the launcher.  It cannot see which databases have the extension, and to look into
 * one takes a background worker.  So it keeps their OIDs in a file: at the next start it
 * knows how many background workers they may need, and a database whose timer cannot be
 * started is not forgotten.
 *
 * The file is a hint.  The launcher probes databases that are not in it, and takes off those
 * that do not exist or have no extension.  A copy of the data directory has the same OIDs.
 */

/* The file, in the data directory; its first line; an OID in each of the others. */
#define FILE_NAME		"delay_wheel.databases"
#define FILE_NEW		FILE_NAME ".tmp"
#define FILE_HEADER		"delay_wheel databases 1: OIDs of those that were served"

/* Reads no more than this from the file, whatever it is. */
#define MAX_DATABASES	10000

/* The OIDs in the file; none if there is no such file, or it is not understood. */
static List *
read_served(void)
{
	FILE	   *file = AllocateFile(FILE_NAME, PG_BINARY_R);
	List	   *databases = NIL;
	char		line[256];

	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", FILE_NAME)));
		return NIL;
	}
	if (fgets(line, sizeof(line), file) == NULL || strcmp(line, FILE_HEADER "\n") != 0)
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is not understood, and ignored", FILE_NAME)));
	else
		while (list_length(databases) < MAX_DATABASES && fgets(line, sizeof(line), file) != NULL)
		{
			Oid			database;

			if (sscanf(line, "%u", &database) == 1 && OidIsValid(database))
				databases = list_append_unique_oid(databases, database);
		}
	(void) FreeFile(file);
	return databases;
}

/* Removes the file: nothing of the extension is left in the data directory. */
static void
remove_file(void)
{
	if (unlink(FILE_NAME) != 0 && errno != ENOENT)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", FILE_NAME)));
}

/*
 * Writes the file, or removes it if there is no database.  If that fails, the log says so, and
 * the old one stays.
 */
static void
write_served(List *databases)
{
	FILE	   *file;
	bool		written;
	ListCell   *lc;

	if (databases == NIL)
	{
		remove_file();
		return;
	}
	file = AllocateFile(FILE_NEW, PG_BINARY_W);
	written = file != NULL && fprintf(file, "%s\n", FILE_HEADER) >= 0;
	foreach(lc, databases)
		written = written && fprintf(file, "%u\n", lfirst_oid(lc)) >= 0;
	/* close it in any case; an error of buffered data may show only now */
	if (file != NULL && FreeFile(file) != 0)
		written = false;
	if (written)
	{
		(void) durable_rename(FILE_NEW, FILE_NAME, LOG);
		return;
	}
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not write file \"%s\": %m", FILE_NEW)));
	(void) unlink(FILE_NEW);
}
