/*-------------------------------------------------------------------------
 *
 * touched.c
 *	  What the current transaction did to tasks, and who hears of it.
 *
 * Run by backends that schedule, cancel and reschedule, and by executors
 * whose tasks do so.
 *
 * What a transaction wrote and locked is remembered in order of the calls,
 * with the subtransaction that did it.  After its commit hints of what was
 * written go to the timer; at an abort, when the locks are released, hints of
 * what was locked, since a claim may have met the lock and forgotten the task.
 * What was kept is only locked, so both ends release it; but no claim has come
 * before its due time.  The callbacks cannot fail, wait or allocate: all memory
 * is reserved by the dw_touch functions.
 *
 * Which tasks it ended is remembered in the same way, for those who wait for
 * them (wait.c).
 *
 * A commit has three moments.  It is visible; it tells others what it has
 * changed in catalogs; its locks are gone.  Queues, pauses, marks and waiters
 * are told in the first one, since others go by that when they have got our
 * locks.  Hints are brought, and waiters let go, in the last one: so a task
 * finds what its transaction did.  One that somebody finds before would not;
 * so if there is anything to be missed, the transaction is published meanwhile
 * (ending.c).
 *
 * Beyond MAX_HINTS only the lowest due of each lane is kept, and the lane is
 * read again from there.
 *
 * Steps of the model in test/model are named C1 to C3, N1, N2, N4 and A1, A2.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "replication/worker_internal.h"
#include "storage/latch.h"
#include "storage/sinval.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "../base/clock.h"
#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/settings.h"
#include "../rows/catalog.h"
#include "../rows/task_rows.h"
#include "../shmem/committing.h"
#include "../shmem/lanes.h"
#include "../shmem/outcome.h"
#include "../shmem/shared.h"
#include "../shmem/waiters.h"
#include "my_session.h"
#include "touched.h"

#define MAX_HINTS	1024

typedef enum TouchKind
{
	TOUCH_WRITTEN,
	TOUCH_LOCKED,				/* to be deleted or moved */
	TOUCH_KEPT					/* locked, but left as it is */
} TouchKind;

typedef struct Touched
{
	DwHint		hint;
	SubTransactionId subid;
	TouchKind	kind;
} Touched;

typedef struct LaneLow
{
	DwLaneRef	lane;
	TimestampTz due;
	bool		locked;			/* some of it was locked */
} LaneLow;

typedef struct Ended
{
	int64		id;
	DwOutcome	outcome;
	SubTransactionId subid;
} Ended;

/* All in TopTransactionContext. */
static Touched *touched = NULL;
static int	ntouched = 0;
static int	touched_size = 0;
static LaneLow *lows = NULL;
static int	nlows = 0;
static int	lows_size = 0;
static Ended *ended = NULL;
static int	nended = 0;
static int	ended_size = 0;

/* Committed: the rest is done when our locks are gone. */
static bool delivers = false;
static bool more_ended = false;
static bool all_touched = false;
static bool extension_created = false;
static bool prepared_ended = false;
static bool roles_dropped = false;
static bool control_changed = false;

/* What is to be said of tasks of another origin. */
static enum
{
	UNARMED_NO_NEWS,
	UNARMED_LEFT,
	UNARMED_NONE_LEFT
}			unarmed_news = UNARMED_NO_NEWS;
static char prepare_gid[201];	/* GIDSIZE of twophase.h, and some */

/* Stands for none: it never was, so the timer looks for all there are. */
const DwLaneRef dw_no_lane = {0, 0};

/* Room for one more in an array of the transaction. */
static void *
reserve_touched(void *array, int n, int *size, Size element)
{
	if (n < *size)
		return array;
	if (array == NULL)
	{
		*size = 16;
		return MemoryContextAlloc(TopTransactionContext, *size * element);
	}
	*size *= 2;
	return repalloc(array, *size * element);
}

