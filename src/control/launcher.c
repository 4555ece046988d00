/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  The process that starts a timer for each database.
 *
 * Run by the launcher, except dw_look_main(), which another background worker runs.  The postmaster
 * starts the only launcher of the server when recovery has finished, and restarts it if it ends.
 * README.md describes which databases have a place and are served, and how timers rest.
 *
 * The launcher starts a timer in a database to find out if the database has the extension.  This is
 * called a probe.  While no place is free, it starts a worker that needs no place instead
 * (dw_look_main()).  If there is nothing to start, the launcher sleeps on its latch.
 *
 * A server that came out of recovery may have to wait for its DBA before it serves any
 * database, see copies/recovery.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "catalog/pg_database.h"
#include "commands/extension.h"
#include "storage/fd.h"

#include "control.h"

/* Shortest and longest pause before a timer that ended by itself is started again. */
#define BACKOFF_MIN_US	(USECS_PER_SEC / 10)
#define BACKOFF_MAX_US	USECS_PER_MINUTE
/* Pause after a worker that looked into a database was terminated. */
#define LOOK_PAUSE_US	(5 * USECS_PER_SEC)
/* A timer that has run for this time is started again without a pause. */
#define HEALTHY_US		(10 * USECS_PER_SEC)
/* A timer registered by an earlier launcher counts as dead if it has not started in this time. */
#define START_LIMIT_US	USECS_PER_MINUTE

/*
 * Maximum time for which the start of a timer delays other timers, less than dw_rest_margin().  If
 * the owner of the database has locked a catalog, a start may take any time.
 */
#define START_TURN_US	USECS_PER_SEC

/* The launcher's own data of a place.  Times are by dw_uptime(), in us. */
typedef struct Place
{
	BackgroundWorkerHandle *handle;	/* the timer that this launcher registered, or NULL */
	int64		start_after;	/* start no timer before this time */
	int64		backoff;		/* last pause before a start; 0: no pause */
	int64		shown;			/* DwLack.since of the timer in the last report */
	Oid			told_of;		/* database of the last logged lack */
	int64		told_at;		/* when this lack was logged */
	bool		is_probed;		/* true: not known if the database has the extension */
	bool		is_served;		/* a timer has found the extension, now or before a restart */
} Place;

static Place *places = NULL;	/* one for each place in shared memory, by its index */
static uint32 wait_event = 0;

/* OIDs of databases that the launcher must probe. */
static List *to_probe = NIL;

/* OIDs of databases that the launcher has probed. */
static List *probed = NIL;

/* DwLack.since of the probe in the last logged lack. */
static int64 probe_told = 0;

/* The OIDs in the file of databases that were served. */
static List *served = NIL;

/* The time of day when the first resting timer must be started again. */
static TimestampTz first_rest_ends = DW_NEVER;

/* True if databases may have been dropped, or have become templates, since the last look. */
static bool databases_may_be_gone = false;

/*
 * The worker that runs dw_look_main(), or NULL.  After such a worker was terminated, the next
 * worker starts at look_after or later.
 */
static BackgroundWorkerHandle *look_worker = NULL;
static int64 look_after = 0;

/*---- The file of databases that were served ----*/

/*
 * The file, in the data directory, and its first line.  Each further line has an OID.  A copy of
 * the data directory has the same OIDs.
 */
#define FILE_NAME		"delay_wheel.databases"
#define FILE_NEW		FILE_NAME ".tmp"
#define FILE_HEADER		"delay_wheel databases 1: OIDs of those that were served"

/* Limit for the OIDs that are read from the file. */
#define MAX_DATABASES	10000

/* Returns the OIDs in the file; NIL if there is no such file, or if it cannot be read. */
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
				 errmsg("ignoring invalid file \"%s\"", FILE_NAME)));
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

/*
 * Writes the file, or removes it if there is no database.  After a failure, logs it and keeps the
 * old file.
 */
static void
write_served(List *databases)
{
	FILE	   *file;
	bool		written;
	ListCell   *lc;

	if (databases == NIL)
	{
		/* then the data directory has no file of the extension */
		if (unlink(FILE_NAME) != 0 && errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not remove file \"%s\": %m", FILE_NAME)));
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

/*---- Databases and their places ----*/

