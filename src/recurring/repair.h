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

/*
 * For the sweeper: looks at all of them, a slice at a time, in transactions of
 * its own.  Returns when to go on; DW_NEVER if that was all.
 */
extern TimestampTz dw_recurring_repair(DwDatabase *db);

#endif							/* DW_REPAIR_H */
