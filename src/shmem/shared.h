/*-------------------------------------------------------------------------
 *
 * shared.h
 *	  Shared memory of delay_wheel: databases, lanes and their owners.
 *
 * A lane is one combination of owner, queue and priority in one database.  Each
 * database has a timer, which keeps the tasks of its near future in memory: in
 * a ring (a timer wheel, whose slots hold the tasks of one tick each) or in a
 * heap while they wait, and in the lane's ready list from their due time until
 * an executor takes them.  The table delay_wheel_data.task is the truth; all of this
 * is a cache of it.  A lane's cursor is the first key (due time and id) that is
 * not in memory, and its horizon is the due time up to which committing
 * sessions send a hint, by the database's inbox, to the timer.  A "place" is
 * an element of one of the fixed arrays.
 *
 * Locks, and what each protects:
 *
 * table lock	which databases, lanes, owners, queues and executors exist
 *				(entering and leaving the fixed arrays)
 * ring lock	one per database: the ring and the pool accounts.  Only the
 *				database's timer changes them; views read them.
 * ready lock	one per database: the ready lists of its lanes, and what its
 *				executors run.  Timer and executors change them.
 * spinlocks	one each for inbox and last problem of a database
 * (atomics)	committing sessions write these without any lock
 *
 * A process holds at most one of the LWLocks at a time, except that the ready
 * lock may be taken under the table lock.  Pool and inbox spinlocks come last.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SHARED_H
#define DW_SHARED_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "lib/ilist.h"
#include "lib/pairingheap.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/itemptr.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "../ring/ring.h"
#include "inbox.h"
#include "lateness.h"
#include "logins.h"
#include "outcome.h"
#include "problem.h"
#include "process.h"
#include "rollbacks.h"
#include "sweeper_news.h"
#include "timer_news.h"

/* Length of a bitmap of lanes, in words of 64 bits. */
#define DW_LANE_WORDS	((dw_max_lanes + 63) / 64)

/*
 * How much earlier than its due time the timer hands a task over, since it takes about
 * that long to wake an executor (near.c).
 */
#define DW_HEAD_START_US	100

/*
 * State of a lane's spare entry (DwLane.spare), which holds one task of the lane when
 * the pool has no memory for it.
 */
typedef enum DwSpareState
{
	DW_SPARE_FREE = 0,
	DW_SPARE_WAITING,			/* not due yet; only the timer reads and changes it */
	DW_SPARE_READY				/* due; protected by the ready lock */
} DwSpareState;

/* Why the tasks of an owner get no executor. */
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
 * Why no task of a lane is started, though its owner could get an executor.  Decided in
 * task/queues.c (pause_of) and, for a lane that is entered, in dw_queue_attach_lane().
 */
typedef enum DwPause
{
	DW_NOT_PAUSED = 0,
	DW_PAUSED_DATABASE,			/* all tasks of the database are paused */
	DW_PAUSED_OWNER,			/* all tasks of the owner are paused */
	DW_PAUSED_QUEUE,			/* all tasks of the queue are paused */
	DW_PAUSED_NO_QUEUE,			/* the queue is not declared, or the timer has not read its
								 * declaration yet */
	DW_PAUSED_NO_PLACE			/* the array dw_queues has no place for the queue */
} DwPause;

/*
 * Lanes that have ready tasks and are not paused, in the order of their turns: those of
 * an owner, whose tasks its executors run, or those of an external queue, whose messages
 * sessions receive.
 */
typedef struct DwTurns
{
	int32		first;			/* index in dw_lanes, or DW_NO_LANE */
	int32		last;
	uint32		n;
} DwTurns;

/* The groups of a lane that have a place, see groups.c. */
typedef struct DwLaneGroups
{
	dlist_head	all;
	dlist_head	open;			/* those that wait for their turn, in the order of turns */
	dlist_head	resting;		/* those of which nothing but their rate is in use */
	pairingheap asleep;			/* those that wait for their rate, by the time when they wake */
	dlist_head	hungry;			/* those of which the timer is to load more tasks */
	uint32		nopen;			/* length of open */
	uint32		set_aside;		/* tasks set aside in a row, see dw_groups_set_aside() */
	TimestampTz rests_until;	/* none is taken out of the ready list before then */
	int64		rest_us;		/* how long it rests the next time */
	uint32		entries;		/* ready tasks of all */
} DwLaneGroups;

/* Priorities of tasks; higher ones go first. */
#define DW_MIN_PRIORITY	(-9)
#define DW_MAX_PRIORITY	9

