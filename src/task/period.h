/*-------------------------------------------------------------------------
 *
 * period.h
 *	  The periods in which keys are unique (option unique_for).
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PERIOD_H
#define DW_PERIOD_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/itemptr.h"

#include "../rows/task_rows.h"
#include "new_task.h"

/* The period of a key that lasts. */
typedef struct DwPeriod
{
	int64		id;				/* of the task that began it */
	TimestampTz until;
	TransactionId open;			/* the open transaction that begins or ends it; invalid:
								 * none does */
	ItemPointerData tid;
} DwPeriod;

extern void dw_period_prepare(void);
extern bool dw_period_find(const DwKey *key, DwPeriod *period);
extern void dw_period_wait(DwPeriod *period);
extern void dw_period_begin(const DwNewTask *task, int64 id);
extern void dw_period_end(const Datum *values, const bool *nulls);
extern void dw_period_move(const Datum *old, const bool *old_nulls, const Datum *new,
						   const bool *new_nulls);

#endif							/* DW_PERIOD_H */
