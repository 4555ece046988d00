/*-------------------------------------------------------------------------
 *
 * find_out.h
 *	  What became of a task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_FIND_OUT_H
#define DW_FIND_OUT_H

#include "postgres.h"

extern const char *dw_outcome_if_ended(int64 id);

#endif							/* DW_FIND_OUT_H */
