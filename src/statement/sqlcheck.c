/*-------------------------------------------------------------------------
 *
 * sqlcheck.c
 *	  What can be known to be wrong with a task's SQL when it is scheduled.
 *
 * A task that can never run should be refused while somebody is there to
 * read the message, not fail in the background hours later.  Only the raw
 * parser runs here: it needs no catalog and costs about a microsecond, while
 * parse analysis would cost several, take locks, and judge by names as they
 * are now and not as they are when the task is due.
 *
 * The rule for refusing is that no state of the database could let the
 * statement run: it must be visible in the raw parse tree.  What depends on
 * a catalog stays with the server at run time, such as REINDEX of a
 * partitioned table, or DROP SUBSCRIPTION, which runs in a transaction if
 * the subscription has no slot.
 *
 * Whoever schedules many tasks mostly gives the same text each time, or one
 * that differs in its numbers.  So the last text that passed is remembered, if
 * its numbers cannot matter, and one that differs from it in nothing else is
 * not parsed.
 *
 * Runs in the backend that schedules.  Relies on tasks being run through SPI
 * in a background process, inside a transaction that is not theirs to end;
 * the statements refused are those that raise an error there, in any
 * supported major (look for PreventInTransactionBlock in the sources).  Tasks
 * with a mode are single statements at top level (autonomous.c, which also
 * checks them here when they run); what would leave a transaction block, or
 * needs a client, is refused there, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/defrem.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "parser/scanner.h"
#include "parser/scansup.h"
#include "tcop/cmdtag.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "sqlcheck.h"

/*
 * The lexer's code for $n.  No installed header has it, but the first tokens
 * of every grammar on top of the core scanner are fixed (see the comment in
 * parser/scanner.h): IDENT = 258, UIDENT, FCONST, SCONST, USCONST, BCONST,
 * XCONST, Op, ICONST, PARAM.
 */
#define PARAM_TOKEN		267

/* Longer texts, and numbers of more digits, are parsed each time. */
#define MAX_KNOWN_TEXT	2048
#define MAX_KNOWN_DIGITS	9		/* an integer constant, not a numeric one */

/* Why a statement cannot be a task, or part of one */
typedef struct Refusal
{
	const char *command;		/* its name in messages */
	int			code;			/* SQLSTATE */
	const char *detail;
	const char *hint;
	bool		autonomous;		/* not if it runs outside of a transaction */
} Refusal;

/* What $n means inside a statement */
typedef enum ParamUse
{
	PARAMS_BOUND,				/* the task's argument */
	PARAMS_OWN,					/* something of the statement itself */
	PARAMS_NONE					/* nothing: an error when it runs */
} ParamUse;

/* What is checked */
typedef struct Checked
{
	const char *sql;
	const char *option;			/* NULL: the task's own SQL */
	int			nargs;
	bool		autonomous;		/* it runs outside of a transaction */
} Checked;

/* The last text that passed and whose numbers do not matter. */
static struct
{
	int			length;			/* 0: none */
	int			nargs;
	char		text[MAX_KNOWN_TEXT];
}			known;

/*
 * Error positions point into the task's text, which is not what the client
 * sent: report them as those of an internal query.
 */
static void
sql_text_callback(void *arg)
{
	const Checked *checked = (const Checked *) arg;
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(checked->sql);
	}
	if (checked->option != NULL)
		errcontext("%s of a delayed task", checked->option);
	else
		errcontext("SQL text of a delayed task");
}

/*
 * Like parser_errposition(), for a byte offset in the task's text.
 */
static int
text_errposition(const char *sql, int location)
{
	return errposition(pg_mbstrlen_with_len(sql, location) + 1);
}

/*
 * The value of a boolean option in a list of DefElem; the last one counts.
 */
static bool
option_is_on(List *options, const char *name, bool default_value)
{
	bool		result = default_value;
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		if (strcmp(option->defname, name) == 0)
			result = defGetBoolean(option);
	}
	return result;
}

static bool
has_option(List *options, const char *name)
{
	ListCell   *lc;

	foreach(lc, options)
	{
		if (strcmp(lfirst_node(DefElem, lc)->defname, name) == 0)
			return true;
	}
	return false;
}