static void
lower_lane(DwLaneRef lane, TimestampTz due, bool locked)
{
	/* the last one first: a transaction mostly stays with one lane */
	for (int i = nlows - 1; i >= 0; i--)
		if (lows[i].lane.index == lane.index &&
			lows[i].lane.generation == lane.generation)
		{
			lows[i].due = Min(lows[i].due, due);
			lows[i].locked |= locked;
			return;
		}
	lows = reserve_touched(lows, nlows, &lows_size, sizeof(LaneLow));
	lows[nlows].lane = lane;
	lows[nlows].due = due;
	lows[nlows].locked = locked;
	nlows++;
}

/* Whatever becomes of this transaction: look at the lane from due on. */
void
dw_touch_lane(DwLaneRef lane, TimestampTz due)
{
	lower_lane(lane, due, false);
}

static void
remember_hint(const DwHint *hint, TouchKind kind)
{
	if (nlows > 0 || ntouched >= MAX_HINTS)
	{
		lower_lane(hint->lane, hint->due, kind != TOUCH_WRITTEN);
		return;
	}
	touched = reserve_touched(touched, ntouched, &touched_size, sizeof(Touched));
	touched[ntouched].hint = *hint;
	touched[ntouched].subid = GetCurrentSubTransactionId();
	touched[ntouched].kind = kind;
	ntouched++;
}

/* This transaction wrote the row: tell the timer if it commits. */
void
dw_touch_written(const DwHint *hint)
{
	remember_hint(hint, TOUCH_WRITTEN);
}

/* It locked the row as it was: tell the timer if it is rolled back. */
void
dw_touch_locked(const DwHint *hint)
{
	remember_hint(hint, TOUCH_LOCKED);
}

/* It locked the row and leaves it: tell the timer at the end, if it is due. */
void
dw_touch_kept(const DwHint *hint)
{
	remember_hint(hint, TOUCH_KEPT);
}

/* Is it news at the end of the (sub)transaction that did it? */
static bool
is_news(const Touched *t, bool committed)
{
	if (t->kind == TOUCH_KEPT)
		return t->hint.due <= dw_now();
	return committed == (t->kind == TOUCH_WRITTEN);
}

/*
 * It ended a task: tell who waits for that, if it commits.
 *
 * Of many cancelled tasks, those who wait find out themselves.  What a task
 * does with others never keeps its own outcome from being told.
 */
void
dw_touch_ended(int64 id, DwOutcome outcome)
{
	(void) dw_my_database();
	if (nended >= MAX_HINTS && outcome == DW_CANCELLED)
	{
		more_ended = true;
		return;
	}
	ended = reserve_touched(ended, nended, &ended_size, sizeof(Ended));
	ended[nended].id = id;
	ended[nended].outcome = outcome;
	ended[nended].subid = GetCurrentSubTransactionId();
	nended++;
}

/* Plain SQL may have written rows: look at everything afterwards. */
void
dw_touch_all(void)
{
	(void) dw_my_database();
	all_touched = true;
}

/* The extension was created: start a timer, if it commits. */
void
dw_touch_extension(void)
{
	if (dw_my_database() == NULL)
		dw_warn_no_place();
	extension_created = true;
}

/*
 * Queues, pauses or marks were changed: tell timer and executors, if it commits.
 */
void
dw_touch_control(void)
{
	(void) dw_my_database();
	control_changed = true;
}

/* Has this transaction done so, maybe in a subtransaction that was undone? */
bool
dw_control_is_touched(void)
{
	return control_changed;
}

/* Rows of another origin were written; or those that are left are armed. */
void
dw_touch_unarmed(bool left)
{
	(void) dw_my_database();
	unarmed_news = left ? UNARMED_LEFT : UNARMED_NONE_LEFT;
}

/* Roles were dropped: tell all timers, if it commits. */
void
dw_touch_roles(void)
{
	roles_dropped = true;
}

/* This transaction ends a prepared one that left rows for that. */
void
dw_touch_prepared(void)
{
	prepared_ended = true;
}

/* The name under which this transaction is being prepared. */
void
dw_touched_prepare_as(const char *gid)
{
	strlcpy(prepare_gid, gid, sizeof(prepare_gid));
}

