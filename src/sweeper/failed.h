/*-------------------------------------------------------------------------
 *
 * failed.h
 *	  How long failed tasks are kept.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_FAILED_H
#define DW_FAILED_H

#include "postgres.h"

#include "../shmem/shared.h"

extern void dw_failed_restart(void);
extern TimestampTz dw_failed_trim(DwDatabase *db, bool *more);

#endif							/* DW_FAILED_H */
