/*-------------------------------------------------------------------------
 *
 * touched.h
 *	  Notes the effects of the current transaction on tasks, and informs other processes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TOUCHED_H
#define DW_TOUCHED_H

#include "postgres.h"

#include "access/htup.h"
#include "commands/trigger.h"

#include "../shmem/outcome.h"
#include "../shmem/shared.h"

/* The effect of a transaction on a row, which decides when the timer gets a hint of the row. */
typedef enum DwTouchKind
{
	DW_TOUCH_WRITTEN,			/* after a commit */
	DW_TOUCH_LEASED,			/* its due time is the end of its lease: after a commit */
	DW_TOUCH_LOCKED,			/* to be deleted or moved: after an abort */
	DW_TOUCH_LEASE_LOCKED,		/* a leased message, to be deleted or moved: after an abort */
	DW_TOUCH_KEPT				/* locked, and left as it is: at the end, if the task is due */
} DwTouchKind;

/* Effects of a transaction on more than single rows. */
typedef enum DwEffect
{
	DW_ALL_TOUCHED = 0x01,		/* any rows may have been written: at the end, the timer reads all
								 * lanes again */
	DW_CONTROL_CHANGED = 0x02,	/* queues, pauses or marks were changed: the end raises control, so
								 * that all processes read the tables again */
	DW_LEASES_CHANGED = 0x04,	/* leases must be counted again */
	DW_PREPARED_ENDED = 0x08,	/* this transaction ends a prepared transaction, which has left
								 * rows in delay_wheel_data.prepared */
	DW_UNARMED_LEFT = 0x10,		/* rows of another origin were written, or left */
	DW_NONE_UNARMED = 0x20,		/* delay_wheel.arm() has left no such rows */
	DW_EXTENSION_CREATED = 0x40,	/* the commit starts a timer */
	DW_ROLES_DROPPED = 0x80		/* the commit informs all timers */
} DwEffect;

extern void dw_touched_install(void);
extern void dw_touch_row(const DwHint *hint, DwTouchKind kind);
extern void dw_touch_ended(int64 id, DwOutcome outcome);
extern void dw_touch_group(int16 queue, uint32 hash);
extern void dw_touch_lane(DwLaneRef lane, TimestampTz due);
extern bool dw_control_is_touched(void);
extern void dw_touch(DwEffect effect);
extern void dw_touch_leases(void);
extern void dw_touched_prepare_as(const char *gid);
extern void dw_deliver(DwDatabase *db, const DwHint *hint);
extern bool dw_accept_replicated(TriggerData *trigger, HeapTuple row);
extern DwLaneRef dw_require_lane(Oid owner, int16 queue, int16 priority);
extern DwLaneRef dw_lane_if_any(Oid owner, int16 queue, int16 priority);

#endif							/* DW_TOUCHED_H */