static void
forget_touched(void)
{
	/* the memory went with the transaction */
	touched = NULL;
	lows = NULL;
	ended = NULL;
	ntouched = touched_size = nlows = lows_size = nended = ended_size = 0;
	delivers = more_ended = all_touched = extension_created = prepared_ended = roles_dropped = control_changed = false;
	unarmed_news = UNARMED_NO_NEWS;
	prepare_gid[0] = '\0';
	dw_tasks_unlocked();
	dw_my_database_unpin();
}

/* The lane must be read again from due on. */
static void
reload_lane(DwDatabase *db, DwLaneRef ref, TimestampTz due)
{
	DwLane	   *lane = &dw_lanes[ref.index];

	dw_atomic_lower(&lane->reload_from, due);
	dw_lane_dirty(db, lane);
	pg_memory_barrier();
	/* see dw_lane_leave */
	if (pg_atomic_read_u32(&lane->generation) != ref.generation)
		dw_atomic_lower(&db->reload_from, due);
}

/*
 * Step C2: brings one hint to where the timer finds it; one that stands for
 * many tasks from its due time on goes into no inbox.  Returns when the timer
 * is needed; DW_AWAKE is at once.
 */
static TimestampTz
bring(DwDatabase *db, const DwHint *hint, bool many)
{
	DwLane	   *lane = &dw_lanes[hint->lane.index];
	TimestampTz needed = DW_NEVER;
	bool		crowded = false;

	/* C1, the row is visible, comes before the horizon is read */
	pg_memory_barrier();

	if (hint->due <= dw_atomic_read(&lane->horizon))
	{
		DW_INJECT("commit-before-push");
		if (!many && dw_inbox_push(db, hint, &crowded))
			return crowded ? DW_AWAKE : hint->due;
		reload_lane(db, hint->lane, hint->due);
		return DW_AWAKE;
	}

	DW_INJECT("commit-before-far");
	if (dw_atomic_lower(&lane->next_far, hint->due))
	{
		dw_lane_dirty(db, lane);
		needed = dw_time_add(hint->due, -dw_window_us() / 2);
	}
	pg_memory_barrier();
	if (pg_atomic_read_u32(&lane->generation) != hint->lane.generation)
	{
		dw_atomic_lower(&db->reload_from, hint->due);
		needed = DW_AWAKE;
	}
	return needed;
}

/* Tells the timer at once; for callbacks and for executors. */
void
dw_deliver(DwDatabase *db, const DwHint *hint)
{
	dw_wake_timer(db, bring(db, hint, false));
}

/*
 * There was no place for this database.  There may be one now, which was
 * loaded before our rows were visible; if not, the launcher sees to it that
 * the database gets one when there is one, and it is loaded then.
 */
static bool
find_place_late(bool committed)
{
	/* visible rows come before the look */
	pg_memory_barrier();
	all_touched = dw_my_database_find() != NULL;
	if (!all_touched && committed)
	{
		pg_atomic_write_u32(&dw_shared->turned_away, 1);
		pg_memory_barrier();
		dw_wake_launcher();
	}
	return all_touched;
}

/* Tells those who wait for a task that has ended, or that something changed. */
static void
tell_waiters(DwDatabase *db, bool committed)
{
	for (int i = 0; i < nended && committed; i++)
		dw_tell_waiters(db, ended[i].id, ended[i].outcome);
	if (control_changed || prepared_ended || all_touched || more_ended)
		dw_make_waiters_look(db);
}

/*
 * At the end of the transaction, committed or not, when it is visible; false if
 * nobody is to hear of it.
 */
static bool
tell_at_once(bool committed)
{
	DwDatabase *db;

	if (committed && roles_dropped)
		dw_roles_dropped();
	if (ntouched == 0 && nlows == 0 && nended == 0 && !all_touched && !extension_created &&
		!control_changed && unarmed_news == UNARMED_NO_NEWS)
		return false;
	if (dw_my_pinned_database() == NULL && !find_place_late(committed))
		return false;
	db = dw_my_pinned_database();

	DW_INJECT("commit-visible");
	/* what was prepared may have changed it; after an abort it costs a look */
	if (control_changed || prepared_ended)
	{
		pg_atomic_fetch_add_u32(&db->control, 1);
		dw_wake_timer(db, DW_AWAKE);
	}
	tell_waiters(db, committed);
	DW_INJECT("commit-before-news");
	return true;
}

