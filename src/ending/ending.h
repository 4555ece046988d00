/*-------------------------------------------------------------------------
 *
 * ending.h
 *	  The end of a task, and of an attempt.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ENDING_H
#define DW_ENDING_H

#include "postgres.h"

#include "../base/compat.h"
#include "../base/errors.h"
#include "../base/inject.h"
#include "../task/task.h"

/*---- claim.c: claiming tasks: the deletion of their rows, and the verdict ----*/

typedef enum DwVerdict
{
	DW_RUN,
	DW_DROP,					/* a mark has cancelled it: undo the claim; the sweeper removes the
								 * row */
	DW_PUT_BACK,				/* its queue or owner is paused: undo the claim */
	DW_REFUSE,					/* record it as failed */
	DW_SKIP						/* it is too late: skip it */
} DwVerdict;

/* A claimed task: its row and the verdict, in the memory context of dw_claim(). */
typedef struct DwClaim
{
	HeapTuple	tuple;			/* a copy of the row */
	DwTaskKey	key;			/* the row's columns that most functions need */
	Datum	   *values;			/* all columns of the row */
	bool	   *nulls;
	DwTerms		terms;			/* timeout and attempts, with the queue's defaults */
	DwVerdict	verdict;		/* what to do with the task */
	int			sqlstate;		/* error code of a refusal; only set for DW_REFUSE */
	const char *reason;			/* message of a refusal */
} DwClaim;

/* Returns when the task was due.  For a leased message, returns the due time before the lease. */
static inline TimestampTz
dw_claim_first_due(const DwClaim *claim)
{
	return claim->nulls[Anum_task_first_due - 1] ? claim->key.due :
		DatumGetTimestampTz(claim->values[Anum_task_first_due - 1]);
}

typedef enum DwClaimResult
{
	DW_CLAIMED,
	DW_CLAIM_NOTHING,			/* the row is gone or was moved, or another transaction has it; if
								 * necessary, the timer gets a hint */
	DW_CLAIM_LOCKED,			/* a transaction that may end without a hint has locked the row of a
								 * task of an ordered group: the caller holds the group */
	DW_CLAIM_CANCELLED,			/* a mark has hit the task: the sweeper removes the row */
	DW_CLAIM_REJECTED,			/* is_wanted has returned false: the row is unchanged */
	DW_CLAIM_UNSEEN				/* the transaction's snapshot stays, but does not see the row, or
								 * all that the task must see */
} DwClaimResult;

/* True if the caller of dw_claim() wants to claim this row.  The verdict is not set yet. */
typedef bool (*DwIsWanted) (const DwClaim *claim, void *arg);
extern Relation dw_claim_open(void);
extern DwClaimResult dw_claim(DwDatabase *db, DwExecutor *me, Relation rel, DwTaskFinder *finder,
							  const DwEntry *entry, DwIsWanted is_wanted, void *arg, DwClaim *claim);
extern DwVerdict dw_judge_lateness(DwClaim *claim);
extern void dw_claim_read(DwDatabase *db, Relation rel, HeapTuple tuple, DwClaim *claim);
extern bool dw_entry_is_ordered(const DwEntry *entry);
extern TimestampTz dw_claim_leased_at(const DwClaim *claim);
extern char *dw_claim_text(const DwClaim *claim, AttrNumber column);
extern ParamListInfo dw_claim_params(const DwClaim *claim, const char *sql);

/*---- conclude.c: the end of a task, or of an attempt ----*/

extern void dw_task_was_cancelled(DwDatabase *db, const DwEntry *entry);
extern void dw_conclude(const DwEnded *ended);
extern void dw_conclude_claim(const DwClaim *claim, DwOutcome outcome, TimestampTz started,
							  DwSpiResult result, const ErrorData *error);
extern void dw_conclude_row(Relation rel, HeapTuple tuple, const DwTaskKey *key, DwOutcome outcome,
							const ErrorData *error);
extern void dw_error_add_detail(ErrorData *error, const char *sentence);
extern DwOutcome dw_attempt_end(Relation rel, DwClaim *claim, TimestampTz due, bool give_up,
								TimestampTz started, ErrorData *error);
extern void dw_attempt_fail(const DwClaim *claim, int attempts, TimestampTz started,
							const ErrorData *error);
extern void dw_attempt_lost(DwClaim *claim, TimestampTz due, int64 lost, TimestampTz started,
							const ErrorData *error);
extern bool dw_attempt_snooze(Relation rel, DwClaim *claim, TimestampTz due);
extern void dw_attempt_retry(DwClaim *claim, TimestampTz due, int failed, TimestampTz started,
							 const ErrorData *error);

/* group_first.c: the first task of an ordered group */

/* The decision on a task that a process has taken. */
typedef enum DwGroupDecision
{
	DW_GROUP_RUN_IT,			/* it comes first, or is gone (the claim will notice this) */
	DW_GROUP_TAKE_OTHER,		/* another task of its lane comes first */
	DW_GROUP_WAIT				/* no task of the lane may begin now */
} DwGroupDecision;

extern DwGroupDecision dw_group_decide(Relation rel, Snapshot snapshot, const DwEntry *entry,
									   const DwLapsed *lapsed, DwTaskKey *first, TimestampTz *until);

/*---- pending.c: taking the row of a pending task, and burying older tasks of its key ----*/

/* The result of an attempt to take a task. */
typedef enum DwTakeResult
{
	DW_TAKEN,					/* this transaction has deleted its row */
	DW_RUNNING,					/* an executor has claimed it */
	DW_GONE						/* no such task is pending */
} DwTakeResult;

extern void dw_pending_rewrite(Relation rel, Datum *values, bool *nulls, DwLaneRef lane);
extern void dw_pending_move(Relation rel, HeapTuple old, const DwTaskKey *key, TimestampTz due);
extern bool dw_key_claimed(Relation rel, HeapTuple tuple);
extern DwTakeResult dw_take_pending(Relation rel, int64 id, HeapTuple *tuple, DwTaskKey *key);
extern DwTakeResult dw_take_found(Relation rel, HeapTuple tuple, const DwTaskKey *key, bool *again);

/*---- keys.c: keys: at most one pending task for each owner, queue and key ----*/

extern DwKeyRow *dw_key_enter(Relation rel, DwNewTask *new);
extern bool dw_key_enter_again(Relation rel, const DwKey *key, int64 id, bool wait);
extern DwTakeResult dw_key_take(Relation rel, const DwKey *key, HeapTuple *tuple, DwTaskKey *task);
extern DwTakeResult dw_key_cancel(Relation rel, const DwKey *key);

/*---- retention.c: asking the sweeper to look for old rows ----*/

extern void dw_retention_begin(DwDatabase *db);
extern void dw_retention_obey_settings(DwDatabase *db);

#endif							/* DW_ENDING_H */
