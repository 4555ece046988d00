/*-------------------------------------------------------------------------
 *
 * writers.h
 *	  Transactions that may yet bring rows of tasks, and whose.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_WRITERS_H
#define DW_WRITERS_H

#include "postgres.h"

#include "storage/lock.h"

extern Size dw_writers_size(void);
extern void dw_writers_attach(void);
extern void dw_writers_install(void);

/*
 * This transaction may bring tasks of the role, of any if it is InvalidOid.  To be
 * said with the task table locked for writing, before a number is drawn for one,
 * or marks are looked at for one that is moved, tried again or put back.
 */
extern void dw_writes_for(Oid owner);

/*
 * May the transaction, which has the task table locked for writing, bring rows
 * with numbers that it has drawn already?  If so, *owner is whose; InvalidOid if
 * that is not known.
 */
extern bool dw_is_writer(VirtualTransactionId vxid, Oid *owner);

#endif							/* DW_WRITERS_H */
