/*-------------------------------------------------------------------------
 *
 * notify_queues.h
 *	  The sweeper notifies channels of queues.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_NOTIFY_QUEUES_H
#define DW_NOTIFY_QUEUES_H

#include "postgres.h"

#include "../shmem/shared.h"

extern TimestampTz dw_queues_notify(DwDatabase *db, bool *more);

#endif							/* DW_NOTIFY_QUEUES_H */