/* Then, and after a commit when the locks are gone: what the timer is to look at. */
static void
deliver_all(bool committed)
{
	DwDatabase *db = dw_my_pinned_database();
	TimestampTz needed = DW_NEVER;

	DW_INJECT("commit-before-hints");
	for (int i = 0; i < ntouched; i++)
		if (is_news(&touched[i], committed))
		{
			TimestampTz at = bring(db, &touched[i].hint, false);

			needed = Min(needed, at);
		}
	for (int i = 0; i < nlows; i++)
	{
		DwHint		low = {.due = lows[i].due, .lane = lows[i].lane};
		TimestampTz at = bring(db, &low, true);

		needed = Min(needed, at);
	}
	if (all_touched)
	{
		dw_atomic_lower(&db->reload_from, PG_INT64_MIN);
		needed = DW_AWAKE;
	}
	if (committed && unarmed_news != UNARMED_NO_NEWS)
		pg_atomic_write_u32(&db->unarmed, unarmed_news == UNARMED_LEFT ? DW_UNARMED_MET : 0);
	if (prepared_ended)
	{
		pg_atomic_write_u32(&db->prepared_ended, 1);
		needed = DW_AWAKE;
	}
	if (committed && extension_created)
	{
		/* a timer that has just found no extension is to be followed by one */
		pg_atomic_write_u32(&db->wanted, 1);
		dw_wake_launcher();
		needed = DW_AWAKE;
	}

	DW_INJECT("commit-before-wake");
	if (needed != DW_NEVER)
		dw_wake_timer(db, needed);
}

/*---- What must not be missed ----*/

/* Has the transaction changed anything in catalogs? */
static bool
has_catalog_news(void)
{
	SharedInvalidationMessage *messages;
	bool		init_file;

	return xactGetCommittedInvalidationMessages(&messages, &init_file) > 0;
}

/* Who waits for a task finds the xid of the subtransaction, which has no lock. */
static bool
ended_in_subtransaction(void)
{
	for (int i = 0; i < nended; i++)
		if (ended[i].subid != TopSubTransactionId)
			return true;
	return false;
}

/* N1: before the commit is visible. */
static void
publish_ending(void)
{
	TransactionId xid = GetTopTransactionIdIfAny();

	if (!TransactionIdIsValid(xid) ||
		(ntouched == 0 && nlows == 0 && nended == 0 && !all_touched && !control_changed))
		return;
	if (ended_in_subtransaction() || has_catalog_news())
		dw_ending_publish(xid);
}

/* No owner stands for any lane. */
static void
write_prepared_row(Oid owner, int16 queue, int16 priority, TimestampTz due)
{
	Datum		values[Natts_prepared];
	bool		nulls[Natts_prepared] = {0};

	values[Anum_prepared_gid - 1] = CStringGetTextDatum(prepare_gid);
	values[Anum_prepared_owner - 1] = ObjectIdGetDatum(owner);
	values[Anum_prepared_queue - 1] = Int16GetDatum(queue);
	values[Anum_prepared_priority - 1] = Int16GetDatum(priority);
	values[Anum_prepared_due - 1] = TimestampTzGetDatum(due);
	dw_prepared_insert(values, nulls);
}

/*
 * What a prepared transaction touched goes into a table, since whoever ends
 * it may be another process, after a restart.
 */
