/*-------------------------------------------------------------------------
 *
 * executors.h
 *	  Places of executors in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_EXECUTORS_H
#define DW_EXECUTORS_H

#include "postgres.h"

#include "shared.h"

/*
 * An executor is late if it was woken, or told to end, and has not answered for this time, in us.
 * The timer does not wait for a late executor.
 */
#define DW_LATE_US	(100 * 1000)

/* A task or turn of less than this time is quick, in us. */
#define DW_QUICK_US	(20 * 1000)

/* Arguments that the timer passes to a new executor, in bgw_extra. */
typedef struct DwExecutorStart
{
	uint32		generation;		/* DwExecutor.generation of the place */
	bool		can_log_in;		/* True if the role has LOGIN */
} DwExecutorStart;

/* State of a place, and of its executor. */
typedef enum DwExecutorState
{
	DW_EXECUTOR_FREE = 0,		/* no executor uses the place */
	DW_EXECUTOR_STARTING,		/* the background worker is registered, and has not begun */
	DW_EXECUTOR_CONNECTING,
	DW_EXECUTOR_IDLE,
	DW_EXECUTOR_WOKEN,			/* idle, but the timer has woken it for work */
	DW_EXECUTOR_BUSY			/* it runs tasks */
} DwExecutorState;

/* A turn of an open group, see groups.c. */
typedef struct DwTurn
{
	struct DwGroup *group;		/* NULL: no turn */
	uint32		number;			/* its turn_number */
	uint32		left;			/* number of turns, from this one on, in the executor's round */
} DwTurn;

/* A place for an executor, which runs the tasks of one owner in one database. */
typedef struct DwExecutor
{
	/* The table lock protects entering and leaving the place, the ready lock all other fields. */
	Oid			database;
	Oid			owner;
	int32		owner_place;	/* index in dw_owners, from DW_EXECUTOR_CONNECTING on */
	uint32		generation;		/* raised when the timer starts an executor here */
	DwExecutorState state;
	bool		must_exit;		/* the executor must end when it runs no task */
	bool		put_back;		/* delay_wheel ended the process, so its task is not to blame */
	uint32		proc;			/* dw_my_proc() */
	pid_t		pid;
	TimestampTz since;			/* when the present state, or the current task, began */
	TimestampTz kept_until;		/* if idle: see dw_executor_is_kept() */
	TimestampTz called;			/* when the executor was woken, or told to end while idle; 0: it has
								 * answered, or was not called */
	DwEntry		current;		/* if busy: the task that the executor runs */
	ItemPointerData tid;		/* TID of current's row if current stores a group's hash; else
								 * invalid */
	uint32		group_changes;	/* if current has a group: its DwGroup.changes when current was
								 * taken */
	bool		begun;			/* the SQL of current has begun */
	bool		settled;		/* the row of current is gone, or was written again */
	bool		in_batch;		/* current shares its transaction with other tasks; the
								 * transaction ends soon, see batch.c */
	DwPosition	position;		/* in a batch: position of the next task in the ready list */
	DwTurn		turn;			/* after a batch of a lane with groups: the next turn to take */
	bool		is_last;		/* current is not run again if this attempt fails */
	bool		unstoppable;	/* the executor puts current back: do not stop it, see stop.c */
	bool		blameless;		/* the task is not the reason for the end of the process; set in
								 * signal handlers, see crash_watch.c */
	bool		outlived;		/* the process still existed when other processes were told to
								 * quit */
	pg_atomic_uint32 helpers;	/* number of its parallel workers that run or have crashed;
								 * signed */
	Oid			stop_by;		/* the role that asked to stop current */

	/* 1 if current must be stopped; written under the ready lock */
	pg_atomic_uint32 stop;

	/*
	 * the transaction that deletes the row of current, and in a batch the rows of earlier tasks;
	 * else InvalidTransactionId
	 */
	pg_atomic_uint32 xid;

	/* a DwStale: whether rights or settings of the role have changed since the login */
	pg_atomic_uint32 stale;

	/*
	 * id of a keyed task that the executor could not claim, since another transaction had locked
	 * its row; else 0
	 */
	pg_atomic_uint64 refused;

	/*
	 * id of the task that the executor runs outside of a transaction, or 0, see autonomous.c.
	 * "autonomous" is used if the row was deleted before the run, "keeps" if the row stays during
	 * the run
	 */
	pg_atomic_uint64 autonomous;
	pg_atomic_uint64 keeps;
} DwExecutor;

