/*-------------------------------------------------------------------------
 *
 * settle.h
 *	  Settling a run: recording its outcome, or putting its task back.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SETTLE_H
#define DW_SETTLE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "../ending/claim.h"
#include "../ring/ring.h"
#include "../shmem/executors.h"
#include "../shmem/outcome.h"
#include "../shmem/shared.h"
#include "../statement/spi_run.h"

/* One run of a task, and its outcome.  The executor that runs the task fills it in. */
typedef struct DwRun
{
	DwEntry		entry;
	DwOutcome	outcome;		/* dw_settle() may change DW_FAILED to DW_RETRIED */
	bool		was_run;		/* counts as an attempt: the SQL was begun, now or in an
								 * executor that the task has ended */
	int			attempts;		/* number of attempts before this one */
	TimestampTz started;		/* time of the claim */
	DwSpiResult result;			/* valid if the outcome is DW_DONE */
	ErrorData  *error;			/* NULL unless the run or the verdict is a failure */
	bool		timed_out;		/* the error is the cancel by the task's timeout */
	bool		undone;			/* other nodes of Citus took part in the failed run, and
								 * have undone it */
} DwRun;

extern bool dw_is_to_be_run(DwRun *run, const DwClaim *claim);
extern void dw_settle(DwDatabase *db, DwExecutor *me, DwRun *run, DwClaim *claim);
extern void dw_settled(DwDatabase *db, const DwRun *run);

#endif							/* DW_SETTLE_H */
