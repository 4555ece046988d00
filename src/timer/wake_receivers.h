/*-------------------------------------------------------------------------
 *
 * wake_receivers.h
 *	  The timer wakes sessions that wait for a message.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_WAKE_RECEIVERS_H
#define DW_WAKE_RECEIVERS_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "../shmem/shared.h"

extern TimestampTz dw_wake_receivers(DwDatabase *db);

#endif							/* DW_WAKE_RECEIVERS_H */
