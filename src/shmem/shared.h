/*-------------------------------------------------------------------------
 *
 * shared.h
 *	  Shared memory of delay_wheel: databases, lanes and their owners.
 *
 * A lane is one combination of owner, queue and priority in one database.  Each database has a
 * timer, which stores the tasks of the near future in memory.  Waiting tasks are in a ring (a timer
 * wheel, whose slots contain the tasks of one tick each) or in a heap.  Due tasks are in their
 * lane's ready list until an executor takes them.  Memory is only a cache of the table
 * delay_wheel_data.task.  A lane's cursor is the first key (due time and id) that is not in memory.
 * A lane's horizon is a due time.  If a task is due by the horizon, the session that commits the
 * task sends a hint to the database's inbox.  A "place" is an element of a fixed array.
 *
 * README.md describes the locks and their order.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SHARED_H
#define DW_SHARED_H

#include "postgres.h"

#include "lib/ilist.h"
#include "lib/pairingheap.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "../ring/ring.h"
#include "parts.h"

/* Length of a bitmap with one bit for each lane, in words of 64 bits. */
#define DW_LANE_WORDS	((dw_max_lanes + 63) / 64)

/*
 * The wake-up of an executor takes about this time, in us.  The timer hands a task over so much
 * earlier than the task is due (near.c).
 */
#define DW_HEAD_START_US	100

/* State of a lane's spare entry (DwLane.spare), for one task when the pool has no memory. */
typedef enum DwSpareState
{
	DW_SPARE_FREE = 0,
	DW_SPARE_WAITING,			/* not due yet; only the timer reads and changes it */
	DW_SPARE_READY				/* due; protected by the ready lock */
} DwSpareState;

/* Reasons why the tasks of an owner get no executor. */
typedef enum DwBlock
{
	DW_BLOCK_NONE = 0,
	DW_BLOCK_NO_WORKER,			/* no background worker is free */
	DW_BLOCK_NO_ROLE,			/* the role was dropped */
	DW_BLOCK_SUPERUSER,			/* tasks of superusers are switched off */
	DW_BLOCK_NO_CONNECT,		/* the role lacks CONNECT on the database */
	DW_BLOCK_CLOSED,			/* the database allows no connections */
	DW_BLOCK_NOT_CONNECTED,		/* an executor could not connect */
	DW_BLOCK_TERMINATED,		/* an executor was terminated during its first task */
	DW_BLOCK_ENDED				/* an executor ended by itself during its first task */
} DwBlock;

/*
 * Reasons why a lane is paused: no task is started, even if its owner could get an executor.  Set
 * by pause_of() in task/queues.c and, when a lane is entered, by dw_queue_attach_lane().
 */
typedef enum DwPause
{
	DW_NOT_PAUSED = 0,
	DW_PAUSED_DATABASE,			/* all tasks of the database are paused */
	DW_PAUSED_OWNER,			/* all tasks of the owner are paused */
	DW_PAUSED_QUEUE,			/* all tasks of the queue are paused */
	DW_PAUSED_NO_QUEUE,			/* the queue is not declared, or its declaration was not read yet */
	DW_PAUSED_NO_PLACE			/* the array dw_queues has no place for the queue */
} DwPause;

/*
 * A list of lanes that have ready tasks and are not paused, in the order of their turns.  The lanes
 * belong to one owner (for executors) or to one external queue (for receivers).
 */
typedef struct DwTurns
{
	int32		first;			/* index in dw_lanes, or DW_NO_LANE */
	int32		last;
	uint32		n;
	int32		newest;			/* last of the newcomers, which come first; or DW_NO_LANE */
	uint32		jumps;			/* newcomers since the last turn of another lane */
} DwTurns;

/* The groups of a lane that have a place, see groups.c. */
typedef struct DwLaneGroups
{
	dlist_head	all;
	dlist_head	open;			/* groups that wait for their turn, in the order of turns */
	dlist_head	fresh;			/* newcomers among the open groups */
	dlist_head	resting;		/* groups without tasks whose rate is in use */
	pairingheap asleep;			/* groups that may begin no task before their wakes_at, in this
								 * order */
	dlist_head	hungry;			/* groups of which the timer must load more tasks */
	uint32		nopen;			/* length of "open" and "fresh" */
	uint32		jumps;			/* newcomers since the last turn of another group */
	uint32		set_aside;		/* number of tasks set aside in a row, see dw_groups_set_aside() */
	TimestampTz rests_until;	/* no task is taken out of the ready list before this time */
	int64		rest_us;		/* length of the next rest */
	uint32		entries;		/* ready tasks of all groups */
	uint32		early;			/* of these, tasks of groups whose first one came as a newcomer */
} DwLaneGroups;

