/*-------------------------------------------------------------------------
 *
 * queue_watch.h
 *	  The timer keeps what shared memory knows of queues and pauses up to date.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_QUEUE_WATCH_H
#define DW_QUEUE_WATCH_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "../shmem/shared.h"

/*
 * Brings queues and pauses in shared memory up to date, if they were changed.
 * Returns when it wants to be called again.
 */
extern TimestampTz dw_queues_look(DwDatabase *db, bool changed);

/* For the timer: pauses a lane that it has just entered, if its owner's tasks are paused. */
extern void dw_queues_attach_new_lane(DwDatabase *db, DwLane *lane);

#endif							/* DW_QUEUE_WATCH_H */
