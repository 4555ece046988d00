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

#include "../rows/more.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "../statement/spi_run.h"
#include "claim.h"

/* What an executor knows of a task that it runs so, beyond its transactions. */
typedef struct DwAutonomous
{
	DwMode		mode;
	Oid			table;			/* that it is of: it may drop the extension */
	HeapTuple	row;			/* a copy of the task's, nothing of it out of line */
	TimestampTz begun_at;
} DwAutonomous;
extern void dw_autonomous_begin(DwExecutor *me, DwClaim *claim, DwMode mode,
								DwAutonomous *task);
extern DwSpiResult dw_autonomous_run(const DwClaim *claim, const char *sql);
extern bool dw_autonomous_reclaim(DwDatabase *db, DwExecutor *me, const DwAutonomous *task,
								  DwClaim *claim);

/* That transaction, or the claim's, was undone; or the task has ended. */
extern void dw_autonomous_undone(DwDatabase *db, DwExecutor *me, const DwAutonomous *task);
extern void dw_autonomous_end(DwDatabase *db, DwExecutor *me);
extern bool dw_autonomous_is_lost(DwExecutor *me);

#endif							/* DW_AUTONOMOUS_H */
