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
extern bool dw_database_give_back(DwDatabase *db);
extern void dw_database_set_name(DwDatabase *db, const char *name);
extern bool dw_database_place_free(void);
extern void dw_quota_update(void);

/* Returns true if a command needs the database without sessions of delay_wheel. */
static inline bool
dw_database_is_held(DwDatabase *db)
{
	return pg_atomic_read_u32(&db->holds) > 0;
}

/* Returns true if delay_wheel.enabled is off in the database. */
static inline bool
dw_database_is_disabled(DwDatabase *db)
{
	return pg_atomic_read_u32(&db->disabled) != 0;
}

#endif							/* DW_PLACES_H */
