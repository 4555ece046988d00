/*-------------------------------------------------------------------------
 *
 * failed.h
 *	  Failed tasks: their limits, and calls that put them back or discard them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_FAILED_H
#define DW_FAILED_H

#include "../base/wing.h"

extern const DwWing dw_failed_wing;

#endif							/* DW_FAILED_H */
