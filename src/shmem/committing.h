/*-------------------------------------------------------------------------
 *
 * committing.h
 *	  Visible transactions whose catalog changes may not have reached all processes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_COMMITTING_H
#define DW_COMMITTING_H

#include "postgres.h"

#include "storage/lock.h"

extern void dw_committing_request(void);
extern void dw_committing_init(void);
extern void dw_committing_publish(TransactionId xid);
extern void dw_committing_withdraw(void);
extern void dw_committing_wait(void);

/*---- writers.c: transactions that may still commit tasks, and the owners of these tasks ----*/

extern void dw_writers_request(void);
extern void dw_writers_init(void);
extern void dw_writers_install(void);
extern void dw_writes_for(Oid owner);
extern bool dw_is_writer(VirtualTransactionId vxid, Oid *owner);

#endif							/* DW_COMMITTING_H */
