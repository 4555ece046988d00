/*-------------------------------------------------------------------------
 *
 * ready.h
 *	  Ready lists of lanes, which contain due tasks until executors take them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_READY_H
#define DW_READY_H

#include "postgres.h"

#include "storage/itemptr.h"

#include "../ring/ring.h"
#include "executors.h"
#include "queue_limits.h"
#include "shared.h"

/* Instructions for the caller, after a task was taken or no task was found. */
typedef struct DwPopped
{
	bool		may_batch;		/* the task may share a transaction with the next task */
	bool		few_left;		/* the timer must load more tasks of the lane */
	TimestampTz look_again;		/* when the timer must look again, or DW_NEVER */
} DwPopped;

/* Shows whether a message that must be received alone may be taken next, see rollbacks.c. */
typedef enum DwAlone
{
	DW_ALONE_NO_MATTER,			/* for leases */
	DW_ALONE_ALLOWED,			/* no message was taken yet */
	DW_ALONE_REFUSED,
	DW_ALONE_TAKEN				/* a message that must be received alone was taken, so no other
								 * message may be taken */
} DwAlone;

extern bool dw_ready_pop(DwDatabase *db, DwExecutor *me, TimestampTz until, DwPopped *popped);
extern bool dw_ready_pop_next(DwDatabase *db, DwExecutor *me, TimestampTz until, bool *few_left);
extern bool dw_ready_set_aside(DwDatabase *db, const DwEntry *entry);
extern bool dw_ready_exchange(DwDatabase *db, DwEntry *current, TimestampTz due, int64 id);
extern void dw_ready_ask_for_load(DwDatabase *db, const DwExecutor *me);
extern bool dw_ready_put_back(DwDatabase *db, const DwEntry *entry, bool alone);
extern DwList dw_ready_take_away(DwDatabase *db, DwLane *lane);

extern bool dw_ready_has_message(DwDatabase *db, DwQueue *queue, TimestampTz *look_again);
extern bool dw_ready_pop_message(DwDatabase *db, DwQueue *queue, DwAlone *alone, DwEntry *entry,
								 bool *few_left);

extern bool dw_ready_push(DwDatabase *db, DwLane *lane, const DwEntry *entry,
						  const ItemPointerData *tid, uint32 *left);
extern void dw_ready_unlist(DwDatabase *db, DwLane *lane);
extern void dw_ready_list(DwDatabase *db, DwLane *lane);
extern void dw_ready_obey_pause(DwDatabase *db, DwLane *lane);
extern void dw_ready_reset(DwDatabase *db);

#endif							/* DW_READY_H */
