/*-------------------------------------------------------------------------
 *
 * recycle.h
 *	  Commands that change what a login would find: workers start anew.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RECYCLE_H
#define DW_RECYCLE_H

#include "postgres.h"

extern void dw_recycle_install(void);

/*
 * If this transaction commits, executors of this database and role (either
 * may be InvalidOid, for all) run no other task, and owners whose tasks wait
 * for a right are tried again.  Timers start anew if settings have changed
 * that are theirs, too.
 */
extern void dw_recycle(Oid database, Oid role, bool settings);

/* The same for the role and its members. */
extern void dw_recycle_members(Oid role);

/* If this transaction commits, the launcher looks which databases there are. */
extern void dw_recycle_databases(void);

#endif							/* DW_RECYCLE_H */