/* Priorities of tasks.  Tasks of higher priority go first. */
#define DW_MIN_PRIORITY	(-9)
#define DW_MAX_PRIORITY	9

/* Blocks and limits apply to whole lanes, so each lane has its own cursor into the table. */
typedef struct DwLane
{
	/* identity: table lock */
	Oid			database;		/* InvalidOid if the place is free */
	Oid			owner;
	int16		queue;
	int16		priority;
	int32		next;			/* next lane of the database, or next free lane */
	int32		owner_place;	/* index of the owner in dw_owners */
	pg_atomic_uint32 generation; /* incremented when the lane is given back */

	/* written by the timer, read by committing sessions */
	pg_atomic_uint64 horizon;	/* sessions send hints of tasks that are due by this time */

	/*
	 * Committing sessions lower these times.  The timer reads these times, and resets them to
	 * DW_NEVER.
	 */
	pg_atomic_uint64 late_from;	/* due time of a task committed since, beyond the horizon */
	pg_atomic_uint64 next_far;	/* earliest due time of a task that is not in memory */
	pg_atomic_uint64 reload_from;	/* from this due time on, rows must be read again */
	pg_atomic_uint32 in_doubt;	/* 1: a due message was cancelled or moved, see timer/unreceived.c */

	/* timer only */
	TimestampTz cursor_due;		/* cursor: the first key that is not in memory */
	int64		cursor_id;
	uint32		waiting;		/* number of entries in ring, heap and a waiting spare; executors
								 * read it under the ready lock */
	TimestampTz load_after;		/* after a failed load, do not load again before this time */
	bool		orphan;			/* the owner was dropped, so no task is in memory, see orphans.c */
	uint32		refill_at;		/* after a shortage of memory, load again when at most this number
								 * of entries is in memory; else PG_UINT32_MAX */

	/* ready lock */
	int32		queue_place;	/* index in dw_queues; DW_NO_QUEUE if the queue has no place in this
								 * array */
	bool		external;		/* its queue has messages; the list of the queue contains the
								 * lane */
	DwPause		paused;			/* first reason for a pause, or DW_NOT_PAUSED */
	int32		peer;			/* next lane of the same owner and queue, in a circle */
	uint32		passed_over;	/* tasks that were taken in a row from peers of higher priority
								 * while this lane had tasks */
	TimestampTz waits_since;	/* when its owner began to wait for a turn in the queue */
	DwList		ready;			/* ready list: due tasks without a group's place, not taken yet */
	bool		grouped;		/* its queue has groups, so entries store hashes of groups */
	DwLaneGroups groups;		/* if grouped: its ready and running tasks by group */
	DwEntry		spare;			/* a task for which the pool had no memory */
	DwSpareState spare_state;
	bool		is_listed;		/* true if the lane is in the DwTurns of its owner or external
								 * queue */
	bool		is_new;			/* listed as a newcomer: before lanes that have had a turn */
	int32		ready_next;		/* neighbours of the lane in this DwTurns */
	int32		ready_prev;
	uint32		running;		/* executors that run a task of the lane */
	uint32		load_below;		/* executors wake the timer if fewer entries are in memory; 0:
								 * never */
	uint32		batch_size;		/* maximum number of tasks of a batch, if settings allow batches */
	uint32		alone;			/* number of tasks to run alone before the next batch is tried */
	TimestampTz recheck_at;		/* when to load the lane again, since plain SQL has locked a row */
	TimestampTz recheck_from;	/* at recheck_at, the lane is loaded from this due time on */
	int64		recheck_interval;	/* pause before recheck_at, in us; grows while the same row is
									 * locked */
	int64		recheck_id;		/* id of the task whose row is locked */

	/* statistics since the lane was entered */
	DwCounters	counters;
	DwLaneLateness lateness;
} DwLane;

