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

extern void dw_touched_install(void);
extern void dw_touch_row(const DwHint *hint, DwTouchKind kind);
extern void dw_touch_ended(int64 id, DwOutcome outcome);
extern void dw_touch_group(int16 queue, uint32 hash);
extern void dw_touch_lane(DwLaneRef lane, TimestampTz due);
extern void dw_touch_all(void);
extern void dw_touch_control(void);
extern bool dw_control_is_touched(void);
extern void dw_touch_unarmed(bool left);
extern void dw_touch_roles(void);
extern void dw_touch_extension(void);
extern void dw_touch_prepared(void);
extern void dw_touch_leases(void);
extern void dw_touched_prepare_as(const char *gid);
extern void dw_deliver(DwDatabase *db, const DwHint *hint);
extern bool dw_accept_replicated(TriggerData *trigger, HeapTuple row);
extern DwLaneRef dw_require_lane(Oid owner, int16 queue, int16 priority);
extern DwLaneRef dw_lane_if_any(Oid owner, int16 queue, int16 priority);

#endif							/* DW_TOUCHED_H */
