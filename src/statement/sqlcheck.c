/*-------------------------------------------------------------------------
 *
 * sqlcheck.c
 *	  Refuses SQL that can never run as a task, when the task is scheduled.
 *
 * Run by sessions that schedule tasks, and by executors for tasks with a mode.
 *
 * A task that can never run should be refused while its user can read the message,
 * not fail in the background hours later.  Only the raw parser runs here.  The raw
 * parser needs no catalog and costs about a microsecond.  Parse analysis would cost
 * several microseconds, take locks, and look names up as they are now, not as they
 * are when the task is due.
 *
 * A statement is refused only if it could run in no state of the database, and if
 * the raw parse tree shows that.  Where a catalog decides, the server decides at
 * run time: for example REINDEX of a partitioned table, or DROP SUBSCRIPTION, which
 * can run in a transaction if the subscription has no slot.
 *
 * Executors run a task through SPI, in a background process, inside a transaction
 * that the task cannot end.  The refused statements are those that raise an error
 * there in any supported major (see PreventInTransactionBlock in PostgreSQL's
 * sources).  A task with a mode is an "autonomous" statement: a single one that
 * runs at top level, outside of a transaction block (executor/autonomous.c, which
 * checks the statement here once more before it runs).  Transaction control and
 * statements that need a client are refused for these tasks, too.
 *
 * A session that schedules many tasks mostly passes the same text again, or a text
 * that differs only in its numbers.  So the last text that passed the check is
 * remembered, unless its numbers could matter, and a text that differs from it only
 * in numbers is not parsed.
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

#include "../base/compat.h"
#include "statement.h"

/* Limit for the remembered text, in bytes; longer texts are parsed each time */
#define MAX_KNOWN_TEXT	2048
/* Limit for the digits of a number that may differ; so many always are an integer constant */
#define MAX_KNOWN_DIGITS	9

/* The reason why a statement cannot be a task, or part of one */
typedef struct Refusal
{
	const char *command;		/* the statement's name in messages */
	int			code;			/* SQLSTATE */
	const char *detail;
	const char *hint;
	bool		autonomous;		/* true: the statement is allowed in a task with a mode */
} Refusal;

/* The meaning of $n inside a statement */
typedef enum ParamUse
{
	PARAMS_BOUND,				/* an argument of the task */
	PARAMS_OWN,					/* a parameter that the statement itself defines */
	PARAMS_NONE					/* no meaning: the statement would fail when it runs */
} ParamUse;

/* The text to be checked */
typedef struct Checked
{
	const char *sql;
	const char *option;			/* the option that gave the text; NULL: the task's own SQL */
	int			nargs;			/* arguments for $1, $2, ...; -1: do not check these */
	bool		autonomous;		/* runs outside of a transaction block */
} Checked;

/* The last text that passed the check and whose numbers do not matter */
static struct
{
	int			length;			/* 0: no text is remembered */
	int			nargs;
	char		text[MAX_KNOWN_TEXT];
}			known;

/*---- Statements that cannot be part of a task ----*/

/*
 * Returns the value of a boolean option in a list of DefElem.  If the list has the
 * option several times, the last one counts.
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

/* True if a list of DefElem has the option. */
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
 * Fill in *refusal for a command that cannot run inside a transaction block; hint
 * may be NULL.  Always true.
 *
 * All functions refuses... below have the same contract: true if the statement can
 * never run as (part of) a task, and then *refusal says why.
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

/* REPACK of all tables, while others write, or with ANALYZE; CLUSTER of all tables */
static bool
refuses_repack(RepackStmt *stmt, Refusal *refusal)
{
	bool		is_cluster = dw_repack_command(stmt) == REPACK_COMMAND_CLUSTER;

	if (stmt->relation == NULL)
		return is_cluster ?
			needs_no_transaction(refusal, "CLUSTER without a table", "Use CLUSTER for each table.") :
			needs_no_transaction(refusal, "REPACK without a table", "Use REPACK for each table.");
	if (is_cluster)
		return false;
	if (option_is_on(stmt->params, "concurrently", false))
		return needs_no_transaction(refusal, "REPACK (CONCURRENTLY)",
									"Use REPACK without CONCURRENTLY.");
	return (option_is_on(stmt->params, "analyze", false) || option_is_on(stmt->params, "analyse", false)) &&
		needs_no_transaction(refusal, "REPACK (ANALYZE)", "Use REPACK, and ANALYZE after it.");
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
	/* without a connection, a slot is created only if an option says so */
	bool		connect = option_is_on(stmt->options, "connect", true);

	if (option_is_on(stmt->options, "create_slot", connect))
		return needs_no_transaction(refusal,
									"CREATE SUBSCRIPTION ... WITH (create_slot = true)",
									"Create the replication slot beforehand and use WITH (create_slot = false).");
	return false;
}