/* A role of one database.  It has a place while it has lanes or executors. */
typedef struct DwOwner
{
	/* identity: table lock */
	Oid			database;		/* InvalidOid if the place is free */
	Oid			role;
	uint32		nlanes;			/* lanes of the owner, with tasks or without */
	int32		next_free;

	/* ready lock */
	DwTurns		turns;			/* lanes with ready tasks, except lanes of external queues */
	bool		is_listed;		/* true if in ready_owners or blocked_owners of the database */
	bool		is_new;			/* a newcomer of ready_owners */
	dlist_node	link;			/* link in this list */
	DwBlock		block;			/* why the owner got no executor */
	TimestampTz retry_at;		/* if blocked, when to try again; else 0 */
	uint32		start_failures;	/* number of failed attempts to get an executor, in a row */
	int64		lacks_since;	/* since when it lacks a background worker, by dw_uptime(); or 0 */
	int64		no_worker_told;	/* when this lack was last logged, by dw_uptime(); 0: never */

	/* timer only: results of its present round, see dispatch.c */
	uint32		round;			/* number of the round that set in_need */
	DwLane	   *in_need;		/* first lane of the owner that needs another executor, or NULL */
} DwOwner;

/* Replaces an index in dw_queues if a lane has no declared queue. */
#define DW_NO_QUEUE		(-1)

/*
 * A lane, an owner or a group that becomes ready is a newcomer, and comes before those that have had
 * a turn: it waits only for the tasks that run, not for the backlog of others.  After so many
 * newcomers one of the others has its turn.
 */
#define DW_JUMPS_MAX	8

#define DW_TIMER_REFUSED	"could not start the timer: no background worker is free"
#define DW_LOOK_REFUSED		"could not look into the database: no background worker is free"

/* A database with delay_wheel. */
typedef struct DwDatabase
{
	/* table lock */
	Oid			oid;			/* InvalidOid if the place is free */
	char		name[NAMEDATALEN];	/* for the log; empty until the timer has stored the name */
	DwProcess	timer;
	DwTimerNews timer_news;
	DwProcess	sweeper;
	DwSweeperNews sweeper_news;
	DwLack		executors_lack;	/* lack of the owner that has lacked a background worker longest */
	bool		absent;			/* true until a timer has found the extension in the database */
	int32		lanes;			/* first lane of its list of lanes */
	uint32		nlanes;

	/* Number of transactions and processes that use this place.  A used place is not given back. */
	pg_atomic_uint32 pins;

	/* the memory behind this struct; these addresses never change */
	DwInbox    *inbox;
	DwRing	   *ring;			/* protected by the ring lock */
	pg_atomic_uint64 *dirty_lanes;	/* bitmap of DW_LANE_WORDS words: lanes that the timer must look
									 * at, by their index in dw_lanes */

	/* number of commands that need the database without sessions of delay_wheel, see hold.c */
	pg_atomic_uint32 holds;
	pg_atomic_uint32 waiters;	/* number of sessions in delay_wait(), see wait.c */
	pg_atomic_uint32 autonomous_ended;	/* incremented when a task that ran outside of a transaction
										 * (autonomous.c) has ended */
	/* 1 if delay_wheel.enabled is off in this database; written by the timer */
	pg_atomic_uint32 disabled;

	/* the pool memory of this database; protected by the ring lock and the pool's spinlock */
	DwAccount	account;

	/* written under table lock and ready lock together */
	bool		paused;			/* delay_wheel.pause_database() was called */
	bool		queues_missing;	/* a declared queue has no place in dw_queues */

	/* ready lock */
	dlist_head	ready_owners;	/* owners with ready tasks that can get an executor, in the order of
								 * their turns */
	dlist_node *newest_owner;	/* last of the newcomers among them, which come first; or NULL */
	uint32		owner_jumps;	/* executors that came up for newcomers since the last other one */
	dlist_head	blocked_owners;	/* owners with ready tasks that get no executor; owners that lack a
								 * background worker come first */
	TimestampTz blocked_until;	/* no blocked owner tries again before this time */
	uint32		awaiting;		/* number of sessions that wait for a message, see published.c */
	uint32		notifying;		/* number of declared queues with a channel */
	int			queue_places;	/* all queues of the database are before this index in dw_queues */
	int32		group_opened;	/* lane in which the end of a task has opened a group, see
								 * dw_groups_take_news() */
	TimestampTz group_wakes_at; /* when the first group that was left at a limit wakes */

	/* statistics */
	pg_atomic_uint64 near;		/* tasks in ring and heap */
	pg_atomic_uint64 ready;		/* tasks in ready lists */
	DwCounters	counters;
	DwLateness	lateness;

	DwProblem	problem;
	pg_atomic_uint64 executors_told;	/* when silent executors were last logged, by dw_uptime() */
	DwRollbacks rollbacks;
} DwDatabase;

