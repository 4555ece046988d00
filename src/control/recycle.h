/*-------------------------------------------------------------------------
 *
 * recycle.h
 *	  Workers start anew when rights or settings that their login took over change.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RECYCLE_H
#define DW_RECYCLE_H

#include "postgres.h"

#include "nodes/pg_list.h"

extern void dw_recycle_install(void);
extern List *dw_concern(List *concerns, Oid database, Oid role, bool settings);
extern List *dw_concern_members(List *concerns, Oid role);
extern void dw_recycle(const List *concerns);
extern void dw_recycle_databases(void);

#endif							/* DW_RECYCLE_H */
