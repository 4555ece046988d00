/*-------------------------------------------------------------------------
 *
 * owners.c
 *	  Decides which owners of lanes get an executor.
 *
 * Run by all processes.  The ready lock of the database protects lists and blocks.
 *
 * The timer serves owners with ready tasks in turn.  The list db->ready_owners contains owners with
 * ready tasks, except owners that cannot get an executor now: these are blocked, and in the list
 * db->blocked_owners.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "../base/compat.h"
#include "../base/settings.h"
#include "executors.h"
#include "queue_limits.h"

/* Pause after the first failed attempt to get an executor, in us.  The pause doubles each time. */
#define RETRY_MIN	(1 * USECS_PER_SEC)

/* The pause does not grow for this number of terminations of an owner's executors in a row. */
#define TERMINATED_PATIENCE	5

/* Longest pause between two attempts, in us: after an executor has ended, and otherwise. */
#define ENDED_MAX	(30 * USECS_PER_SEC)
#define RETRY_MAX	(5 * USECS_PER_MINUTE)

const char *const dw_block_texts[] = {
	[DW_BLOCK_NONE] = "",
	[DW_BLOCK_NO_WORKER] = "no background worker is free",
	[DW_BLOCK_NO_ROLE] = "the role does not exist",
	[DW_BLOCK_SUPERUSER] = "tasks of superusers are switched off",
	[DW_BLOCK_NO_CONNECT] = "the role does not have CONNECT privilege on the database",
	[DW_BLOCK_CLOSED] = "the database does not accept connections",
	[DW_BLOCK_NOT_CONNECTED] = "an executor could not connect, see the server log",
	[DW_BLOCK_TERMINATED] = "an executor was terminated while it ran its first task",
	[DW_BLOCK_ENDED] = "an executor ended while it ran a task, see the server log"
};

/*---- Lists ----*/

/* Ends the owner's block.  The caller must put the owner into a list again. */
static void
forget_block(DwOwner *owner)
{
	owner->block = DW_BLOCK_NONE;
	owner->retry_at = 0;
	owner->lacks_since = 0;
}

/* Removes an owner from its list. */
static void
unlist(DwDatabase *db, DwOwner *owner)
{
	/* newcomers are neighbours at the front */
	if (db->newest_owner == &owner->link)
		db->newest_owner = dlist_has_prev(&db->ready_owners, &owner->link) ?
			dlist_prev_node(&db->ready_owners, &owner->link) : NULL;
	dlist_delete(&owner->link);
	owner->is_listed = owner->is_new = false;
}

/* Puts an owner into the list of ready owners: a newcomer after other newcomers, else at the end. */
static void
list_ready(DwDatabase *db, DwOwner *owner, bool newcomer)
{
	owner->is_new = newcomer && db->owner_jumps < DW_JUMPS_MAX;
	if (!owner->is_new)
	{
		dlist_push_tail(&db->ready_owners, &owner->link);
		return;
	}
	if (db->newest_owner == NULL)
		dlist_push_head(&db->ready_owners, &owner->link);
	else
		dlist_insert_after(db->newest_owner, &owner->link);
	db->newest_owner = &owner->link;
}

/* Notes that an executor of the owner has come up.  Needs the ready lock exclusively. */
void
dw_owner_has_executor(DwDatabase *db, const DwOwner *owner)
{
	db->owner_jumps = owner->is_new ? db->owner_jumps + 1 : 0;
}

/*
 * Puts an owner with ready tasks into the list of ready or blocked owners: at the end of the list,
 * or, if the owner was not listed, among the newcomers.
 *
 * Owners that lack a background worker go to the front of the blocked owners, where
 * dw_owners_first_lacking() looks for them.  Needs the ready lock exclusively.
 */
void
dw_owner_list(DwDatabase *db, DwOwner *owner)
{
	bool		newcomer = !owner->is_listed;

	if (owner->is_listed)
		unlist(db, owner);
	if (owner->turns.n == 0)
	{
		/* paused lanes need no worker; when the owner waits again, all waiting owners come first */
		if (owner->block == DW_BLOCK_NO_WORKER)
			forget_block(owner);
		return;
	}
	owner->is_listed = true;
	if (owner->retry_at == 0)
	{
		list_ready(db, owner, newcomer);
		return;
	}
	db->blocked_until = Min(db->blocked_until, owner->retry_at);
	if (owner->block == DW_BLOCK_NO_WORKER)
		dlist_push_head(&db->blocked_owners, &owner->link);
	else
		dlist_push_tail(&db->blocked_owners, &owner->link);
}

/*---- Owners without an executor ----*/

/*
 * Returns true if the caller must log that no background worker is free for an owner: whenever the
 * owner becomes blocked, but at most once in DW_LOG_INTERVAL_US.
 */
static bool
no_worker_log_is_due(DwOwner *owner)
{
	int64		told = owner->no_worker_told;

	if (told != 0 &&
		(told >= owner->lacks_since || dw_uptime() - told < DW_LOG_INTERVAL_US))
		return false;
	owner->no_worker_told = dw_uptime();
	return true;
}

/*
 * Blocks an owner that got no executor: its lanes wait until retry_at.  The pause doubles each
 * time, up to a limit that depends on the reason.  When an executor of the owner works, the pause
 * is reset.  If no background worker is free, the lanes wait until the owner has the turn
 * (dw_owner_retry_first()).
 *
 * Returns true if the caller must log the block: the reason is new, or no background worker is free
 * and no_worker_log_is_due().  Does nothing if the owner waits already or has no place.  Needs the
 * table lock, and the ready lock exclusively.
 */
