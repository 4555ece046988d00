/*-------------------------------------------------------------------------
 *
 * cursors.c
 *	  The session's cursors, and those that have received messages.
 *
 * Run by sessions, and by executors whose tasks receive messages.
 *
 * A cursor that is older than a savepoint outlasts the rollback to it, with the rows that it has
 * read since but not handed out.  If these are messages, others receive them after the rollback.
 * So cursors that receive messages in a subtransaction younger than themselves are noted, and fail
 * when that is rolled back: FETCH is an error then.  PostgreSQL fails the cursors that were
 * declared in a subtransaction at the same moment.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "utils/memutils.h"
#include "utils/portal.h"

#include "backend.h"

/* A cursor that has received messages in a subtransaction younger than itself. */
typedef struct Reader
{
	SubTransactionId subid;		/* in which it has received them */
	char		name[FLEXIBLE_ARRAY_MEMBER];
} Reader;

/* In TopTransactionContext. */
static List *readers = NIL;

/* Returns the names of all cursors, including those of the protocol. */
static List *
list_cursors(void)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *names = NIL;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	if (SPI_execute("SELECT c.name FROM pg_catalog.pg_cursor() c", true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list cursors");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		char	   *name = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1);
		MemoryContext old = MemoryContextSwitchTo(context);

		names = lappend(names, pstrdup(name));
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	return names;
}

/*
 * The current query has received messages: notes the cursors that run it, directly or through
 * functions, if they are older than the current subtransaction.
 */
void
dw_cursors_note(void)
{
	SubTransactionId subid = GetCurrentSubTransactionId();
	ListCell   *lc;

	if (!IsSubTransaction())
		return;
	foreach(lc, list_cursors())
	{
		const char *name = lfirst(lc);
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
}

/*
 * After the abort of a subtransaction: fails the cursors that have received messages in it.  Ids of
 * subtransactions grow, so those that were released into it have higher ones.  A cursor that is
 * still active goes on: a function that it calls has undone what it received itself.  A younger one
 * of the same name is another one.  For callbacks: allocates nothing, and cannot fail, since
 * PostgreSQL does not shut down the query of a failed cursor.
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

/* At the end of the transaction: its memory goes with it. */
void
dw_cursors_forget(void)
{
	readers = NIL;
}
