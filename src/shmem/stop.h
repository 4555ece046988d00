/*-------------------------------------------------------------------------
 *
 * stop.h
 *	  Stopping a task that runs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_STOP_H
#define DW_STOP_H

#include "postgres.h"

#include "executors.h"
#include "shared.h"

extern bool dw_stop_task(DwDatabase *db, int64 id);

/* True if the task of this executor must be stopped. */
static inline bool
dw_stop_requested(const DwExecutor *me)
{
	return pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &me->stop)) != 0;
}

extern void dw_stop_allow(DwDatabase *db, DwExecutor *me);
extern bool dw_stop_forbid(DwDatabase *db, DwExecutor *me);
extern Oid	dw_stop_by(DwDatabase *db, DwExecutor *me);
extern bool dw_stop_over(DwExecutor *me);
extern void dw_stop_absorb(void);
extern void dw_cancel_forget(void);
extern void dw_cancel_for_task(const DwExecutor *me);

#endif							/* DW_STOP_H */