/*
 * Refuse the forms that connect to the publisher.  They fail for a disabled
 * subscription, too, so they can run in no state of the database.
 */
static bool
refuses_alter_subscription(AlterSubscriptionStmt *stmt, Refusal *refusal)
{
	switch (stmt->kind)
	{
		case ALTER_SUBSCRIPTION_REFRESH_PUBLICATION:
			return needs_no_transaction(refusal, "ALTER SUBSCRIPTION ... REFRESH PUBLICATION",
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
			/* options that 17 and 18 introduced; older majors do not know them */
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

/* Refuse COPY from and to the client. */
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
 * Refuse all transaction control, savepoints included: SPI refuses it, too.
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

/* Refuse WAIT FOR, which SPI cannot run. */
static bool
refuses_wait_for(Refusal *refusal)
{
	refusal->command = "WAIT FOR";
	refusal->code = ERRCODE_FEATURE_NOT_SUPPORTED;
	refusal->detail = "The command can run only at top level, and a task does not, unless it has a mode.";
	refusal->autonomous = true;
	return true;
}

/*
 * Refuse SET TRANSACTION where it would fail, since a task's transaction has begun
 * its work before the task's SQL.  READ ONLY can still be set, and the isolation
 * level that the transaction has already, mostly READ COMMITTED.
 */
static bool
refuses_set(VariableSetStmt *stmt, Refusal *refusal)
{
	ListCell   *lc;

	refusal->code = ERRCODE_ACTIVE_SQL_TRANSACTION;
	refusal->detail = "The transaction of a task has begun before its SQL.";
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
			refusal->hint = "A task runs at the isolation level that a new session of its owner has: set default_transaction_isolation by ALTER ROLE or ALTER DATABASE.";
			return true;
		}
	}
	return false;
}

/*
 * True if the statement can never run as part of a task that has no mode; *refusal
 * says why.
 */
static bool
refuses(Node *stmt, Refusal *refusal)
{
	if (dw_is_wait_for(stmt))
		return refuses_wait_for(refusal);
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
			/* ANALYZE has the same node type, and can run */
			return ((VacuumStmt *) stmt)->is_vacuumcmd &&
				needs_no_transaction(refusal, "VACUUM",
									 "ANALYZE can run inside one.");
		case T_RepackStmt:
			return refuses_repack((RepackStmt *) stmt, refusal);
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

/*
 * Returns a hint that names the use of a mode, after the given hint about another
 * way, if there is one.
 */
static char *
hint_with_mode(const char *hint)
{
	return psprintf("%s delay_schedule_task() with mode => 'at_most_once' or 'at_least_once'.",
					hint != NULL ? psprintf("%s Or use", hint) : "Use");
}

/*
 * Returns the byte offset at which a statement begins.  The parser's location is
 * the end of the previous statement, so white space is skipped.
 */
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
			 dw_sql_text_errposition(sql, begin_of(sql, raw))));
}

/*---- Parameters ----*/

/*
 * Returns the meaning of $n inside a statement.  The server analyzes queries, and
 * the queries inside some utility statements, with the task's arguments.  PREPARE and
 * function bodies define their own parameters.
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
 * Find the statement to which a byte of the text belongs.  The search begins at the
 * statement with the index *index, and sets *index to the statement found.
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
 * Check one $n.  True if it stands for an argument of the task, false if the
 * statement defines its own parameters; raises an error if it stands for nothing.
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
				 dw_sql_text_errposition(sql, location)));

	if (checked->option != NULL && (number < 1 || number > nargs))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("there is no argument for parameter $%d", number),
				 errdetail("%s has %d arguments.", checked->option, nargs),
				 dw_sql_text_errposition(sql, location)));
	if (number < 1 || number > nargs)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("there is no argument for parameter $%d", number),
				 errdetail_plural("The task has %d argument.",
								  "The task has %d arguments.",
								  nargs, nargs),
				 errhint("Pass one argument after the SQL text for each of $1, $2, and so on."),
				 dw_sql_text_errposition(sql, location)));

	return true;
}

/*
 * Raise an error for an argument that no $n refers to: most likely a mistake, and
 * an untyped one would have no type.
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
 * Compare the parameters in the text with the number of arguments.  The lexer finds
 * the parameters, since PostgreSQL has no walker for raw utility statements.  A $n
 * in quotes or comments is not a PARAM token.
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
	dw_no_escape_warning(&extra);

	while ((token = core_yylex(&value, &location, scanner)) != 0)
	{
		CHECK_FOR_INTERRUPTS();
		if (token == DW_TOKEN_PARAM &&
			check_parameter(checked, statement_at(statements, location, &statement),
							value.ival, location))
			used[value.ival - 1] = true;
	}
	scanner_finish(scanner);

	if (checked->option == NULL)
		check_all_used(used, nargs);
}

/*---- Texts that differ in numbers only ----*/

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/*
 * Moves *at from a position within a number, or at its end, to the number's end.  False
 * if there is no number, if it is part of a word, or if it has too many digits.
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
		first > text && !dw_is_word_char(first[-1]) && (last == end || !dw_is_word_char(*last));
}

/*
 * True if the text differs from the remembered text in numbers only.  A number with
 * other digits leaves the tokens around it unchanged, as a constant, in quotes, and
 * in a comment.  Digits in identifiers, $n, tags of dollar quotes, and numbers with
 * letters must be equal.
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
 * True if other numbers in the text could change the outcome of the check.  Numbers
 * matter in statements whose options are checked (all but queries and the like), in
 * the type FLOAT(n), and in Unicode escapes (U&'d!0061' UESCAPE '!').  They may
 * matter after a backslash, whose meaning depends on settings.
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

/* Remembers a text that has passed the check, or no text if its numbers matter. */
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