/*
 * Record that a statement cannot run inside a transaction.
 */
static bool
needs_no_transaction(Refusal *refusal, const char *command, const char *hint)
{
	refusal->command = command;
	refusal->code = ERRCODE_ACTIVE_SQL_TRANSACTION;
	refusal->detail = "The command cannot run inside a transaction block, and a task runs inside one, unless it has a mode.";
	refusal->hint = hint;
	refusal->autonomous = true;
	return true;
}

static bool
refuses_reindex(ReindexStmt *stmt, Refusal *refusal)
{
	if (option_is_on(stmt->params, "concurrently", false))
		return needs_no_transaction(refusal, "REINDEX CONCURRENTLY",
									"Use REINDEX without CONCURRENTLY.");

	switch (stmt->kind)
	{
		case REINDEX_OBJECT_SCHEMA:
			return needs_no_transaction(refusal, "REINDEX SCHEMA",
										"Use REINDEX TABLE for each table.");
		case REINDEX_OBJECT_SYSTEM:
			return needs_no_transaction(refusal, "REINDEX SYSTEM", NULL);
		case REINDEX_OBJECT_DATABASE:
			return needs_no_transaction(refusal, "REINDEX DATABASE",
										"Use REINDEX TABLE for each table.");
		default:
			return false;
	}
}

static bool
refuses_alter_table(AlterTableStmt *stmt, Refusal *refusal)
{
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_DetachPartition &&
			castNode(PartitionCmd, cmd->def)->concurrent)
			return needs_no_transaction(refusal,
										"ALTER TABLE ... DETACH PARTITION CONCURRENTLY",
										"Use DETACH PARTITION without CONCURRENTLY.");
	}
	return false;
}

static bool
refuses_create_subscription(CreateSubscriptionStmt *stmt, Refusal *refusal)
{
	/* without a connection, no slot is created unless told so */
	bool		connect = option_is_on(stmt->options, "connect", true);

	if (option_is_on(stmt->options, "create_slot", connect))
		return needs_no_transaction(refusal,
									"CREATE SUBSCRIPTION ... WITH (create_slot = true)",
									"Create the replication slot beforehand and use WITH (create_slot = false).");
	return false;
}

/*
 * Forms that talk to the publisher.  They fail for a disabled subscription
 * too, so there is no state in which they could run.
 */
static bool
refuses_alter_subscription(AlterSubscriptionStmt *stmt, Refusal *refusal)
{
	switch (stmt->kind)
	{
		case ALTER_SUBSCRIPTION_REFRESH:
			return needs_no_transaction(refusal, "ALTER SUBSCRIPTION ... REFRESH",
										NULL);
		case ALTER_SUBSCRIPTION_SET_PUBLICATION:
		case ALTER_SUBSCRIPTION_ADD_PUBLICATION:
		case ALTER_SUBSCRIPTION_DROP_PUBLICATION:
			if (option_is_on(stmt->options, "refresh", true))
				return needs_no_transaction(refusal,
											"ALTER SUBSCRIPTION with refresh",
											"Use WITH (refresh = false).");
			return false;
		case ALTER_SUBSCRIPTION_OPTIONS:
			/* since 17 and 18; unknown options before */
			if (has_option(stmt->options, "failover"))
				return needs_no_transaction(refusal,
											"ALTER SUBSCRIPTION ... SET (failover)",
											NULL);
			if (!option_is_on(stmt->options, "two_phase", true))
				return needs_no_transaction(refusal,
											"ALTER SUBSCRIPTION ... SET (two_phase = false)",
											NULL);
			return false;
		default:
			return false;
	}
}

static bool
refuses_copy(CopyStmt *stmt, Refusal *refusal)
{
	if (stmt->filename != NULL)
		return false;

	refusal->command = stmt->is_from ? "COPY FROM STDIN" : "COPY TO STDOUT";
	refusal->code = ERRCODE_FEATURE_NOT_SUPPORTED;
	refusal->detail = "A task runs in the background, without a client.";
	refusal->hint = stmt->is_from ?
		"Use INSERT, or COPY from a file or program." :
		"Use COPY to a file or program.";
	return true;
}

