/*-------------------------------------------------------------------------
 *
 * shared.h
 *	  What the processes of delay_wheel share: databases, lanes, executors.
 *
 * Who writes what, and under which lock:
 *
 * table lock	which databases, lanes and executors exist (entering and
 *				leaving the fixed arrays)
 * ring lock	one per database: the ring and the pool accounts are changed
 *				by its timer only; views read under it
 * ready lock	one per database: the ready lists of its lanes, what its
 *				executors run; timer and executors
 * inbox lock	one per database: a spinlock
 * atomics		written by committing backends without any lock
 * progress		a spinlock for each kind of work of a database
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
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/itemptr.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "../ring/ring.h"

/* The first ones are the timer's, the others the sweeper's. */
typedef enum DwWork
{
	DW_WORK_LOAD = 0,
	DW_WORK_ORPHANS,
	DW_WORK_SWEEP,
	DW_WORK_FAILED,
	DW_WORK_HISTORY,
	DW_WORK_RECURRING
} DwWork;

#define DW_WORKS			(DW_WORK_RECURRING + 1)

typedef enum DwPhase
{
	DW_PHASE_NONE = 0,			/* it was never done */
	DW_PHASE_LOOKING,			/* for lanes */
	DW_PHASE_LOADING,
	DW_PHASE_MOVING,
	DW_PHASE_SWEEPING,
	DW_PHASE_COUNTING,
	DW_PHASE_DELETING,
	DW_PHASE_EMPTYING,
	DW_PHASE_CHECKING,
	DW_PHASE_WAITING,			/* for others; the process may end meanwhile */
	DW_PHASE_DONE,				/* from here on it does not go on */
	DW_PHASE_INTERRUPTED
} DwPhase;

/* One kind of work in one database: what goes on, or how it was the last time. */
typedef struct DwProgress
{
	slock_t		lock;			/* one process writes, views read */
	DwPhase		phase;
	TimestampTz started;
	int64		began;			/* the same, by dw_uptime() */
	int64		ended;			/* by that, too */
	int64		done;
	int64		total;
	int32		steps;
	int32		steps_total;
	int64		times;			/* that it was begun */
} DwProgress;

/* words of a bitmap of lanes */
#define DW_LANE_WORDS	((dw_max_lanes + 63) / 64)
#define DW_HEAD_START_US	100 /* see near.c */

/* Names a lane for as long as it is the same one. */
typedef struct DwLaneRef
{
	uint16		index;
	uint32		generation;
} DwLaneRef;

/*
 * News of a task, from whoever committed it to the timer.  May be lost (with
 * a reload to follow), doubled or wrong: the table decides.
 */
typedef struct DwHint
{
	TimestampTz due;
	int64		id;
	ItemPointerData tid;
	DwLaneRef	lane;
} DwHint;

/* The last place of a lane, used when the pool has none. */
typedef enum DwSpareState
{
	DW_SPARE_FREE = 0,
	DW_SPARE_WAITING,			/* not due yet; only the timer looks at it */
	DW_SPARE_READY				/* due; under the ready lock */
} DwSpareState;

/* Why no executor can be had for the tasks of an owner. */
typedef enum DwBlock
{
	DW_BLOCK_NONE = 0,
	DW_BLOCK_NO_WORKER,			/* no background worker is free */
	DW_BLOCK_NO_ROLE,			/* the role was dropped */
	DW_BLOCK_NO_CONNECT,		/* it lacks CONNECT on the database */
	DW_BLOCK_CLOSED,			/* the database allows no connections */
	DW_BLOCK_NOT_CONNECTED,		/* an executor could not connect */
	DW_BLOCK_TERMINATED,		/* an executor was, during its first task */
	DW_BLOCK_ENDED				/* an executor ended by itself then */
} DwBlock;

