/*-------------------------------------------------------------------------
 *
 * groups_view.c
 *	  The function behind the view "groups".
 *
 * Run by sessions.  README.md describes what is copied, and where names come from.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/snapmgr.h"

#include "../base/signature.h"
#include "../shmem/groups.h"
#include "../task/task.h"
#include "views.h"

PG_FUNCTION_INFO_V1(dw_get_groups);

/* Limit for the shown groups of a lane: the groups that have had a place for the longest time. */
#define MOST_LOOKED_AT	10000

/* Limit for the rows that are read to find the name of a group without a waiting task in memory. */
#define MOST_ROWS		10

/* A group of a lane, copied. */
typedef struct Shown
{
	DwGroupCopy group;
	Oid			owner;
	int16		queue;
	int16		priority;
} Shown;

/* All groups that the current user may see. */
typedef struct Collection
{
	Shown	   *groups;
	int			n;
	int			size;
	DwGroupCopy *copies;		/* room for the groups of one lane */
} Collection;

/*---- Copying ----*/

/* Adds the groups of a lane, if the current user may watch it. */
static void
add_lane(Collection *all, DwDatabase *db, int32 number)
{
	const DwLane *lane = &dw_lanes[number];
	Shown		shown = {.owner = lane->owner};
	int			n = 0;

	if (!dw_may_watch(shown.owner))
		return;
	LWLockAcquire(dw_ready_lock(db), LW_SHARED);
	/* the place may now belong to another lane */
	if (lane->database == db->oid && lane->owner == shown.owner)
	{
		shown.queue = lane->queue;
		shown.priority = lane->priority;
		n = dw_groups_copy(lane, all->copies, MOST_LOOKED_AT);
	}
	LWLockRelease(dw_ready_lock(db));
	if (all->n + n > all->size)
	{
		all->size = Max(all->size * 2, all->n + n);
		all->groups = all->groups == NULL ? palloc_extended(all->size * sizeof(Shown), MCXT_ALLOC_HUGE) :
			repalloc_huge(all->groups, all->size * sizeof(Shown));
	}
	for (int i = 0; i < n; i++)
	{
		shown.group = all->copies[i];
		all->groups[all->n++] = shown;
	}
}

/* Orders groups: groups that have waited longest come first, groups that do not wait come last. */
static int
compare_shown(const void *a, const void *b)
{
	const DwGroupCopy *x = &((const Shown *) a)->group;
	const DwGroupCopy *y = &((const Shown *) b)->group;

	if (x->first_due != y->first_due)
		return x->first_due < y->first_due ? -1 : 1;
	return x->running > y->running ? -1 : x->running < y->running ? 1 : 0;
}

/*---- Names ----*/

/*
 * Returns the group's name in the row if the row has this group and the user may read it, else
 * NULL.
 */
static char *
name_in_row(Relation rel, HeapTuple tuple, const Shown *shown)
{
	DwTaskKey	key;

	dw_task_key(rel, tuple, &key);
	if (key.queue != shown->queue || !dw_may_read(key.owner) || key.group != shown->group.hash)
		return NULL;
	return dw_row_text(rel, tuple, Anum_task_group_key);
}

/*
 * Returns the name of a group from the row of its first task that waits in memory, or else of a
 * task that runs or waits in the table.  Returns NULL if the current user may not read such a row.
 */
static char *
name_of(Relation rel, const Shown *shown)
{
	char	   *name = NULL;
	HeapTuple	tuple;
	DwRowScan *scan;

	if (shown->group.ready > 0)
	{
		tuple = dw_task_find(rel, shown->group.first_id, GetActiveSnapshot());
		name = tuple == NULL ? NULL : name_in_row(rel, tuple, shown);
	}
	if (name != NULL)
		return name;
	scan = dw_group_scan_begin(rel, shown->queue, shown->group.hash, PG_INT64_MIN, PG_INT64_MIN,
							   GetActiveSnapshot());
	for (int i = 0; i < MOST_ROWS && name == NULL && (tuple = dw_row_scan_next(scan)) != NULL; i++)
		name = name_in_row(rel, tuple, shown);
	dw_row_scan_end(scan);
	return name;
}

/*---- The view ----*/

/*
 * Returns the state of a group for users.  Sets *waits to true if it sleeps until group->wakes_at.
 */
static const char *
state_of(const DwGroupCopy *group, TimestampTz now, bool *waits)
{
	*waits = false;
	if (group->ready == 0)
		return group->running > 0 ? "running" : "loading";
	if (group->state == DW_GROUP_FULL)
		return "full";
	/* after this time, the group wakes when a process looks for a task */
	if (group->state != DW_GROUP_ASLEEP || group->wakes_at <= now)
		return "open";
	*waits = true;
	return group->held_until > now ? "held" : "asleep";
}

/*
 * Returns the number of a group in the view.  Users who may read its name get the hash of the name;
 * other users get a number that reveals nothing about the name.
 */
static int32
number_of(const Shown *shown)
{
	uint32		hash = shown->group.hash;

	return dw_may_read(shown->owner) ? (int32) hash : (int32) dw_secret_hash(&hash, sizeof(hash), 0);
}

static void
put_group(FunctionCallInfo fcinfo, Relation rel, const Shown *shown, TimestampTz now)
{
	const DwGroupCopy *group = &shown->group;
	bool		ungrouped = group->hash == DW_NO_GROUP;
	bool		waits;
	const char *state = state_of(group, now, &waits);

	dw_put_row(fcinfo, DW_ROLE(shown->owner), DW_INT2(shown->queue), DW_INT2(shown->priority),
			   dw_null_if(ungrouped, DW_INT4(number_of(shown))),
			   dw_text_or_null(ungrouped ? NULL : name_of(rel, shown)), dw_text_or_null(state),
			   DW_INT8(group->ready), DW_BOOL(group->left), DW_INT4(group->running),
			   dw_null_if(group->first_due == DW_NEVER, DW_TIME(group->first_due)),
			   dw_null_if(!waits, DW_TIME(group->wakes_at)));
}

/*
 * The view "groups": the groups of this database that have a place in memory.  For each queue, it
 * shows the first "most" groups, by the due times of their oldest tasks.
 */
Datum
dw_get_groups(PG_FUNCTION_ARGS)
{
	int32		most = PG_GETARG_INT32(0);
	DwDatabase *db = dw_view_begin(fcinfo);
	Collection	all = {0};
	int32	   *counts;			/* number of rows of each queue so far, by the queue's id */
	TimestampTz now;
	Relation	rel;

	if (db == NULL)
		return (Datum) 0;
	all.copies = palloc(MOST_LOOKED_AT * sizeof(DwGroupCopy));
	for (int32 i = dw_lane_after(db, -1); i != DW_NO_LANE; i = dw_lane_after(db, i))
	{
		CHECK_FOR_INTERRUPTS();
		add_lane(&all, db, i);
	}
	if (all.n == 0)
		return (Datum) 0;
	qsort(all.groups, all.n, sizeof(Shown), compare_shown);

	now = dw_now();
	counts = palloc0((PG_INT16_MAX + 1) * sizeof(int32));
	rel = table_open(dw_catalog()->task, AccessShareLock);
	for (int i = 0; i < all.n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (all.groups[i].queue >= 0 && counts[all.groups[i].queue]++ < most)
			put_group(fcinfo, rel, &all.groups[i], now);
	}
	table_close(rel, AccessShareLock);
	return (Datum) 0;
}
