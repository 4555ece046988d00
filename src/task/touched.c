/*-------------------------------------------------------------------------
 *
 * touched.c
 *	  Notes the effects of the current transaction on tasks, and informs other processes.
 *
 * Run by sessions that schedule, cancel and reschedule, and by executors whose tasks do so.
 * README.md says what is told at which moment of a commit, and why.
 *
 * A hint gives the timer id, due time, TID and lane of one task.  The timer has in memory the tasks
 * of a lane up to some due time, the lane's horizon.  If the task is due by the horizon, the hint
 * is put into the inbox of the database.  Otherwise the hint only lowers next_far of the lane: the
 * time by which the timer must load more tasks.  If a hint cannot be delivered, it lowers
 * reload_from of the lane: the due time from which the timer reads the lane again.
 *
 * Locked rows get their hint after an abort, when the lock has been released, since an executor may
 * have failed to claim the task and have forgotten it; so may a receiver in this transaction, which
 * finds no row.  A message whose lease lasts gets no hint, since its entry would stay in memory even
 * if the lease is extended again, or ends.  Instead the timer looks at leases when this lease ends
 * (step V1, timer/lease_watch.c).
 *
 * The groups of locked and kept rows are noted, too.  An ordered group is held while its first task
 * cannot begin.  A group of messages is held while leases use up its limit (shmem/groups.c).  A
 * held group may wait for this transaction, so both commit and abort end the hold.
 *
 * Steps of the model in test/model are named C0n, C1 to C3, N1, N2, N4 and A1, A2.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "replication/logicalworker.h"
#include "replication/worker_internal.h"
#include "storage/latch.h"
#include "storage/sinval.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/inject.h"
#include "../base/wing.h"
#include "../shmem/groups.h"
#include "task.h"

/* Limit for the rows, the groups and the cancelled tasks that a transaction notes individually. */
#define MAX_HINTS	1024

typedef struct Touched
{
	DwHint		hint;
	SubTransactionId subid;
	DwTouchKind kind;
} Touched;

/* A group that may have waited for this transaction. */
typedef struct TouchedGroup
{
	int16		queue;
	uint32		hash;
	SubTransactionId subid;
} TouchedGroup;

/* A lane that the timer must read again from a due time on. */
typedef struct LaneLow
{
	DwLaneRef	lane;
	TimestampTz due;
	bool		locked;			/* some of the rows were locked or kept, not written */
} LaneLow;

/* A task that the transaction ended. */
typedef struct Ended
{
	int64		id;
	DwOutcome	outcome;
	SubTransactionId subid;
} Ended;

/* The arrays are in TopTransactionContext. */
static Touched *touched = NULL;
static int	ntouched = 0;
static int	touched_size = 0;
/* Number of noted rows, and number of the last load (timer/hints.c), just before the commit. */
static int	ntouched_in_time = 0;
static uint32 loads_before = 0;
static TouchedGroup *groups = NULL;
static int	ngroups = 0;
static int	groups_size = 0;
static LaneLow *lows = NULL;
static int	nlows = 0;
static int	lows_size = 0;
static Ended *ended = NULL;
static int	nended = 0;
static int	ended_size = 0;

/* True if the transaction has committed, and hints must be delivered when its locks are gone. */
static bool delivers = false;

/* Other effects of the transaction. */
static bool more_ended = false;	/* cancelled tasks that are not in ended */
static bool more_groups = false;	/* groups that are not in groups */
static int	effects = 0;		/* a set of DwEffect */
static char prepare_gid[201];	/* GIDSIZE of access/xact.h, plus 1 */

/* Stands for no lane.  No lane has this generation, so the timer reads all lanes. */
static const DwLaneRef no_lane = {0, 0};

/* Noting effects of the transaction */

/* Notes that a lane must be read again from a due time on. */
static void
lower_lane(DwLaneRef lane, TimestampTz due, bool locked)
{
	/* the last lane first: a transaction mostly writes to one lane */
	for (int i = nlows - 1; i >= 0; i--)
		if (lows[i].lane.index == lane.index &&
			lows[i].lane.generation == lane.generation)
		{
			lows[i].due = Min(lows[i].due, due);
			lows[i].locked |= locked;
			return;
		}
	lows = dw_reserve(lows, nlows, &lows_size, sizeof(LaneLow), TopTransactionContext);
	lows[nlows++] = (LaneLow) {lane, due, locked};
}

