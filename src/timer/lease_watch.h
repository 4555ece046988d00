/*-------------------------------------------------------------------------
 *
 * lease_watch.h
 *	  The timer looks for leases that have ended.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LEASE_WATCH_H
#define DW_LEASE_WATCH_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "../shmem/shared.h"

/* Takes a message whose lease has ended into memory. */
typedef void (*DwTakeHint) (const DwHint *hint);

extern void dw_lease_watch_begin(DwDatabase *db);
extern bool dw_lease_watch_reads(DwDatabase *db, TimestampTz end);
extern TimestampTz dw_lease_watch(DwDatabase *db, DwTakeHint take);

#endif							/* DW_LEASE_WATCH_H */