static void
write_prepared(void)
{
	DwCatalog	cat;

	if (ntouched == 0 && nlows == 0 && !all_touched && !control_changed)
		return;
	/* this very transaction has dropped the extension */
	if (!dw_catalog_lookup(&cat))
		return;
	/* a commit has none; a table with wide columns is not touched without */
	PushActiveSnapshot(GetTransactionSnapshot());
	for (int i = 0; i < ntouched; i++)
		dw_touch_lane(touched[i].hint.lane, touched[i].hint.due);
	for (int i = 0; i < nlows; i++)
	{
		DwLane	   *lane = &dw_lanes[lows[i].lane.index];
		bool		same = pg_atomic_read_u32(&lane->generation) == lows[i].lane.generation;

		write_prepared_row(same ? lane->owner : InvalidOid, lane->queue, lane->priority,
						   lows[i].due);
	}
	if (all_touched || control_changed)
		write_prepared_row(InvalidOid, 0, 0, DT_NOBEGIN);
	PopActiveSnapshot();
	/* after the rows, see note_nameless_end() */
	if (prepare_gid[0] == '\0' && dw_my_database() != NULL)
		pg_atomic_fetch_add_u32(&dw_my_database()->nameless, 1);
}

/*
 * Apply workers of logical replication (two_phase) prepare transactions, and
 * end them, without a command that we could see: triggers may have touched tasks
 * there.  What they have prepared has no name.  They end it in a transaction of
 * its own, without an xid.  If there may be anything without a name, the commit
 * of such a transaction makes the timer read all anew.  Nobody could publish it,
 * for that is before us: a load may find its tasks a moment too early.
 */
static void
note_nameless_end(void)
{
	DwCatalog	cat;
	DwDatabase *db;
	uint32		nameless;

	if (!IsLogicalWorker() || TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return;
	db = dw_my_database_find();
	if (db == NULL)
		return;
	nameless = pg_atomic_read_u32(&db->nameless);
	if (nameless == 0 || !dw_catalog_lookup(&cat))
		return;
	dw_touch_all();
	dw_touch_control();
	PushActiveSnapshot(GetTransactionSnapshot());
	/* who prepares one after this look has counted it after its rows were there */
	if (!dw_prepared_is_open(""))
		pg_atomic_compare_exchange_u32(&db->nameless, &nameless, 0);
	PopActiveSnapshot();
}

static void
touched_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			note_nameless_end();
			publish_ending();
			if (ntouched > 0)
				DW_INJECT("commit-before-visible");
			break;
		case XACT_EVENT_COMMIT:
			delivers = tell_at_once(true);
			if (!delivers)
				forget_touched();
			break;
		case XACT_EVENT_ABORT:
			if (tell_at_once(false))
				deliver_all(false);
			dw_ending_withdraw();
			forget_touched();
			break;
		case XACT_EVENT_PRE_PREPARE:
			write_prepared();
			break;
		case XACT_EVENT_PREPARE:
			forget_touched();
			break;
		default:
			break;
	}
}

/* Called for each resource owner of the transaction, when all locks are gone. */
static void
touched_release_callback(ResourceReleasePhase phase, bool committed, bool top_level, void *arg)
{
	if (!committed || phase != RESOURCE_RELEASE_AFTER_LOCKS || !top_level)
		return;
	/* N4 */
	dw_ending_withdraw();
	if (!delivers)
		return;
	deliver_all(true);
	for (int i = 0; i < nended; i++)
		dw_let_waiters_go(dw_my_pinned_database(), ended[i].id);
	forget_touched();
}

/*
 * Forgets what an aborted subtransaction wrote, and hints again what it had
 * locked: its locks are gone.  Lows stay; they cost a look at most, which
 * those with locks get now, too.
 */
static void
touched_subxact_callback(SubXactEvent event, SubTransactionId subid,
				 SubTransactionId parent, void *arg)
{
	DwDatabase *db = dw_my_pinned_database();

	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	dw_tasks_unlocked();

	/* it may be this one that armed them */
	if (unarmed_news == UNARMED_NONE_LEFT)
		unarmed_news = UNARMED_NO_NEWS;

	/* numbers grow: those from subid on are inside */
	while (ntouched > 0 && touched[ntouched - 1].subid >= subid)
	{
		ntouched--;
		if (db != NULL && is_news(&touched[ntouched], false))
			dw_deliver(db, &touched[ntouched].hint);
	}
	while (nended > 0 && ended[nended - 1].subid >= subid)
		nended--;
	for (int i = 0; i < nlows && db != NULL; i++)
		if (lows[i].locked)
		{
			reload_lane(db, lows[i].lane, lows[i].due);
			dw_wake_timer(db, DW_AWAKE);
		}
}