/*
 * Frees the place of a database, unless a transaction has pinned it or executors still use it.
 * Only the launcher calls this, if the database has neither timer nor extension.  The caller has
 * the exclusive table lock.
 */
static void
free_place(DwDatabase *db)
{
	Oid			database = db->oid;
	Place	   *place = &places[dw_database_number(db)];

	/* its executors are about to end, but still use the place */
	dw_each_executor(e)
		if (e->database == database)
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
 * Returns true if a timer can and must connect to the database.  Templates are not served, so that
 * they can be copied.
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
 * Reads the list of databases: adds new databases to to_probe, and removes dropped databases from
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

/* Returns true if the database with this OID exists, and is_to_be_served(). */
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
	ScanKeyInit(&key, Anum_pg_database_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(oid));
	/* without a database, the index can be used only if it was in the relcache init file */
	scan = systable_beginscan(rel, DatabaseOidIndexId, criticalSharedRelcachesBuilt, NULL, 1, &key);
	tuple = systable_getnext(scan);
	result = HeapTupleIsValid(tuple) && is_to_be_served((Form_pg_database) GETSTRUCT(tuple));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(TopMemoryContext);
	return result;
}

/* Returns the name of a database, or its OID if it is gone, in TopMemoryContext. */
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
 * Reports, in the view status and in the log, that no background worker is free to look for the
 * extension in a database.
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
			 errdetail("If the database has the extension, its tasks wait."),
			 errhint("You may need to increase \"%s\".", "max_worker_processes")));
	pfree(name);
}

/* Notes that the next database to probe is being probed, or is gone. */
static void
probe_is_begun(void)
{
	dw_lack_ends(&dw_shared->launcher.lack);
	dw_lack_ends(&dw_shared->look_lack);
	pg_atomic_write_u32(&dw_shared->unlooked, InvalidOid);
}

/*
 * Reports once that no background worker is free for the timer of a place.  Logs the same database
 * only once in DW_LOG_INTERVAL_US: if databases take turns, each database is refused again and
 * again.
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

/* Returns the lack in which a missing background worker for a place's timer or probe is noted. */
static DwLack *
lack_of(int number)
{
	return places[number].is_probed ? &dw_shared->launcher.lack : &dw_database(number)->timer.lack;
}

/*
 * Starts the timer of a place.  Returns false if no background worker is free, or other processes
 * wait for a worker.
 */
static bool
start_timer(int number)
{
	DwDatabase *db = dw_database(number);
	Place	   *place = &places[number];
	bool		registered = dw_start_may_be_tried(lack_of(number), DW_START_TIMER);

	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	dw_process_set_state(&db->timer, DW_PROCESS_STARTING);
	/* the timer does not rest now: it reads all news that sessions have stored before */
	dw_rest_publish(&db->timer_news, DW_AWAKE);
	db->absent = false;
	/* a request to restart was for the previous timer: the new timer reads all settings */
	dw_restart_forget(&db->timer_news);
	LWLockRelease(dw_shared->table_lock);

	registered = registered &&
		dw_worker_start("timer", number, &db->oid, sizeof(Oid), &place->handle);
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	if (!registered)
		dw_process_set_state(&db->timer, DW_PROCESS_NONE);
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

/* Resets the state of a registered timer that has died without a reset. */
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

/* Returns true if a session has asked for the timer of this place. */
static bool
is_asked_for(DwDatabase *db)
{
	return dw_news_is_told(&db->timer_news, DW_NEWS_START) ||
		dw_news_is_told(&db->timer_news, DW_NEWS_CREATED);
}

/*
 * Returns true if the timer rests, and need not be started yet.  Then lowers first_rest_ends to the
 * time at which the timer must be started.
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

/* Makes all resting timers start, since their next work may be due earlier now. */
static void
end_all_rests(void)
{
	bool		earlier;

	dw_each_database(db)
		if (OidIsValid(db->oid))
			(void) dw_rest_end_ask(&db->timer_news, DW_AWAKE, &earlier);
}

/*
 * Reports that the clock was set back by this time in microseconds, and makes all resting timers
 * start.  Running timers end by themselves, and the launcher starts new timers.
 */
static void
clock_was_set_back(int64 back)
{
	TimestampTz was = Max(dw_now() + back, dw_atomic_read(&dw_shared->clock_was));
	char		text[128];

	pg_atomic_write_u64(&dw_shared->clock_was, (uint64) was);
	snprintf(text, sizeof(text), "the clock was set back by %.3f s: tasks wait until they are due by the new time",
			 back / 1000000.0);
	dw_each_database(db)
		if (OidIsValid(db->oid))
			dw_problem(&db->problem, text);
	end_all_rests();
}

/*
 * Called after the settings were read.  Publishes values of the server for sessions.  Ends all
 * rests if a setting has changed that changes the times of timers' work, or that timers note for
 * views.  The first call only remembers the settings.
 */
static void
obey_reload(void)
{
	static int	known_timeout = INT_MIN;
	static bool known_enabled;

	dw_logins_publish(&dw_shared->logins);
	/* a database may have its own value of "enabled", which only its timer can read */
	if (dw_retention_changed() ||
		(known_timeout != INT_MIN &&
		 (known_timeout != dw_timer_idle_timeout || known_enabled != dw_enabled)))
		end_all_rests();
	known_timeout = dw_timer_idle_timeout;
	known_enabled = dw_enabled;
}

/* If the timer of this place has ended, decides when the next timer may start. */
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
	{
		place->backoff = place->backoff == 0 ? BACKOFF_MIN_US : Min(place->backoff * 2, BACKOFF_MAX_US);
		place->start_after = dw_uptime() + place->backoff;
	}
}

