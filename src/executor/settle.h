/*-------------------------------------------------------------------------
 *
 * settle.h
 *	  What becomes of a claimed task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SETTLE_H
#define DW_SETTLE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "../ring/ring.h"
#include "../shmem/executors.h"
#include "../shmem/outcome.h"
#include "../shmem/shared.h"
#include "../statement/spi_run.h"
#include "claim.h"

/* One run of a task: what it leads to.  The executor that runs the task fills it in. */
typedef struct DwRun
{
	DwEntry		entry;
	DwOutcome	outcome;		/* DW_FAILED may become DW_RETRIED when it is settled */
	bool		was_run;		/* its SQL was begun, or ended the executor before */
	int			attempts;		/* before this one */
	TimestampTz started;
	DwSpiResult result;			/* if it is done */
	ErrorData  *error;			/* if it has failed */
	bool		timed_out;		/* the error is that of the task's timeout */
} DwRun;

extern bool dw_is_to_be_run(DwRun *run, const DwClaim *claim);
extern void dw_settle(DwDatabase *db, DwExecutor *me, DwRun *run, DwClaim *claim);
extern void dw_settled(DwDatabase *db, const DwRun *run);
extern void dw_task_was_cancelled(DwDatabase *db, const DwEntry *entry);

#endif							/* DW_SETTLE_H */
