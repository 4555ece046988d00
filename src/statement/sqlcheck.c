/*-------------------------------------------------------------------------
 *
 * sqlcheck.c
 *	  Refuses SQL that can never run as a task, when the task is scheduled.
 *
 * Run by sessions that schedule tasks, and by executors for tasks with a mode.
 *
 * Usually only the raw parser runs here, which needs no catalog and costs about a microsecond.
 * Parse analysis would cost several microseconds, take locks, and use the objects of today.
 *
 * A statement is refused only if the raw parse tree shows that it cannot run in any state of the
 * database.  If this depends on a catalog, the server refuses the statement at run time: for
 * example REINDEX of a partitioned table, or DROP SUBSCRIPTION of a subscription with a slot.
 *
 * Executors run a task through SPI, in a background process, inside a transaction that the task
 * cannot end.  A statement is refused if it raises an error under these conditions in any supported
 * major (see PreventInTransactionBlock in PostgreSQL's sources).  A task with a mode is an
 * "autonomous" statement: a single statement that runs at top level, outside of a transaction
 * block.  (executor/autonomous.c repeats this check before the run.)  Transaction control and
 * statements that need a client are refused even for these tasks.
 *
 * If the setting delay_wheel.check_sql or the option check_sql is "plan", the statements are also
 * analyzed, rewritten and planned like a prepared statement, but not executed, in a subtransaction
 * whose rollback releases the locks on tables.  Planning may evaluate functions that are declared
 * immutable or stable, as for each query.  A task may create objects that its later statements
 * need, so the statements after the first utility statement are not checked in this way.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "commands/defrem.h"
#include "mb/pg_wchar.h"
#include "nodes/nodeFuncs.h"
#include "parser/scansup.h"
#include "rewrite/rewriteHandler.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "../base/compat.h"
#include "../base/errors.h"
#include "statement.h"

/* Limit for the remembered text, in bytes; a longer text is parsed each time */
#define MAX_KNOWN_TEXT	2048
/* Limit for the digits of a number that may differ: such a number is always an integer constant */
#define MAX_KNOWN_DIGITS	9

/* Why a statement cannot be part of a task */
typedef struct Reason
{
	int			code;			/* SQLSTATE */
	bool		autonomous;		/* true: a task with a mode can run it */
	const char *detail;
} Reason;

/* Statements that can never run as part of a task */
typedef struct Refusal
{
	NodeTag		tag;
	bool		(*concerns) (const Node *node); /* NULL: all statements with the tag */
	const Reason *reason;
	const char *command;		/* its name in messages; NULL: its command tag */
	const char *hint;			/* NULL: no hint, or only the hint to use a mode */
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
	DwSqlText	text;
	int			nargs;			/* number of arguments; -1: do not check $1, $2, ... */
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

/* Returns the value of a boolean option in a list of DefElem, in which the last value counts. */
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

/* Returns true if a list of DefElem has the option. */
static bool
has_option(List *options, const char *name)
{
	ListCell   *lc;

	foreach(lc, options)
		if (strcmp(lfirst_node(DefElem, lc)->defname, name) == 0)
			return true;
	return false;
}

static bool
detaches_concurrently(const Node *node)
{
	ListCell   *lc;

	foreach(lc, ((const AlterTableStmt *) node)->cmds)
	{
		const AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_DetachPartition && castNode(PartitionCmd, cmd->def)->concurrent)
			return true;
	}
	return false;
}

/* Returns true for forms that connect to the publisher, which a disabled subscription refuses. */
static bool
refreshes(const Node *node)
{
	const AlterSubscriptionStmt *stmt = (const AlterSubscriptionStmt *) node;

	return (stmt->kind == ALTER_SUBSCRIPTION_SET_PUBLICATION ||
			stmt->kind == ALTER_SUBSCRIPTION_ADD_PUBLICATION ||
			stmt->kind == ALTER_SUBSCRIPTION_DROP_PUBLICATION) &&
		option_is_on(stmt->options, "refresh", true);
}

static bool
sets_of_transaction(const Node *node, const char *name)
{
	const VariableSetStmt *stmt = (const VariableSetStmt *) node;

	return stmt->kind == VAR_SET_MULTI && strcmp(stmt->name, name) == 0;
}

