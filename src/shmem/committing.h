/*-------------------------------------------------------------------------
 *
 * committing.h
 *	  Transactions that are visible, but have not told other processes all they did.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_COMMITTING_H
#define DW_COMMITTING_H

#include "postgres.h"

extern void dw_committing_request(void);
extern void dw_committing_init(void);
extern void dw_committing_publish(TransactionId xid);
extern void dw_committing_withdraw(void);
extern void dw_committing_wait(void);

#endif							/* DW_COMMITTING_H */
