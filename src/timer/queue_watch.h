/*-------------------------------------------------------------------------
 *
 * queue_watch.h
 *	  The timer keeps queues and pauses in shared memory up to date.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_QUEUE_WATCH_H
#define DW_QUEUE_WATCH_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "../shmem/shared.h"

extern TimestampTz dw_queues_look(DwDatabase *db, bool changed);
extern void dw_queues_attach_new_lane(DwDatabase *db, DwLane *lane);

#endif							/* DW_QUEUE_WATCH_H */
