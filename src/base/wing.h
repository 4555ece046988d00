/*-------------------------------------------------------------------------
 *
 * wing.h
 *	  The functions by which the engine calls a feature (a "wing") without naming the feature.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_WING_H
#define DW_WING_H

#include "postgres.h"

#include "access/htup.h"
#include "datatype/timestamp.h"
#include "utils/relcache.h"

struct DwAction;
struct DwDatabase;
struct DwEnded;

/* A job of the sweeper.  The time of the job is in shared memory, at the index "job" (DwJob). */
typedef struct DwWingJob
{
	int			job;
	/*
	 * Does a slice of the job, in a separate transaction.  Returns when it must be called again:
	 * PG_INT64_MIN if work is left, DW_NEVER if it need not be.
	 */
	TimestampTz (*work) (struct DwDatabase *db);
} DwWingJob;

/* Each function may be NULL. */
typedef struct DwWing
{
	/* Installs callbacks for the end of transactions.  Called once by the postmaster. */
	void		(*install) (void);
	/* Requests shared memory.  Called by the postmaster. */
	void		(*request_memory) (void);
	/* Called by the postmaster after shared memory has been set up. */
	void		(*memory_is_ready) (void);
	/*
	 * Returns true if no task may run on this server yet.  Changes nothing, unless the launcher
	 * calls this: at its start, and at each wake-up until the result is false.
	 */
	bool		(*is_held) (bool launcher);
	/*
	 * Called when the row of a new task with options in "more" has been written.  by_engine: the
	 * task follows the end of another task, which this transaction has deleted.
	 */
	void		(*task_scheduled) (Oid owner, const Datum *values, const bool *nulls, bool by_engine);
	/* Called when a failed task with options in "more" has been put back. */
	void		(*task_put_back) (const Datum *values, const bool *nulls);
	/*
	 * Returns true if the id is of a thing of the wing that has not ended.  first: raises an error if
	 * the current user lacks the rights of its owner.
	 */
	bool		(*is_pending) (int64 id, bool first);
	/* Called when a task or an attempt has ended, in the transaction that has deleted the row. */
	void		(*task_ended) (const struct DwEnded *ended);
	/* Returns true if task_ended() must be called for this outcome in this queue. */
	bool		(*wants_end) (int16 queue, int outcome);
	/* Returns how many bytes of the results of the queue's tasks are wanted. */
	int			(*max_result) (int16 queue);
	/* In a batch or a sweeper's slice: called before tasks end, before commit, after rollback. */
	void		(*batch_begins) (void);
	void		(*batch_ends) (void);
	void		(*batch_undone) (void);
	/* For a task's end: called after the commit, and after locks are released.  Must not fail. */
	void		(*end_committed) (struct DwDatabase *db, int64 id, int outcome);
	void		(*end_visible) (struct DwDatabase *db, int64 id);
	/* Called if tasks may have ended without a noted end.  Must not fail. */
	void		(*ends_in_doubt) (struct DwDatabase *db);
	/* Returns the outcome of the task, or NULL if the outcome is unknown. */
	const char *(*outcome_of) (int64 id);
	/* Returns false if the sweeper must leave the row of a cancelled task for now. */
	bool		(*may_remove) (Relation rel, HeapTuple row);
	/* Called if an executor has left a task without a row.  Must not fail, wait or allocate. */
	void		(*task_lost) (struct DwDatabase *db);
	/* Called by the timer (in no transaction) if rows of tasks or roles may have vanished. */
	void		(*rows_in_doubt) (struct DwDatabase *db);
	/* Returns true if the wing has rows from a copy.  The timer calls this, so it must not wait. */
	bool		(*has_unarmed) (void);
	/* Takes over rows from a copy, for delay_wheel.arm().  Sets *left to true if such rows stay. */
	void		(*arm) (bool *left);
	/* Raises an error if the wing needs this queue, which will be dropped. */
	void		(*require_unused) (int16 queue, const char *name);
	/* Called after an action (task/actions.c), in the same transaction. */
	void		(*done) (const struct DwAction *action);
	/* Called if settings have changed ("settings"), the timer starts, or the clock was set. */
	void		(*jobs_in_doubt) (struct DwDatabase *db, bool settings);
	const DwWingJob *jobs;
	int			njobs;
} DwWing;

/* All wings, in the order in which they are called.  The last element is NULL. */
extern const DwWing *const *dw_wings;

/* for each wing w that has this function */
#define dw_each_wing(w, function) \
	for (const DwWing *const *w##_ = dw_wings, *w; (w = *w##_) != NULL; w##_++) \
		if (w->function != NULL)

/* Calls ends_in_doubt() of all wings. */
static inline void
dw_wings_doubt_ends(struct DwDatabase *db)
{
	dw_each_wing(wing, ends_in_doubt)
		wing->ends_in_doubt(db);
}

/* Returns true if task_ended() must be called for this outcome in this queue. */
static inline bool
dw_wings_want_end(int16 queue, int outcome)
{
	dw_each_wing(wing, wants_end)
		if (wing->wants_end(queue, outcome))
			return true;
	return false;
}

/* Returns how many bytes of the results of the queue's tasks are wanted. */
static inline int
dw_wings_max_result(int16 queue)
{
	int			max = 0;

	dw_each_wing(wing, max_result)
		max = Max(max, wing->max_result(queue));
	return max;
}

/* Calls is_held() of all wings.  Returns true if no task may run on this server yet. */
static inline bool
dw_wings_hold(bool launcher)
{
	bool		held = false;

	dw_each_wing(wing, is_held)
		held |= wing->is_held(launcher);
	return held;
}

#endif							/* DW_WING_H */