/* Returns true if the statement sets another isolation level than the usual level. */
static bool
sets_isolation(const Node *node)
{
	ListCell   *lc;

	foreach(lc, ((const VariableSetStmt *) node)->args)
	{
		const DefElem *mode = lfirst_node(DefElem, lc);

		if (strcmp(mode->defname, "transaction_isolation") == 0 &&
			strcmp(strVal(&castNode(A_Const, mode->arg)->val), "read committed") != 0)
			return true;
	}
	return false;
}

/* Defines a named condition on the node of a statement, for the table below. */
#define CONDITION(name, Stmt, condition) \
static bool \
name(const Node *node) \
{ \
	const Stmt *stmt = (const Stmt *) node; \
\
	return (condition); \
}

CONDITION(sets_snapshot, Node, sets_of_transaction(stmt, "TRANSACTION SNAPSHOT"))
CONDITION(sets_deferrable, VariableSetStmt, sets_of_transaction(node, "TRANSACTION") && has_option(stmt->args, "transaction_deferrable"))
CONDITION(sets_level, Node, sets_of_transaction(stmt, "TRANSACTION") && sets_isolation(stmt))
CONDITION(copies_from_client, CopyStmt, stmt->is_from && stmt->filename == NULL)
CONDITION(copies_to_client, CopyStmt, !stmt->is_from && stmt->filename == NULL)
/* ANALYZE has the same node type, but can run */
CONDITION(vacuums, VacuumStmt, stmt->is_vacuumcmd)
CONDITION(clusters_all, RepackStmt, stmt->relation == NULL && dw_repack_command(stmt) == REPACK_COMMAND_CLUSTER)
CONDITION(repacks_all, RepackStmt, stmt->relation == NULL)
CONDITION(repacks_concurrently, RepackStmt, dw_repack_command(stmt) != REPACK_COMMAND_CLUSTER && option_is_on(stmt->params, "concurrently", false))
CONDITION(repack_analyzes, RepackStmt, dw_repack_command(stmt) != REPACK_COMMAND_CLUSTER &&
		  (option_is_on(stmt->params, "analyze", false) || option_is_on(stmt->params, "analyse", false)))
CONDITION(reindexes_concurrently, ReindexStmt, option_is_on(stmt->params, "concurrently", false))
CONDITION(reindexes_schema, ReindexStmt, stmt->kind == REINDEX_OBJECT_SCHEMA)
CONDITION(reindexes_system, ReindexStmt, stmt->kind == REINDEX_OBJECT_SYSTEM)
CONDITION(reindexes_database, ReindexStmt, stmt->kind == REINDEX_OBJECT_DATABASE)
CONDITION(indexes_concurrently, IndexStmt, stmt->concurrent)
CONDITION(drops_concurrently, DropStmt, stmt->removeType == OBJECT_INDEX && stmt->concurrent)
CONDITION(moves_database, AlterDatabaseStmt, has_option(stmt->options, "tablespace"))
CONDITION(discards_all, DiscardStmt, stmt->target == DISCARD_ALL)
/* without a connection, a slot is created only if an option asks for it */
CONDITION(creates_slot, CreateSubscriptionStmt, option_is_on(stmt->options, "create_slot", option_is_on(stmt->options, "connect", true)))
CONDITION(refreshes_publication, AlterSubscriptionStmt, stmt->kind == ALTER_SUBSCRIPTION_REFRESH_PUBLICATION)
/* 17 and 18 introduced these options, so older majors refuse them */
CONDITION(sets_failover, AlterSubscriptionStmt, stmt->kind == ALTER_SUBSCRIPTION_OPTIONS && has_option(stmt->options, "failover"))
CONDITION(sets_one_phase, AlterSubscriptionStmt, stmt->kind == ALTER_SUBSCRIPTION_OPTIONS && !option_is_on(stmt->options, "two_phase", true))

static const Reason block = {
	.code = ERRCODE_ACTIVE_SQL_TRANSACTION,
	.autonomous = true,
	.detail = "The command cannot run inside a transaction block. A task without a mode runs inside a transaction block."
};
static const Reason top_level = {
	.code = ERRCODE_FEATURE_NOT_SUPPORTED,
	.autonomous = true,
	.detail = "The command can run only at top level. A task without a mode does not run at top level."
};
static const Reason transaction = {
	.code = ERRCODE_FEATURE_NOT_SUPPORTED,
	.autonomous = false,
	.detail = "A task runs in a transaction that ends when the task has ended."
};
static const Reason begun = {
	.code = ERRCODE_ACTIVE_SQL_TRANSACTION,
	.autonomous = false,
	.detail = "The transaction of a task has begun before its SQL."
};
static const Reason client = {
	.code = ERRCODE_FEATURE_NOT_SUPPORTED,
	.autonomous = false,
	.detail = "A task runs in the background, without a client."
};
static const Reason notified = {
	.code = ERRCODE_FEATURE_NOT_SUPPORTED,
	.autonomous = false,
	.detail = "A task runs in the background, without a client that can be notified."
};