/* Makes the timer read the lane again from a due time on, after commit or abort. */
void
dw_touch_lane(DwLaneRef lane, TimestampTz due)
{
	lower_lane(lane, due, false);
}

/* Returns true if the row exists after a commit, and not after an abort. */
static bool
is_written(DwTouchKind kind)
{
	return kind == DW_TOUCH_WRITTEN || kind == DW_TOUCH_LEASED;
}

/*
 * Notes an effect of this transaction on the row of a hint, before or after the effect.  After
 * MAX_HINTS rows, or if any lane is noted already, notes only the lane and the due time.
 */
void
dw_touch_row(const DwHint *hint, DwTouchKind kind)
{
	if (nlows > 0 || ntouched >= MAX_HINTS)
	{
		lower_lane(hint->lane, hint->due, !is_written(kind));
		return;
	}
	touched = dw_reserve(touched, ntouched, &touched_size, sizeof(Touched), TopTransactionContext);
	touched[ntouched++] = (Touched) {*hint, GetCurrentSubTransactionId(), kind};
}

/*
 * Notes that this transaction has locked, changed or ended a task of this group: the end of the
 * (sub)transaction ends the hold of the group.  Does nothing for DW_NO_GROUP.
 */
void
dw_touch_group(int16 queue, uint32 hash)
{
	SubTransactionId subid = GetCurrentSubTransactionId();
	const TouchedGroup *last = ngroups > 0 ? &groups[ngroups - 1] : NULL;

	if (hash == DW_NO_GROUP ||
		(last != NULL && last->hash == hash && last->queue == queue && last->subid == subid))
		return;
	(void) dw_my_database();
	if (ngroups >= MAX_HINTS)
	{
		more_groups = true;
		return;
	}
	groups = dw_reserve(groups, ngroups, &groups_size, sizeof(TouchedGroup), TopTransactionContext);
	groups[ngroups++] = (TouchedGroup) {queue, hash, subid};
}

/* Returns true if the row is a message under a lease, for which the timer gets no hint. */
static bool
has_lease(const Touched *t)
{
	return t->kind == DW_TOUCH_LEASED || t->kind == DW_TOUCH_LEASE_LOCKED;
}

/*
 * Returns true if the row belongs to an external queue.  The lane may be given back at this moment,
 * so the generation is compared after the lane was read.
 */
static bool
is_message(const Touched *t)
{
	DwLane	   *lane = &dw_lanes[t->hint.lane.index];
	bool		external = lane->external;

	pg_read_barrier();
	return external && pg_atomic_read_u32(&lane->generation) == t->hint.lane.generation;
}

/* Returns true if the timer needs a hint of the row at the end of the (sub)transaction. */
static bool
is_news(const Touched *t, bool committed)
{
	if (t->kind == DW_TOUCH_KEPT)
		return t->hint.due <= dw_now();
	return committed == is_written(t->kind);
}

/*
 * Notes that this transaction ended a task.  The commit informs sessions that wait for the task.
 *
 * After MAX_HINTS tasks, cancelled tasks are not noted individually: all waiting sessions will
 * check their tasks themselves.  Other outcomes are always noted: a task that cancels many tasks
 * must not lose its own outcome.
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
	ended = dw_reserve(ended, nended, &ended_size, sizeof(Ended), TopTransactionContext);
	ended[nended++] = (Ended) {id, outcome, GetCurrentSubTransactionId()};
}

/* Notes an effect on more than single rows. */
void
dw_touch(DwEffect effect)
{
	if (effect == DW_UNARMED_LEFT || effect == DW_NONE_UNARMED)
		effects &= ~(DW_UNARMED_LEFT | DW_NONE_UNARMED);
	effects |= effect;
	/* roles may be dropped in a database without the extension */
	if (effect != DW_ROLES_DROPPED && dw_my_database() == NULL && effect == DW_EXTENSION_CREATED)
		dw_warn_no_place();
}

/* Does the same for changes of leases of other receivers. */
void
dw_touch_leases(void)
{
	dw_touch(DW_LEASES_CHANGED);
}

/*
 * Returns true if this transaction has changed queues, pauses or marks, even in a subtransaction
 * that was rolled back.
 */