/*
 * Transaction control is refused as a whole, savepoints included: SPI takes
 * none of it.
 */
static bool
refuses_transaction_control(Node *stmt, Refusal *refusal)
{
	refusal->command = GetCommandTagName(CreateCommandTag(stmt));
	refusal->code = ERRCODE_FEATURE_NOT_SUPPORTED;
	refusal->detail = "A task runs in a transaction that ends when the task has ended.";
	refusal->hint = "Leave the command out; to undo part of the work on an error, use a PL/pgSQL block with an EXCEPTION clause.";
	return true;
}

static bool
refuses_listen(Refusal *refusal)
{
	refusal->command = "LISTEN";
	refusal->code = ERRCODE_FEATURE_NOT_SUPPORTED;
	refusal->detail = "A task runs in the background, without a client that could be notified.";
	refusal->hint = "Use LISTEN in the session that is to be notified.";
	return true;
}

/*
 * A task's transaction has begun before its SQL.  READ ONLY can be set then,
 * and the level that it has.
 */
static bool
refuses_set(VariableSetStmt *stmt, Refusal *refusal)
{
	ListCell   *lc;

	refusal->code = ERRCODE_ACTIVE_SQL_TRANSACTION;
	refusal->detail = "The transaction of a task has begun before its SQL, at READ COMMITTED.";
	refusal->hint = "Leave the command out.";
	if (stmt->kind != VAR_SET_MULTI)
		return false;
	if (strcmp(stmt->name, "TRANSACTION SNAPSHOT") == 0)
	{
		refusal->command = "SET TRANSACTION SNAPSHOT";
		return true;
	}
	if (strcmp(stmt->name, "TRANSACTION") != 0)
		return false;
	foreach(lc, stmt->args)
	{
		DefElem    *mode = lfirst_node(DefElem, lc);

		if (strcmp(mode->defname, "transaction_deferrable") == 0)
		{
			refusal->command = "SET TRANSACTION [NOT] DEFERRABLE";
			return true;
		}
		if (strcmp(mode->defname, "transaction_isolation") == 0 &&
			strcmp(strVal(&castNode(A_Const, mode->arg)->val), "read committed") != 0)
		{
			refusal->command = "SET TRANSACTION ISOLATION LEVEL";
			return true;
		}
	}
	return false;
}

/*
 * Can this statement never run as part of a task?
 */
static bool
refuses(Node *stmt, Refusal *refusal)
{
	switch (nodeTag(stmt))
	{
		case T_TransactionStmt:
			return refuses_transaction_control(stmt, refusal);
		case T_ListenStmt:
			return refuses_listen(refusal);
		case T_VariableSetStmt:
			return refuses_set((VariableSetStmt *) stmt, refusal);
		case T_CopyStmt:
			return refuses_copy((CopyStmt *) stmt, refusal);
		case T_VacuumStmt:
			/* ANALYZE is the same node, and can run */
			return ((VacuumStmt *) stmt)->is_vacuumcmd &&
				needs_no_transaction(refusal, "VACUUM",
									 "ANALYZE can run inside one.");
		case T_ClusterStmt:
			return ((ClusterStmt *) stmt)->relation == NULL &&
				needs_no_transaction(refusal, "CLUSTER without a table",
									 "Use CLUSTER for each table.");
		case T_ReindexStmt:
			return refuses_reindex((ReindexStmt *) stmt, refusal);
		case T_IndexStmt:
			return ((IndexStmt *) stmt)->concurrent &&
				needs_no_transaction(refusal, "CREATE INDEX CONCURRENTLY",
									 "Use CREATE INDEX without CONCURRENTLY.");
		case T_DropStmt:
			return ((DropStmt *) stmt)->removeType == OBJECT_INDEX &&
				((DropStmt *) stmt)->concurrent &&
				needs_no_transaction(refusal, "DROP INDEX CONCURRENTLY",
									 "Use DROP INDEX without CONCURRENTLY.");
		case T_AlterTableStmt:
			return refuses_alter_table((AlterTableStmt *) stmt, refusal);
		case T_CreatedbStmt:
			return needs_no_transaction(refusal, "CREATE DATABASE", NULL);
		case T_DropdbStmt:
			return needs_no_transaction(refusal, "DROP DATABASE", NULL);
		case T_AlterDatabaseStmt:
			return has_option(((AlterDatabaseStmt *) stmt)->options, "tablespace") &&
				needs_no_transaction(refusal, "ALTER DATABASE SET TABLESPACE", NULL);
		case T_CreateTableSpaceStmt:
			return needs_no_transaction(refusal, "CREATE TABLESPACE", NULL);
		case T_DropTableSpaceStmt:
			return needs_no_transaction(refusal, "DROP TABLESPACE", NULL);
		case T_AlterSystemStmt:
			return needs_no_transaction(refusal, "ALTER SYSTEM", NULL);
		case T_DiscardStmt:
			return ((DiscardStmt *) stmt)->target == DISCARD_ALL &&
				needs_no_transaction(refusal, "DISCARD ALL",
									 "Leave the command out: a task does not see the session state of others.");
		case T_CreateSubscriptionStmt:
			return refuses_create_subscription((CreateSubscriptionStmt *) stmt,
											   refusal);
		case T_AlterSubscriptionStmt:
			return refuses_alter_subscription((AlterSubscriptionStmt *) stmt,
											  refusal);
		default:
			return false;
	}
}

