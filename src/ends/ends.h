/*-------------------------------------------------------------------------
 *
 * ends.h
 *	  Consequences of the end of a task: waiting sessions, notifications, follow-ups.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ENDS_H
#define DW_ENDS_H

#include "postgres.h"

#include "../base/wing.h"
#include "../task/task.h"

extern const char *dw_outcome_if_ended(int64 id);
extern void dw_ends_follow(const DwEnded *ended);
extern const DwWing dw_ends_wing;

#endif							/* DW_ENDS_H */
