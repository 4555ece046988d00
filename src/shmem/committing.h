/*-------------------------------------------------------------------------
 *
 * committing.h
 *	  Transactions that are visible, but have not told all they did.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_COMMITTING_H
#define DW_COMMITTING_H

#include "postgres.h"

extern Size dw_ending_size(void);
extern void dw_ending_attach(void);
extern void dw_ending_publish(TransactionId xid);
extern void dw_ending_withdraw(void);
extern void dw_ending_wait(void);

#endif							/* DW_COMMITTING_H */
