/*-------------------------------------------------------------------------
 *
 * run_task.h
 *	  Claiming and running one task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RUN_TASK_H
#define DW_RUN_TASK_H

#include "postgres.h"

#include "../ending/claim.h"
#include "../ring/ring.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "../statement/spi_run.h"

extern void dw_run_task(DwDatabase *db, DwExecutor *me);
extern void dw_fail_task(DwDatabase *db, DwExecutor *me, ErrorData *error);
extern DwSpiResult dw_run_sql(const DwClaim *claim, const char *sql);
extern void dw_task_clean(bool used_temp);

#endif							/* DW_RUN_TASK_H */