/*
 * A lane: one combination of owner, queue and priority in one database.  Whatever can be
 * blocked or limited is so by lanes, so each has its own cursor into the table.
 */
typedef struct DwLane
{
	/* identity: table lock */
	Oid			database;		/* InvalidOid if the place is free */
	Oid			owner;
	int16		queue;
	int16		priority;
	int32		next;			/* next lane of the database, or next free lane */
	int32		owner_place;	/* index of the owner in dw_owners */
	pg_atomic_uint32 generation; /* raised when the lane is given back */

	/* written by the timer, read by committing sessions */
	pg_atomic_uint64 horizon;	/* sessions send hints of tasks that are due up to here */

	/*
	 * lowered by committing sessions; the timer takes the value and resets it to
	 * DW_NEVER
	 */
	pg_atomic_uint64 next_far;	/* earliest due time of a task that is not in memory */
	pg_atomic_uint64 reload_from;	/* what is in memory from this due time on is out of
									 * date, and must be read again */

	/* timer only */
	TimestampTz cursor_due;		/* the cursor: the first key that is not in memory */
	int64		cursor_id;
	uint32		waiting;		/* entries in ring and heap, and a waiting spare; executors
								 * read it under the ready lock */
	TimestampTz load_after;		/* after a failed load, do not try again before then */
	bool		orphan;			/* its owner was dropped: none of its tasks is in memory, see
								 * orphans.c */
	uint32		refill_at;		/* after a shortage of memory, load again when no more
								 * entries than this are in memory; else PG_UINT32_MAX */

	/* ready lock */
	int32		queue_place;	/* index in dw_queues; DW_NO_QUEUE for the default queue, and
								 * if the queue has no place there */
	bool		external;		/* its queue has messages, which sessions receive: no executor
								 * takes any, and the lane is listed with its queue */
	DwPause		paused;			/* DW_NOT_PAUSED, or the first reason found */
	int32		peer;			/* next in the circle of lanes of the same owner and queue,
								 * which differ in priority */
	uint32		passed_over;	/* tasks of peers of higher priority that were taken in a row
								 * while this lane had tasks */
	TimestampTz waits_since;	/* when its owner began to wait for a turn in the queue */
	DwList		ready;			/* its ready list: due tasks that no executor has taken, but
								 * those in groups */
	bool		grouped;		/* its queue has groups: its entries say their group */
	DwLaneGroups groups;		/* ready tasks, if grouped; and what runs of them */
	DwEntry		spare;			/* one more task, for which the pool had no memory */
	DwSpareState spare_state;
	bool		is_listed;		/* True if in the DwTurns of its owner, or of its external queue */
	int32		ready_next;		/* neighbours in that list */
	int32		ready_prev;
	uint32		running;		/* executors that run a task of the lane */
	uint32		load_below;		/* wake the timer to load when fewer entries are in memory;
								 * 0: never */
	uint32		batch_size;		/* maximum number of tasks that share a transaction, if
								 * settings allow batches */
	uint32		alone;			/* tasks to be run alone before the next batch is tried */
	TimestampTz recheck_at;		/* when to load the lane again, since plain SQL has locked a
								 * row */
	TimestampTz recheck_from;	/* from this due time on */
	int64		recheck_interval;	/* pause before recheck_at; grows while the same row
									 * stays locked */
	int64		recheck_id;		/* id of the task whose row is locked */

	/* statistics, since the lane was entered */
	DwCounters	counters;
	DwLaneLateness lateness;
} DwLane;

/*
 * A role that owns lanes of one database.  It keeps its place as long as it has lanes or
 * executors.
 */
typedef struct DwOwner
{
	/* identity: table lock */
	Oid			database;		/* InvalidOid if the place is free */
	Oid			role;
	uint32		nlanes;			/* lanes of the owner, with tasks or without */
	int32		next_free;

	/* ready lock */
	DwTurns		turns;			/* its lanes with ready tasks, but those of external queues */
	bool		is_listed;		/* True if in one of its database's two lists of owners */
	dlist_node	link;			/* in that list */
	DwBlock		block;			/* why it got no executor */
	TimestampTz retry_at;		/* if blocked, when to try again; else 0 */
	uint32		start_failures;	/* vain attempts to get an executor, in a row */
	int64		lacks_since;	/* when it was refused a background worker, by dw_uptime(); 0: it
								 * lacks none */
	int64		no_worker_told;	/* when the log last told of its lack of workers, by
								 * dw_uptime(); 0: never */

	/* timer only: what its present look at all owners has found, see dispatch.c */
	uint32		round;			/* number of the look that set in_need */
	DwLane	   *in_need;		/* its first lane that needs another executor, or NULL */
} DwOwner;

