/*-------------------------------------------------------------------------
 *
 * batch.h
 *	  Several tasks of a lane in one transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_BATCH_H
#define DW_BATCH_H

#include "postgres.h"

#include "../ring/ring.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"

extern bool dw_batches_allowed(void);
extern void dw_batch_begin(DwDatabase *db, DwExecutor *me);
extern void dw_batch_end(DwDatabase *db, DwExecutor *me);
extern bool dw_run_batch(DwDatabase *db, DwExecutor *me);

#endif							/* DW_BATCH_H */