extern bool dw_workers_are_few(void);
/* The place of this executor; NULL in other processes. */
extern DwExecutor *dw_this_executor;
extern DwExecutor *dw_executor_served(void);
extern bool dw_xid_is_executor(TransactionId xid);
extern bool dw_executor_claims(int64 id, TransactionId xid);
extern bool dw_xid_is_batch(TransactionId xid);
extern bool dw_executor_keeps(int64 id);
extern bool dw_executor_runs_autonomous(int64 id, Oid *owner);
extern TimestampTz dw_executor_since(DwDatabase *db, int64 id);
extern bool dw_executor_runs_autonomous_in(int16 queue);

extern uint32 dw_executors_beyond(void);
extern bool dw_executor_is_kept(const DwExecutor *e, TimestampTz now);
extern DwExecutor *dw_executor_idle_longest(Oid database, bool here, Oid not_of, int64 idle_for);
extern bool dw_executor_end_idle_elsewhere(Oid database);
extern bool dw_executor_end_turn_elsewhere(Oid database);
extern void dw_executor_end(DwExecutor *e);
extern TimestampTz dw_executor_unanswered_since(const DwExecutor *e);
extern bool dw_executor_is_late(const DwExecutor *e, TimestampTz now);
extern bool dw_executors_exist(Oid database);
extern void dw_executors_end(DwDatabase *db, Oid owner);
extern void dw_executor_obey_exit(DwDatabase *db, DwExecutor *me);
extern bool dw_executor_was_refused(int64 id);
extern void dw_executor_forget_refused(int64 id);

extern void dw_count_begin(DwDatabase *db, DwExecutor *me, int64 us);
extern void dw_count_end(DwDatabase *db, DwLane *lane, DwOutcome outcome);
extern int64 dw_failed_max_age_us(void);
extern void dw_failed_recorded(DwDatabase *db, uint64 n);

/* All dw_shared->nexecutors places of executors, in shared memory. */
extern DwExecutor *dw_executors;

/* A loop over all places of executors, used or free. */
#define dw_each_executor(e) \
	for (DwExecutor *e = dw_executors; e < dw_executors + dw_shared->nexecutors; e++)

/*---- stop.c: stopping a task that runs ----*/

extern bool dw_stop_task(DwDatabase *db, int64 id, bool at_once);

/* Returns true if the task of this executor must be stopped. */
static inline bool
dw_stop_requested(const DwExecutor *me)
{
	return pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &me->stop)) != 0;
}

extern void dw_stop_allow(DwDatabase *db, DwExecutor *me);
extern bool dw_stop_forbid(DwDatabase *db, DwExecutor *me);
extern Oid	dw_stop_by(DwDatabase *db, DwExecutor *me);
extern bool dw_stop_over(DwExecutor *me);
extern void dw_stop_absorb(void);
extern void dw_cancel_forget(void);
extern void dw_cancel_for_task(const DwExecutor *me);

/*---- suspects.c: notes of tasks that have crashed the server, or have ended their executor ----*/

/* Number of crashes after which a task is set aside. */
#define DW_MAX_CRASHES	3

/*
 * Number of crashes after which a task is left alone.  The last crash happened while the task was
 * being set aside, for example because its row is damaged.
 */
#define DW_CRASHES_LEFT_ALONE	(DW_MAX_CRASHES + 1)

extern int	dw_crashes_of(Oid database, int64 id);
extern int	dw_crashes_list(Oid database, TimestampTz before, int64 *ids);
extern bool dw_crashes_are_recent(void);
extern void dw_crashes_end(Oid database, int64 id, int64 next);
extern void dw_suspects_blame(const DwExecutor *e);
extern void dw_suspects_write_file(void);
extern void dw_suspects_read_file(void);

extern void dw_quit_note(Oid database, int64 id, bool stopped);
extern bool dw_quit_is_noted(int64 id);
extern ErrorData *dw_quit_take(int64 id);
extern void dw_notes_forget_database(Oid database);

/*---- crash_watch.c: finds out whether a process was told to quit or has crashed ----*/

extern void dw_crashes_init(void);
extern void dw_crashes_watch_query(void);
extern void dw_crashes_watch_signals(void);
extern void dw_crashes_watch_panics(void);

#endif							/* DW_EXECUTORS_H */
