/*-------------------------------------------------------------------------
 *
 * writers.h
 *	  Transactions that may yet bring rows of tasks, and of which role.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_WRITERS_H
#define DW_WRITERS_H

#include "postgres.h"

#include "storage/lock.h"

extern void dw_writers_request(void);
extern void dw_writers_init(void);
extern void dw_writers_install(void);
extern void dw_writes_for(Oid owner);
extern bool dw_is_writer(VirtualTransactionId vxid, Oid *owner);

#endif							/* DW_WRITERS_H */