/* Either there is another way inside a transaction, or only that. */
static char *
hint_with_mode(const char *hint)
{
	return psprintf("%s delay_schedule_task() with mode => 'at_most_once' or 'at_least_once'.",
					hint != NULL ? psprintf("%s Or use", hint) : "Use");
}

/* Its location is where the previous statement ended. */
static int
begin_of(const char *sql, const RawStmt *raw)
{
	int			location = raw->stmt_location;

	while (scanner_isspace(sql[location]))
		location++;
	return location;
}

/*
 * Raise the error if the statement cannot be part of a task.
 */
static void
check_statement(const char *sql, RawStmt *raw, bool autonomous)
{
	Refusal		refusal = {0};

	if (!refuses(raw->stmt, &refusal) || (autonomous && refusal.autonomous))
		return;

	ereport(ERROR,
			(errcode(refusal.code),
	/* translator: %s is an SQL command */
			 errmsg("cannot execute %s in a delayed task", refusal.command),
			 errdetail("%s", refusal.detail),
			 errhint("%s", refusal.autonomous ? hint_with_mode(refusal.hint) : refusal.hint),
			 text_errposition(sql, begin_of(sql, raw))));
}

/*
 * Queries are analyzed with the task's arguments at hand, and so are the
 * utility statements that contain one.  PREPARE and function bodies have
 * parameters of their own.
 */
static ParamUse
parameter_use(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_SelectStmt:
		case T_InsertStmt:
		case T_UpdateStmt:
		case T_DeleteStmt:
		case T_MergeStmt:
		case T_ExplainStmt:
		case T_DeclareCursorStmt:
		case T_CallStmt:
			return PARAMS_BOUND;
		case T_CreateTableAsStmt:
			return ((CreateTableAsStmt *) stmt)->objtype == OBJECT_TABLE ?
				PARAMS_BOUND : PARAMS_NONE;
		case T_PrepareStmt:
		case T_CreateFunctionStmt:
			return PARAMS_OWN;
		default:
			return PARAMS_NONE;
	}
}

/*
 * Find the statement that a byte of the text belongs to: the one with this index,
 * or one behind it, which becomes *index.
 */
static Node *
statement_at(List *statements, int location, int *index)
{
	while (*index + 1 < list_length(statements) &&
		   list_nth_node(RawStmt, statements, *index + 1)->stmt_location <= location)
		(*index)++;
	return list_nth_node(RawStmt, statements, *index)->stmt;
}

/*
 * Check one use of $n; returns whether it stands for a task's argument.
 */