/* For each statement, the first entry that concerns it counts. */
static const Refusal refusals[] = {
	/* SPI refuses WAIT FOR, and all transaction control, savepoints included */
	{T_WaitStmt, NULL, &top_level, "WAIT FOR", NULL},
	{T_TransactionStmt, NULL, &transaction, NULL,
	"Leave the command out; to undo part of the work on an error, use a PL/pgSQL block with an EXCEPTION clause."},
	{T_ListenStmt, NULL, &notified, "LISTEN", "Use LISTEN in the session that is to be notified."},
	/*
	 * a transaction that has begun its work still accepts READ ONLY, and its present isolation
	 * level
	 */
	{T_VariableSetStmt, sets_snapshot, &begun, "SET TRANSACTION SNAPSHOT", "Leave the command out."},
	{T_VariableSetStmt, sets_deferrable, &begun, "SET TRANSACTION [NOT] DEFERRABLE", "Leave the command out."},
	{T_VariableSetStmt, sets_level, &begun, "SET TRANSACTION ISOLATION LEVEL",
	"A task runs at the isolation level that a new session of its owner has: set default_transaction_isolation by ALTER ROLE or ALTER DATABASE."},
	{T_CopyStmt, copies_from_client, &client, "COPY FROM STDIN", "Use INSERT, or COPY from a file or program."},
	{T_CopyStmt, copies_to_client, &client, "COPY TO STDOUT", "Use COPY to a file or program."},
	{T_VacuumStmt, vacuums, &block, "VACUUM", "ANALYZE can run inside a transaction block."},
	{T_RepackStmt, clusters_all, &block, "CLUSTER without a table", "Use CLUSTER for each table."},
	{T_RepackStmt, repacks_all, &block, "REPACK without a table", "Use REPACK for each table."},
	{T_RepackStmt, repacks_concurrently, &block, "REPACK (CONCURRENTLY)", "Use REPACK without CONCURRENTLY."},
	{T_RepackStmt, repack_analyzes, &block, "REPACK (ANALYZE)", "Use REPACK, and ANALYZE after it."},
	{T_ReindexStmt, reindexes_concurrently, &block, "REINDEX CONCURRENTLY", "Use REINDEX without CONCURRENTLY."},
	{T_ReindexStmt, reindexes_schema, &block, "REINDEX SCHEMA", "Use REINDEX TABLE for each table."},
	{T_ReindexStmt, reindexes_system, &block, "REINDEX SYSTEM", NULL},
	{T_ReindexStmt, reindexes_database, &block, "REINDEX DATABASE", "Use REINDEX TABLE for each table."},
	{T_IndexStmt, indexes_concurrently, &block, "CREATE INDEX CONCURRENTLY", "Use CREATE INDEX without CONCURRENTLY."},
	{T_DropStmt, drops_concurrently, &block, "DROP INDEX CONCURRENTLY", "Use DROP INDEX without CONCURRENTLY."},
	{T_AlterTableStmt, detaches_concurrently, &block, "ALTER TABLE ... DETACH PARTITION CONCURRENTLY",
	"Use DETACH PARTITION without CONCURRENTLY."},
	{T_CreatedbStmt, NULL, &block, "CREATE DATABASE", NULL},
	{T_DropdbStmt, NULL, &block, "DROP DATABASE", NULL},
	{T_AlterDatabaseStmt, moves_database, &block, "ALTER DATABASE SET TABLESPACE", NULL},
	{T_CreateTableSpaceStmt, NULL, &block, "CREATE TABLESPACE", NULL},
	{T_DropTableSpaceStmt, NULL, &block, "DROP TABLESPACE", NULL},
	{T_AlterSystemStmt, NULL, &block, "ALTER SYSTEM", NULL},
	{T_DiscardStmt, discards_all, &block, "DISCARD ALL",
	"Leave the command out. A task does not see the session state of other tasks."},
	{T_CreateSubscriptionStmt, creates_slot, &block, "CREATE SUBSCRIPTION ... WITH (create_slot = true)",
	"Create the replication slot beforehand and use WITH (create_slot = false)."},
	{T_AlterSubscriptionStmt, refreshes_publication, &block, "ALTER SUBSCRIPTION ... REFRESH PUBLICATION", NULL},
	{T_AlterSubscriptionStmt, refreshes, &block, "ALTER SUBSCRIPTION with refresh", "Use WITH (refresh = false)."},
	{T_AlterSubscriptionStmt, sets_failover, &block, "ALTER SUBSCRIPTION ... SET (failover)", NULL},
	{T_AlterSubscriptionStmt, sets_one_phase, &block, "ALTER SUBSCRIPTION ... SET (two_phase = false)", NULL}
};

