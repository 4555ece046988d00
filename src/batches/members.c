/*-------------------------------------------------------------------------
 *
 * members.c
 *	  What a transaction does to batches: tasks join them, members end.
 *
 * Run by all processes that schedule or end tasks.
 *
 * A transaction adds up the numbers of each batch, and inserts them as one row of
 * delay_wheel_data.batch_count before it commits.  So transactions that end members of one batch do
 * not wait for each other.  A member that is done needs no row: the members that are neither
 * pending nor counted otherwise are done.
 *
 * A batch may end only after it was closed.  Who joins a batch that another transaction has made
 * locks the row of the batch FOR SHARE; who closes or ends a batch changes this row.  So a batch is
 * not closed while a transaction joins it.  A running member of a closed batch may schedule further
 * members without a lock, since its own row is pending until the transaction ends.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "../base/signature.h"
#include "../shmem/executors.h"
#include "../task/task.h"
#include "batches.h"

/* So many plans are kept; there are fewer statements. */
#define MAX_PLANS	32

/* What one (sub)transaction has done to a batch. */
typedef struct Tally
{
	int64		id;
	Oid			owner;			/* of the batch; invalid if all numbers are 0 and it is unknown */
	int			level;			/* nest level of the (sub)transaction */
	bool		made;			/* this transaction has made the batch */
	bool		ended;			/* a member has ended in this transaction */
	int64		total;
	int64		failed;
	int64		cancelled;
	int64		skipped;
	struct Tally *outer;		/* of the same batch, of a lower level; or NULL */
	struct Tally *next;			/* the next batch of the same (sub)transaction */
} Tally;

typedef struct TallyEntry
{
	int64		id;
	Tally	   *tally;			/* of the highest level */
} TallyEntry;

/* The (sub)transactions with tallies, from the innermost one on. */
typedef struct Level
{
	int			level;
	Tally	   *tallies;
	struct Level *outer;
} Level;

/* In TopTransactionContext; NULL: the transaction has done nothing to batches. */
static HTAB *tally_index = NULL;
static Level *levels = NULL;

/* The batch of the last member that was done, which has a tally in this transaction; 0: none. */
static int64 last_done = 0;

/*---- Own SQL ----*/

/* Begins SQL on the tables of batches, with the rights of their owner. */
int
dw_batches_sql_begin(Oid *user, int *context)
{
	HeapTuple	table = SearchSysCache1(RELOID, ObjectIdGetDatum(dw_catalog()->batch));
	Oid			owner;

	if (!HeapTupleIsValid(table))
		elog(ERROR, "cache lookup failed for relation %u", dw_catalog()->batch);
	owner = ((Form_pg_class) GETSTRUCT(table))->relowner;
	ReleaseSysCache(table);
	GetUserIdAndSecContext(user, context);
	SetUserIdAndSecContext(owner, *context | SECURITY_LOCAL_USERID_CHANGE);
	return dw_own_sql_begin();
}

void
dw_batches_sql_end(int nest_level, Oid user, int context)
{
	dw_own_sql_end(nest_level);
	SetUserIdAndSecContext(user, context);
}

/*
 * Returns the plan of a statement, which is a constant of this folder: plans are kept by its address.
 */
static SPIPlanPtr
plan_of(const char *sql, int n, const Oid *types)
{
	static struct
	{
		const char *sql;
		SPIPlanPtr	plan;
	}			plans[MAX_PLANS];
	SPIPlanPtr	plan;
	int			i = 0;

	while (i < MAX_PLANS && plans[i].sql != NULL && plans[i].sql != sql)
		i++;
	if (i < MAX_PLANS && plans[i].sql != NULL)
		return plans[i].plan;
	plan = SPI_prepare(sql, n, (Oid *) types);
	if (plan == NULL)
		elog(ERROR, "could not prepare SQL about batches: %s", SPI_result_code_string(SPI_result));
	if (i < MAX_PLANS && SPI_keepplan(plan) == 0)
	{
		plans[i].plan = plan;
		plans[i].sql = sql;
	}
	return plan;
}

/*
 * Executes an SQL statement with n arguments, none of them null.  Returns the number of rows.  sql: a
 * string constant.
 */
