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

/* For the sweeper: what it has counted does not hold any more. */
extern void dw_failed_restart(void);

/*
 * For the sweeper: removes failed tasks that are too old or too many, a slice
 * of them, in a transaction of its own.  Sets *more if there is more to do at
 * once; if not, returns when there will be, as far as is known by now.
 */
extern TimestampTz dw_failed_trim(bool *more);

#endif							/* DW_FAILED_H */