/* In place of an index in dw_queues: no declared queue. */
#define DW_NO_QUEUE		(-1)

#define DW_TIMER_REFUSED	"could not start the timer: no background worker is free"
#define DW_LOOK_REFUSED		"could not look into the database: no background worker is free"

/* A database that is served. */
typedef struct DwDatabase
{
	/* table lock */
	Oid			oid;			/* InvalidOid if the place is free */
	char		name[NAMEDATALEN];	/* as its timer has found it, for the log; empty before */
	DwProcess	timer;
	DwTimerNews timer_news;
	DwProcess	sweeper;
	DwSweeperNews sweeper_news;
	DwLack		executors_lack;	/* of the owner that has lacked a background worker longest */
	bool		absent;			/* True until a timer has found the extension in the database */
	int32		lanes;			/* first lane of its list of lanes */
	uint32		nlanes;

	/*
	 * transactions and processes that use this place; while there are any, the place is
	 * not given back
	 */
	pg_atomic_uint32 pins;

	/* commands that need the database without sessions of ours, see hold.c */
	pg_atomic_uint32 holds;
	pg_atomic_uint32 waiters;	/* sessions in delay_wait(), see wait.c */
	pg_atomic_uint32 autonomous_ended;	/* raised when a task that runs outside of a
										 * transaction has ended, see autonomous.c */
	/* delay_wheel.enabled is off in this database; the timer writes it */
	pg_atomic_uint32 disabled;

	/* ring lock; also the pool's spinlock: the pool memory of this database */
	DwAccount	account;

	/* written under both table lock and ready lock */
	bool		paused;			/* delay_wheel.pause_database() was called */
	bool		queues_missing;	/* a declared queue has no place in dw_queues */

	/* ready lock */
	dlist_head	ready_owners;	/* owners with ready tasks that can get an executor, in the
								 * order of their turns */
	dlist_head	blocked_owners;	/* owners with ready tasks that cannot; those who lack a
								 * background worker come first */
	TimestampTz blocked_until;	/* no blocked owner is to be tried again before then */
	uint32		awaiting;		/* sessions that wait for a message, see receivers.c */
	uint32		notifying;		/* declared queues with a channel */
	int			queue_places;	/* its queues are before this index in dw_queues */
	int32		group_opened;	/* a lane in which the end of a task has opened a group, see
								 * dw_groups_take_news() */
	TimestampTz group_wakes_at; /* when the first group wakes of those that were at a limit then */

	/* statistics */
	pg_atomic_uint64 near;		/* tasks in ring and heap */
	pg_atomic_uint64 ready;		/* tasks in ready lists */
	DwCounters	counters;
	DwLateness	lateness;

	DwProblem	problem;
	pg_atomic_uint64 executors_told;	/* when the log was last told of executors that are silent, by
										 * dw_uptime(); 0: never */
	DwRollbacks rollbacks;
} DwDatabase;

/*
 * Whether something has changed that an executor took over from its login, such as
 * rights or settings of its role.
 */
typedef enum DwStale
{
	DW_FRESH = 0,
	DW_STALE_LOOK,				/* memberships have changed: the executor checks whether its
								 * role may still log in */
	DW_STALE_END				/* the executor takes no further task */
} DwStale;

/* Maximum number of notes of tasks that ended their executor. */
#define DW_MAX_QUITS	64

/* A note of a task that ended its executor, see quits.c. */
typedef struct DwQuit
{
	Oid			database;
	bool		stopped;		/* somebody had asked to stop the task */
	int64		id;				/* of the task; 0: this note is free */
} DwQuit;