uint64
dw_batches_sql(const char *sql, int n, const Oid *types, const Datum *values)
{
	int			result = SPI_execute_plan(plan_of(sql, n, types), (Datum *) values, NULL, false, 0);

	if (result < 0)
		elog(ERROR, "could not execute SQL about batches: %s", SPI_result_code_string(result));
	return SPI_processed;
}

/*---- Tallies ----*/

/* Writes the numbers of a transaction, in its row of batch_count. */
static void
write_tally(const Tally *tally)
{
	Datum		values[Natts_batch_count];
	bool		nulls[Natts_batch_count] = {false};

	if (tally->total == 0 && tally->failed == 0 && tally->cancelled == 0 && tally->skipped == 0)
		return;
	values[Anum_batch_count_batch_id - 1] = Int64GetDatum(tally->id);
	values[Anum_batch_count_owner - 1] = ObjectIdGetDatum(tally->owner);
	values[Anum_batch_count_total - 1] = Int64GetDatum(tally->total);
	values[Anum_batch_count_failed - 1] = Int64GetDatum(tally->failed);
	values[Anum_batch_count_cancelled - 1] = Int64GetDatum(tally->cancelled);
	values[Anum_batch_count_skipped - 1] = Int64GetDatum(tally->skipped);
	dw_table_insert(dw_catalog()->batch_count, values, nulls, Natts_batch_count);
}

/* Writes all tallies, before the transaction commits or is prepared. */
static void
write_tallies(void)
{
	/* the transaction itself may have dropped the extension */
	if (levels == NULL || !dw_catalog_is_there())
		return;
	PushActiveSnapshot(GetTransactionSnapshot());
	for (Tally *tally = levels->tallies; tally != NULL; tally = tally->next)
		write_tally(tally);
	PopActiveSnapshot();
}

/*
 * Returns true if the batch cannot end now: the transaction has committed the batch, with members
 * that have not ended, whose ends will have it looked at.
 */
static bool
waits_for_members(const Tally *tally)
{
	return tally->made && tally->total > 0 && !tally->ended;
}

/*
 * Has all batches looked at that the transaction has touched: after its end nothing is in its way.
 * Many new batches at once leave room for notes of others.
 */
static void
tell_tallies(bool committed)
{
	DwDatabase *db = levels != NULL ? dw_my_database_find() : NULL;

	if (db == NULL)
		return;
	for (Level *level = levels; level != NULL; level = level->outer)
		for (Tally *tally = level->tallies; tally != NULL; tally = tally->next)
			if (!committed || !waits_for_members(tally))
				dw_batch_look(db, tally->id);
}

static void
batches_xact_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
	{
		write_tallies();
		/* so the end of the prepared transaction is noticed: all batches are looked at then */
		if (event == XACT_EVENT_PRE_PREPARE && levels != NULL)
			dw_touch(DW_ALL_TOUCHED);
		return;
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
		tell_tallies(event == XACT_EVENT_COMMIT);
	levels = NULL;
	tally_index = NULL;
	last_done = 0;
}

/* Adds the numbers of a committed subtransaction to those of the outer (sub)transaction. */
static void
add_to_outer(Tally *tally)
{
	Tally	   *outer = tally->outer;

	if (OidIsValid(tally->owner))
		outer->owner = tally->owner;
	outer->made |= tally->made;
	outer->ended |= tally->ended;
	outer->total += tally->total;
	outer->failed += tally->failed;
	outer->cancelled += tally->cancelled;
	outer->skipped += tally->skipped;
}

/* Makes the tallies of a committed subtransaction those of the outer (sub)transaction. */
static void
commit_level(Level *level)
{
	Level	   *outer = level->outer;
	int			number = level->level - 1;

	if (outer == NULL || outer->level < number)
	{
		level->level = number;
		for (Tally *tally = level->tallies; tally != NULL; tally = tally->next)
			tally->level = number;
		return;
	}
	for (Tally *tally = level->tallies, *next; tally != NULL; tally = next)
	{
		TallyEntry *entry = hash_search(tally_index, &tally->id, HASH_FIND, NULL);

		next = tally->next;
		if (tally->outer != NULL && tally->outer->level == number)
		{
			add_to_outer(tally);
			entry->tally = tally->outer;
			pfree(tally);
			continue;
		}
		tally->level = number;
		tally->next = outer->tallies;
		outer->tallies = tally;
	}
	levels = outer;
	pfree(level);
}

