/*-------------------------------------------------------------------------
 *
 * transaction.h
 *	  The transaction in which an executor claims, runs and settles tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TRANSACTION_H
#define DW_TRANSACTION_H

extern bool dw_task_snapshot_stays(void);
extern void dw_claim_begin_transaction(bool settle);
extern void dw_claim_commit_transaction(void);

#endif							/* DW_TRANSACTION_H */