/* Why no task of a lane is started, though executors could be had. */
typedef enum DwPause
{
	DW_NOT_PAUSED = 0,
	DW_PAUSED_DATABASE,			/* all tasks of the database are paused */
	DW_PAUSED_OWNER,			/* those of its owner */
	DW_PAUSED_QUEUE,			/* those of its queue */
	DW_PAUSED_NO_QUEUE,			/* its queue is not declared, or not yet known */
	DW_PAUSED_NO_PLACE			/* dw_queues has no place for its queue */
} DwPause;

#define DW_LANE_BUCKETS	64

/*
 * A lane is one (owner, queue, priority) of one database: the unit of
 * everything that can be blocked, with a cursor of its own into the table.
 */
typedef struct DwLane
{
	/* identity: table lock */
	Oid			database;		/* InvalidOid: free */
	Oid			owner;
	int16		queue;
	int16		priority;
	int32		next;			/* next lane of the database, or free lane */
	int32		owner_place;	/* in dw_owners */
	pg_atomic_uint32 generation;	/* raised when the lane is given back */

	/* read by committers, published by the timer */
	pg_atomic_uint64 horizon;	/* up to here hints are wanted */

	/* lowered by committers, taken by the timer */
	pg_atomic_uint64 next_far;	/* something is due then, not in memory */
	pg_atomic_uint64 reload_from;	/* what is in memory from there on is not
									 * to be trusted */

	/* timer only: the first key that is not in memory */
	TimestampTz cursor_due;
	int64		cursor_id;
	uint32		waiting;		/* entries in ring and heap, and the spare;
								 * executors read it under the ready lock */
	TimestampTz load_after;		/* backoff after a failed load */
	bool		orphan;			/* its owner does not exist: nothing is in
								 * memory, see orphans.c */
	uint32		refill_at;		/* memory was short: loaded again when the lane
								 * holds no more than that */

	/* ready lock */
	int32		queue_place;	/* in dw_queues; DW_NO_QUEUE for the default queue,
								 * or if the lane is paused for want of one */
	DwPause		paused;			/* for whatever reason */
	int32		peer;			/* lane of the same owner and queue: a circle */
	uint32		passed_over;	/* tasks of peers of higher priority that were
								 * taken first, in a row */
	TimestampTz waits_since;	/* its owner has waited for a turn in the queue */
	DwList		ready;
	DwEntry		spare;
	DwSpareState spare_state;
	bool		is_listed;		/* in its owner's list of lanes with ready tasks */
	int32		ready_next;
	int32		ready_prev;
	uint32		running;		/* executors on it */
	uint32		load_below;		/* wake the timer when fewer are in memory */
	uint32		batch_size;		/* so many share a transaction, if settings allow */
	uint32		alone;			/* so many do not, before that is tried again */
	TimestampTz recheck_at;		/* a row was locked by a stranger */
	TimestampTz recheck_from;
	int64		recheck_interval;
	int64		recheck_id;		/* the task that this is for */

	/* statistics, since the lane was entered */
	pg_atomic_uint64 done;
	pg_atomic_uint64 failed;
	pg_atomic_uint64 retried;	/* attempts that are followed by another one */
	pg_atomic_uint64 cancelled;
	pg_atomic_uint64 skipped;	/* came too late */
	pg_atomic_uint64 lateness_max;
	pg_atomic_uint32 lateness[DW_LANE_BUCKETS];
} DwLane;

/* Whether a timer is to end, since another one would do better. */
typedef enum DwRestart
{
	DW_RESTART_NONE = 0,
	DW_RESTART_SOON,			/* settings have changed: once in a while */
	DW_RESTART_NOW				/* whether to serve, or the clock */
} DwRestart;

/* In which list of its database an owner is. */
typedef enum DwOwnerList
{
	DW_OWNER_UNLISTED = 0,		/* no task of it is ready */
	DW_OWNER_READY,
	DW_OWNER_BLOCKED			/* no executor can be had before retry_at */
} DwOwnerList;

#define DW_NO_OWNER		(-1)