/* Forgets what an aborted subtransaction has done.  Its batches are looked at, too. */
static void
abort_level(Level *level)
{
	DwDatabase *db = dw_my_database_find();

	last_done = 0;
	for (Tally *tally = level->tallies; tally != NULL; tally = tally->next)
	{
		TallyEntry *entry = hash_search(tally_index, &tally->id, HASH_FIND, NULL);

		entry->tally = tally->outer;
		if (db != NULL)
			dw_batch_look(db, tally->id);
	}
	levels = level->outer;
}

static void
batches_subxact_callback(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (levels == NULL || levels->level < GetCurrentTransactionNestLevel())
		return;
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		commit_level(levels);
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		abort_level(levels);
}

void
dw_batches_install(void)
{
	RegisterXactCallback(batches_xact_callback, NULL);
	RegisterSubXactCallback(batches_subxact_callback, NULL);
}

/*
 * Returns the tally of a batch in this (sub)transaction; a new one if there is none.  owner: invalid
 * if unknown.
 */
static Tally *
tally_of(int64 id, Oid owner)
{
	int			number = GetCurrentTransactionNestLevel();
	TallyEntry *entry;
	Tally	   *tally;
	bool		found;

	if (tally_index == NULL)
	{
		HASHCTL		control = {
			.keysize = sizeof(int64), .entrysize = sizeof(TallyEntry), .hcxt = TopTransactionContext
		};

		tally_index = hash_create("delay_wheel batches", 16, &control,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		/* a note for the end of the transaction needs the pin */
		(void) dw_my_database();
		dw_touch(DW_WING_WRITTEN);
	}
	if (levels == NULL || levels->level < number)
	{
		Level	   *level = MemoryContextAllocZero(TopTransactionContext, sizeof(Level));

		level->level = number;
		level->outer = levels;
		levels = level;
	}
	entry = hash_search(tally_index, &id, HASH_ENTER, &found);
	if (!found)
		entry->tally = NULL;
	if (entry->tally != NULL && entry->tally->level == number)
	{
		if (OidIsValid(owner))
			entry->tally->owner = owner;
		return entry->tally;
	}
	tally = MemoryContextAllocZero(TopTransactionContext, sizeof(Tally));
	tally->id = id;
	tally->owner = OidIsValid(owner) || entry->tally == NULL ? owner : entry->tally->owner;
	tally->level = number;
	tally->outer = entry->tally;
	tally->made = entry->tally != NULL && entry->tally->made;
	tally->next = levels->tallies;
	levels->tallies = tally;
	entry->tally = tally;
	return tally;
}

/*
 * Has the batch looked at after the transaction.  owner: invalid if unknown.  made: this transaction
 * has made the batch.
 */
void
dw_batch_touch(int64 id, Oid owner, bool made)
{
	Tally	   *tally = tally_of(id, owner);

	tally->made |= made;
}

/* Returns the innermost tally of a batch, or NULL. */
static Tally *
find_tally(int64 id)
{
	TallyEntry *entry = tally_index == NULL ? NULL : hash_search(tally_index, &id, HASH_FIND, NULL);

	return entry == NULL ? NULL : entry->tally;
}

/* Returns true if this transaction has done something to the batch. */
bool
dw_batch_is_touched(int64 id)
{
	return find_tally(id) != NULL;
}

/*---- Members ----*/

/* Returns true if this transaction has made the batch, or a member of this role has joined it. */
static bool
may_join_again(int64 id, Oid owner)
{
	Tally	   *tally = find_tally(id);

	return tally != NULL && tally->owner == owner && (tally->made || tally->total > 0);
}

/* Returns true if this session runs a member of the batch. */
bool
dw_batch_runs_here(int64 id)
{
	return (dw_this_executor != NULL || dw_run_now_id != 0) && dw_running_batch_id == id;
}

/* Raises an error for a batch that this role does not have.  exists: another role has it. */
static void
raise_missing(int64 id, bool exists)
{
	if (exists)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for batch %lld", (long long) id),
				 errdetail("Only tasks and messages of the role that made the batch can join it.")));
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("batch %lld does not exist", (long long) id),
			 errhint("Use the id that delay_batch() has returned in this database.")));
}

