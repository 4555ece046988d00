/*-------------------------------------------------------------------------
 *
 * queue_limits.h
 *	  Pauses and limits of queues, which decide whether a lane may begin a task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_QUEUE_LIMITS_H
#define DW_QUEUE_LIMITS_H

#include "postgres.h"

#include "shared.h"

/*
 * An owner must wait for this time, in us, before a turn in a queue or a group is reserved for it.
 * The reservation lasts for this time.  Two reservations begin at least this time apart.
 */
#define DW_TURN_US			(100 * 1000)

/* Time before the next reservation, if the last reserved turn was not used. */
#define DW_UNUSED_TURN_US	USECS_PER_SEC

/*---- queue_limits.c: rates, which limit how many tasks start in a period ----*/

/* A rate, as declared. */
typedef struct DwRate
{
	int32		starts;			/* maximum of tasks in the time "per"; 0: no limit */
	int32		burst;			/* tasks that may start at once after a pause; 0: by TOLERANCE_US */
	int64		per;			/* in us, at least a second */
} DwRate;

/* Present use of a rate.  All fields are 0 if no task was started. */
typedef struct DwRateUse
{
	TimestampTz next_start;		/* when the rate allows the next task */
	int64		start_fraction; /* next_start's fraction of a microsecond, in units of 1 / starts */
} DwRateUse;

/*
 * Returns true if the time is still ahead.  Ignores a time that is ahead by more than "most" us,
 * since it was stored before the clock was set back.
 */
static inline bool
dw_is_ahead(TimestampTz time, TimestampTz now, int64 most)
{
	return time > now && time <= now + most;
}

extern TimestampTz dw_rate_next(const DwRate *rate, const DwRateUse *use, TimestampTz now);
extern TimestampTz dw_rate_unused_at(const DwRate *rate, const DwRateUse *use);
extern void dw_rate_start(const DwRate *rate, DwRateUse *use, TimestampTz now);
extern void dw_rate_not_begun(const DwRate *rate, DwRateUse *use);

/* Why a lane must not begin a task now. */
typedef enum DwLimit
{
	DW_LIMIT_NONE = 0,
	DW_LIMIT_PAUSED,			/* the lane is paused; DwLane.paused is the reason */
	DW_LIMIT_RUNNING,			/* its queue runs max_running tasks */
	DW_LIMIT_RATE,				/* the rate of its queue is used up */
	DW_LIMIT_TURN,				/* the queue's next task is reserved for another owner */
	DW_LIMIT_GROUP				/* each of its groups with due tasks is at a limit */
} DwLimit;

/* Default pause before the second attempt, in microseconds. */
#define DW_DEFAULT_RETRY_DELAY	(10 * USECS_PER_SEC)

/* Default number of attempts for a message. */
#define DW_MESSAGE_ATTEMPTS		20

/* Default length of a lease, in us. */
#define DW_DEFAULT_LEASE		USECS_PER_MINUTE

/* Default time for which a transaction that has received messages may be idle, in ms. */
#define DW_DEFAULT_RECEIVE_TIMEOUT	(60 * 1000)

/* Options of a queue, used for tasks and leases that do not set these options. */
typedef struct DwQueueDefaults
{
	int32		timeout;		/* ms; 0: no limit, -1: the general default */
	int16		max_attempts;
	int64		retry_delay;	/* us */
	int64		lease;			/* default length of a lease, in us */
} DwQueueDefaults;

/*
 * A declared queue of a database, for the timer and executors.  The timer reads the options from
 * the table.  The default queue (id 0) has no DwQueue.
 *
 * Queues enter and leave dw_queues under both the table lock and the ready lock of their database,
 * so either lock is enough to find a queue.
 */
