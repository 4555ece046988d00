/*-------------------------------------------------------------------------
 *
 * failed.h
 *	  Limits of failed tasks, and functions that put failed tasks back or discard them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_FAILED_H
#define DW_FAILED_H

#include "../base/wing.h"

extern const DwWing dw_failed_wing;

#endif							/* DW_FAILED_H */
