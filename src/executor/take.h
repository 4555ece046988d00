/*-------------------------------------------------------------------------
 *
 * take.h
 *	  An executor takes its next task, or ends.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TAKE_H
#define DW_TAKE_H

#include "postgres.h"

#include "../ring/ring.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"

/*
 * Length of an executor's turn, in us: after working this long without a pause, it
 * gives way to an owner that waits for an executor.
 */
#define DW_TURN_US		(100 * 1000)

extern DwDatabase *dw_executor_db;
extern bool dw_executor_proved;
extern int64 dw_executor_born;

extern void dw_put_back(DwDatabase *db, const DwEntry *entry, bool alone);
extern bool dw_note_taken(DwExecutor *me, const DwEntry *entry);
extern void dw_ask_for_load(const DwLane *lane);
extern bool dw_executor_must_end(DwExecutor *me);
extern bool dw_executor_next(DwExecutor *me, TimestampTz until, DwEntry *entry);
extern bool dw_executor_is_fresh(void);

#endif							/* DW_TAKE_H */