typedef struct DwQueue
{
	/* protected by the table lock */
	Oid			database;		/* InvalidOid if the place is free */
	int16		id;

	/* protected by the ready lock: options, as declared */
	DwPause		pause;			/* as declared */
	bool		batch;
	int32		max_running;	/* 0: no limit */
	DwRate		rate;
	bool		groups;			/* its tasks can have groups, which take turns, see groups.c */
	int32		group_max_running;	/* limit for each group; 0: no limit */
	DwRate		group_rate;		/* rate for each group */
	bool		group_order;	/* tasks of the same group run one at a time, in order */
	DwQueueDefaults defaults;
	bool		external;		/* it has messages, which sessions receive */
	int32		receive_timeout;	/* maximum idle time of a receiver's transaction, in ms; 0: no
									 * limit */

	/* protected by the ready lock: the present state, see queue_limits.c */
	uint32		running;		/* tasks of the queue that executors have taken and not ended */
	DwTurns		turns;			/* if external: lanes with ready messages */
	uint32		waiting;		/* sessions in delay_await(), see published.c */
	bool		notifies;		/* the queue has a channel for NOTIFY */
	bool		has_news;		/* a message became ready after the last request to notify the
								 * channel */
	bool		notify_asked;	/* the sweeper has a request to notify the channel */
	TimestampTz looked_at;		/* when a session last looked for a message; 0: never */
	TimestampTz woken_at;		/* when a waiting session was woken; 0: a session has looked for a
								 * message since */
	DwRateUse	rate_use;
	Oid			kept_for;		/* the turn is reserved for this owner until kept_until */
	TimestampTz kept_until;		/* 0: no turn is reserved */
	TimestampTz next_turn;		/* no further turn is reserved before this time */

	/* messages that open transactions have received; commit callbacks decrement it */
	pg_atomic_uint32 received;
	/* leases, counted if max_running is set; see the head of queue_limits.c */
	pg_atomic_uint32 leased;	/* number of leases; valid until leases_until if lease_doubt is 0 */
	pg_atomic_uint32 lease_changes; /* incremented after each change of "leased" or "lease_doubt" */
	pg_atomic_uint32 lease_counts;	/* how often leases were counted */
	pg_atomic_uint32 lease_doubt;	/* 1: leases must be counted again */
	TimestampTz leases_until;	/* when the first lease ends; protected by the ready lock */

	/* statistics since the queue got its place */
	DwCounters	counters;		/* "cancelled" counts claimed tasks that a mark had cancelled */
	pg_atomic_uint64 lapsed;	/* leases that their receivers did not end */
} DwQueue;

extern DwQueue *dw_lane_queue(const DwLane *lane);
extern DwQueue *dw_queue_place_of(DwDatabase *db, int16 id);
extern void dw_queue_enter(DwDatabase *db, DwQueue *place, int16 id);
extern void dw_turns_init(DwTurns *turns);
extern DwLimit dw_queue_limit(const DwLane *lane, TimestampTz now, uint32 *room,
							  TimestampTz *until);

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
extern bool dw_limits_received(Oid database, int32 place, int16 queue);

extern bool dw_limits_keep_for_other(DwDatabase *db, const DwLane *lane, TimestampTz now);
extern bool dw_limits_is_turn(const DwLane *lane, TimestampTz now, TimestampTz *until);
extern void dw_limits_forget_times(DwDatabase *db);
extern void dw_tell_queues_without_place(void);
extern DwQueueDefaults dw_queue_defaults(DwDatabase *db, int16 id);
extern void dw_queues_leave(Oid database);

extern void dw_queue_attach_lane(DwDatabase *db, DwLane *lane);

/* Limits and reasons for a pause as texts, for views. */
extern const char *const dw_limit_texts[];
extern const char *const dw_pause_texts[];

/* The dw_max_queues places for declared queues of all databases, in shared memory. */
extern DwQueue *dw_queues;

/*---- published.c: sessions that receive messages, and sessions that wait for a message ----*/

/* If a woken session has not looked for a message within this time, another session is woken. */
#define DW_WAKE_AGAIN_US	(50 * 1000)

/* After this time, a task or receiver that blocks other processes by its locks is terminated. */
#define DW_GIVE_WAY_US		(500 * 1000)

extern bool dw_xid_receives(TransactionId xid);
extern TimestampTz dw_receivers_oldest(DwDatabase *db);
extern bool dw_receiver_terminate(DwDatabase *db, pid_t pid, TimestampTz by);

/* Maximum number of queues for which a session can wait at once. */
#define DW_MAX_AWAITED	32

extern void dw_await_enter(DwDatabase *db, const int16 *queues, int n);
extern bool dw_await_leave(DwDatabase *db);
extern bool dw_await_wake_one(DwQueue *queue);
extern bool dw_await_end(DwDatabase *db, pid_t pid);
extern void dw_await_wake_all(DwDatabase *db);

#endif							/* DW_QUEUE_LIMITS_H */
