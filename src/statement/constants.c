/*-------------------------------------------------------------------------
 *
 * constants.c
 *	  Takes the constants out of an SQL text, so that texts can share a plan.
 *
 * Run by executors, for tasks without arguments.
 *
 * A plan for "UPDATE orders SET state = 'expired' WHERE id = 17" serves this one
 * order only.  With parameters in place of the constants, the task of the next
 * order can use the same plan.  But not every constant can be replaced: 1 after
 * ORDER BY is a column, '1' after INTERVAL belongs to the type's name, and GROUP BY
 * compares expressions with their constants.  So constants are taken out of texts
 * of two forms only, which can be recognized by their tokens:
 *
 * - SELECT f(c, ...), where each argument is a constant;
 * - UPDATE or DELETE without a SELECT in it; a constant is taken out if it stands
 *	 between = and the end of the expression.
 *
 * An integer becomes a parameter of type integer, as in the parser.  A string
 * becomes a parameter of type unknown, which args.c reads as the type that its
 * position requires.  So tasks whose texts differ in their constants only, which many
 * applications write, share a plan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "parser/parser.h"
#include "parser/scanner.h"

#include "constants.h"
#include "sql_text.h"

#define MAX_CONSTANTS	32		/* limit for one text; a text with more is left alone */

/* PostgreSQL's lexer on its way through a text, and the current token */
typedef struct Reader
{
	const char *sql;
	core_yyscan_t scanner;
	core_yy_extra_type extra;
	int			token;			/* code of the current token; 0: the end of the text */
	core_YYSTYPE value;			/* of the current token */
	int			location;		/* byte offset of the current token */
} Reader;

/* Goes on to the next token. */
static void
next(Reader *reader)
{
	YYLTYPE		location = 0;

	reader->token = core_yylex(&reader->value, &location, reader->scanner);
	reader->location = reader->token != 0 ? location : (int) strlen(reader->sql);
}

/* True if the token is this keyword; a quoted identifier is not. */
static bool
is_word(const Reader *reader, const char *word)
{
	const char *text = reader->sql + reader->location;
	size_t		length = strlen(word);

	return reader->token > DW_TOKEN_PARAM && pg_strncasecmp(text, word, length) == 0 &&
		!isalnum((unsigned char) text[length]) && text[length] != '_' &&
		text[length] != '$' && !IS_HIGHBIT_SET(text[length]);
}

/* True if the token is an integer or a string. */
static bool
is_constant(const Reader *reader)
{
	return reader->token == DW_TOKEN_ICONST || reader->token == DW_TOKEN_SCONST;
}

/*
 * Adds the current token, a constant, to *constants, and goes on to the next token.
 * False if there are too many constants.
 */
static bool
take_constant(Reader *reader, DwConstants *constants)
{
	int			i = constants->count;

	if (i == MAX_CONSTANTS)
		return false;
	constants->locations[i] = reader->location;
	if (reader->token == DW_TOKEN_ICONST)
	{
		constants->types[i] = INT4OID;
		constants->values[i] = Int32GetDatum(reader->value.ival);
	}
	else
	{
		constants->types[i] = InvalidOid;
		constants->values[i] = CStringGetDatum(reader->value.str);
	}
	next(reader);
	constants->ends[i] = reader->location;
	constants->count++;
	return true;
}

/*
 * Takes the constants of SELECT f(c, ...); the current token is SELECT.  False if
 * the text has another form.
 */
static bool
take_from_call(Reader *reader, DwConstants *constants)
{
	next(reader);
	while (reader->token == DW_TOKEN_IDENT)
	{
		next(reader);
		if (reader->token != '.')
			break;
		next(reader);
	}
	if (reader->token != '(')
		return false;
	do
	{
		next(reader);
		if (!is_constant(reader) || !take_constant(reader, constants))
			return false;
	} while (reader->token == ',');
	if (reader->token != ')')
		return false;
	next(reader);
	while (reader->token == ';')
		next(reader);
	return reader->token == 0;
}

/* True if the current token cannot belong to the expression before it. */
static bool
ends_expression(const Reader *reader)
{
	return reader->token == 0 || reader->token == ';' || reader->token == ',' ||
		reader->token == ')' || is_word(reader, "and") || is_word(reader, "or") ||
		is_word(reader, "where") || is_word(reader, "returning");
}

/*
 * Takes the constants of an UPDATE or DELETE, those between = and the end of an
 * expression.  False if there are none, or if the text contains a SELECT or a $n.
 */
static bool
take_from_change(Reader *reader, DwConstants *constants)
{
	while (reader->token != 0)
	{
		bool		compared = reader->token == '=';

		next(reader);
		if (reader->token == DW_TOKEN_PARAM || is_word(reader, "select"))
			return false;
		if (!compared || !is_constant(reader))
			continue;
		if (!take_constant(reader, constants))
			return false;
		if (!ends_expression(reader))
			constants->count--;
	}
	return constants->count > 0;
}

/* Takes the constants of a text of either form; false if it has neither form. */
static bool
take_all(Reader *reader, DwConstants *constants)
{
	next(reader);
	if (is_word(reader, "select"))
		return take_from_call(reader, constants);
	if (is_word(reader, "update") || is_word(reader, "delete"))
		return take_from_change(reader, constants);
	return false;
}

/*
 * Makes constants->sql, the text with $1, $2, ... in place of the constants.  A
 * comment between a constant and the next token is removed with the constant.
 */
static void
replace(const char *sql, DwConstants *constants)
{
	StringInfoData text;
	int			done = 0;

	initStringInfo(&text);
	for (int i = 0; i < constants->count; i++)
	{
		appendBinaryStringInfo(&text, sql + done, constants->locations[i] - done);
		appendStringInfo(&text, "$%d ", i + 1);
		done = constants->ends[i];
		constants->new_ends[i] = text.len;
	}
	appendStringInfoString(&text, sql + done);
	constants->sql = text.data;
}

/*
 * Takes out of a text the constants that certainly mean the same as parameters of
 * their type.  False, with *constants not filled in, if the text has another form
 * or no such constants.  The result is in the current memory context.  A token that
 * the lexer refuses raises an error.
 */
bool
dw_constants_take(const char *sql, DwConstants *constants)
{
	Reader		reader = {.sql = sql};
	bool		found;

	constants->count = 0;
	constants->types = palloc(MAX_CONSTANTS * sizeof(Oid));
	constants->values = palloc(MAX_CONSTANTS * sizeof(Datum));
	constants->locations = palloc(3 * MAX_CONSTANTS * sizeof(int));
	constants->ends = constants->locations + MAX_CONSTANTS;
	constants->new_ends = constants->ends + MAX_CONSTANTS;

	reader.scanner = scanner_init(sql, &reader.extra, &ScanKeywords, ScanKeywordTokens);
	reader.extra.escape_string_warning = false;
	found = take_all(&reader, constants);
	scanner_finish(reader.scanner);
	if (found)
		replace(sql, constants);
	return found;
}

/* Turns a byte offset in constants->sql into one in the original text. */
int
dw_constants_location(const DwConstants *constants, int location)
{
	int			shift = 0;

	for (int i = 0; i < constants->count && constants->new_ends[i] <= location; i++)
		shift = constants->ends[i] - constants->new_ends[i];
	return location + shift;
}
