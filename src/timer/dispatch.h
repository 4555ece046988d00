/*-------------------------------------------------------------------------
 *
 * dispatch.h
 *	  Which executors are woken, started and ended: decided by the timer.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_DISPATCH_H
#define DW_DISPATCH_H

#include "postgres.h"

#include "../shmem/shared.h"

extern TimestampTz dw_dispatch(DwDatabase *db);
extern void dw_dispatch_expect(DwDatabase *db, DwLane *lane);
extern void dw_dispatch_begin(DwDatabase *db);
extern void dw_dispatch_end_surplus(DwDatabase *db);

#endif							/* DW_DISPATCH_H */