/* Returns the byte offset at which a statement begins, after white space that the parser counts. */
static int
begin_of(const char *sql, const RawStmt *raw)
{
	int			location = raw->stmt_location;

	while (scanner_isspace(sql[location]))
		location++;
	return location;
}

/* Raises the error if the statement cannot be part of a task. */
static void
check_statement(const char *sql, RawStmt *raw, bool autonomous)
{
	const Refusal *refusal = refusals;
	const Refusal *end = refusals + lengthof(refusals);
	const char *hint;

	while (refusal < end && (refusal->tag != nodeTag(raw->stmt) ||
							 (refusal->concerns != NULL && !refusal->concerns(raw->stmt))))
		refusal++;
	if (refusal == end || (autonomous && refusal->reason->autonomous))
		return;

	hint = refusal->hint;
	if (refusal->reason->autonomous)
		hint = psprintf("%s delay_schedule_task() with mode => 'at_most_once' or 'at_least_once'.",
						hint != NULL ? psprintf("%s Or use", hint) : "Use");
	ereport(ERROR,
			(errcode(refusal->reason->code),
	/* translator: %s is an SQL command */
			 errmsg("cannot execute %s in a delayed task",
					refusal->command != NULL ? refusal->command : GetCommandTagName(CreateCommandTag(raw->stmt))),
			 errdetail("%s", refusal->reason->detail),
			 errhint("%s", hint),
			 dw_sql_text_errposition(sql, begin_of(sql, raw))));
}

/*---- Tokens ----*/

/* Begins to read the tokens of a text. */
void
dw_tokens_begin(DwTokens *tokens, const char *sql)
{
	tokens->sql = sql;
	tokens->scanner = scanner_init(sql, &tokens->extra, &ScanKeywords, ScanKeywordTokens);
	/* the parser raises these warnings */
	dw_no_escape_warning(&tokens->extra);
}

/* Moves to the next token, or to the first token.  Returns false at the end of the text. */
bool
dw_tokens_next(DwTokens *tokens)
{
	YYLTYPE		location = 0;

	tokens->token = core_yylex(&tokens->value, &location, tokens->scanner);
	tokens->location = tokens->token != 0 ? location : (int) strlen(tokens->sql);
	return tokens->token != 0;
}

void
dw_tokens_end(DwTokens *tokens)
{
	scanner_finish(tokens->scanner);
}

/*---- Parameters ----*/

/*
 * Returns the meaning of $n inside a statement.  The server analyzes queries, and the queries
 * inside some utility statements, with the task's arguments.
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

/* Finds the statement to which a byte of the text belongs, and its index, from *index on. */
static Node *
statement_at(List *statements, int location, int *index)
{
	while (*index + 1 < list_length(statements) &&
		   list_nth_node(RawStmt, statements, *index + 1)->stmt_location <= location)
		(*index)++;
	return list_nth_node(RawStmt, statements, *index)->stmt;
}

/* Checks one $n.  Returns false if $n is a parameter that the statement itself defines. */
static bool
check_parameter(const Checked *checked, Node *stmt, int number, int location)
{
	const char *sql = checked->text.sql;
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

	if (number < 1 || number > nargs)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("there is no argument for parameter $%d", number),
				 checked->text.option != NULL ?
				 errdetail("%s has %d arguments.", checked->text.option, nargs) :
				 errdetail_plural("The task has %d argument.", "The task has %d arguments.",
								  nargs, nargs),
				 checked->text.option != NULL ? 0 :
				 errhint("Pass one argument after the SQL text for each of $1, $2, and so on."),
				 dw_sql_text_errposition(sql, location)));
	return true;
}