bool
dw_control_is_touched(void)
{
	return (effects & DW_CONTROL_CHANGED) != 0;
}

/* Notes the name by which this transaction is about to be prepared. */
void
dw_touched_prepare_as(const char *gid)
{
	strlcpy(prepare_gid, gid, sizeof(prepare_gid));
}

/* Forgets all noted effects at the end of the transaction, and unpins the database. */
static void
forget_touched(void)
{
	/* the end of the transaction frees the memory */
	touched = NULL;
	groups = NULL;
	lows = NULL;
	ended = NULL;
	ntouched = touched_size = ntouched_in_time = nlows = lows_size = nended = ended_size = 0;
	ngroups = groups_size = 0;
	delivers = more_ended = more_groups = false;
	effects = 0;
	prepare_gid[0] = '\0';
	dw_tables_being_written = false;
	dw_my_database_unpin();
}

/*---- Telling other processes ----*/

/* Makes the timer read the lane again from a due time on; the caller wakes the timer. */
static void
reload_lane(DwDatabase *db, DwLaneRef ref, TimestampTz due)
{
	DwLane	   *lane = &dw_lanes[ref.index];

	dw_atomic_lower(&lane->reload_from, due);
	dw_lane_dirty(db, lane);
	pg_memory_barrier();
	/* another lane has got the place meanwhile, see dw_lane_leave() */
	if (pg_atomic_read_u32(&lane->generation) != ref.generation)
		dw_reload_ask(&db->timer_news, due);
}

/*
 * Step C2: stores a hint for the timer, as described at the top of this file.  If many is true, the
 * hint stands for all tasks of its lane from its due time on, and is not put into the inbox.
 * hint->loads is the number of the last load that cannot have read the new row.  Returns the time
 * by which the timer must be awake; DW_AWAKE means now.
 */
static TimestampTz
store_hint(DwDatabase *db, const DwHint *hint, bool many)
{
	DwLane	   *lane = &dw_lanes[hint->lane.index];
	TimestampTz needed = DW_NEVER;
	bool		crowded = false;

	/* C1 (the row is visible) comes before the horizon is read */
	pg_memory_barrier();

	if (hint->due <= dw_atomic_read(&lane->horizon))
	{
		DW_INJECT("commit-before-push");
		if (!many && dw_inbox_push(db->inbox, hint, &crowded))
			return crowded ? DW_AWAKE : hint->due;
		reload_lane(db, hint->lane, hint->due);
		return DW_AWAKE;
	}

	DW_INJECT("commit-before-far");
	if (lane->grouped)
		(void) dw_atomic_lower(&lane->late_from, hint->due);
	if (dw_atomic_lower(&lane->next_far, hint->due))
	{
		dw_lane_dirty(db, lane);
		needed = dw_time_add(hint->due, -dw_window_us() / 2);
	}
	pg_memory_barrier();
	if (pg_atomic_read_u32(&lane->generation) != hint->lane.generation)
	{
		dw_reload_ask(&db->timer_news, hint->due);
		needed = DW_AWAKE;
	}
	return needed;
}

/* Delivers one hint, and wakes the timer if need be.  For callbacks and executors. */
void
dw_deliver(DwDatabase *db, const DwHint *hint)
{
	DwHint		numbered = *hint;

	numbered.loads = (uint16) dw_loads_read(&db->timer_news);
	dw_wake_timer(db, store_hint(db, &numbered, false));
}

/*
 * If a due message was locked, to be cancelled or moved, notes that its lane may have an entry
 * without a row after a commit, or two entries for one row after an abort.
 */
static void
doubt_entry(const Touched *t)
{
	if ((t->kind == DW_TOUCH_LOCKED || t->kind == DW_TOUCH_KEPT) && t->hint.due <= dw_now() &&
		is_message(t))
		pg_atomic_write_u32(&dw_lanes[t->hint.lane.index].in_doubt, 1);
}

/*
 * Gives the timer a hint of a row at the end of the (sub)transaction, if the timer needs a hint.
 * loads: the value for hint->loads.  Returns the result of store_hint().
 */
