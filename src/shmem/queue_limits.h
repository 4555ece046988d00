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

/*---- queue_limits.c: rates: how many tasks may be started in a time ----*/

/* A rate, as declared. */
typedef struct DwRate
{
	int32		starts;			/* tasks in the time per; 0: no limit, and the rest is unused */
	int32		burst;			/* unused starts that are made up for at once; 0: by TOLERANCE_US */
	int64		per;			/* us, a second at least */
} DwRate;

/* How far a rate is used up.  All zero: nothing was started. */
typedef struct DwRateUse
{
	TimestampTz next_start;		/* when the rate allows the next task */
	int64		start_fraction; /* fraction of a microsecond that belongs to next_start, in
								 * units of 1 / starts */
} DwRateUse;

extern TimestampTz dw_rate_next(const DwRate *rate, const DwRateUse *use, TimestampTz now);
extern TimestampTz dw_rate_unused_at(const DwRate *rate, const DwRateUse *use);
extern void dw_rate_start(const DwRate *rate, DwRateUse *use, TimestampTz now);
extern void dw_rate_not_begun(const DwRate *rate, DwRateUse *use);

/* Why a lane must not begin a task now. */
typedef enum DwLimit
{
	DW_LIMIT_NONE = 0,
	DW_LIMIT_PAUSED,			/* see DwLane.paused for the reason */
	DW_LIMIT_RUNNING,			/* its queue runs max_running tasks */
	DW_LIMIT_RATE,				/* the rate of its queue is used up */
	DW_LIMIT_TURN,				/* the queue's next task is kept for another owner */
	DW_LIMIT_GROUP				/* each group that has due tasks is at a limit of its own */
} DwLimit;

/* Pause before the second attempt, in microseconds, if neither task nor queue says. */
#define DW_DEFAULT_RETRY_DELAY	(10 * USECS_PER_SEC)

/* How often a message may be tried, if neither it nor its queue says. */
#define DW_MESSAGE_ATTEMPTS		20

/* Length of a lease, in us, if neither it nor its queue says. */
#define DW_DEFAULT_LEASE		USECS_PER_MINUTE

/* How long a transaction that has received messages may be idle, in ms, by default. */
#define DW_DEFAULT_RECEIVE_TIMEOUT	(60 * 1000)

/* Options that a queue declares for tasks that do not set them. */
typedef struct DwQueueDefaults
{
	int32		timeout;		/* ms, -1: none */
	int16		max_attempts;
	int64		retry_delay;	/* us */
} DwQueueDefaults;

/*
 * A declared queue of a database, as timer and executors need it.  The timer fills it
 * in from the table; the default queue (id 0) has no place here.
 *
 * Queues enter and leave dw_queues under the table lock and the ready lock of their
 * database together, so either lock is enough to find one.
 */
