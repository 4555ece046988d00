/*-------------------------------------------------------------------------
 *
 * views.h
 *	  What views on shared memory have in common.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_VIEWS_H
#define DW_VIEWS_H

#include "postgres.h"

#include "../shmem/queue_limits.h"
#include "../shmem/shared.h"

/*
 * May the current user see how many tasks a role has, when, and what runs?  The
 * tasks themselves, with SQL, are for members of the role and pg_read_all_data.
 */
extern bool dw_may_watch(Oid owner);

/* The numbers of a database's lanes as they are just now. */
extern int32 *dw_list_lanes(DwDatabase *db, int *n);

/*
 * Tasks of all lanes that are due before this are in memory: DW_NEVER if all
 * are, PG_INT64_MIN if it is not known.
 */
extern TimestampTz dw_lowest_horizon(DwDatabase *db);

/* For copies of a lane and its owner.  The reason is NULL where the state says all. */
extern const char *dw_lane_state(const DwLane *lane, const DwOwner *owner, DwLimit limit,
								 TimestampTz now, const char **reason);

#endif							/* DW_VIEWS_H */