/* Called once per server process tree: backends inherit it. */
void
dw_touched_install(void)
{
	RegisterXactCallback(touched_xact_callback, NULL);
	RegisterSubXactCallback(touched_subxact_callback, NULL);
	RegisterResourceReleaseCallback(touched_release_callback, NULL);
}

/* In binary, owners are sent as OIDs of the publisher. */
static void
warn_of_binary(void)
{
	static bool warned = false;

	if (warned)
		return;
	warned = true;
	ereport(WARNING,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("subscription \"%s\" does not replicate tasks of delay_wheel", MySubscription->name),
			 errdetail("In binary, their owners are sent as OIDs, which may mean other roles here."),
			 errhint("Use ALTER SUBSCRIPTION ... SET (binary = false).")));
}

/*
 * An apply worker fires row triggers only: the statement trigger, by which
 * the timer hears of plain SQL, is silent.
 */
bool
dw_accept_replicated(TriggerData *trigger, HeapTuple row)
{
	TupleDesc	desc = RelationGetDescr(trigger->tg_relation);
	Datum		origin;
	bool		isnull;

	if (!IsLogicalWorker())
		return true;
	if (MySubscription != NULL && MySubscription->binary)
	{
		warn_of_binary();
		return false;
	}
	if (dw_shared == NULL || strcmp(RelationGetRelationName(trigger->tg_relation), "task") != 0)
		return true;
	origin = SPI_getbinval(row, desc, SPI_fnumber(desc, "origin"), &isnull);
	if (!isnull && DatumGetInt64(origin) == dw_origin_stamp())
		dw_touch_all();
	else
		dw_touch_unarmed(true);
	return true;
}

/*
 * The lane of a task, entered if need be.  The last one is remembered: most
 * sessions schedule into one lane only.
 */
bool
dw_lane_find_or_enter(Oid owner, int16 queue, int16 priority, DwLaneRef *lane)
{
	static DwLaneRef last;
	static Oid	last_owner = InvalidOid;
	static int16 last_queue;
	static int16 last_priority;
	DwDatabase *db = dw_my_database();

	if (last_owner != owner || last_queue != queue || last_priority != priority ||
		pg_atomic_read_u32(&dw_lanes[last.index].generation) != last.generation)
	{
		last_owner = InvalidOid;
		if (db == NULL || !dw_lane_enter(db, owner, queue, priority, &last))
			return false;
		last_owner = owner;
		last_queue = queue;
		last_priority = priority;
	}
	*lane = last;
	return true;
}

/*
 * The lane of a new task.  If all places are taken, the timer is given a
 * second to find one that is not needed any more.  It knows of lanes that are
 * idle; of one whose tasks were cancelled or deleted it thinks that they are yet
 * to come, until it reads all lanes again.
 */
DwLaneRef
dw_require_lane(Oid owner, int16 queue, int16 priority)
{
	static uint32 wait_event = 0;
	DwLaneRef	lane;
	DwDatabase *db = dw_my_database();

	if (db == NULL)
	{
		dw_warn_no_place();
		return dw_no_lane;
	}

	for (int i = 0; i < 100; i++)
	{
		if (dw_lane_find_or_enter(owner, queue, priority, &lane))
			return lane;
		if (i == 10)
			dw_atomic_lower(&db->reload_from, PG_INT64_MIN);
		dw_wake_timer(db, DW_AWAKE);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
						 dw_wait_event(wait_event, "DelayWheelLane"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many combinations of owner, queue and priority have pending tasks: the limit of %d is reached",
					dw_max_lanes),
			 errhint("Increase \"%s\" and restart the server.", "delay_wheel.max_lanes")));
}

/*
 * The same for a task that must not fail: without a place for its lane, the
 * timer is told to look for all there are.
 */
DwLaneRef
dw_lane_if_any(Oid owner, int16 queue, int16 priority)
{
	DwLaneRef	lane;

	if (dw_lane_find_or_enter(owner, queue, priority, &lane))
		return lane;
	dw_touch_all();
	return dw_no_lane;
}