/* Shows whether rights or settings of an executor's role have changed since the login. */
typedef enum DwStale
{
	DW_FRESH = 0,
	DW_STALE_LOOK,				/* memberships have changed: the executor checks whether the role
								 * may still log in */
	DW_STALE_END				/* the executor takes no further task */
} DwStale;

#define DW_MAX_NOTES	64

/* A note of a task. */
typedef struct DwNote
{
	int			n;				/* number of crashes, or kind of a quit; 0: this note is free */
	Oid			database;
	int64		id;
	TimestampTz at;				/* time of the last crash, or of the quit */
} DwNote;

/* Notes of tasks that have crashed the server, or have ended their executor, see suspects.c. */
typedef struct DwNotes
{
	pg_atomic_uint32 used;		/* number of notes in use; also read without the lock */
	slock_t		lock;
	DwNote		notes[DW_MAX_NOTES];
} DwNotes;

/* The part of shared memory that does not belong to one database or to an array. */
typedef struct DwShared
{
	LWLock	   *table_lock;
	LWLock	   *database_locks;	/* a ring lock and a ready lock for each database */
	DwProcess	launcher;
	pg_atomic_uint32 databases_changed;	/* 1: the launcher must read the list of databases again */
	pg_atomic_uint32 turned_away;	/* 1 if a database with the extension has found no place */
	pg_atomic_uint32 looks_into; /* OID of a database without a place, in which a worker of the
								  * launcher looks for the extension */
	pg_atomic_uint32 looked;	/* 1 if this worker has found the answer */
	pg_atomic_uint32 timers;	/* number of timers at work, in all databases */
	pg_atomic_uint32 timer_refused;	/* 1: no background worker was free for the timer of a
									 * database */
	DwLack		look_lack;		/* lack of the worker that looks into a database without a place */
	DwStartPause pauses[DW_STARTS];	/* pauses before the next start, see starts.c */
	pg_atomic_uint32 unlooked;	/* OID of the database that waits for this worker */
	pg_atomic_uint64 unlooked_at;	/* since when this database waits, a TimestampTz */
	pg_atomic_uint64 clock_was; /* last time before the clock was set back, a TimestampTz, or
								 * PG_INT64_MIN; written by the launcher */
	uint64		salt;			/* random number of this start of the server, for hashes that all
								 * users can see */
	int			other_workers;	/* background workers of PostgreSQL and other extensions at the
								 * start of the server */
	bool		recovered;		/* recovery has ended on this server, see copies/recovery.c; written
								 * by postmaster and launcher */
	DwLogins	logins;			/* settings of new sessions */
	DwNotes		suspects;
	DwNotes		quits;
	int64		careful_until;	/* dw_crashes_are_recent() is true before this time, by dw_uptime();
								 * 0: never; set only by the postmaster */
	int32		free_lane;		/* first of the list of free lanes */
	int32		free_owner;		/* first of the list of free owners */
	uint32		nlanes;			/* lanes in use */
	uint32		nexecutors;		/* length of the array dw_executors */
	uint32		database_size;	/* bytes of a database with inbox and ring */
} DwShared;

/* Minimum interval between two wake-ups of a timer by a rate, in us. */
#define DW_COALESCE_US		1000

/*
 * A flag in the offset of an entry: the task must run in a transaction of its own.  An offset uses
 * at most 14 of the 16 bits, so 2 bits are free for flags.
 */
#define DW_ENTRY_ALONE	0x8000

/* A flag in the offset of an entry: "block" is the hash of the task's group, see groups.c. */
#define DW_ENTRY_GROUP	0x4000

/* In shared memory; NULL if the library was not preloaded. */
extern PGDLLIMPORT DwShared *dw_shared;
extern DwPool *dw_pool;
extern DwLane *dw_lanes;
extern DwOwner *dw_owners;
extern void dw_require_shared(void);