static TimestampTz
tell_row(DwDatabase *db, Touched *t, bool committed, uint32 loads)
{
	doubt_entry(t);
	if (!is_news(t, committed))
		return DW_NEVER;
	if (has_lease(t))
		return dw_lease_end_ask(&db->timer_news, t->hint.due) ? t->hint.due : DW_NEVER;
	t->hint.loads = (uint16) loads;
	return store_hint(db, &t->hint, false);
}

/*
 * Step Y5: ends the hold of the groups whose tasks were locked in this or a later subtransaction.
 * For such groups, takes the ready lock once.  Wakes the timer if need be.
 */
static void
release_groups(DwDatabase *db, SubTransactionId subid)
{
	TimestampTz look_at = DW_NEVER;
	bool		locked = false;

	for (; ngroups > 0 && groups[ngroups - 1].subid >= subid; ngroups--)
	{
		const TouchedGroup *g = &groups[ngroups - 1];
		TimestampTz at;

		if (!locked)
			LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
		locked = true;
		at = dw_group_release(db, g->queue, g->hash);
		look_at = Min(look_at, at);
	}
	if (locked)
		LWLockRelease(dw_ready_lock(db));
	if (more_groups)
	{
		dw_news_tell(&db->timer_news, DW_NEWS_GROUPS);
		look_at = DW_AWAKE;
	}
	dw_ask_dispatch(db, look_at);
}

/*
 * Called at the end of a transaction if shared memory had no place for this database.  If the
 * database has a place now, its tasks were loaded before our rows were visible: then makes the
 * timer read all lanes again, and returns true.  Otherwise, after a commit, informs the launcher
 * that a database needs a place.  The tasks are loaded when the database gets a place.
 */
static bool
find_place_late(bool committed)
{
	/* our rows are visible before we look for the place */
	pg_memory_barrier();
	if (dw_my_database_find() != NULL)
	{
		effects |= DW_ALL_TOUCHED;
		return true;
	}
	if (committed)
	{
		pg_atomic_write_u32(&dw_shared->turned_away, 1);
		pg_memory_barrier();
		dw_wake_launcher();
	}
	return false;
}

/*
 * Gives sessions in delay_wait() the outcomes of their tasks.  If this transaction may have ended
 * tasks that are not noted, makes all these sessions check their tasks themselves.
 */
static void
tell_waiters(DwDatabase *db, bool committed)
{
	dw_each_wing(wing, end_committed)
		for (int i = 0; i < nended && committed; i++)
			wing->end_committed(db, ended[i].id, ended[i].outcome);
	if (more_ended || (effects & (DW_CONTROL_CHANGED | DW_PREPARED_ENDED | DW_ALL_TOUCHED)) != 0)
		dw_wings_doubt_ends(db);
}

/*
 * Raises control and informs waiting sessions, at the first moment of an abort, or of a commit that
 * is just visible.  Returns false if nothing must be delivered later, or the database has no place.
 */
static bool
tell_at_once(bool committed)
{
	DwDatabase *db;

	if (committed && (effects & DW_ROLES_DROPPED) != 0)
		dw_roles_dropped();
	if (ntouched == 0 && ngroups == 0 && nlows == 0 && nended == 0 &&
		(effects & ~DW_ROLES_DROPPED) == 0)
		return false;
	if (dw_my_pinned_database() == NULL && !find_place_late(committed))
		return false;
	db = dw_my_pinned_database();

	DW_INJECT("commit-visible");
	/* a prepared transaction may have changed queues, pauses or marks */
	if ((effects & (DW_CONTROL_CHANGED | DW_PREPARED_ENDED)) != 0)
	{
		dw_control_raise(&db->timer_news);
		dw_wake_timer(db, DW_AWAKE);
	}
	tell_waiters(db, committed);
	DW_INJECT("commit-before-news");
	return true;
}

/*
 * Returns true if the timer reads the row of a hint anyway, since it reads the lane again.  With a
 * hint, the task could be in memory twice, because the timer remembers only some of the rows that
 * a load has read.
 */
static bool
will_be_read(const Touched *t)
{
	for (int i = 0; i < nlows && !has_lease(t); i++)
		if (lows[i].lane.index == t->hint.lane.index &&
			lows[i].lane.generation == t->hint.lane.generation)
			return lows[i].due <= t->hint.due;
	return false;
}

