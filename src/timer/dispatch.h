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

/*
 * Brings due tasks and executors together.  Returns when to look again at the
 * latest, DW_NEVER if a change will be told.
 */
extern TimestampTz dw_dispatch(DwDatabase *db);

/* Starts an executor ahead of time, if the lane's owner has none. */
extern void dw_dispatch_expect(DwDatabase *db, DwLane *lane);

/*
 * To be called first.  Executors that a former timer started are there and
 * go on by themselves.
 */
extern void dw_dispatch_begin(DwDatabase *db);

/* Makes those executors end that delay_wheel.max_executors does not allow. */
extern void dw_dispatch_end_surplus(DwDatabase *db);

/* Makes all executors of the database end. */
extern void dw_dispatch_end_all(DwDatabase *db);

#endif							/* DW_DISPATCH_H */