/*---- The check ----*/

/* Does the checks that dw_check_sql() tells of. */
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
				 errdetail("Several statements would run in one transaction."),
				 errhint("Use several tasks with a mode, each of one statement. A procedure may commit, but not execute VACUUM or the like."),
				 dw_sql_text_errposition(sql, begin_of(sql, lsecond_node(RawStmt, statements)))));

	if (nargs > 0 || (nargs == 0 && strchr(sql, '$') != NULL))
		check_parameters(checked, statements);
	if (checked->option == NULL && !checked->autonomous)
		remember_text(sql, nargs, statements);
}

/* Checks a text in a memory context of its own, with an error context. */
static void
check(Checked *checked)
{
	DwSqlText	shown = {.sql = checked->sql, .option = checked->option};
	ErrorContextCallback callback;
	MemoryContext context;
	MemoryContext caller;

	callback.callback = dw_sql_text_callback;
	callback.arg = &shown;
	callback.previous = error_context_stack;
	error_context_stack = &callback;

	/*
	 * PostgreSQL keeps contexts of this size in a free list, so this one costs next
	 * to nothing.  After an error it is deleted with its parent, the caller's.
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
 * Raise an error if the text can never run as a task: bad syntax, no statement at
 * all, a statement that cannot run inside a transaction or that needs a client, a
 * parameter without an argument, an argument without a parameter.  Errors show their
 * position in the text as internal query and position.
 *
 * nargs is the number of arguments that $1, $2, ... stand for; if it is negative,
 * parameters are not checked.
 *
 * Names and types are not looked up; that happens when the task runs.  All memory is
 * freed.
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
 * Check, as dw_check_sql() does, the SQL of a follow-up: SQL that runs when a task
 * has ended, given by the option of that name (on_success or on_failure).  A
 * follow-up always gets nargs arguments, and need not use them all.
 */
void
dw_check_follow_up(const text *text, const char *option, int nargs)
{
	Checked		checked = {.sql = text_to_cstring(text), .option = option, .nargs = nargs};

	check(&checked);
}

/*
 * Check, as dw_check_sql() does, the SQL of a task with a mode.  It must be a single
 * statement, and may be one that cannot run inside a transaction block.
 */
void
dw_check_sql_autonomous(const text *text, int nargs)
{
	Checked		checked = {.sql = text_to_cstring(text), .nargs = nargs, .autonomous = true};

	check(&checked);
}

/*---- Errors that point into the SQL text of a task ----*/

/*
 * Run by sessions that schedule tasks, and by executors for tasks with a mode.
 */

/*
 * Error context callback; arg is a DwSqlText.  Error positions point into the task's text,
 * not into the statement that the client sent, so they are reported as those of an internal
 * query.
 */
void
dw_sql_text_callback(void *arg)
{
	const DwSqlText *text = (const DwSqlText *) arg;
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(text->sql);
	}
	if (text->option != NULL)
		errcontext("%s of a delayed task", text->option);
	else
		errcontext("SQL text of a delayed task");
}

/*
 * Like parser_errposition(), for a byte offset in the task's text.
 */
int
dw_sql_text_errposition(const char *sql, int location)
{
	return errposition(pg_mbstrlen_with_len(sql, location) + 1);
}
