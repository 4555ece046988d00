/*-------------------------------------------------------------------------
 *
 * rest.h
 *	  When a timer has so little to do that it can end for a while.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_REST_H
#define DW_REST_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "../shmem/shared.h"

/* In place of the time until which a timer can rest: it cannot. */
#define DW_NO_REST		PG_INT64_MIN

extern void dw_rest_begin(void);
extern TimestampTz dw_rest_possible(DwDatabase *db, TimestampTz next);
extern bool dw_rest_is_due(DwDatabase *db, TimestampTz until, TimestampTz *look_at);
extern bool dw_rest_is_undisturbed(DwDatabase *db);

#endif							/* DW_REST_H */
