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

#include "datatype/timestamp.h"

#include "../ring/ring.h"
#include "shared.h"

/* What a new executor is told, in bgw_extra. */
typedef struct DwExecutorStart
{
	uint32		generation;
	bool		can_log_in;
} DwExecutorStart;

typedef enum DwExecutorState
{
	DW_EXECUTOR_FREE = 0,		/* the place is free */
	DW_EXECUTOR_STARTING,		/* registered, not running yet */
	DW_EXECUTOR_CONNECTING,
	DW_EXECUTOR_IDLE,
	DW_EXECUTOR_WOKEN,			/* idle, but called for work */
	DW_EXECUTOR_BUSY
} DwExecutorState;

/* Is its task suspected of crashing the server?  See trial.c. */
typedef enum DwTrial
{
	DW_NO_TRIAL = 0,
	DW_TRIAL_AWAITED,			/* its run is to begin when others have made way */
	DW_ON_TRIAL
} DwTrial;

/* A place for an executor: a process of one database and one role. */
typedef struct DwExecutor
{
	/* table lock to enter and leave, ready lock for the rest */
	Oid			database;
	Oid			owner;
	int32		owner_place;	/* in dw_owners, once it has taken its place */
	uint32		generation;
	DwExecutorState state;
	bool		must_exit;
	bool		put_back;		/* terminated by us, the task is not to blame */
	uint32		proc;			/* dw_my_proc() */
	pid_t		pid;
	TimestampTz since;			/* of the state */
	DwEntry		current;		/* what it runs, if busy */
	bool		begun;			/* its SQL has begun */
	bool		in_batch;		/* others share its transaction, which ends soon,
								 * see batch.c */
	DwPlace		place;			/* where in the ready list its batch takes tasks */
	bool		unstoppable;	/* current is being put back, see stop.c */
	DwTrial		trial;			/* of current; by itself only, no lock */
	bool		blameless;		/* the process ends, but not for what it runs: set
								 * in signal handlers, see crashes.c */
	bool		outlived;		/* it was there when others were told to quit */
	pg_atomic_uint32 helpers;	/* its parallel workers that have not ended well;
								 * a signed number, see crashes.c */
	Oid			stop_by;		/* who wants it to be stopped */

	/* current is to be stopped; written under the ready lock */
	pg_atomic_uint32 stop;

	/* the transaction that deletes the row of current, and of those before it
	 * in the batch; else invalid */
	pg_atomic_uint32 xid;

	/* what a login would find has changed: a DwStale */
	pg_atomic_uint32 stale;

	/* a task with a key that it could not claim, being kept; else 0 */
	pg_atomic_uint64 refused;

	/* the task that it runs outside of a transaction, see autonomous.c: its row
	 * is gone, or stays meanwhile; else 0 */
	pg_atomic_uint64 autonomous;
	pg_atomic_uint64 keeps;
} DwExecutor;

/* The executor that this process is, or NULL. */
extern DwExecutor *dw_this_executor;
extern DwExecutor *dw_executor_served(void);
extern bool dw_xid_is_executor(TransactionId xid);
extern bool dw_executor_claims(int64 id, TransactionId xid);
extern bool dw_xid_is_batch(TransactionId xid);
extern bool dw_executor_keeps(int64 id);
extern bool dw_executor_runs_autonomous(int64 id, Oid *owner);
extern bool dw_executor_runs_autonomous_in(int16 queue);

/* For the executor, between two tries of its task: ends if it is told to. */
extern void dw_executor_obey_exit(DwDatabase *db, DwExecutor *me);
extern bool dw_executor_was_refused(int64 id);
extern void dw_executor_forget_refused(int64 id);
extern DwExecutor *dw_executors;

#endif							/* DW_EXECUTORS_H */
