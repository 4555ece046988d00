/*-------------------------------------------------------------------------
 *
 * claim.h
 *	  Claiming tasks: the deletion of their rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CLAIM_H
#define DW_CLAIM_H

#include "postgres.h"

#include "access/htup.h"
#include "utils/relcache.h"

#include "../ring/ring.h"
#include "../rows/task_finder.h"
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "../task/attempts.h"
#include "verdict.h"

/* A claimed task: its row and the verdict, in the memory context of dw_claim(). */
typedef struct DwClaim
{
	HeapTuple	tuple;			/* a copy of the row */
	DwTaskKey	key;			/* the row's columns that most functions need */
	Datum	   *values;			/* all columns of the row */
	bool	   *nulls;
	DwTerms		terms;			/* timeout and attempts, with the queue's defaults */
	DwVerdict	verdict;		/* whether the task is run */
	int			sqlstate;		/* error code of a refusal; set for DW_REFUSE only */
	const char *reason;			/* its message */
} DwClaim;

typedef enum DwClaimResult
{
	DW_CLAIMED,
	DW_CLAIM_NOTHING,			/* the row is gone, was moved, or another transaction
								 * has it: the task is hinted again if necessary */
	DW_CLAIM_LOCKED,			/* another transaction has locked the row, and may tell nobody when it
								 * ends; the task is of an ordered group, which the caller holds */
	DW_CLAIM_CANCELLED,			/* a mark has hit the task: the sweeper removes the row */
	DW_CLAIM_REJECTED,			/* is_wanted has returned false: the row is unchanged */
	DW_CLAIM_UNSEEN				/* the snapshot, which stays for the transaction, does not see the row,
								 * or all that the task must see; a newer one does */
} DwClaimResult;

/* True if the caller of dw_claim() wants to claim this row.  The verdict is not set yet. */
typedef bool (*DwIsWanted) (const DwClaim *claim, void *arg);
extern Relation dw_claim_open(void);
extern DwClaimResult dw_claim(DwDatabase *db, DwExecutor *me, Relation rel, DwTaskFinder *finder,
							  const DwEntry *entry, DwIsWanted is_wanted, void *arg, DwClaim *claim);
extern void dw_claim_read(DwDatabase *db, Relation rel, HeapTuple tuple, DwClaim *claim);
extern TimestampTz dw_claim_first_due(const DwClaim *claim);
extern TimestampTz dw_claim_leased_at(const DwClaim *claim);
extern char *dw_claim_text(const DwClaim *claim, AttrNumber column);

#endif							/* DW_CLAIM_H */