/* Hands all news to the timer, at the last moment, when the locks are released. */
static void
deliver_all(bool committed)
{
	DwDatabase *db = dw_my_pinned_database();
	TimestampTz needed = DW_NEVER;

	DW_INJECT("commit-before-hints");
	for (int i = 0; i < ntouched; i++)
	{
		bool		is_row = i < ntouched_in_time && touched[i].kind == DW_TOUCH_WRITTEN;
		TimestampTz at;

		if (will_be_read(&touched[i]))
			continue;
		at = tell_row(db, &touched[i], committed, is_row ? loads_before : dw_loads_read(&db->timer_news));
		needed = Min(needed, at);
	}
	for (int i = 0; i < nlows; i++)
	{
		DwHint		low = {.due = lows[i].due, .lane = lows[i].lane};
		TimestampTz at = store_hint(db, &low, true);

		needed = Min(needed, at);
	}
	release_groups(db, InvalidSubTransactionId);
	if ((effects & DW_ALL_TOUCHED) != 0)
	{
		dw_reload_ask(&db->timer_news, PG_INT64_MIN);
		needed = DW_AWAKE;
	}
	/* plain SQL and prepared transactions note nothing about groups */
	if ((effects & (DW_ALL_TOUCHED | DW_PREPARED_ENDED)) != 0)
		dw_news_tell(&db->timer_news, DW_NEWS_GROUPS);
	if (committed && (effects & (DW_UNARMED_LEFT | DW_NONE_UNARMED)) != 0)
		dw_unarmed_set(&db->timer_news, (effects & DW_UNARMED_LEFT) != 0);
	if ((effects & DW_PREPARED_ENDED) != 0)
	{
		dw_news_tell(&db->timer_news, DW_NEWS_PREPARED);
		needed = DW_AWAKE;
	}
	/* plain SQL and prepared transactions may have changed leases, too */
	if (committed && (effects & (DW_LEASES_CHANGED | DW_ALL_TOUCHED | DW_PREPARED_ENDED)) != 0 &&
		dw_limits_doubt_leases(db))
	{
		dw_news_tell(&db->timer_news, DW_NEWS_EXECUTORS);
		needed = DW_AWAKE;
	}
	if (committed && (effects & DW_EXTENSION_CREATED) != 0)
	{
		/* a timer that has just found no extension ends, and a new timer must start */
		dw_news_tell(&db->timer_news, DW_NEWS_CREATED);
		dw_wake_launcher();
		needed = DW_AWAKE;
	}

	DW_INJECT("commit-before-wake");
	if (needed != DW_NEVER)
		dw_wake_timer(db, needed);
}

/*---- Before the commit, and PREPARE TRANSACTION ----*/

/* Compares due times, and ids if these are equal. */
static int
compare_touched(const void *a, const void *b)
{
	const DwHint *x = &((const Touched *) a)->hint;
	const DwHint *y = &((const Touched *) b)->hint;

	if (x->due != y->due)
		return x->due < y->due ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/*
 * Step C0n, after the rows were written and before the commit is visible: sorts the hints by due
 * time, so that tasks that are already due begin in this order.  Also notes the number of the last
 * load.  If a later load reads one of these rows, the row needs no hint.
 */
static void
note_loads(void)
{
	DwDatabase *db = dw_my_pinned_database();

	if (ntouched == 0 || db == NULL)
		return;
	qsort(touched, ntouched, sizeof(Touched), compare_touched);
	pg_memory_barrier();
	loads_before = dw_loads_read(&db->timer_news);
	ntouched_in_time = ntouched;
}

/* Returns true if the transaction has changed anything in catalogs. */
static bool
has_catalog_news(void)
{
	SharedInvalidationMessage *messages;
	bool		init_file;

	return xactGetCommittedInvalidationMessages(&messages, &init_file) > 0;
}

/*
 * Returns true if a subtransaction has ended a task.  A session that waits for the task would find
 * the xid of the subtransaction, and cannot wait for the lock of this xid.
 */
static bool
ended_in_subtransaction(void)
{
	for (int i = 0; i < nended; i++)
		if (ended[i].subid != TopSubTransactionId)
			return true;
	return false;
}

/* Returns true if this transaction has written anything that other processes may need. */
static bool
has_touched(void)
{
	return ntouched > 0 || nlows > 0 || nended > 0 ||
		(effects & (DW_ALL_TOUCHED | DW_CONTROL_CHANGED | DW_WING_WRITTEN)) != 0;
}

/*
 * Step N1, before the commit is visible: publishes the xid if a process that finds our tasks, or
 * misses those that we have ended, too early could miss changes.
 */
static void
publish_committing(void)
{
	TransactionId xid = GetTopTransactionIdIfAny();

	if (!TransactionIdIsValid(xid) || !has_touched())
		return;
	if (ended_in_subtransaction() || has_catalog_news())
		dw_xid_publish(DW_COMMITTING, xid);
	if (dw_other_nodes_exist())
		dw_xid_publish(DW_ELSEWHERE, xid);
}

/* Writes a lane and a due time to delay_wheel_data.prepared.  InvalidOid stands for all lanes. */
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
	dw_table_insert(dw_catalog()->prepared, values, nulls, Natts_prepared);
}