/* A list of owners, linked both ways. */
typedef struct DwOwners
{
	int32		head;
	int32		tail;
} DwOwners;

/*
 * An owner of lanes of one database.  It stays for as long as it has lanes, or
 * executors.
 */
typedef struct DwOwner
{
	/* identity: table lock */
	Oid			database;		/* InvalidOid: free */
	Oid			role;
	uint32		nlanes;
	int32		next_free;

	/* ready lock */
	int32		ready_head;		/* its lanes with ready tasks that are not paused,
								 * in turn */
	int32		ready_tail;
	uint32		nready;			/* how many these are */
	DwOwnerList list;
	int32		next;			/* in that list */
	int32		prev;
	DwBlock		block;			/* why no executor could be had */
	TimestampTz retry_at;		/* if so, not before then */
	uint32		start_failures;
	int64		no_worker_since;	/* blocked for want of one, by dw_uptime() */
	int64		no_worker_told; /* when the log told of that last; 0: never */

	/* timer only, see dispatch.c: what was found out in this round */
	uint32		round;
	DwLane	   *in_need;		/* it has not enough executors for this lane */
} DwOwner;

#define DW_NO_QUEUE		(-1)

#define DW_LATENESS_BUCKETS 512

/*
 * Are there tasks of another origin, see delay_arm()?  The second flag is set
 * while the timer looks; it goes when a committer knows better.
 */
#define DW_UNARMED_MET		0x01
#define DW_UNARMED_LOOKING	0x02

#define DW_TIMER_REFUSED	"could not start the timer: no background worker is free"

typedef enum DwTimerState
{
	DW_TIMER_NONE = 0,
	DW_TIMER_STARTING,
	DW_TIMER_RUNNING
} DwTimerState;

typedef enum DwSweeperState
{
	DW_SWEEPER_NONE = 0,
	DW_SWEEPER_STARTING,
	DW_SWEEPER_RUNNING
} DwSweeperState;

/* Of so many transactions that the sweeper waits for the view has the pid. */
#define DW_SWEEP_WAITS	16

