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

#include "nodes/pg_list.h"

extern void dw_recycle_install(void);

/*
 * Whom a command concerns, as a list: executors of this database and role
 * (either may be InvalidOid, for all), and timers if settings are changed that
 * are theirs, too.
 */
extern List *dw_concern(List *concerns, Oid database, Oid role, bool settings);

/* The same for the role and its members; executors end only if they may not log in any more. */
extern List *dw_concern_members(List *concerns, Oid role);

/*
 * The command has succeeded.  If this transaction commits, executors that are
 * concerned run no other task, owners whose tasks wait for a right are tried
 * again, and such timers start anew.
 */
extern void dw_recycle(const List *concerns);

/* If this transaction commits, the launcher looks which databases there are. */
extern void dw_recycle_databases(void);

#endif							/* DW_RECYCLE_H */