/* The part of shared memory that does not belong to one database or to an array. */
typedef struct DwShared
{
	LWLock	   *table_lock;
	LWLock	   *database_locks;	/* a ring lock and a ready lock for each database */
	DwProcess	launcher;
	pg_atomic_uint32 databases_changed;	/* the launcher must list the databases again */
	pg_atomic_uint32 turned_away;	/* a database with the extension found no place */
	pg_atomic_uint32 looks_into; /* OID of the database in which a worker of the launcher
								  * looks for the extension; it has no place */
	pg_atomic_uint32 looked;	/* that worker has found the answer */
	pg_atomic_uint32 timers;	/* that are at work, in all databases */
	pg_atomic_uint32 timer_refused;	/* no background worker was free for the timer of some
									 * database */
	DwLack		look_lack;		/* of a look into a database for which there is no place */
	DwStartPause pauses[DW_STARTS];	/* of those who lack a background worker, see starts.c */
	pg_atomic_uint32 unlooked;	/* OID of the database that the launcher is to look into next, if
								 * no background worker is free for that */
	pg_atomic_uint64 unlooked_at;	/* since when, a TimestampTz */
	pg_atomic_uint64 clock_was; /* the latest time that the clock showed before it was set back, a
								 * TimestampTz; PG_INT64_MIN: it was not.  Written by the launcher */
	uint64		salt;			/* drawn at the start of the server, for numbers that all may see */
	int			other_workers;	/* background workers that others have registered at the start of
								 * the server, as the launcher of logical replication */
	bool		recovered;		/* the server came out of recovery, see copies/recovery.c; only
								 * postmaster and launcher write it */
	DwLogins	logins;			/* with what new sessions begin */
	DwQuit		quits[DW_MAX_QUITS]; /* table lock */
	uint32		next_quit;		/* notes are overwritten in turn: the next one, modulo
								 * DW_MAX_QUITS */
	pg_atomic_uint32 nquits;	/* notes in use */
	int32		free_lane;		/* first of the list of free lanes */
	int32		free_owner;		/* first of the list of free owners */
	uint32		nlanes;			/* lanes in use */
	uint32		nexecutors;		/* length of the array dw_executors */
	uint32		database_size;	/* bytes of a database with inbox and ring */
} DwShared;

/* Minimum interval at which a rate wakes a timer. */
#define DW_COALESCE_US		1000

/*
 * A flag in the offset of an entry: the task must run in a transaction of its own.  An
 * offset needs at most 14 of the 16 bits.
 */
#define DW_ENTRY_ALONE	0x8000

/*
 * Another flag: block is the hash of the task's group, see groups.c.  Where the row is, the list of
 * the group may know, and then DwExecutor.tid; else the row is found by the id.
 */
#define DW_ENTRY_GROUP	0x4000

/* In shared memory.  dw_shared is NULL if the library was not preloaded. */
extern PGDLLIMPORT DwShared *dw_shared;
extern DwPool *dw_pool;
extern DwLane *dw_lanes;
extern DwOwner *dw_owners;
extern void dw_require_shared(void);

extern DwDatabase *dw_database(int number);
extern int	dw_database_number(DwDatabase *db);
extern DwInbox *dw_inbox(DwDatabase *db);
extern DwRing *dw_ring(DwDatabase *db);
extern pg_atomic_uint64 *dw_dirty_lanes(DwDatabase *db);
extern LWLock *dw_ring_lock(DwDatabase *db);
extern LWLock *dw_ready_lock(DwDatabase *db);

extern void dw_lane_dirty(DwDatabase *db, const DwLane *lane);
extern void dw_wake_timer(DwDatabase *db, TimestampTz needed);
extern void dw_wake_timer_if_any(DwDatabase *db);
extern int64 dw_rest_margin(void);
extern uint64 dw_secret_hash(const void *data, int length, uint64 seed);
extern void dw_ask_sweeper(DwDatabase *db, DwJob job, TimestampTz at);
extern void dw_call_timer(DwDatabase *db, DwRestart restart);
extern TimestampTz dw_restart_at(DwDatabase *db);
extern void dw_wake_launcher(void);
extern void dw_roles_dropped(void);

extern uint32 dw_lane_executors(void);
extern char *dw_databases;
extern uint32 dw_pool_chunks(void);
extern Size dw_database_size(void);
extern uint32 dw_executor_places(void);
extern bool dw_may_see_database(const DwDatabase *db);

/*
 * The line pointer number of the row, without the flags; InvalidOffsetNumber if it is not
 * known where the row is.
 */
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

/* The owner that this link of a list belongs to. */
static inline DwOwner *
dw_linked_owner(dlist_node *node)
{
	/* cppcheck-suppress nullPointer ; the macro asks NULL for a type */
	return dlist_container(DwOwner, link, node);
}

/* Number of ready tasks in no group: in the ready list, and a spare.  Needs the ready lock. */
static inline uint32
dw_ready_ungrouped(const DwLane *lane)
{
	return lane->ready.count + (lane->spare_state == DW_SPARE_READY ? 1 : 0);
}

/* Number of ready tasks.  Needs the ready lock. */
static inline uint32
dw_ready_count(const DwLane *lane)
{
	return dw_ready_ungrouped(lane) + lane->groups.entries;
}

/* Number of tasks of the lane in memory, waiting or ready. */
static inline uint32
dw_lane_held(const DwLane *lane)
{
	return lane->waiting + dw_ready_count(lane);
}

#endif							/* DW_SHARED_H */
