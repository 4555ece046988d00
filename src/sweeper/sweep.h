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

/*
 * Does a slice of what is to be done.  Returns when there is more to do, unless
 * a mark is made; a time that has passed is now, DW_NEVER is when there are no
 * marks of this database.
 */
extern TimestampTz dw_sweep_some(void);

#endif							/* DW_SWEEP_H */
