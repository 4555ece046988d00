/*-------------------------------------------------------------------------
 *
 * wing.h
 *	  What a feature (a "wing") adds to the engine, which knows none by name.
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

/* A job of the sweeper, which has a place for its time in shared memory (DwJob). */
typedef struct DwWingJob
{
	int			job;
	/* does a slice; sets *more, or returns when there is more to do */
	TimestampTz (*work) (struct DwDatabase *db, bool *more);
} DwWingJob;

/* Each function may be NULL. */
typedef struct DwWing
{
	/* Asks for shared memory.  By the postmaster. */
	void		(*request_memory) (void);
	/* Shared memory has been set up.  By the postmaster. */
	void		(*memory_is_ready) (void);
	/* True if no task may run on this server yet.  Changes nothing. */
	bool		(*is_held) (void);
	/* The same, by the launcher: at its start, and whenever it wakes until it is false. */
	bool		(*stays_held) (void);
	/* A task, or an attempt, has ended.  By who ends it, in the transaction that has deleted the row. */
	void		(*task_ended) (const struct DwEnded *ended);
	/* True if it wants to know of such an end; then task_ended() must be called for it. */
	bool		(*wants_end) (int16 queue, int outcome);
	/* How many bytes of what a task of the queue returns are wanted. */
	int			(*max_result) (int16 queue);
	/* Ends of a batch, or of the sweeper's slice, come, have come (before the commit); those of a batch were undone. */
	void		(*batch_begins) (void);
	void		(*batch_ends) (void);
	void		(*batch_undone) (void);
	/* The same, of a task: the transaction has committed; and then, it has no locks any more.  Cannot fail. */
	void		(*end_committed) (struct DwDatabase *db, int64 id, int outcome);
	void		(*end_visible) (struct DwDatabase *db, int64 id);
	/* Tasks may have ended of which no end was noted.  Cannot fail. */
	void		(*ends_in_doubt) (struct DwDatabase *db);
	/* How the task has ended, if that is known; else NULL. */
	const char *(*outcome_of) (int64 id);
	/* False if the sweeper must leave the row of a cancelled task for now. */
	bool		(*may_remove) (Relation rel, HeapTuple row);
	/* An executor has left a task that has no row any more.  Cannot fail, wait or allocate. */
	void		(*task_lost) (struct DwDatabase *db);
	/* Rows of tasks, or roles, may have gone without a word.  By the timer, outside of a transaction. */
	void		(*rows_in_doubt) (struct DwDatabase *db);
	/* True if it has rows that came with a copy.  By the timer, which does not wait. */
	bool		(*has_unarmed) (void);
	/* delay_wheel.arm() takes such rows over; *left becomes true if some stay. */
	void		(*arm) (bool *left);
	/* Raises an error if the queue, which is to be dropped, is needed. */
	void		(*require_unused) (int16 queue, const char *name);
	/* Somebody has done something (task/actions.c), in the same transaction. */
	void		(*done) (const struct DwAction *action);
	/* Jobs must look anew: settings have changed, or else the timer starts or the clock was set. */
	void		(*jobs_in_doubt) (struct DwDatabase *db, bool settings);
	/* By the sweeper, each time that it looks for work; returns when it must be called again. */
	TimestampTz (*sweep) (struct DwDatabase *db);
	const DwWingJob *jobs;
	int			njobs;
} DwWing;

/* All wings, in the order in which they are called; the last one is NULL. */
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

/* True if a wing wants to know of such an end. */
static inline bool
dw_wings_want_end(int16 queue, int outcome)
{
	dw_each_wing(wing, wants_end)
		if (wing->wants_end(queue, outcome))
			return true;
	return false;
}

/* How many bytes of what a task of the queue returns are wanted. */
static inline int
dw_wings_max_result(int16 queue)
{
	int			max = 0;

	dw_each_wing(wing, max_result)
		max = Max(max, wing->max_result(queue));
	return max;
}

/* True if a wing lets no task run on this server yet. */
static inline bool
dw_wings_hold(void)
{
	dw_each_wing(wing, is_held)
		if (wing->is_held())
			return true;
	return false;
}

#endif							/* DW_WING_H */
