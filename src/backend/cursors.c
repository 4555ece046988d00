/*-------------------------------------------------------------------------
 *
 * cursors.c
 *	  Cursors of the session that have received messages.
 *
 * Run by sessions, and by executors whose tasks receive messages.
 *
 * A cursor that is older than a savepoint survives a rollback to the savepoint, with the rows that
 * it has read but not returned yet.  If these rows are messages, other sessions receive them after
 * the rollback.  So the rollback marks the cursor as failed, as PostgreSQL does with cursors of the
 * subtransaction, and FETCH raises an error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/portal.h"

#include "backend.h"

/* A cursor that has received messages in a subtransaction younger than the cursor. */
typedef struct Reader
{
	SubTransactionId subid;		/* the subtransaction */
	char		name[FLEXIBLE_ARRAY_MEMBER];
} Reader;

/* In TopTransactionContext. */
static List *readers = NIL;

/*
 * Notes the cursors that run the current query, directly or through functions, and that are older
 * than the current subtransaction.  The query has received messages.
 */
void
dw_cursors_note(void)
{
	SubTransactionId subid = GetCurrentSubTransactionId();

	if (!IsSubTransaction())
		return;
	(void) SPI_connect();
	/* all cursors, including cursors of the protocol */
	if (SPI_execute("SELECT c.name FROM pg_catalog.pg_cursor() c", true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list cursors");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		const char *name = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1);
		Portal		portal = GetPortalByName(name);
		MemoryContext old;
		Reader	   *reader;

		if (portal->status != PORTAL_ACTIVE || portal->createSubid >= subid)
			continue;
		old = MemoryContextSwitchTo(TopTransactionContext);
		reader = palloc(offsetof(Reader, name) + strlen(name) + 1);
		reader->subid = subid;
		strcpy(reader->name, name);
		readers = lappend(readers, reader);
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
}

/*
 * Marks the cursors that have received messages in this aborted subtransaction as failed.  Ids of
 * subtransactions grow, so subtransactions that were released into this subtransaction have higher
 * ids.  Active cursors do not fail: a function that the cursor calls has undone its own messages.
 * Younger cursors with the same name do not fail.  For callbacks: this function allocates nothing,
 * and cannot fail, since PostgreSQL does not shut down the query of a failed cursor.
 */
void
dw_cursors_undo(SubTransactionId subid)
{
	while (readers != NIL && ((Reader *) llast(readers))->subid >= subid)
	{
		Portal		portal = GetPortalByName(((Reader *) llast(readers))->name);

		if (portal != NULL && portal->status == PORTAL_READY && portal->createSubid < subid)
			MarkPortalFailed(portal);
		readers = list_delete_last(readers);
	}
}

/* Forgets all cursors at the end of the transaction, which frees their memory. */
void
dw_cursors_forget(void)
{
	readers = NIL;
}
