/*-------------------------------------------------------------------------
 *
 * starts.h
 *	  Who gets the next background worker, if they are too few.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_STARTS_H
#define DW_STARTS_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "../base/clock.h"
#include "refusal.h"
#include "shared.h"

/*
 * A refusal that lasts this long is worth a message.  A worker that has just ended occupies its
 * place until the postmaster notices its end; and at a shutdown timers end, and cannot be started,
 * before the launcher ends.
 */
#define DW_LASTING_US		(USECS_PER_SEC / 10)

extern bool dw_start_may_be_tried(DwRefusal *me);
extern void dw_start_was_tried(DwRefusal *me, bool started);
extern void dw_refusal_ends(DwRefusal *me);
extern bool dw_refusal_is_news(DwRefusal *me, int64 lasting);
extern TimestampTz dw_refusal_since(DwRefusal *me);
extern bool dw_starts_are_refused(void);
extern DwRefusal *dw_starts_turn(DwProcess *process);
extern int64 dw_starts_look_at(DwProcess *process);
extern bool dw_start_owner_first(DwDatabase *db);
extern void dw_worker_leaves(void);

/* The same as a time of the clock. */
static inline TimestampTz
dw_starts_look_time(DwProcess *process)
{
	int64		at = dw_starts_look_at(process);

	return at == DW_NEVER ? DW_NEVER : dw_now() + Max(at - dw_uptime(), 0);
}

#endif							/* DW_STARTS_H */
