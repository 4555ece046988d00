/*-------------------------------------------------------------------------
 *
 * constants.c
 *	  Texts that differ in their constants only.
 *
 * Run by executors, for texts without arguments.
 *
 * "UPDATE orders SET state = 'expired' WHERE id = 17" is parsed and planned
 * for this one order only.  With its constants as parameters the next one can
 * use the plan.  But a constant is not always what it seems: 1 after ORDER BY
 * is a column, '1' after INTERVAL belongs to the type's name, and of two equal
 * expressions with a constant one may be looked for in the other (GROUP BY).
 * So this is done for two forms only, of which the tokens tell enough:
 *
 * - SELECT f(c, ...), with a constant for each argument;
 * - UPDATE or DELETE without SELECT in it: each constant that has = before it
 *	 and after it the end of the expression.
 *
 * Integers become parameters of type integer, as the parser takes them; others
 * are of type unknown, and become what each place makes of them (args.c).
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

#define MAX_CONSTANTS	32

/* The lexer's codes, which are the same in all majors (see sqlcheck.c) */
#define IDENT_TOKEN		258
#define SCONST_TOKEN	261
#define ICONST_TOKEN	266
#define PARAM_TOKEN		267

/* The text as the lexer goes through it */
typedef struct Reader
{
	const char *sql;
	core_yyscan_t scanner;
	core_yy_extra_type extra;
	int			token;			/* 0: the end */
	core_YYSTYPE value;
	int			location;
} Reader;

static void
next(Reader *reader)
{
	YYLTYPE		location = 0;

	reader->token = core_yylex(&reader->value, &location, reader->scanner);
	reader->location = reader->token != 0 ? location : (int) strlen(reader->sql);
}

/* Is the token this keyword?  In quotes it is not one. */
static bool
is_word(const Reader *reader, const char *word)
{
	const char *text = reader->sql + reader->location;
	size_t		length = strlen(word);

	return reader->token > PARAM_TOKEN && pg_strncasecmp(text, word, length) == 0 &&
		!isalnum((unsigned char) text[length]) && text[length] != '_' &&
		text[length] != '$' && !IS_HIGHBIT_SET(text[length]);
}

static bool
is_constant(const Reader *reader)
{
	return reader->token == ICONST_TOKEN || reader->token == SCONST_TOKEN;
}

/* Notes the constant and goes on to the token behind it. */
static bool
take_constant(Reader *reader, DwConstants *constants)
{
	int			i = constants->count;

	if (i == MAX_CONSTANTS)
		return false;
	constants->locations[i] = reader->location;
	if (reader->token == ICONST_TOKEN)
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

/* SELECT f(c, ...) */
static bool
take_from_call(Reader *reader, DwConstants *constants)
{
	next(reader);
	while (reader->token == IDENT_TOKEN)
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

/* Has an expression ended before this token? */
static bool
ends_expression(const Reader *reader)
{
	return reader->token == 0 || reader->token == ';' || reader->token == ',' ||
		reader->token == ')' || is_word(reader, "and") || is_word(reader, "or") ||
		is_word(reader, "where") || is_word(reader, "returning");
}

/* ... = c ... */
static bool
take_from_change(Reader *reader, DwConstants *constants)
{
	while (reader->token != 0)
	{
		bool		compared = reader->token == '=';

		next(reader);
		if (reader->token == PARAM_TOKEN || is_word(reader, "select"))
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

/* What is between a constant and the next token, comments, goes with it. */
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
 * Takes out of a text the constants that are sure to mean the same as
 * parameters of their type.  False if there are none.  The result is in the
 * current memory context.
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

/* Where in the text as it was something is. */
int
dw_constants_location(const DwConstants *constants, int location)
{
	int			shift = 0;

	for (int i = 0; i < constants->count && constants->new_ends[i] <= location; i++)
		shift = constants->ends[i] - constants->new_ends[i];
	return location + shift;
}
