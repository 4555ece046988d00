/*-------------------------------------------------------------------------
 *
 * queues.h
 *	  Declared queues, rights to use them, and pauses.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_QUEUES_H
#define DW_QUEUES_H

#include "postgres.h"

#include "access/htup.h"
#include "storage/lock.h"
#include "utils/array.h"
#include "utils/relcache.h"

#include "../ring/ring.h"
#include "../shmem/queue_limits.h"
#include "task.h"

/* The settings of a queue that scheduling uses. */
typedef struct DwQueueForTask
{
	int16		id;				/* 0: the default queue */
	int16		priority;		/* of tasks without their own priority */
	int64		spread;			/* due times are delayed by less than this time, in us */
	bool		external;		/* true: for messages, which sessions receive; false: for SQL
								 * tasks */
	bool		groups;			/* its tasks may have groups */
	ArrayType  *keep_settings;	/* names of settings that its tasks keep, or NULL */
} DwQueueForTask;

/* The order in which tasks of one group run. */
typedef enum DwGroupOrder
{
	DW_ORDER_NONE,
	DW_ORDER_HOLD,				/* by due time and id; the group waits while a task waits for its
								 * next attempt */
	DW_ORDER_PASS				/* by due time and id; no task waits for the next attempt of another
								 * task */
} DwGroupOrder;

/* A row of delay_wheel_data.queue: a declared queue. */
typedef struct DwDeclaredQueue
{
	int16		id;
	DwPause		pause;
	bool		batch;			/* its tasks may share a transaction */
	int32		max_running;	/* tasks at the same time; 0: no limit */
	DwRate		rate;
	bool		groups;			/* its tasks may have groups, which take turns */
	int32		group_max_running;	/* tasks of one group at the same time; 0: no limit */
	DwRate		group_rate;		/* rate of one group */
	DwGroupOrder group_order;
	int32		timeout;		/* for a task, in ms; 0: no limit, -1: the general default */
	int16		max_attempts;
	int64		retry_delay;	/* us */
	DwRetry		retry;
	DwHistoryLevel history;		/* tasks of the queue that go into the history */
	bool		external;		/* for messages, which sessions receive */
	int64		lease;			/* default length of a lease, in us */
	int32		receive_timeout;	/* how long a receiver's transaction may be idle, in ms; 0: no
									 * limit */
	char	   *name;
	char	   *notify_channel; /* channel that is notified of messages that can be received, or NULL */
	int32		place;			/* index into dw_queues, or DW_NO_QUEUE; the timer sets it */
} DwDeclaredQueue;

/* This process's copy of delay_wheel_data.queue and delay_wheel_data.pause. */
typedef struct DwQueueTables
{
	MemoryContext context;		/* all memory of the copy */
	uint32		control;		/* value of control before the copy was read (not for the timer) */
	bool		is_valid;		/* the copy can be used while control stays the same */
	int			nqueues;
	DwDeclaredQueue *queues;	/* sorted by id */
	int			nowners;
	Oid		   *owners;			/* roles whose tasks are paused, sorted; InvalidOid: all roles */
} DwQueueTables;

extern DwQueueTables dw_queue_tables;

extern void dw_queue_find(const char *name, DwQueueForTask *queue);
extern void dw_queue_require(int16 id, bool message);
extern int16 dw_queue_find_to_receive(const char *name);
extern void dw_queue_require_receiver(int16 id);
extern void dw_queue_require_kind(const char *name, bool external, bool message);
extern void dw_queue_require_groups(const char *name, const DwQueueForTask *queue);
extern bool dw_queue_keep(int16 id);
extern int16 dw_queue_named(const char *name);
extern HeapTuple dw_queue_row(Relation rel, const char *name);
extern bool dw_queue_is_usable(Relation rel, HeapTuple tuple);
extern LockAcquireResult dw_queue_lock(Oid table, Oid id, LOCKMODE mode, bool wait);
extern bool dw_is_paused(DwDatabase *db, Oid owner, int16 queue);
extern const DwQueueTables *dw_queue_tables_now(DwDatabase *db);
extern bool dw_queue_is_external(DwDatabase *db, int16 queue);
extern const DwDeclaredQueue *dw_queue_now(DwDatabase *db, int16 queue);
extern bool dw_queue_holds_groups(int16 queue);
extern void dw_queue_put_back(DwDatabase *db, const DwEntry *entry);
extern int16 dw_queue_id(Relation rel, HeapTuple tuple);
extern char *dw_queue_name_of(int16 id);
extern DwDeclaredQueue *dw_queue_declared(int16 id);
extern DwGroupOrder dw_group_order_named(const char *name);
extern bool dw_owner_is_paused(Oid owner);
extern void dw_queue_tables_read(Snapshot snapshot);
extern DwPause dw_pause_of_lane(const DwLane *lane);

#endif							/* DW_QUEUES_H */
