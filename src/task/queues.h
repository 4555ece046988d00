/*-------------------------------------------------------------------------
 *
 * queues.h
 *	  Queues: who may use them, and what is common to their tasks; pauses.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_QUEUES_H
#define DW_QUEUES_H

#include "postgres.h"

#include "access/htup.h"
#include "storage/lock.h"
#include "utils/relcache.h"

#include "../base/settings.h"
#include "../ring/ring.h"
#include "../shmem/shared.h"

/* What scheduling needs to know of a queue. */
typedef struct DwQueueForTask
{
	int16		id;
	int16		priority;		/* of tasks that say none */
	int64		spread;			/* due times are spread over so many us */
} DwQueueForTask;

/*---- For backends ----*/

/* A queue as declared. */
typedef struct DwDeclaredQueue
{
	int16		id;
	bool		paused;
	bool		batch;
	int32		max_running;
	int32		rate;
	int32		timeout;
	int16		max_attempts;
	int64		retry_delay;
	DwHistoryLevel history;
	int32		place;			/* in dw_queues; timers only */
} DwDeclaredQueue;

/* What timer and executors have read of the tables, in order. */
typedef struct DwQueueTables
{
	MemoryContext context;
	uint32		control;		/* executors: as of when it is valid */
	bool		is_valid;
	int			nqueues;
	DwDeclaredQueue   *queues;
	int			nowners;
	Oid		   *owners;			/* whose tasks are paused */
	bool		database_paused;
} DwQueueTables;
extern void dw_queue_find(const char *name, DwQueueForTask *queue);
extern void dw_queue_require(int16 id);
extern bool dw_queue_keep(int16 id);
extern int16 dw_queue_named(const char *name);
extern HeapTuple dw_queue_row(Relation rel, const char *name);
extern bool dw_queue_is_usable(Relation rel, HeapTuple tuple);
extern LockAcquireResult dw_queue_lock(Oid table, Oid id, LOCKMODE mode, bool wait);

/*---- For executors ----*/

extern bool dw_is_paused(DwDatabase *db, Oid owner, int16 queue);
extern DwHistoryLevel dw_queue_history(DwDatabase *db, int16 queue);
extern void dw_queue_put_back(DwDatabase *db, const DwEntry *entry);

/*---- Shared memory ----*/

extern DwQueueTables dw_queue_tables;
extern DwDeclaredQueue *dw_queue_declared(int16 id);
extern bool dw_owner_is_paused(Oid owner);
extern void dw_queue_tables_read(Snapshot snapshot);
extern DwPause dw_pause_of_lane(const DwLane *lane);

#endif							/* DW_QUEUES_H */
