/*-------------------------------------------------------------------------
 *
 * owners.h
 *	  The table of owners of lanes; decides which owners get an executor.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_OWNERS_H
#define DW_OWNERS_H

#include "postgres.h"

#include "shared.h"

extern int	dw_owner_places(void);
extern void dw_owners_request(void);
extern void dw_owners_init(void);

extern int32 dw_owner_enter(DwDatabase *db, Oid role);
extern void dw_owner_leave(DwOwner *owner);
extern bool dw_owner_blocked(DwDatabase *db, Oid role, DwBlock reason);
extern void dw_owner_unblocked(DwDatabase *db, DwOwner *owner);
extern void dw_owner_lacks_none(DwDatabase *db, DwOwner *owner);
extern void dw_owners_retry(DwDatabase *db);
extern void dw_owners_retry_all(DwDatabase *db);
extern DwOwner *dw_owners_first_lacking(DwDatabase *db);
extern bool dw_owners_are_blocked(DwDatabase *db);
extern void dw_owner_retry_first(DwDatabase *db, DwOwner *owner);
extern void dw_owner_gets_worker(DwDatabase *db, Oid role);
extern void dw_owner_list(DwDatabase *db, DwOwner *owner);

/* Reasons of blocks as texts, for views and the log. */
extern const char *const dw_block_texts[];

#endif							/* DW_OWNERS_H */
