/*-------------------------------------------------------------------------
 *
 * aged_rows.h
 *	  The sweeper removes rows whose time has come.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_AGED_ROWS_H
#define DW_AGED_ROWS_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "../shmem/shared.h"

extern TimestampTz dw_periods_end(DwDatabase *db, bool *more);
extern TimestampTz dw_audit_trim(DwDatabase *db, bool *more);

#endif							/* DW_AGED_ROWS_H */
