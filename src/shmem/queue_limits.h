/*-------------------------------------------------------------------------
 *
 * queue_limits.h
 *	  Pauses, and limits of queues: which lanes may begin tasks now.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_QUEUE_LIMITS_H
#define DW_QUEUE_LIMITS_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "shared.h"

/* What keeps a lane's tasks from being begun. */
typedef enum DwLimit
{
	DW_LIMIT_NONE = 0,
	DW_LIMIT_PAUSED,			/* for why, see DwPause */
	DW_LIMIT_RUNNING,			/* max_running of its queue */
	DW_LIMIT_RATE,
	DW_LIMIT_TURN				/* it is another owner's turn in the queue */
} DwLimit;

/* All of these are under the ready lock. */

#define DW_DEFAULT_RETRY_DELAY	(10 * USECS_PER_SEC)

/* What running needs to know of it: what holds for tasks that say nothing. */
typedef struct DwQueueDefaults
{
	int32		timeout;		/* ms, -1: none */
	int16		max_attempts;
	int64		retry_delay;	/* us */
} DwQueueDefaults;

/*
 * What timer and executors need to know of a declared queue of a database.
 * Filled in by the timer from the table; the default queue has none.  Places
 * of a database change under the table lock together with its ready lock, so
 * either is enough to read its own ones.
 */
typedef struct DwQueue
{
	/* table lock to enter and leave */
	Oid			database;		/* InvalidOid: free */
	int16		id;

	/* ready lock: as declared */
	bool		paused;
	bool		batch;
	int32		max_running;	/* 0: no limit */
	int32		rate;			/* tasks a second, 0: no limit */
	int32		timeout;		/* ms, -1: none */
	int16		max_attempts;
	int64		retry_delay;	/* us */

	/* ready lock: as it stands, see queue_limits.c */
	uint32		running;		/* executors on its tasks, of all lanes */
	TimestampTz next_start;		/* by the rate */
	int64		start_fraction; /* of it, in us / rate */
	Oid			kept_for;		/* until then one place is for this owner */
	TimestampTz kept_until;
	TimestampTz next_turn;		/* not before then is one kept again */

	/* statistics, since the queue was entered */
	pg_atomic_uint64 done;
	pg_atomic_uint64 failed;
	pg_atomic_uint64 retried;
	pg_atomic_uint64 cancelled; /* by a mark, of those that were claimed */
	pg_atomic_uint64 skipped;
} DwQueue;
extern DwQueue *dw_lane_queue(const DwLane *lane);
extern DwLimit dw_lane_limit(const DwLane *lane, TimestampTz now, uint32 *room,
							 TimestampTz *until);
extern const char *dw_limit_text(DwLimit limit);

/*
 * A task of the lane was taken, or has ended, begun or not.  The latter
 * returns whether its queue was full: if the place is not taken at once again,
 * the timer must hear of it.
 */
extern void dw_limits_take(DwLane *lane, TimestampTz now);
extern bool dw_limits_end(DwLane *lane, bool begun);
extern bool dw_limits_full(const DwLane *lane);

/*
 * Turns of owners in a limited queue: keeps a place for one who has waited
 * too long, of others than the lane's; and for an owner without an executor,
 * who may then have somebody else's place.
 */
extern bool dw_limits_keep_for_other(DwDatabase *db, const DwLane *lane, TimestampTz now);
extern bool dw_limits_is_turn(const DwLane *lane, TimestampTz now, TimestampTz *until);
extern void dw_limits_forget_times(DwDatabase *db);
extern void dw_tell_queues_without_place(void);
extern void dw_queue_defaults(DwDatabase *db, int16 queue, DwQueueDefaults *defaults);
extern void dw_queues_init(void);
extern void dw_queues_leave(Oid database);

/* A lane is entered; under the table lock. */
extern void dw_queue_attach_lane(DwDatabase *db, DwLane *lane);
extern const char *dw_pause_text(DwPause reason);
extern DwQueue *dw_queues;

#endif							/* DW_QUEUE_LIMITS_H */