typedef struct DwQueue
{
	/* table lock to enter and leave */
	Oid			database;		/* InvalidOid if the place is free */
	int16		id;

	/* ready lock: as declared */
	DwPause		pause;			/* as its declaration says */
	bool		batch;
	int32		max_running;	/* 0: no limit */
	DwRate		rate;
	bool		groups;			/* its tasks take turns by groups, see groups.c */
	int32		group_max_running;	/* of one group; 0: no limit */
	DwRate		group_rate;		/* of one group */
	bool		group_order;	/* tasks of one group run one after the other, in order */
	int32		timeout;		/* ms, -1: none */
	int16		max_attempts;
	int64		retry_delay;	/* us */
	bool		external;		/* has messages, which sessions receive */
	int64		lease;			/* length of a lease that says nothing, in us */
	int32		receive_timeout;	/* how long a receiver's transaction may be idle, in ms; 0: no
									 * limit */

	/* ready lock: its present state, see queue_limits.c */
	uint32		running;		/* tasks that executors run, of all its lanes */
	DwTurns		turns;			/* if external: its lanes with ready messages */
	uint32		waiting;		/* sessions in delay_await(), see receivers.c */
	bool		notifies;		/* it has a channel that is notified */
	bool		has_news;		/* a message has become ready since the sweeper was asked to
								 * notify the channel */
	bool		notify_asked;	/* the sweeper is asked to */
	TimestampTz looked_at;		/* when a session has last looked for a message; 0: never */
	TimestampTz woken_at;		/* when one of these was woken, and none has looked for a
								 * message since; else 0 */
	DwRateUse	rate_use;
	Oid			kept_for;		/* owner for which a turn is kept until kept_until */
	TimestampTz kept_until;		/* 0: no turn is kept */
	TimestampTz next_turn;		/* no turn is kept again before then */

	/* messages that open transactions have received; commit callbacks lower it */
	pg_atomic_uint32 received;
	/* leases, if max_running is set; see the head of queue_limits.c */
	pg_atomic_uint32 leased;	/* their number, if not lease_doubt, and until leases_until */
	pg_atomic_uint32 lease_changes; /* raised after each change of leased, and by doubts */
	pg_atomic_uint32 lease_counts;	/* how often leases were counted */
	pg_atomic_uint32 lease_doubt;	/* 1: they have to be counted again */
	TimestampTz leases_until;	/* ready lock: when the first of them ends */

	/* statistics, since the queue was entered */
	DwCounters	counters;		/* cancelled: claimed tasks that a mark had cancelled */
	pg_atomic_uint64 lapsed;	/* leases that ended without a word of the receiver */
} DwQueue;

extern DwQueue *dw_lane_queue(const DwLane *lane);
extern DwQueue *dw_queue_place_of(DwDatabase *db, int16 id);
extern void dw_queue_enter(DwDatabase *db, DwQueue *place, int16 id);
extern void dw_turns_init(DwTurns *turns);
extern DwLimit dw_queue_limit(const DwLane *lane, TimestampTz now, uint32 *room,
							  TimestampTz *until);
extern const char *dw_limit_text(DwLimit limit);

extern void dw_limits_take(DwLane *lane, TimestampTz now);
extern bool dw_limits_end(DwLane *lane, bool begun);
extern bool dw_limits_full(const DwLane *lane);
extern void dw_limits_not_begun(DwDatabase *db, int16 queue);
extern bool dw_limits_leases_known(DwDatabase *db, int16 queue, uint32 *changes);
extern bool dw_limits_leases_counted(DwDatabase *db, int16 queue, uint32 changes, uint32 n,
									 TimestampTz next_end);
extern uint32 dw_limits_lease_counts(int32 place);
extern void dw_limits_lease_begins(Oid database, int32 place, int16 queue, uint32 counts);
extern bool dw_limits_lease_over(Oid database, int32 place, int16 queue, uint32 counts,
								 TimestampTz until);
extern bool dw_limits_doubt_leases(DwDatabase *db);
extern void dw_limits_lease_lapsed(Oid database, int32 place, int16 queue);
extern bool dw_limits_received(Oid database, int32 place, int16 queue, uint32 n);

extern bool dw_limits_keep_for_other(DwDatabase *db, const DwLane *lane, TimestampTz now);
extern bool dw_limits_is_turn(const DwLane *lane, TimestampTz now, TimestampTz *until);
extern void dw_limits_forget_times(DwDatabase *db);
extern void dw_tell_queues_without_place(void);
extern int64 dw_lease_of_queue(DwDatabase *db, int16 queue);
extern void dw_queue_defaults(DwDatabase *db, int16 queue, DwQueueDefaults *defaults);
extern void dw_queues_init(void);
extern void dw_queues_leave(Oid database);

extern void dw_queue_attach_lane(DwDatabase *db, DwLane *lane);
extern const char *dw_pause_text(DwPause reason);

/* All declared queues of all databases; dw_max_queues places, in shared memory. */
extern DwQueue *dw_queues;

#endif							/* DW_QUEUE_LIMITS_H */