static bool
check_parameter(const Checked *checked, Node *stmt, int number, int location)
{
	const char *sql = checked->sql;
	int			nargs = checked->nargs;
	ParamUse	use = parameter_use(stmt);

	if (use == PARAMS_OWN)
		return false;

	if (use == PARAMS_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
		/* translator: %s is an SQL command */
				 errmsg("parameters cannot be used in %s",
						GetCommandTagName(CreateCommandTag(stmt))),
				 errhint("Put the value into the SQL text, for example with format(), when the task is scheduled."),
				 text_errposition(sql, location)));

	if (checked->option != NULL && (number < 1 || number > nargs))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("there is no argument for parameter $%d", number),
				 errdetail("%s has %d arguments.", checked->option, nargs),
				 text_errposition(sql, location)));
	if (number < 1 || number > nargs)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("there is no argument for parameter $%d", number),
				 errdetail_plural("The task has %d argument.",
								  "The task has %d arguments.",
								  nargs, nargs),
				 errhint("Pass one argument after the SQL text for each of $1, $2, and so on."),
				 text_errposition(sql, location)));

	return true;
}

/*
 * An argument that nothing refers to is most likely a mistake, and its type
 * may be unknown.
 */
static void
check_all_used(const bool *used, int nargs)
{
	for (int i = 0; i < nargs; i++)
	{
		if (!used[i])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument %d is not used by the task", i + 1),
					 errhint("Refer to the argument as $%d in the SQL text, or do not pass it.",
							 i + 1)));
	}
}

/*
 * Compare the parameters in the text with the number of arguments.  The
 * lexer finds them, since there is no walker for raw utility statements;
 * quoted strings and comments are not tokens of that kind.
 */
static void
check_parameters(const Checked *checked, List *statements)
{
	const char *sql = checked->sql;
	int			nargs = checked->nargs;
	core_yyscan_t scanner;
	core_yy_extra_type extra;
	core_YYSTYPE value;
	YYLTYPE		location;
	bool	   *used = palloc0(Max(nargs, 1) * sizeof(bool));
	int			statement = 0;
	int			token;

	scanner = scanner_init(sql, &extra, &ScanKeywords, ScanKeywordTokens);

	/* the parser has given the warnings already */
	extra.escape_string_warning = false;

	while ((token = core_yylex(&value, &location, scanner)) != 0)
	{
		CHECK_FOR_INTERRUPTS();
		if (token == PARAM_TOKEN &&
			check_parameter(checked, statement_at(statements, location, &statement),
							value.ival, location))
			used[value.ival - 1] = true;
	}
	scanner_finish(scanner);

	if (checked->option == NULL)
		check_all_used(used, nargs);
}

/* Could it be part of an identifier, or of a dollar quote? */
static bool
is_word_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		c == '_' || c == '$' || IS_HIGHBIT_SET(c);
}

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/*
 * Moves *at from a place within a number to its end; false if what is there is
 * none that stands for itself.
 */
static bool
skip_number(const char *text, const char *end, const char **at)
{
	const char *first = *at;
	const char *last = *at;

	while (first > text && is_digit(first[-1]))
		first--;
	while (last < end && is_digit(*last))
		last++;
	*at = last;
	return last > first && last - first <= MAX_KNOWN_DIGITS &&
		first > text && !is_word_char(first[-1]) && (last == end || !is_word_char(*last));
}

/*
 * Is this the text that passed last, but for its numbers?  Other digits make
 * no other tokens, wherever they stand: as a constant, in quotes, in a comment.
 * Those of identifiers, $n, tags of dollar quotes, and numbers with letters
 * must be the same.
 */
static bool
is_known(const char *sql, int length, int nargs)
{
	const char *a = known.text;
	const char *a_end = known.text + known.length;
	const char *b = sql;
	const char *b_end = sql + length;

	if (known.length == 0 || nargs != known.nargs)
		return false;
	for (;;)
	{
		int			n = Min(a_end - a, b_end - b);
		int			same = 0;

		while (same < n && a[same] == b[same])
			same++;
		a += same;
		b += same;
		if (a == a_end && b == b_end)
			return true;
		if (!(a < a_end && is_digit(*a)) && !(b < b_end && is_digit(*b)))
			return false;
		if (!skip_number(known.text, a_end, &a) || !skip_number(sql, b_end, &b))
			return false;
	}
}