/*
 * Compares the parameters in the text with the number of arguments.  The lexer finds the
 * parameters, since PostgreSQL has no walker for raw utility statements.
 */
static void
check_parameters(const Checked *checked, List *statements)
{
	bool	   *used = palloc0(Max(checked->nargs, 1) * sizeof(bool));
	int			statement = 0;
	DwTokens	tokens;

	dw_tokens_begin(&tokens, checked->text.sql);
	while (dw_tokens_next(&tokens))
	{
		CHECK_FOR_INTERRUPTS();
		if (tokens.token == DW_TOKEN_PARAM &&
			check_parameter(checked, statement_at(statements, tokens.location, &statement),
							tokens.value.ival, tokens.location))
			used[tokens.value.ival - 1] = true;
	}
	dw_tokens_end(&tokens);
	/* an argument without a $n is most likely a mistake, and would have no type if it is untyped */
	for (int i = 0; checked->text.option == NULL && i < checked->nargs; i++)
		if (!used[i])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument %d is not used by the task", i + 1),
					 errhint("Refer to the argument as $%d in the SQL text, or do not pass it.",
							 i + 1)));
}

/* Texts that differ only in numbers */

/* Returns true if the character could be part of an identifier or of a dollar quote's tag. */
bool
dw_is_word_char(char c)
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
 * Moves *at to the end of the number at this position, or before it.  Returns false if no number is
 * there, if the number is part of a word, or if it has too many digits.
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

/* Returns true if the text differs from the remembered text only in numbers, see README.md. */
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

/* Returns true if other numbers in the text could change the outcome, see README.md. */
static bool
numbers_matter(const char *sql, List *statements)
{
	ListCell   *lc;

	foreach(lc, statements)
		if (parameter_use(lfirst_node(RawStmt, lc)->stmt) != PARAMS_BOUND)
			return true;
	for (; *sql != '\0'; sql++)
		if (*sql == '\\' || *sql == '&' ||
			((*sql == 'f' || *sql == 'F') && pg_strncasecmp(sql, "float", 5) == 0))
			return true;
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

/* Makes the checks. */
static void
check_text(const Checked *checked)
{
	const char *sql = checked->text.sql;
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
				 errhint("Use several tasks with a mode, each with one statement. A procedure may commit, but cannot execute commands such as VACUUM."),
				 dw_sql_text_errposition(sql, begin_of(sql, lsecond_node(RawStmt, statements)))));

	if (nargs > 0 || (nargs == 0 && strchr(sql, '$') != NULL))
		check_parameters(checked, statements);
	if (checked->text.option == NULL && !checked->autonomous)
		remember_text(sql, nargs, statements);
}

/* Checks a text in a separate memory context, with an error context. */
static void
check(Checked *checked)
{
	ErrorContextCallback callback;
	MemoryContext context;
	MemoryContext caller;

	dw_push_context(&callback, dw_sql_text_callback, &checked->text);
	/*
	 * PostgreSQL keeps contexts of this size in a free list, so this context costs almost nothing.
	 * After an error it is deleted with its parent, the caller's context.
	 */
	context = AllocSetContextCreate(CurrentMemoryContext, "delay_wheel SQL check",
									ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(context);
	check_text(checked);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	error_context_stack = callback.previous;
}

/* Raises an error if the text can never run as a task.  nargs < 0: parameters are not checked. */
void
dw_check_sql(const text *text, int nargs)
{
	Checked		checked = {.nargs = nargs};

	if (is_known(VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text), nargs))
		return;
	checked.text.sql = text_to_cstring(text);
	check(&checked);
}

/* The same for on_success or on_failure (option), which need not use all arguments. */
void
dw_check_follow_up(const text *text, const char *option, int nargs)
{
	Checked		checked = {.text = {text_to_cstring(text), option}, .nargs = nargs};

	check(&checked);
}

/* The same for a task with a mode: a single statement, which may need to run at top level. */
void
dw_check_sql_autonomous(const text *text, int nargs)
{
	Checked		checked = {
		.text = {.sql = text_to_cstring(text)},
		.nargs = nargs,
		.autonomous = true
	};

	check(&checked);
}

/*---- The check of names, types and rights ----*/

