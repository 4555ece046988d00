/*-------------------------------------------------------------------------
 *
 * lease_scan.h
 *	  Reading the messages that are leased.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LEASE_SCAN_H
#define DW_LEASE_SCAN_H

#include "postgres.h"

#include "access/htup.h"
#include "datatype/timestamp.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* A scan of leased messages, in the order of the ends of their leases. */
typedef struct DwLeaseScan DwLeaseScan;

extern DwLeaseScan *dw_lease_scan_begin(Relation rel, TimestampTz from, Snapshot snapshot);
extern HeapTuple dw_lease_scan_next(DwLeaseScan *scan);
extern void dw_lease_scan_end(DwLeaseScan *scan);
extern uint32 dw_leases_count(Relation rel, int16 queue, TimestampTz now, TimestampTz *next_end);

#endif							/* DW_LEASE_SCAN_H */
