/*-------------------------------------------------------------------------
 *
 * queue_limits.h
 *	  Pauses, and limits of queues: which lanes may begin tasks now.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_QUEUE_LIMITS_H
#define DW_QUEUE_LIMITS_H

#include "shared.h"

/* What keeps a lane's tasks from being begun. */
typedef enum DwLimit
{
	DW_LIMIT_NONE = 0,
	DW_LIMIT_PAUSED,			/* for why, see DwPause */
	DW_LIMIT_RUNNING,			/* max_running of its queue */
	DW_LIMIT_RATE,
	DW_LIMIT_TURN				/* it is another owner's turn in the queue */
} DwLimit;

/* All of these are under the ready lock. */

/* The queue of a lane, if it is declared; else NULL. */
extern DwQueue *dw_lane_queue(const DwLane *lane);

/*
 * What limits a lane; DW_LIMIT_NONE: its queue has room for *room tasks now.
 * *until is when the rate allows the next one (beyond those, if there is
 * room), or the turn is over; DW_NEVER if the end of the limit will be told.
 */
extern DwLimit dw_lane_limit(const DwLane *lane, TimestampTz now, uint32 *room,
							 TimestampTz *until);

extern const char *dw_limit_text(DwLimit limit);

/*
 * A task of the lane was taken, or has ended, begun or not.  The latter
 * returns whether its queue was full: if the place is not taken at once again,
 * the timer must hear of it.
 */
extern void dw_limits_take(DwLane *lane, TimestampTz now);
extern bool dw_limits_end(DwLane *lane, bool begun);
extern bool dw_limits_full(const DwLane *lane);

/*
 * Turns of owners in a limited queue: keeps a place for one who has waited
 * too long, of others than the lane's; and for an owner without an executor,
 * who may then have somebody else's place.
 */
extern bool dw_limits_keep_for_other(DwDatabase *db, const DwLane *lane, TimestampTz now);
extern bool dw_limits_is_turn(const DwLane *lane, TimestampTz now, TimestampTz *until);

/* Times of a clock that was set back since are forgotten, for all queues of the database. */
extern void dw_limits_forget_times(DwDatabase *db);

#endif							/* DW_QUEUE_LIMITS_H */
