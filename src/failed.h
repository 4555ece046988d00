/*-------------------------------------------------------------------------
 *
 * failed.h
 *	  Failed tasks: tried again, and removed when they are old.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_FAILED_H
#define DW_FAILED_H

#include "shared.h"

/*
 * For the sweeper: removes a slice of those that are to be removed, in
 * transactions of its own.  Returns when it wants to be called next; sets more
 * if there is more to do now.
 */
extern TimestampTz dw_failed_trim(bool *more);

#endif							/* DW_FAILED_H */