/*
 * Before PREPARE TRANSACTION, writes the lanes of the touched rows into delay_wheel_data.prepared,
 * since another process may end the transaction, maybe after a restart (control/ddl.c).
 */
static void
write_prepared(void)
{
	DwCatalog	cat;

	if (ntouched == 0 && nlows == 0 && (effects & (DW_ALL_TOUCHED | DW_CONTROL_CHANGED)) == 0)
		return;
	/* this transaction may have dropped the extension */
	if (!dw_catalog_lookup(&cat))
		return;
	/* tables with TOAST need an active snapshot, and this callback has none */
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
	if ((effects & (DW_ALL_TOUCHED | DW_CONTROL_CHANGED)) != 0)
		write_prepared_row(InvalidOid, 0, 0, DT_NOBEGIN);
	PopActiveSnapshot();
	/* noted after the rows were written, see note_nameless_end() */
	if (prepare_gid[0] == '\0' && dw_my_database() != NULL)
		dw_nameless_note(&dw_my_database()->timer_news);
}

/*
 * Called before a commit, for apply workers of logical replication (two_phase).
 *
 * These workers prepare transactions, whose triggers may have scheduled tasks, and end them without
 * a command that calls our hooks.  So delay_wheel does not know the names of these prepared
 * transactions (prepare_gid is empty).  A worker ends a prepared transaction within another
 * transaction, which has no xid.  While a transaction without a name may be prepared
 * (DwTimerNews.nameless), the commit of any transaction without xid makes the timer read all lanes
 * again.  The prepared transaction is visible before this commit, and cannot be published: a load
 * may find its tasks a moment too early.
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
	nameless = pg_atomic_read_u32(&db->timer_news.nameless);
	if (nameless == 0 || !dw_catalog_lookup(&cat))
		return;
	dw_touch(DW_ALL_TOUCHED);
	dw_touch(DW_CONTROL_CHANGED);
	PushActiveSnapshot(GetTransactionSnapshot());
	/* a process that prepares later raises nameless after it has written its rows */
	if (!dw_prepared_is_open(""))
		dw_nameless_forget(&db->timer_news, nameless);
	PopActiveSnapshot();
}

/*---- Callbacks ----*/

/* Calls the functions of this file at the end of the transaction. */
static void
touched_xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			note_nameless_end();
			/* executors have already done this */
			if (has_touched() && dw_this_executor == NULL)
				dw_other_nodes_prepare();
			note_loads();
			publish_committing();
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
			dw_xid_withdraw(DW_COMMITTING);
			dw_xid_withdraw(DW_ELSEWHERE);
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

/*
 * Callback for the moment after the locks were released.  Called for each resource owner of the
 * transaction, and finally for the top resource owner.
 */
static void
touched_release_callback(ResourceReleasePhase phase, bool committed, bool top_level, void *arg)
{
	if (!committed || phase != RESOURCE_RELEASE_AFTER_LOCKS || !top_level)
		return;
	/* step N4 */
	dw_xid_withdraw(DW_COMMITTING);
	dw_xid_withdraw(DW_ELSEWHERE);
	if (!delivers)
		return;
	deliver_all(true);
	dw_each_wing(wing, end_visible)
		for (int i = 0; i < nended; i++)
			wing->end_visible(dw_my_pinned_database(), ended[i].id);
	forget_touched();
}

