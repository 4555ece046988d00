/*-------------------------------------------------------------------------
 *
 * autonomous.h
 *	  Tasks whose statement cannot run in a transaction block.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_AUTONOMOUS_H
#define DW_AUTONOMOUS_H

#include "postgres.h"

#include "utils/relcache.h"

#include "../ending/claim.h"
#include "../rows/more.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "../statement/spi_run.h"

/* A task with a mode that an executor runs.  Outlasts all transactions of the run. */
typedef struct DwAutonomous
{
	DwMode		mode;			/* DW_IN_TRANSACTION until its run has begun */
	Oid			table;			/* OID of the table delay_wheel_data.task at the claim: the
								 * task may drop and create the extension */
	HeapTuple	row;			/* a copy of the task's row, without TOAST pointers */
	TimestampTz begun_at;		/* time of the record that its end is not known */
} DwAutonomous;
extern void dw_autonomous_begin(DwExecutor *me, DwClaim *claim, DwMode mode,
								DwAutonomous *task);
extern DwSpiResult dw_autonomous_run(const DwClaim *claim, const char *sql);
extern bool dw_autonomous_reclaim(DwDatabase *db, DwExecutor *me, const DwAutonomous *task,
								  DwClaim *claim);
extern void dw_autonomous_undone(DwDatabase *db, DwExecutor *me, const DwAutonomous *task);
extern void dw_autonomous_end(DwDatabase *db, DwExecutor *me);
extern bool dw_autonomous_is_lost(DwExecutor *me);

#endif							/* DW_AUTONOMOUS_H */
