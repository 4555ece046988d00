/*-------------------------------------------------------------------------
 *
 * other_node.c
 *	  Another extension, whose function has its effect on another node, as those
 *	  of a distributed database do.
 *
 * For test/t/365_other_nodes.pl, which compiles it, and loads it before
 * delay_wheel.  The other node is a file, other_node in the data directory, that
 * knows nothing of our transactions.  remote_write(key) notes a key there:
 *
 * - outside of a transaction block at once, as "C key 0";
 * - inside of one before the commit, as "C key 0";
 * - if a two-phase commit was asked for, before the commit as "P key xid": what is
 *	 prepared counts if that transaction is committed here, which is what the
 *	 recovery of such a database goes by.
 *
 * Two-phase commit is asked for by Use2PCForCoordinatedTransaction(), or, compiled
 * with HIDE_SYMBOL, as on PostgreSQL 16 and later, by a write to a table that the
 * extension knows: its trigger calls remote_note_write().
 *
 * If there is a file die_before_commit, the process removes it, and dies by SIGKILL
 * when the other node has heard of the commit and this one has not.
 *
 * remote_deadlock(n) is cancelled as the victim of a deadlock among several nodes:
 * by a cancel, which a hook explains when the error is about to be reported.  n times
 * more it is cancelled while its transaction is being undone, as by a search for deadlocks
 * that still sees it.  What the hook knows is forgotten when the transaction is over.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

#ifdef HIDE_SYMBOL
static
#else
PGDLLEXPORT
#endif
void		Use2PCForCoordinatedTransaction(void);

PG_FUNCTION_INFO_V1(remote_write);
PG_FUNCTION_INFO_V1(remote_note_write);
PG_FUNCTION_INFO_V1(remote_deadlock);
PG_FUNCTION_INFO_V1(coordinated_transaction_should_use_2PC);

typedef struct Write
{
	int64		key;
	int			level;			/* of the subtransaction */
} Write;

static List *writes = NIL;
static bool takes_part = false;	/* until the end of the transaction */
static bool two_phase = false;
static bool deadlock = false;
static int	cancels = 0;		/* to be sent while the transaction is undone */
static emit_log_hook_type prev_log = NULL;

static void
note(char how, int64 key, TransactionId xid)
{
	char		line[64];
	int			length = snprintf(line, sizeof(line), "%c %lld %u\n", how, (long long) key, xid);
	int			fd = open("other_node", O_WRONLY | O_CREAT | O_APPEND, 0600);

	if (fd < 0 || write(fd, line, length) != length)
		elog(ERROR, "the other node does not answer");
	close(fd);
}

void
Use2PCForCoordinatedTransaction(void)
{
	two_phase = true;
}

Datum
coordinated_transaction_should_use_2PC(PG_FUNCTION_ARGS)
{
	if (!takes_part)
		ereport(ERROR,
				(errmsg("The transaction is not a coordinated transaction")));
	PG_RETURN_BOOL(two_phase);
}

Datum
remote_note_write(PG_FUNCTION_ARGS)
{
	two_phase = true;
	return PointerGetDatum(NULL);
}

Datum
remote_write(PG_FUNCTION_ARGS)
{
	MemoryContext context;
	Write	   *w;

	if (!IsTransactionBlock())
	{
		note('C', PG_GETARG_INT64(0), InvalidTransactionId);
		PG_RETURN_VOID();
	}
	takes_part = true;
	context = MemoryContextSwitchTo(TopTransactionContext);
	w = palloc(sizeof(Write));
	w->key = PG_GETARG_INT64(0);
	w->level = GetCurrentTransactionNestLevel();
	writes = lappend(writes, w);
	MemoryContextSwitchTo(context);
	PG_RETURN_VOID();
}

Datum
remote_deadlock(PG_FUNCTION_ARGS)
{
	deadlock = true;
	cancels = PG_GETARG_INT32(0);
	QueryCancelPending = true;
	InterruptPending = true;
	CHECK_FOR_INTERRUPTS();
	PG_RETURN_VOID();
}

static void
explain_deadlock(ErrorData *error)
{
	if (error->elevel == ERROR && error->sqlerrcode == ERRCODE_QUERY_CANCELED && deadlock)
	{
		deadlock = false;
		error->sqlerrcode = ERRCODE_T_R_DEADLOCK_DETECTED;
		error->message = pstrdup("canceling the transaction since it was involved in a distributed deadlock");
	}
	if (prev_log)
		prev_log(error);
}

static void
commit_there(void)
{
	ListCell   *lc;

	if (writes == NIL)
		return;
	/* after a crash nobody else is to have our xid */
	if (two_phase)
	{
		(void) GetTopTransactionId();
		XLogFlush(XactLastRecEnd);
	}
	foreach(lc, writes)
		note(two_phase ? 'P' : 'C', ((Write *) lfirst(lc))->key,
			 two_phase ? GetTopTransactionId() : InvalidTransactionId);
	if (unlink("die_before_commit") == 0)
		kill(getpid(), SIGKILL);
}

static void
end_transaction(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT)
		commit_there();
	else if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
	{
		for (; cancels > 0; cancels--)
			kill(getpid(), SIGINT);
		deadlock = false;
		writes = NIL;
		takes_part = false;
		two_phase = false;
	}
}

static void
end_subtransaction(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();
	ListCell   *lc;

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	foreach(lc, writes)
	{
		Write	   *w = lfirst(lc);

		if (w->level < level)
			continue;
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			w->level = level - 1;
		else
			writes = foreach_delete_current(writes, lc);
	}
}

void
_PG_init(void)
{
	RegisterXactCallback(end_transaction, NULL);
	RegisterSubXactCallback(end_subtransaction, NULL);
	prev_log = emit_log_hook;
	emit_log_hook = explain_deadlock;
}
