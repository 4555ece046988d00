/*-------------------------------------------------------------------------
 *
 * retention.c
 *	  When the sweeper is to look for old rows.
 *
 * Run by timers, and by the sweeper.  Failed tasks and the history are bounded by
 * settings.  At the start of a timer nobody knows what a server before has left, and
 * a changed setting may make rows too old or too many: so the sweeper is asked to
 * look.  What it does then is in failed.c and history_tables.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"

#include "../base/clock.h"
#include "../base/settings.h"
#include "../rows/catalog.h"
#include "../shmem/shared.h"
#include "../shmem/stats.h"
#include "history.h"
#include "retention.h"

/* Anything may have to go, as far as we know. */
static void
look_at_failed(DwDatabase *db)
{
	pg_atomic_write_u64(&db->failed_limit, 0);
	dw_failed_ask(db, dw_now());
}

/*
 * For timers and the sweeper: at their start, or when the clock was set; when settings may have changed.
 *
 * Nobody knows what a server before has left.  The sweeper will; it is enough
 * to find out whether it has to look.
 */
void
dw_failed_begin(DwDatabase *db)
{
	DwCatalog	cat;
	bool		any;

	StartTransactionCommand();
	if (!dw_catalog_lookup(&cat))
		any = false;
	else
		any = dw_may_have_rows(cat.failed);
	CommitTransactionCommand();
	pg_atomic_write_u64(&db->failed_trim_after, (uint64) PG_INT64_MIN);
	if (any)
		look_at_failed(db);
}

bool
dw_failed_obey_settings(DwDatabase *db)
{
	static int	max_age = INT_MIN;
	static int	max_count = INT_MIN;
	bool		first = max_age == INT_MIN;

	if (max_age == dw_failed_max_age && max_count == dw_failed_max_count)
		return false;
	max_age = dw_failed_max_age;
	max_count = dw_failed_max_count;
	if (first)
		return false;
	look_at_failed(db);
	return true;
}

static void
look_at_history(DwDatabase *db)
{
	pg_atomic_write_u64(&db->history_turn_after, (uint64) PG_INT64_MIN);
	dw_history_ask(db, dw_now());
}

/*
 * Nobody knows what a server before has left.  The sweeper will; it is enough
 * to find out whether it has to look, which it must also if there is nothing,
 * but shared memory knows better.
 */
void
dw_history_begin(DwDatabase *db)
{
	DwCatalog	cat;
	bool		any = false;

	StartTransactionCommand();
	if (dw_catalog_lookup(&cat))
		for (int i = 0; i < DW_HISTORY_TABLES && !any; i++)
			any = dw_may_have_rows(cat.history[i]);
	CommitTransactionCommand();
	if (any || pg_atomic_read_u32(&db->history_current) != 0)
		look_at_history(db);
}

void
dw_history_obey_settings(DwDatabase *db)
{
	static int	max_age = INT_MIN;
	static int	max_size = INT_MIN;
	bool		first = max_age == INT_MIN;

	if (max_age == dw_history_max_age && max_size == dw_history_max_size)
		return;
	max_age = dw_history_max_age;
	max_size = dw_history_max_size;
	if (!first)
		look_at_history(db);
}