/* A database that is served. */
typedef struct DwDatabase
{
	/* table lock */
	Oid			oid;			/* InvalidOid: free */
	DwTimerState timer_state;
	int64		timer_started;	/* by dw_uptime() */
	bool		let_go;			/* the last timer ended because it was asked to */
	bool		timer_terminated;	/* or it was told to */
	bool		timer_refused;	/* no background worker was free for the next one */
	bool		absent;			/* no timer has found the extension here */
	pid_t		timer_pid;
	DwSweeperState sweeper_state;
	int64		sweeper_started;	/* by dw_uptime() */
	bool		sweeper_failed; /* the last one ended by an error */
	bool		sweeper_made_way;	/* or for want of background workers */
	bool		sweeper_refused;	/* it is needed, and none was free for it */
	pid_t		sweeper_pid;
	bool		sweep_waits;	/* for transactions that were open, some of them: */
	int			sweep_npids;
	int			sweep_pids[DW_SWEEP_WAITS]; /* 0: a prepared one */
	int32		lanes;			/* list of its lanes */
	uint32		nlanes;

	/* transactions that count on this place; it is not given back meanwhile */
	pg_atomic_uint32 pins;

	/* transactions that need the database without our sessions, see hold.c */
	pg_atomic_uint32 holds;
	/* the timer is to start anew: one of DwRestart */
	pg_atomic_uint32 restart;

	pg_atomic_uint32 wanted;	/* a timer is wanted: set by anyone */
	pg_atomic_uint32 timer_proc;	/* dw_my_proc() of the timer, 0 = none */

	/* the handshake of the timer's sleep */
	pg_atomic_uint64 sleep_until;
	pg_atomic_uint64 reload_from;	/* for all lanes, and unknown ones */
	pg_atomic_uint32 any_lane_dirty;	/* some lane is in dw_dirty_lanes() */
	pg_atomic_uint32 executors_dirty;	/* an executor came or went */
	pg_atomic_uint32 starving;	/* owners that wait for an executor's place */
	pg_atomic_uint32 rights_changed;	/* blocked owners may try at once */
	pg_atomic_uint32 prepared_ended;	/* delay_wheel.prepared is to be emptied */
	pg_atomic_uint32 nameless;	/* prepared under a name that is not known: so
								 * many, perhaps; 0: none has still to end */
	pg_atomic_uint32 roles_dropped; /* a role was: look for its lanes */

	/* raised when a queue, a pause or a mark was committed */
	pg_atomic_uint32 control;

	pg_atomic_uint32 waiters;	/* backends in delay_wait(), see wait.c */
	pg_atomic_uint32 autonomous_ended;	/* raised when such a task has, see
										 * autonomous.c */
	pg_atomic_uint32 sweeper_proc;	/* dw_my_proc() of the sweeper, 0 = none */
	pg_atomic_uint32 sweep_wanted;	/* the sweeper is to look again */
	pg_atomic_uint32 sweeper_rests; /* for long: it may be asked to make way */

	pg_atomic_uint32 unarmed;	/* DW_UNARMED flags */

	/* retention of failed tasks, see failed.c */
	pg_atomic_uint64 failed_trim_at;	/* when the sweeper is to look at them */
	pg_atomic_uint64 failed_trim_after; /* too soon before that */
	pg_atomic_uint64 failed_limit;	/* too many, when failed has come to that */

	/* tables of the history, see history_tables.c */
	pg_atomic_uint64 history_turn_at;	/* when the sweeper is to look at them */
	pg_atomic_uint64 history_turn_after;	/* too soon before that */
	pg_atomic_uint64 history_locked_since;	/* they could not be emptied */
	pg_atomic_uint32 history_current;	/* the one that is written, counted from 1;
										 * 0: not known yet */
	pg_atomic_uint32 history_room;	/* pages that it may have, 0: not known yet */
	pg_atomic_uint32 history_is_full;

	/* the sweeper is to look whether recurring tasks have their runs */
	pg_atomic_uint32 recurring_look;

	/* delay_wheel.enabled is off here, as the timer has read it */
	pg_atomic_uint32 disabled;

	/* inbox lock */
	slock_t		inbox_lock;
	uint32		inbox_head;
	uint32		inbox_count;

	/* ring lock; accounts also under the pool's spinlock */
	DwAccount	account;

	/* table lock to change, with the ready lock */
	bool		paused;			/* see delay_pause_database() */
	bool		queues_missing; /* some queue has no place */

	/* ready lock */
	DwOwners	ready_owners;	/* who have ready tasks, in turn */
	DwOwners	blocked_owners; /* and can have no executor, those for want of a
								 * background worker first */
	TimestampTz blocked_until;	/* one of these is to be tried again, not before */
	TimestampTz last_problem_at;
	char		last_problem[256];
	int			last_problem_plain; /* so many bytes quote no error */

	/* statistics */
	pg_atomic_uint64 near;
	pg_atomic_uint64 ready;
	pg_atomic_uint64 done;
	pg_atomic_uint64 failed;
	pg_atomic_uint64 retried;	/* attempts that failed and are followed by another */
	pg_atomic_uint64 skipped;	/* came too late */
	pg_atomic_uint64 lateness_max;
	pg_atomic_uint64 lateness[DW_LATENESS_BUCKETS];

	DwProgress	progress[DW_WORKS];
} DwDatabase;

/* Has anything changed that a session keeps from its login? */
typedef enum DwStale
{
	DW_FRESH = 0,
	DW_STALE_LOOK,				/* memberships: may it still log in? */
	DW_STALE_END				/* no task any more */
} DwStale;

#define DW_MAX_QUITS	64

/* A task that has ended its executor, see quits.c. */
typedef struct DwQuit
{
	Oid			database;
	bool		stopped;		/* it was to be */
	int64		id;				/* 0: free */
} DwQuit;

