/*-------------------------------------------------------------------------
 *
 * periods_end.h
 *	  The sweeper removes the rows of keys whose period of uniqueness has ended.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PERIODS_END_H
#define DW_PERIODS_END_H

#include "postgres.h"

#include "../shmem/shared.h"

extern TimestampTz dw_periods_end(DwDatabase *db, bool *more);

#endif							/* DW_PERIODS_END_H */