/* A timer of this place starts: delays other timers by START_TURN_US, see serve_place(). */
static void
await_start(const DwDatabase *db, const Place *place, bool *starting, int64 *look_again)
{
	int64		turn_ends = db->timer.started + START_TURN_US;

	if (dw_uptime() < turn_ends)
	{
		*starting = true;
		*look_again = Min(*look_again, turn_ends);
	}
	if (place->handle == NULL)
		*look_again = Min(*look_again, db->timer.started + START_LIMIT_US);
}

/*
 * Decides about a place whose timer does not run: frees the place, starts a timer, or postpones the
 * decision.  Sets *starting to true if a timer is starting, and lowers *look_again to the time of
 * the next decision.
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
		await_start(db, place, starting, look_again);
		return;
	}

	/* a command holds the database; the end of the hold wakes the launcher */
	if (dw_database_is_held(db))
		return;
	/* one timer starts at a time; the launcher is woken when it has started */
	resting = goes_on_resting(db);
	if (resting)
		dw_lack_ends(&db->timer.lack);
	if ((resting || *starting) && !databases_may_be_gone)
	{
		/* the timer still lacks a worker */
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
		dw_notes_forget_database(db->oid);
		wanted = false;
	}
	if (db->absent)
		place->is_served = false;
	if (db->absent && !wanted)
	{
		LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
		if (!is_asked_for(db))
			free_place(db);
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
	/* keep the request for later: without a request, the place might be freed */
	if (wanted)
		dw_news_tell(&db->timer_news, DW_NEWS_START);
	if (place->start_after > dw_uptime())
		*look_again = Min(*look_again, place->start_after);
	else if (!*starting)
		*look_again = Min(*look_again, dw_uptime() + dw_start_wait(lack_of(number), DW_START_TIMER));
}

/*
 * Main function of the worker that looks for the extension in a database without a place.  If the
 * worker finds the extension, it sets turned_away, since the database waits for a place.
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
	/* the postmaster informs the launcher (bgw_notify_pid) */
	proc_exit(0);
}

/*
 * Starts a worker that looks for the extension in a database.  Returns true if the worker is
 * started, or the database must not be served.  Returns false if the launcher must try again:
 * another worker runs, no background worker is free, or turned_away is set.
 */
static bool
start_look(Oid oid, int64 *look_again)
{
	DwLack	   *lack = &dw_shared->look_lack;

	/* if turned_away is set, a worker is useless: all databases are probed when a place is free */
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
		/* a command that needs this database without sessions now waits (hold.c) */
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
 * Notes the end of the worker.  If it was terminated before it had a result, adds the database to
 * to_probe again.
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
 * Begins to look for the extension in a database: starts its timer if a place is free, else calls
 * start_look().  Returns false if the launcher must try again.
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
	 * No background worker was free for the timer: free the place, so that other databases can have
	 * it.
	 */
	if (known || *starting || db->oid != oid || dw_database_is_held(db))
		return true;
	LWLockAcquire(dw_shared->table_lock, LW_EXCLUSIVE);
	free_place(db);
	LWLockRelease(dw_shared->table_lock);
	/* if a task was just scheduled there, the place could not be freed */
	return db->oid == oid;
}

