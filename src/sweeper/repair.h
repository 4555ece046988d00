/*-------------------------------------------------------------------------
 *
 * repair.h
 *	  Repair of recurring tasks: lost runs, runs that are too far away since the clock was set
 *	  back, definitions of dropped roles.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_REPAIR_H
#define DW_REPAIR_H

#include "postgres.h"

#include "../shmem/shared.h"

extern TimestampTz dw_recurring_repair(DwDatabase *db);

#endif							/* DW_REPAIR_H */