extern DwDatabase *dw_database(int number);
extern int	dw_database_number(DwDatabase *db);
extern LWLock *dw_ring_lock(DwDatabase *db);
extern LWLock *dw_ready_lock(DwDatabase *db);

extern void dw_lane_dirty(DwDatabase *db, const DwLane *lane);
extern void dw_wake_timer(DwDatabase *db, TimestampTz needed);
extern void dw_wake_timer_if_any(DwDatabase *db);
extern int64 dw_rest_margin(void);
extern uint64 dw_secret_hash(const void *data, int length, uint64 seed);
extern void dw_ask_dispatch(DwDatabase *db, TimestampTz at);
extern void dw_ask_sweeper(DwDatabase *db, DwJob job, TimestampTz at);
extern void dw_call_timer(DwDatabase *db, DwRestart restart);
extern TimestampTz dw_restart_at(DwDatabase *db);
extern void dw_wake_launcher(void);
extern void dw_roles_dropped(void);

extern uint32 dw_lane_executors(void);
extern char *dw_databases;
extern uint32 dw_pool_chunks(void);
extern Size dw_database_size(void);
extern bool dw_may_see_database(const DwDatabase *db);

/* A loop over all places of databases, in use or free. */
#define dw_each_database(db) \
	for (DwDatabase *db = dw_database(0), *db##_end = dw_database(dw_max_databases); db < db##_end; \
		 db = (DwDatabase *) ((char *) db + dw_shared->database_size))

/* A loop over the lanes of a database. */
#define dw_each_lane(lane, db) \
	for (DwLane *lane = dw_lane_at((db)->lanes); lane != NULL; lane = dw_lane_at(lane->next))

static inline DwLane *
dw_lane_at(int32 index)
{
	return index == DW_NO_LANE ? NULL : &dw_lanes[index];
}

/* Returns the offset of the row's TID, without flags, or InvalidOffsetNumber if it is not known. */
static inline OffsetNumber
dw_entry_offset(const DwEntry *entry)
{
	return entry->offset & ~(DW_ENTRY_ALONE | DW_ENTRY_GROUP);
}

static inline DwOwner *
dw_lane_owner(const DwLane *lane)
{
	return &dw_owners[lane->owner_place];
}

/* Returns the owner to which this link of a list belongs. */
static inline DwOwner *
dw_linked_owner(dlist_node *node)
{
	/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
	return dlist_container(DwOwner, link, node);
}

/* Returns the number of ready tasks in ready list and spare.  Needs the ready lock. */
static inline uint32
dw_ready_ungrouped(const DwLane *lane)
{
	return lane->ready.count + (lane->spare_state == DW_SPARE_READY ? 1 : 0);
}

/* Returns the number of ready tasks.  Needs the ready lock. */
static inline uint32
dw_ready_count(const DwLane *lane)
{
	return dw_ready_ungrouped(lane) + lane->groups.entries;
}

/* Returns the number of waiting and ready tasks of the lane. */
static inline uint32
dw_lane_held(const DwLane *lane)
{
	return lane->waiting + dw_ready_count(lane);
}

/* Returns the number of these tasks that are loaded in turn, not as newcomers. */
static inline uint32
dw_lane_held_in_turn(const DwLane *lane)
{
	uint32		held = dw_lane_held(lane);

	/* without the ready lock, the numbers may not fit together */
	return held - Min(held, lane->groups.early);
}

extern void dw_database_init(DwDatabase *db);

extern DwDatabase *dw_database_find(Oid database);
extern DwDatabase *dw_database_enter(Oid database, bool pin);
extern bool dw_database_pin(DwDatabase *db, Oid database);
extern DwDatabase *dw_database_find_pin(Oid database);
extern void dw_database_unpin(DwDatabase *db);
extern bool dw_database_give_back(DwDatabase *db);
extern void dw_database_set_name(DwDatabase *db, const char *name);
extern DwDatabase *dw_database_unused(void);
extern void dw_quota_update(void);

/* Returns true if a command needs the database without sessions of delay_wheel. */
static inline bool
dw_database_is_held(DwDatabase *db)
{
	return pg_atomic_read_u32(&db->holds) > 0;
}

