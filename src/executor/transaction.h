/*-------------------------------------------------------------------------
 *
 * transaction.h
 *	  The transaction in which an executor claims, runs and settles tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TRANSACTION_H
#define DW_TRANSACTION_H

extern void dw_claim_begin_transaction(void);
extern void dw_claim_commit_transaction(void);

#endif							/* DW_TRANSACTION_H */