/*
 * Numbers matter to statements whose options are looked at, and to the type
 * FLOAT(n).  They are part of Unicode escapes (U&'d!0061' UESCAPE '!'); what a
 * backslash means depends on settings.
 */
static bool
numbers_matter(const char *sql, List *statements)
{
	ListCell   *lc;

	foreach(lc, statements)
	{
		if (parameter_use(lfirst_node(RawStmt, lc)->stmt) != PARAMS_BOUND)
			return true;
	}
	for (; *sql != '\0'; sql++)
	{
		if (*sql == '\\' || *sql == '&' ||
			((*sql == 'f' || *sql == 'F') && pg_strncasecmp(sql, "float", 5) == 0))
			return true;
	}
	return false;
}

static void
remember_text(const char *sql, int nargs, List *statements)
{
	int			length = strlen(sql);

	known.length = 0;
	if (length > MAX_KNOWN_TEXT || numbers_matter(sql, statements))
		return;
	memcpy(known.text, sql, length);
	known.length = length;
	known.nargs = nargs;
}

static void
check_text(const Checked *checked)
{
	const char *sql = checked->sql;
	int			nargs = checked->nargs;
	List	   *statements = raw_parser(sql, RAW_PARSE_DEFAULT);
	ListCell   *lc;

	if (statements == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a delayed task must contain an SQL statement"),
				 errhint("The text is empty, or consists of comments only.")));

	foreach(lc, statements)
		check_statement(sql, lfirst_node(RawStmt, lc), checked->autonomous);
	if (checked->autonomous && list_length(statements) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a task with a mode must be a single statement"),
				 errdetail("Several statements would be a transaction."),
				 errhint("Use several tasks with a mode, each of one statement. A procedure may commit, but not execute VACUUM or the like."),
				 text_errposition(sql, begin_of(sql, lsecond_node(RawStmt, statements)))));

	if (nargs > 0 || (nargs == 0 && strchr(sql, '$') != NULL))
		check_parameters(checked, statements);
	if (checked->option == NULL && !checked->autonomous)
		remember_text(sql, nargs, statements);
}

static void
check(Checked *checked)
{
	ErrorContextCallback callback;
	MemoryContext context;
	MemoryContext caller;

	callback.callback = sql_text_callback;
	callback.arg = checked;
	callback.previous = error_context_stack;
	error_context_stack = &callback;

	/*
	 * Of this size, contexts come from a free list, which costs next to
	 * nothing.  As a child of the caller's it goes away on an error, too.
	 */
	context = AllocSetContextCreate(CurrentMemoryContext, "delay_wheel SQL check",
									ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(context);

	check_text(checked);

	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);

	error_context_stack = callback.previous;
}

/*
 * Raise an error if the text can never run as a task: bad syntax, no
 * statement at all, a statement that cannot run inside a transaction or that
 * needs a client, a parameter without an argument, an argument without a
 * parameter.  Errors show their place in the text as internal query and
 * position.
 *
 * nargs is the number of arguments that $1, $2, ... stand for; less than 0
 * means that parameters are not looked at.
 *
 * Names and types are not looked up: what they mean is decided when the task
 * runs.  Works in a memory context of its own and leaves nothing behind.
 */
void
dw_check_sql(const text *text, int nargs)
{
	Checked		checked = {.nargs = nargs};

	if (is_known(VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text), nargs))
		return;
	checked.sql = text_to_cstring(text);
	check(&checked);
}

/*
 * The same for SQL that is run when a task has ended, given by the option of
 * that name: it may use any of so many arguments, which it is given all.
 */
void
dw_check_follow_up(const text *text, const char *option, int nargs)
{
	Checked		checked = {.sql = text_to_cstring(text), .option = option, .nargs = nargs};

	check(&checked);
}

/*
 * The same for a task that runs outside of a transaction: it is one statement,
 * which may be one that can run only so.
 */
void
dw_check_sql_autonomous(const text *text, int nargs)
{
	Checked		checked = {.sql = text_to_cstring(text), .nargs = nargs, .autonomous = true};

	check(&checked);
}