/*
 * Called after the abort of a subtransaction.  Forgets the rows that the subtransaction wrote, and
 * delivers hints of the rows that it had locked, since the locks are released.  Lanes stay noted
 * (nlows): at worst the timer reads a lane again without need.  Lanes with locked rows are reloaded
 * now.
 */
static void
touched_subxact_callback(SubXactEvent event, SubTransactionId subid,
				 SubTransactionId parent, void *arg)
{
	DwDatabase *db = dw_my_pinned_database();

	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	dw_tables_being_written = false;

	/* this subtransaction may have armed the tasks of another origin */
	effects &= ~DW_NONE_UNARMED;

	/* ids of subtransactions grow, so ids from subid on belong to this subtransaction */
	while (ntouched > 0 && touched[ntouched - 1].subid >= subid)
	{
		ntouched--;
		if (db != NULL)
			dw_wake_timer(db, tell_row(db, &touched[ntouched], false, dw_loads_read(&db->timer_news)));
	}
	while (nended > 0 && ended[nended - 1].subid >= subid)
		nended--;
	if (db != NULL)
		release_groups(db, subid);
	for (int i = 0; i < nlows && db != NULL; i++)
		if (lows[i].locked)
		{
			reload_lane(db, lows[i].lane, lows[i].due);
			dw_wake_timer(db, DW_AWAKE);
		}
}

/* Installs the callbacks.  The postmaster calls this once; its children inherit the callbacks. */
void
dw_touched_install(void)
{
	RegisterXactCallback(touched_xact_callback, NULL);
	RegisterSubXactCallback(touched_subxact_callback, NULL);
	RegisterResourceReleaseCallback(touched_release_callback, NULL);
}

/*---- Logical replication ----*/

/* Warns, once in an apply worker, that binary mode sends owners as OIDs of the publisher. */
static void
warn_of_binary(void)
{
	static bool warned = false;

	if (warned)
		return;
	warned = true;
	ereport(WARNING,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("subscription \"%s\" does not replicate tasks of delay_wheel",
					MySubscription->name),
			 errdetail("In binary format, owners of tasks are sent as OIDs, which may belong to other roles here."),
			 errhint("Use ALTER SUBSCRIPTION ... SET (binary = false).")));
}

/*
 * For row triggers on the extension's tables: if an apply worker writes the row, notes this for the
 * timer, since apply workers do not fire the statement trigger that notes plain SQL.  Returns
 * false, after a warning, if the row must not be written.
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
		dw_touch(DW_ALL_TOUCHED);
	else
		dw_touch(DW_UNARMED_LEFT);
	return true;
}

/*---- The lane of a task ----*/

/*
 * Finds the lane of a task, or enters a new lane into shared memory.  Returns false if all places
 * for lanes or databases are taken.  Remembers the last lane, since most sessions schedule into one
 * lane only.
 */
static bool
find_or_enter_lane(Oid owner, int16 queue, int16 priority, DwLaneRef *lane)
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
 * Returns the lane of a new task.  If shared memory has no place for this database, raises a
 * warning and returns no_lane.
 *
 * If all places for lanes are taken, waits up to a second until the timer frees a lane that is not
 * needed any more, then raises an error.  The timer finds idle lanes itself.  But the timer frees a
 * lane whose tasks were cancelled or deleted only when it reads all lanes again.  So after a tenth
 * of a second this function makes the timer read all lanes.
 */
DwLaneRef
dw_require_lane(Oid owner, int16 queue, int16 priority)
{
	static uint32 wait_event = 0;
	DwLaneRef	lane;

	for (int i = 0; i < 100; i++)
	{
		DwDatabase *db;

		if (find_or_enter_lane(owner, queue, priority, &lane))
			return lane;
		db = dw_my_pinned_database();
		if (db == NULL)
		{
			dw_warn_no_place();
			return no_lane;
		}
		if (i == 10)
			dw_reload_ask(&db->timer_news, PG_INT64_MIN);
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
 * Returns the lane of a task that must be written in any case.  If there is no place for the lane,
 * returns no_lane: then the timer reads all lanes at the end of the transaction.
 */
DwLaneRef
dw_lane_if_any(Oid owner, int16 queue, int16 priority)
{
	DwLaneRef	lane;

	if (find_or_enter_lane(owner, queue, priority, &lane))
		return lane;
	dw_touch(DW_ALL_TOUCHED);
	return no_lane;
}
