/*-------------------------------------------------------------------------
 *
 * places.h
 *	  Places of databases in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PLACES_H
#define DW_PLACES_H

#include "postgres.h"

#include "shared.h"

extern void dw_database_init(DwDatabase *db);

extern DwDatabase *dw_database_find(Oid database);
extern DwDatabase *dw_database_enter(Oid database, bool pin);
extern bool dw_database_pin(DwDatabase *db, Oid database);
extern DwDatabase *dw_database_find_pin(Oid database);
extern void dw_database_unpin(DwDatabase *db);
extern bool dw_database_place_free(void);
extern void dw_quota_update(void);

#endif							/* DW_PLACES_H */
