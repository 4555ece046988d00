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

extern void dw_failed_restart(void);
extern TimestampTz dw_failed_trim(bool *more);

#endif							/* DW_FAILED_H */
