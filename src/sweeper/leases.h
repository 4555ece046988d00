/*-------------------------------------------------------------------------
 *
 * leases.h
 *	  The sweeper ends messages whose last lease has ended.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LEASES_H
#define DW_LEASES_H

#include "postgres.h"

#include "../shmem/shared.h"

extern TimestampTz dw_leases_end(DwDatabase *db, bool *more);

#endif							/* DW_LEASES_H */
