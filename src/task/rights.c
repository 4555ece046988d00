/*-------------------------------------------------------------------------
 *
 * rights.c
 *	  Rights: to use delay_wheel, to have a number of tasks, and to read or change tasks of
 *	  other roles.
 *
 * Run by sessions, and by executors whose tasks schedule tasks.
 *
 * The right to use delay_wheel is INSERT on the view delay_wheel.tasks, which GRANT and REVOKE
 * change (allow.c).  The view itself refuses INSERT.  PUBLIC may execute the functions in the
 * schema given to CREATE EXTENSION, but each function first checks this right.  Functions for
 * administrators need EXECUTE instead.  Code that no session calls (executors, follow-ups,
 * recurring tasks) does not check the right.
 *
 * The pending tasks of a role have no permanent counter, since such a counter would have to follow
 * every transaction, with its subtransactions and its end.  If there is a limit
 * (delay_wheel.max_pending), a session counts the role's rows.  The session may then schedule a
 * tenth of the tasks that are left before it counts again.  Several sessions that count at the same
 * time get a tenth each, so together they can exceed the limit.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "task.h"

/* Time after which a session counts the rows again, even if it may still schedule tasks. */
#define ALLOWANCE_US	(2 * USECS_PER_SEC)

/* The role that passed dw_require_right() last; InvalidOid: check again */
static Oid	allowed_role = InvalidOid;

/* Counter that is increased when a right may have changed */
static uint64 changes_of_rights = 0;

/* Returns the OID of the view delay_wheel.tasks, whose INSERT is the right to use delay_wheel. */
Oid
dw_right_view(void)
{
	Oid			view = get_relname_relid("tasks", get_namespace_oid("delay_wheel", false));

	if (!OidIsValid(view))
		elog(ERROR, "view \"%s\" does not exist", DW_RIGHT_VIEW);
	return view;
}

/* Called when a system cache that dw_require_right() watches changes. */
static void
forget_allowed_role(Datum arg, int cacheid, uint32 hash)
{
	allowed_role = InvalidOid;
	changes_of_rights++;
}

/* Installs forget_allowed_role() for changes of rights and memberships. */
static void
watch_rights(void)
{
	/* DATABASEOID: the member of pg_database_owner depends on the database's owner */
	static const int caches[] = {RELOID, AUTHOID, AUTHMEMROLEMEM, DATABASEOID};
	static bool watching = false;

	for (size_t i = 0; i < lengthof(caches) && !watching; i++)
		CacheRegisterSyscacheCallback(caches[i], forget_allowed_role, (Datum) 0);
	watching = true;
}

/*
 * Raises an error unless the current user has the right to use delay_wheel.  SQL functions of the
 * extension call this first.
 */
void
dw_require_right(void)
{
	Oid			user = GetUserId();
	uint64		changes;

	if (user == allowed_role)
		return;
	watch_rights();
	changes = changes_of_rights;
	if (pg_class_aclcheck(dw_right_view(), user, ACL_INSERT) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to use delay_wheel"),
				 errhint("Ask a superuser for: SELECT delay_wheel.allow(%s)",
						 quote_literal_cstr(GetUserNameFromId(user, false)))));
	/* the check itself may have noticed a change */
	if (changes == changes_of_rights)
		allowed_role = user;
}

/*
 * Also raises an error unless this session may write to the tables.  SQL functions that write call
 * this first, with their name.
 */
void
dw_require_right_to_write(const char *function)
{
	dw_require_right();
	dw_require_writable(function);
}

/* Returns true if the current user may read the tasks of a role. */
bool
dw_may_read(Oid owner)
{
	return has_privs_of_role(GetUserId(), owner) ||
		has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_DATA);
}

/* Returns true if the current user has the rights of one of n roles (InvalidOid: all roles). */
bool
dw_has_any_role(const Oid *roles, int n)
{
	for (int i = 0; i < n; i++)
		if (roles[i] == InvalidOid || has_privs_of_role(GetUserId(), roles[i]))
			return true;
	return false;
}

/* Raises an error unless the current user has the privileges of the task's owner. */
void
dw_require_task_owner(int64 id, Oid owner)
{
	if (!has_privs_of_role(GetUserId(), owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for task %lld", (long long) id),
				 errdetail("Only members of the role that scheduled the task, and superusers, may change it or wait for it.")));
}

/* Raises an error if the task's owner does not exist any more. */
void
dw_require_role(Oid owner)
{
	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(owner)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role with OID %u does not exist", owner),
				 errdetail("The role that scheduled the task was dropped.")));
}

/* Returns true if the row is a pending task: neither cancelled by a mark nor superseded. */
static bool
is_pending_row(Relation rel, HeapTuple tuple)
{
	return !dw_task_is_cancelled(rel, tuple) && !dw_task_is_superseded(rel, tuple);
}

/*
 * Counts the rows of a role's tasks, up to a limit.  Includes rows that open transactions have
 * inserted or are deleting, so running tasks count.  Leaves out rows that came with a copy of
 * another database.  If counts is not NULL, also leaves out rows for which counts() returns false.
 */
static int
count_tasks(Oid owner, int limit, bool (*counts) (Relation, HeapTuple))
{
	Relation	rel = table_open(dw_catalog()->task, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	SnapshotData dirty;
	HeapTuple	tuple;
	int			n = 0;

	InitDirtySnapshot(dirty);
	ScanKeyInit(&keys[0], Anum_task_owner, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(owner));
	ScanKeyInit(&keys[1], Anum_task_origin, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(dw_origin_stamp()));
	scan = systable_beginscan(rel, dw_catalog()->task_lane_index, true, &dirty, 2, keys);
	while (n < limit && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		CHECK_FOR_INTERRUPTS();
		if (counts == NULL || counts(rel, tuple))
			n++;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return n;
}

/*
 * Raises an error if the role has as many pending tasks as delay_wheel.max_pending allows.  Counts
 * rows again after ALLOWANCE_US, or when the allowed number is used up.  The caller has checked
 * that there is a limit.
 */
void
dw_require_room(Oid owner)
{
	static struct
	{
		Oid			owner;
		int			limit;
		int			left;
		TimestampTz until;
	}			allowance;
	TimestampTz now = GetCurrentStatementStartTimestamp();

	if (allowance.owner != owner || allowance.limit != dw_max_pending ||
		allowance.left == 0 || now >= allowance.until ||
		now < allowance.until - ALLOWANCE_US)
	{
		int			left = dw_max_pending - count_tasks(owner, dw_max_pending, NULL);

		allowance.left = 0;
		/* leave out cancelled and superseded rows only at the limit, since this takes longer */
		if (left == 0)
			left = dw_max_pending - count_tasks(owner, dw_max_pending, is_pending_row);
		if (left == 0)
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("role \"%s\" has reached its limit of pending tasks: %d",
							GetUserNameFromId(owner, false), dw_max_pending),
					 errhint("Wait until some tasks have run, cancel tasks with %s, or ask a superuser to increase \"%s\" for the role.",
							 "delay_cancel()", "delay_wheel.max_pending")));
		allowance.owner = owner;
		allowance.limit = dw_max_pending;
		allowance.left = Max(left / 10, 1);
		allowance.until = now + ALLOWANCE_US;
	}
	allowance.left--;
}