/*
 * Locks the row of a batch FOR SHARE, unless the caller is one of its members.  Raises an error if
 * a task of this role cannot join the batch.  The batch is touched before its row is locked: the
 * sweeper passes a locked row over, so somebody must have it look again, also after an error.
 */
static void
lock_batch(int64 id, Oid role, bool is_member)
{
	static const Oid types[] = {INT8OID, REGROLEOID};
	const Datum values[] = {Int64GetDatum(id), ObjectIdGetDatum(role)};
	Oid			user;
	int			context;
	int			nest_level = dw_batches_sql_begin(&user, &context);
	bool		isnull;
	bool		closed;
	bool		ended;

	dw_batch_touch(id, InvalidOid, false);
	/* other roles lock nothing */
	if (dw_batches_sql(is_member ?
					   "SELECT closed, ended_at IS NOT NULL FROM delay_wheel_data.batch WHERE id = $1 AND owner = $2" :
					   "SELECT closed, ended_at IS NOT NULL FROM delay_wheel_data.batch WHERE id = $1 AND owner = $2 FOR SHARE",
					   2, types, values) == 0)
		raise_missing(id, dw_batches_sql("SELECT FROM delay_wheel_data.batch WHERE id = $1", 1, types, values) > 0);
	closed = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	ended = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));
	dw_batches_sql_end(nest_level, user, context);
	if (ended || (closed && !is_member))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 ended ? errmsg("batch %lld has ended", (long long) id) :
				 errmsg("batch %lld is closed", (long long) id),
				 errdetail("A batch is closed at the end of the transaction that made it. From then on only its own tasks can add members."),
				 errhint("Make the batch with open => true, and call delay_close_batch() when all members have joined.")));
}

/*
 * Adds a member of this role to a batch, in the transaction that schedules the member.  by_engine:
 * the member is a follow-up of a member, or the callback of an inner batch; it joins a closed
 * batch, too.
 */
void
dw_batch_join(int64 id, Oid role, bool by_engine)
{
	if (!by_engine && !may_join_again(id, role))
		lock_batch(id, role, dw_batch_runs_here(id));
	tally_of(id, role)->total++;
}

/* Counts members that have ended; n is negative for members that are put back. */
void
dw_batch_member_ended(int64 id, Oid owner, DwOutcome outcome, int64 n)
{
	Tally	   *tally;

	/* nothing is counted, and most often many members of one batch are done in one transaction */
	if (outcome == DW_DONE && id == last_done)
		return;
	tally = tally_of(id, owner);
	tally->ended = true;
	if (outcome == DW_DONE)
		last_done = id;
	else if (outcome == DW_FAILED)
		tally->failed += n;
	else if (outcome == DW_CANCELLED)
		tally->cancelled += n;
	else if (outcome == DW_SKIPPED)
		tally->skipped += n;
}

/*
 * Counts a failed member as pending again.  If the batch had ended, it is no longer so: it ends
 * once more, with the callbacks that fit then.  The same holds for outer batches, which have the
 * same owner.
 */
void
dw_batch_member_put_back(int64 id, Oid owner)
{
	static const Oid types[] = {INT8OID};

	while (id != 0)
	{
		const Datum values[] = {Int64GetDatum(id)};
		Oid			user;
		int			context;
		int			nest_level = dw_batches_sql_begin(&user, &context);
		int64		outer = 0;

		/* the lock keeps the batch from ending meanwhile; touched before, as in lock_batch() */
		dw_batch_touch(id, owner, false);
		if (dw_batches_sql("SELECT ended_at IS NOT NULL, batch_id FROM delay_wheel_data.batch WHERE id = $1 FOR UPDATE",
						   1, types, values) > 0)
		{
			HeapTuple	row = SPI_tuptable->vals[0];
			TupleDesc	desc = SPI_tuptable->tupdesc;
			bool		isnull;
			bool		ended = DatumGetBool(SPI_getbinval(row, desc, 1, &isnull));

			dw_batch_member_ended(id, owner, DW_FAILED, -1);
			if (ended)
			{
				outer = DatumGetInt64(SPI_getbinval(row, desc, 2, &isnull));
				if (isnull)
					outer = 0;
				(void) dw_batches_sql("UPDATE delay_wheel_data.batch SET ended_at = NULL WHERE id = $1",
									  1, types, values);
			}
		}
		dw_batches_sql_end(nest_level, user, context);
		id = outer;
	}
}
