/*-------------------------------------------------------------------------
 *
 * repair.h
 *	  The sweeper looks for lost runs of recurring tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_REPAIR_H
#define DW_REPAIR_H

#include "postgres.h"

#include "../shmem/shared.h"

extern TimestampTz dw_recurring_repair(DwDatabase *db);

#endif							/* DW_REPAIR_H */
