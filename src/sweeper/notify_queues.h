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

#include "datatype/timestamp.h"

extern TimestampTz dw_queues_notify(bool *more);

#endif							/* DW_NOTIFY_QUEUES_H */
