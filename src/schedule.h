/*-------------------------------------------------------------------------
 *
 * schedule.h
 *	  What functions that write tasks have in common.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SCHEDULE_H
#define DW_SCHEDULE_H

#include "postgres.h"

/* Raises an error where SQL that writes would. */
extern void dw_require_writable(const char *function);

#endif							/* DW_SCHEDULE_H */
