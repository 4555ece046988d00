/*-------------------------------------------------------------------------
 *
 * sweep.h
 *	  Removing the rows of cancelled tasks, and then the marks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SWEEP_H
#define DW_SWEEP_H

#include "postgres.h"

#include "../shmem/shared.h"

extern void dw_sweep_begin(DwDatabase *database);
extern TimestampTz dw_sweep_some(void);

#endif							/* DW_SWEEP_H */