bool
dw_owner_blocked(DwDatabase *db, Oid role, DwBlock reason)
{
	DwOwner    *owner = dw_owner_find(db, role);
	TimestampTz now = dw_now();
	uint32		failures;
	int64		longest;
	bool		news;

	if (owner == NULL ||
		(owner->retry_at > now && (owner->block != DW_BLOCK_NO_WORKER || reason == DW_BLOCK_NO_WORKER)))
		return false;
	news = owner->block != reason;
	owner->block = reason;
	if (reason == DW_BLOCK_NO_WORKER)
	{
		if (owner->lacks_since == 0)
			owner->lacks_since = dw_uptime();
		news = no_worker_log_is_due(owner);
		owner->retry_at = DW_NEVER;
		dw_owner_list(db, owner);
		return news;
	}
	owner->lacks_since = 0;
	/* after a termination try again soon, except after many terminations in a row */
	failures = owner->start_failures++;
	if (reason == DW_BLOCK_TERMINATED)
		failures -= Min(failures, TERMINATED_PATIENCE);
	longest = reason == DW_BLOCK_ENDED || reason == DW_BLOCK_TERMINATED ? ENDED_MAX : RETRY_MAX;
	owner->retry_at = now + Min(RETRY_MIN << Min(failures, 16), longest);
	dw_owner_list(db, owner);
	return news;
}

/* Ends the block of an owner whose executor works.  Needs the ready lock exclusively. */
void
dw_owner_unblocked(DwDatabase *db, DwOwner *owner)
{
	owner->start_failures = 0;
	if (owner->block == DW_BLOCK_NONE && owner->retry_at == 0)
		return;
	forget_block(owner);
	dw_owner_list(db, owner);
}

/*
 * Ends a block that is caused by the lack of a background worker.  Called if an executor of the
 * owner unexpectedly goes on, or if no executor is needed now.  Needs the ready lock exclusively.
 */
void
dw_owner_lacks_none(DwDatabase *db, DwOwner *owner)
{
	if (owner->block != DW_BLOCK_NO_WORKER)
		return;
	forget_block(owner);
	dw_owner_list(db, owner);
}

/* Allows a blocked owner to try again.  Does not reset its number of failed attempts. */
static void
try_again(DwDatabase *db, DwOwner *owner)
{
	owner->retry_at = 0;
	dw_owner_list(db, owner);
}

/*
 * Allows blocked owners to try again if their pause is over, and sets db->blocked_until.  Needs the
 * ready lock exclusively.
 */
void
dw_owners_retry(DwDatabase *db)
{
	TimestampTz now = dw_now();
	TimestampTz next = DW_NEVER;
	dlist_mutable_iter iter;

	if (db->blocked_until > now)
		return;
	dlist_foreach_modify(iter, &db->blocked_owners)
	{
		DwOwner    *owner = dw_linked_owner(iter.cur);

		if (owner->retry_at <= now)
			try_again(db, owner);
		else
			next = Min(next, owner->retry_at);
	}
	db->blocked_until = next;
}

/*
 * Returns the owner that has waited longest for a background worker, or NULL.  Needs the ready
 * lock.
 */
DwOwner *
dw_owners_first_lacking(DwDatabase *db)
{
	DwOwner    *first = NULL;
	dlist_iter	iter;

	/* owners that wait for a worker are at the front of the list */
	dlist_foreach(iter, &db->blocked_owners)
	{
		DwOwner    *owner = dw_linked_owner(iter.cur);

		if (owner->block != DW_BLOCK_NO_WORKER)
			break;
		if (first == NULL || owner->lacks_since < first->lacks_since)
			first = owner;
	}
	return first;
}

/* Returns true if an owner with due tasks can get no executor.  Reads without a lock. */
bool
dw_owners_are_blocked(DwDatabase *db)
{
	dlist_node *end = &db->blocked_owners.head;

	return ((volatile dlist_node *) end)->next != end && !dw_database_is_disabled(db);
}

/*
 * Allows an owner that waits for a background worker to try again before all other owners.  Needs
 * the ready lock exclusively.
 */
void
dw_owner_retry_first(DwDatabase *db, DwOwner *owner)
{
	owner->retry_at = 0;
	dlist_delete(&owner->link);
	dlist_push_head(&db->ready_owners, &owner->link);
}

/* Notes that a background worker was free for this owner.  Takes table and ready lock. */
void
dw_owner_gets_worker(DwDatabase *db, Oid role)
{
	DwOwner    *owner;

	LWLockAcquire(dw_shared->table_lock, LW_SHARED);
	owner = dw_owner_find(db, role);
	if (owner != NULL)
	{
		LWLockAcquire(dw_ready_lock(db), LW_EXCLUSIVE);
		owner->lacks_since = 0;
		LWLockRelease(dw_ready_lock(db));
	}
	LWLockRelease(dw_shared->table_lock);
}

/*
 * Allows all blocked owners of the database to try again now, and resets their pauses.  Skips
 * owners that wait for their turn to get a background worker.  Needs the ready lock exclusively.
 */
void
dw_owners_retry_all(DwDatabase *db)
{
	for (int i = 0; i < dw_owner_places(); i++)
	{
		DwOwner    *owner = &dw_owners[i];

		if (owner->database != db->oid || owner->block == DW_BLOCK_NONE ||
			owner->block == DW_BLOCK_NO_WORKER)
			continue;
		owner->start_failures = 0;
		try_again(db, owner);
	}
	db->blocked_until = DW_NEVER;
}
