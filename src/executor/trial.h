/*-------------------------------------------------------------------------
 *
 * trial.h
 *	  Running a task alone that is suspected of crashing the server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TRIAL_H
#define DW_TRIAL_H

#include "postgres.h"

#include "../shmem/executors.h"
#include "../shmem/shared.h"

extern void dw_trial_begin(DwDatabase *db, DwExecutor *me);
extern void dw_trial_end(DwExecutor *me);
extern long dw_trial_wait(const DwExecutor *me);

#endif							/* DW_TRIAL_H */