/* Returns true if delay_wheel.enabled is off in the database. */
static inline bool
dw_database_is_disabled(DwDatabase *db)
{
	return pg_atomic_read_u32(&db->disabled) != 0;
}

/*---- lanes.c: the tables of lanes, and of their owners ----*/

extern void dw_lanes_request(void);
extern void dw_lanes_init(void);
extern void dw_lanes_leave(DwDatabase *db);

extern bool dw_lane_enter(DwDatabase *db, Oid owner, int16 queue, int16 priority, DwLaneRef *ref);
extern bool dw_lane_leave(DwDatabase *db, DwLane *lane);
extern DwLaneRef dw_lane_ref(DwLane *lane);
extern int32 dw_lane_after(const DwDatabase *db, int32 place);

extern int	dw_owner_places(void);
extern DwOwner *dw_owner_find(DwDatabase *db, Oid role);
extern int32 dw_owner_enter(DwDatabase *db, Oid role);
extern void dw_owner_leave(DwOwner *owner);
extern bool dw_owner_has_tasks_elsewhere(Oid owner);
extern DwHint dw_entry_hint(const DwEntry *entry);

/*---- owners.c: decides which owners get an executor ----*/

extern bool dw_owner_blocked(DwDatabase *db, Oid role, DwBlock reason);
extern void dw_owner_unblocked(DwDatabase *db, DwOwner *owner);
extern void dw_owner_lacks_none(DwDatabase *db, DwOwner *owner);
extern void dw_owners_retry(DwDatabase *db);
extern void dw_owners_retry_all(DwDatabase *db);
extern DwOwner *dw_owners_first_lacking(DwDatabase *db);
extern bool dw_owners_are_blocked(DwDatabase *db);
extern void dw_owner_retry_first(DwDatabase *db, DwOwner *owner);
extern void dw_owner_gets_worker(DwDatabase *db, Oid role);
extern void dw_owner_list(DwDatabase *db, DwOwner *owner);
extern void dw_owner_has_executor(DwDatabase *db, const DwOwner *owner);

/* Reasons of blocks as texts, for views and the log. */
extern const char *const dw_block_texts[];

/*---- starts.c: decides which process may start the next background worker ----*/

extern void dw_lack_note(DwLack *lack, int64 since);
extern void dw_lack_ends(DwLack *lack);
extern bool dw_start_may_be_tried(DwLack *lack, DwStart start);
extern void dw_start_refused(DwLack *lack, DwStart start, Oid database);
extern int64 dw_start_wait(const DwLack *lack, DwStart start);
extern bool dw_starts_are_awaited(void);
extern bool dw_turn_is_over(int64 began);
extern void dw_worker_leaves(void);
extern void dw_timers_make_way(bool lacking);

/*---- silence.c: processes of delay_wheel that do not answer ----*/

/* A process that does not answer. */
typedef struct DwSilent
{
	const char *kind;			/* "executor", "timer", "sweeper" or "launcher" */
	pid_t		pid;			/* 0 if the process has not started */
	int64		silent_for;		/* in us */
	pg_atomic_uint64 *told;		/* time of the last log line about a process of this kind */
} DwSilent;

extern bool dw_silent_next(DwDatabase *db, uint32 *position, DwSilent *found);
extern void dw_silence_report(DwDatabase *db);
extern void dw_silence_report_timer(DwDatabase *db);

/*---- published.c: what each process publishes about its transaction ----*/

/* Kinds of published transactions. */
typedef enum DwPublished
{
	DW_COMMITTING = 0,			/* it becomes visible while it holds locks */
	DW_RECEIVING,				/* it has received messages */
	DW_ELSEWHERE,				/* it becomes visible before other nodes have committed */
	DW_PUBLISHED				/* number of kinds */
} DwPublished;

extern void dw_published_request(void);
extern void dw_published_init(void);
extern void dw_xid_publish(DwPublished as, TransactionId xid);
extern void dw_xid_withdraw(DwPublished as);
extern void dw_committing_wait(TransactionId writer);
extern void dw_elsewhere_wait(void);
extern void dw_published_install(void);
extern void dw_writes_for(Oid owner);
extern bool dw_is_writer(VirtualTransactionId vxid, Oid *owner);

#endif							/* DW_SHARED_H */
