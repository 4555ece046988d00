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

extern void dw_rest_begin(void);
extern DwCanRest dw_rest_possible(DwDatabase *db, TimestampTz next, TimestampTz *until);
extern bool dw_rest_is_due(DwDatabase *db, DwCanRest how, TimestampTz *look_at);
extern bool dw_rest_is_undisturbed(DwDatabase *db, DwCanRest how);
extern void dw_rest_give_up(DwDatabase *db, DwCanRest how, TimestampTz until);

#endif							/* DW_REST_H */
