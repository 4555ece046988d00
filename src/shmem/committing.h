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

/*
 * The transaction is about to commit, and there is something that others must
 * not miss; to be called before anybody can see that it has.  One at a time.
 */
extern void dw_ending_publish(TransactionId xid);

/* Its locks are gone, or it is undone; if none was published, nothing happens. */
extern void dw_ending_withdraw(void);

/*
 * When this returns, the transactions whose changes the caller has seen have
 * told all they did: catalogs are looked at anew, and so can waiters' slots be.
 */
extern void dw_ending_wait(void);

#endif							/* DW_COMMITTING_H */
