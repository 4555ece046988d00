/*-------------------------------------------------------------------------
 *
 * lease.h
 *	  The ends of leases, by a word of the receiver.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LEASE_H
#define DW_LEASE_H

#include "postgres.h"

#include "datatype/timestamp.h"

extern void dw_lease_install(void);
extern bool dw_lease_fail(int64 id, int64 token, TimestampTz due, bool give_up, ErrorData *error);

#endif							/* DW_LEASE_H */
