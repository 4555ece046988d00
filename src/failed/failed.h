/*-------------------------------------------------------------------------
 *
 * failed.h
 *	  Failed tasks: how long they are kept, and their second chance.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_FAILED_H
#define DW_FAILED_H

#include "../base/wing.h"

extern const DwWing dw_failed_wing;

#endif							/* DW_FAILED_H */
