/*-------------------------------------------------------------------------
 *
 * orphans.h
 *	  Tasks of roles that do not exist any more.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ORPHANS_H
#define DW_ORPHANS_H

#include "postgres.h"

#include "../shmem/shared.h"

extern void dw_orphans_reset(DwDatabase *database);
extern void dw_owner_dropped(DwDatabase *database, Oid owner);
extern void dw_orphans_check_all(void);
extern bool dw_orphans_some(void);
extern TimestampTz dw_orphans_next(void);
extern void dw_orphans_wanted(const DwLane *lane);
extern bool dw_orphans_holds(const DwLane *lane);

#endif							/* DW_ORPHANS_H */
