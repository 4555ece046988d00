/*-------------------------------------------------------------------------
 *
 * lease_scan.h
 *	  Reading leased messages.
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

#include "task_rows.h"

/* Decides whether a leased message counts. */
typedef bool (*DwLeaseCounts) (Relation rel, HeapTuple tuple, const DwTaskKey *key);

/* A message whose last lease has ended. */
typedef struct DwLapsed
{
	DwTaskKey	key;
	TimestampTz first_due;		/* its due time before the lease */
} DwLapsed;

/* The leases of a group. */
typedef struct DwGroupLeases
{
	uint32		n;				/* number of leases that last */
	TimestampTz next_end;		/* first end of these leases; DW_NEVER: no lease lasts */
	bool		any_lapsed;
	DwLapsed	lapsed;			/* the first lease that has ended, by first_due and id */
} DwGroupLeases;

/* A scan of leased messages, in the order of the ends of their leases. */
typedef struct DwLeaseScan DwLeaseScan;

extern DwLeaseScan *dw_lease_scan_begin(Relation rel, TimestampTz from, Snapshot snapshot);
extern HeapTuple dw_lease_scan_next(DwLeaseScan *scan);
extern void dw_lease_scan_end(DwLeaseScan *scan);
extern void dw_leases_of_group(Relation rel, int16 queue, uint32 hash, Snapshot snapshot,
							   DwLeaseCounts counts, DwGroupLeases *leases);
extern uint32 dw_leases_count(Relation rel, int16 queue, TimestampTz now, TimestampTz *next_end);

#endif							/* DW_LEASE_SCAN_H */
