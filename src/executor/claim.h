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
#include "../rows/task_rows.h"
#include "../shmem/executors.h"
#include "../shmem/shared.h"
#include "../task/attempts.h"
#include "verdict.h"

/* A task's row, in the memory context in which it was claimed. */
typedef struct DwClaim
{
	HeapTuple	tuple;
	DwTaskKey	key;
	Datum	   *values;
	bool	   *nulls;
	DwTerms		terms;
	DwVerdict	verdict;
	int			sqlstate;		/* with a reason, if it is refused */
	const char *reason;
} DwClaim;

typedef enum DwClaimResult
{
	DW_CLAIMED,
	DW_CLAIM_NOTHING,			/* it is gone, was moved, or somebody else has it,
								 * whose end will be heard of */
	DW_CLAIM_CANCELLED,			/* a mark has hit it: the row is the sweeper's */
	DW_CLAIM_REJECTED			/* is_wanted said no: the row is as it was */
} DwClaimResult;

typedef bool (*DwIsWanted) (const DwClaim *claim, void *arg);

/*
 * Around the transaction in which tasks are claimed and run.  It has an active
 * snapshot that sees what was committed when it began; dw_claim_snapshot takes
 * a new one.
 */
extern void dw_claim_begin_transaction(void);
extern void dw_claim_snapshot(void);
extern void dw_claim_commit_transaction(void);
extern Relation dw_claim_open(void);
extern DwClaimResult dw_claim(DwDatabase *db, DwExecutor *me, Relation rel, const DwEntry *entry,
							  DwIsWanted is_wanted, void *arg, DwClaim *claim);
extern void dw_claim_read(DwDatabase *db, Relation rel, HeapTuple tuple, DwClaim *claim);
extern char *dw_claim_text(const DwClaim *claim, AttrNumber column);

#endif							/* DW_CLAIM_H */