typedef struct DwShared
{
	LWLock	   *table_lock;
	LWLock	   *database_locks; /* two for each database */
	pg_atomic_uint32 launcher_proc;
	pg_atomic_uint32 databases_changed; /* the launcher is to list them again */
	pg_atomic_uint32 turned_away;	/* some database found no place */
	pg_atomic_uint32 looks_into;	/* the database that the launcher has a look taken
								 * into, without a place */
	pg_atomic_uint32 looked;	/* the look has found out */
	pg_atomic_uint32 timer_refused; /* no background worker was free for one */
	pg_atomic_uint32 trial;		/* the executor that others make way for, its place
								 * counted from 1; 0: none */
	pg_atomic_uint64 trial_until;	/* no longer than that */
	bool		recovered;		/* see recovery.c; written by the launcher */
	DwQuit		quits[DW_MAX_QUITS];	/* table lock */
	uint32		next_quit;
	pg_atomic_uint32 nquits;
	int32		free_lane;
	int32		free_owner;
	uint32		nlanes;
	uint32		nexecutors;		/* places */
	uint32		database_size;	/* bytes of a database with inbox and ring */
} DwShared;

/* Timers are not woken more often than that by a rate. */
#define DW_COALESCE_US		1000

/*
 * A flag in the offset of an entry: it is to be run in a transaction of its
 * own.  An offset needs 14 bits at most.
 */
#define DW_ENTRY_ALONE	0x8000

#define DW_FIRST_OF_SWEEPER	DW_WORK_SWEEP

extern PGDLLIMPORT DwShared *dw_shared;
extern DwPool *dw_pool;
extern DwLane *dw_lanes;
extern DwOwner *dw_owners;
extern void dw_require_shared(void);

/* Access by number. */
extern DwDatabase *dw_database(int number);
extern int	dw_database_number(DwDatabase *db);
extern DwHint *dw_inbox(DwDatabase *db);
extern DwRing *dw_ring(DwDatabase *db);
extern pg_atomic_uint64 *dw_dirty_lanes(DwDatabase *db);
extern LWLock *dw_ring_lock(DwDatabase *db);
extern LWLock *dw_ready_lock(DwDatabase *db);
extern void dw_problem(DwDatabase *db, const char *text);
extern void dw_problem_quoting(DwDatabase *db, const char *text, const char *quoted);

/* News for the timer. */
extern bool dw_inbox_push(DwDatabase *db, const DwHint *hint, bool *crowded);
extern uint32 dw_inbox_drain(DwDatabase *db, DwHint *hints, uint32 max);
extern void dw_lane_dirty(DwDatabase *db, const DwLane *lane);
extern void dw_wake_timer(DwDatabase *db, TimestampTz needed);
extern void dw_call_timer(DwDatabase *db, DwRestart restart);
extern TimestampTz dw_restart_at(DwDatabase *db);
extern void dw_wake_launcher(void);
extern void dw_roles_dropped(void);

/* How many executors one lane may have. */
extern uint32 dw_lane_executors(void);
extern char *dw_databases;
extern uint32 dw_pool_chunks(void);
extern Size dw_database_size(void);
extern uint32 dw_executor_places(void);
extern bool dw_may_see_database(const DwDatabase *db);

static inline OffsetNumber
dw_entry_offset(const DwEntry *entry)
{
	return entry->offset & ~DW_ENTRY_ALONE;
}

static inline DwOwner *
dw_lane_owner(const DwLane *lane)
{
	return &dw_owners[lane->owner_place];
}

/* Tasks of the lane's ready list.  Under the ready lock. */
static inline uint32
dw_ready_count(const DwLane *lane)
{
	return lane->ready.count + (lane->spare_state == DW_SPARE_READY ? 1 : 0);
}

/* All of the lane that is in memory. */
static inline uint32
dw_lane_held(const DwLane *lane)
{
	return lane->waiting + dw_ready_count(lane);
}

#endif							/* DW_SHARED_H */
