/*-------------------------------------------------------------------------
 *
 * views.h
 *	  Functions that several views on shared memory use.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_VIEWS_H
#define DW_VIEWS_H

#include "postgres.h"

#include "fmgr.h"

#include "../shmem/queue_limits.h"

extern bool dw_may_watch(Oid owner);
extern DwDatabase *dw_view_begin(FunctionCallInfo fcinfo);
extern TimestampTz dw_lane_first_due(const DwLane *lane);
extern const char *dw_lane_state(const DwDatabase *db, const DwLane *lane, const DwOwner *owner,
								 DwLimit limit, TimestampTz now, const char **reason);

#endif							/* DW_VIEWS_H */