/*
 * Gives places to the databases that were served before, by the file.  No probe is needed: a timer
 * that finds no extension ends.
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

/* Writes the file again if it does not list exactly the served databases. */
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

/* Logs that databases wait for a place, at most once until no database waits. */
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
 * Returns the maximum number of background workers of Citus, if loaded, in a database: its
 * maintenance daemon, workers that rebalance, and a worker that monitors them.
 */
static int
workers_of_citus(void)
{
	const char *executors = GetConfigOption("citus.max_background_task_executors", true, false);

	return executors == NULL ? 0 : 2 + atoi(executors);
}

/*
 * Warns if max_worker_processes is less than the served databases may need.  Counts databases
 * served before a restart, but not databases whose timers rest.  Counts at least one database.
 * Warns again only if the needed number has grown, or max_executors has changed.
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
			 errdetail("One launcher; for each database a timer, a sweeper, up to %d executors and up to %d workers of Citus; workers that other libraries have registered: 1 + %d * (2 + %d + %d) + %d = %d.",
					   dw_max_executors, citus, databases, dw_max_executors, citus, others, needed) :
			 errdetail("One launcher; for each database a timer, a sweeper and up to %d executors; workers that other libraries have registered: 1 + %d * (2 + %d) + %d = %d.",
					   dw_max_executors, databases, dw_max_executors, others, needed),
			 errhint("Set \"%s\" to %d, plus %d for each further database with the extension, plus the workers of parallel query, subscriptions and other extensions; or lower \"%s\".",
					 "max_worker_processes", needed, each, "delay_wheel.max_executors")));
}

/*
 * Looks at all places and probes databases.  Returns the time of the next look, by dw_uptime();
 * DW_NEVER if the launcher can sleep until it is woken.
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
	/* requests of sessions come before probes */
	for (int i = 0; i < dw_max_databases; i++)
		if (is_asked_for(dw_database(i)))
			serve_place(i, &starting, &look_again);
	for (int i = 0; i < dw_max_databases; i++)
		serve_place(i, &starting, &look_again);
	notice_end_of_look();

	if (pg_atomic_read_u32(&dw_shared->turned_away) != 0 && dw_database_unused() != NULL)
	{
		pg_atomic_write_u32(&dw_shared->turned_away, 0);
		pg_memory_barrier();
		list_free(probed);
		probed = NIL;
		list_databases();
	}
	/* one probe at a time, since background workers are few */
	while (to_probe != NIL && !starting)
	{
		Oid			oid = linitial_oid(to_probe);

		if (!probe(oid, &starting, &look_again))
			break;
		/* the database that lacked a worker may be gone */
		if (dw_lack_since(&dw_shared->launcher.lack) != 0 || dw_lack_since(&dw_shared->look_lack) != 0)
			probe_is_begun();
		to_probe = list_delete_first(to_probe);
		probed = list_append_unique_oid(probed, oid);
	}
	report_no_place();
	note_served();
	/* while timers still start, the number of resting timers is not known */
	if (!starting)
		check_worker_slots();
	return look_again;
}

/*
 * Returns true if the launcher must look again before it sleeps: a wait for a lock or a buffer may
 * have reset its latch.  calls: number of wakeups before the launcher's last look.
 */
static bool
may_have_missed(uint32 calls)
{
	if (dw_process_calls(&dw_shared->launcher) != calls || dw_worker_is_signalled())
		return true;
	if (look_worker != NULL && dw_worker_has_ended(look_worker))
		return true;
	/* only the postmaster notices a worker that ends before it becomes a timer */
	for (int i = 0; i < dw_max_databases; i++)
		if (places[i].handle != NULL && dw_database(i)->timer.state == DW_PROCESS_STARTING &&
			dw_worker_has_ended(places[i].handle))
			return true;
	return false;
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
		/* a process that has called before this has stored its news, which are read next */
		pg_memory_barrier();
		if (dw_worker_interrupts())
			obey_reload();
		back = dw_worker_clock_set_back();
		if (back > 0)
			clock_was_set_back(back);
		if (held && !(held = dw_wings_hold(true)))
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