/* For check_functions_in_node().  Raises an error if the current user may not call the function. */
static bool
require_function(Oid function, void *context)
{
	AclResult	result = dw_function_aclcheck(function, GetUserId(), ACL_EXECUTE);

	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_FUNCTION, get_func_name(function));
	return false;
}

/* Calls require_function() for all functions in a query or an expression.  Always returns false. */
static bool
require_functions(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, require_functions, context, 0);
	/* PostgreSQL does not check rights on the input and output functions of types */
	if (!IsA(node, CoerceViaIO))
		(void) check_functions_in_node(node, require_function, context);
	return expression_tree_walker(node, require_functions, context);
}

/* Raises an error if the plan needs rights that the current user lacks, or a temporary table. */
static void
require_tables(PlannedStmt *plan)
{
	ListCell   *lc;

	foreach(lc, plan->rtable)
	{
		RangeTblEntry *entry = lfirst_node(RangeTblEntry, lc);

		if (entry->rtekind == RTE_RELATION &&
			get_rel_persistence(entry->relid) == RELPERSISTENCE_TEMP)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("a task cannot use temporary table \"%s\"", get_rel_name(entry->relid)),
					 errdetail("Only this session sees the temporary table, and the task runs in another session."),
					 errhint("Use another table. If a permanent table has the same name, put its schema before the name.")));
	}
	(void) dw_check_table_rights(plan);
}

/* Checks a query that was analyzed and rewritten. */
static void
check_query(Query *query, const char *sql)
{
	Query	   *contained;
	ListCell   *lc;

	if (query->commandType != CMD_UTILITY)
	{
		(void) require_functions((Node *) query, NULL);
		require_tables(dw_plan_query(query, sql, CURSOR_OPT_PARALLEL_OK));
		return;
	}
	if (IsA(query->utilityStmt, CallStmt))
		(void) require_functions((Node *) castNode(CallStmt, query->utilityStmt)->funcexpr, NULL);
	/* the query of EXPLAIN, DECLARE and CREATE TABLE AS */
	contained = UtilityContainsQuery(query->utilityStmt);
	if (contained == NULL)
		return;
	foreach(lc, QueryRewrite(copyObject(contained)))
		check_query(lfirst_node(Query, lc), sql);
}

/* Plans the statements of a text, up to the first utility statement. */
static void
plan_statements(const char *sql, ParamListInfo params)
{
	ListCell   *lc;

	foreach(lc, raw_parser(sql, RAW_PARSE_DEFAULT))
	{
		ListCell   *lq;
		bool		utility = false;

		foreach(lq, dw_args_analyze(lfirst_node(RawStmt, lc), sql, params))
		{
			utility |= lfirst_node(Query, lq)->commandType == CMD_UTILITY;
			check_query(lfirst_node(Query, lq), sql);
		}
		if (utility)
			return;
	}
}

/*
 * Raises an error if the SQL of a task, with these arguments (see dw_args_params()), could not be
 * planned now, or if the current user lacks the rights for it.
 */
void
dw_check_plan(const text *text, Datum args, bool args_null, Datum types, bool types_null)
{
	DwSqlText	shown = {.sql = text_to_cstring(text)};
	ErrorContextCallback callback;
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	dw_push_context(&callback, dw_sql_text_callback, &shown);
	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		plan_statements(shown.sql, dw_args_params(shown.sql, args, args_null, types, types_null));
		PopActiveSnapshot();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		ReThrowError(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	error_context_stack = callback.previous;
}

/*---- Errors that point into the SQL text of a task ----*/

/*
 * Error context callback; arg is the SQL of a task.  The error's position points into this SQL, not
 * into the statement of the client, so it is reported as a position in an internal query.
 */
void
dw_position_callback(void *arg)
{
	internalerrposition(geterrposition());
	internalerrquery((const char *) arg);
	errposition(0);
}

/* Error context callback; arg is a DwSqlText. */
void
dw_sql_text_callback(void *arg)
{
	const DwSqlText *text = (const DwSqlText *) arg;

	if (geterrposition() > 0)
		dw_position_callback(unconstify(char *, text->sql));
	if (text->option != NULL)
		errcontext("%s of a delayed task", text->option);
	else
		errcontext("SQL text of a delayed task");
}

/* Does the same as parser_errposition(), for a byte offset in the task's text. */
int
dw_sql_text_errposition(const char *sql, int location)
{
	return errposition(pg_mbstrlen_with_len(sql, location) + 1);
}
