/*-------------------------------------------------------------------------
 *
 * constants.c
 *	  Takes the constants out of an SQL text, so that texts can share a plan.
 *
 * Run by executors, for tasks without arguments.
 *
 * A plan for "UPDATE orders SET state = 'expired' WHERE id = 17" serves only the order 17.  With
 * parameters in place of the constants, the task of the next order can use the same plan.  But not
 * every constant can be replaced: 1 after ORDER BY is a column, '1' after INTERVAL belongs to the
 * type's name, and GROUP BY compares expressions including their constants.  So constants are taken
 * only out of texts of two forms, which can be recognized by their tokens:
 *
 * - SELECT f(c, ...), if each argument is a constant;
 * - UPDATE or DELETE that contains no SELECT: a constant is taken out if it is between = and the
 *	 end of the expression.
 *
 * An integer becomes a parameter of type integer, as in the parser.  A string becomes a parameter
 * of type unknown, which args.c reads as the type that its position requires.
 *
 * Texts of one form mostly come one after the other.  So this file remembers the form of the last
 * text, and does not call the lexer for a text of the same form.  Two texts have the same form if
 * their parts between the constants are equal, byte by byte.  Each constant must be plain (only
 * digits, or a string without quotes and backslashes), and have the same type as the constant at
 * this place of the last text.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "parser/parser.h"
#include "parser/scanner.h"
#include "utils/memutils.h"

#include "../base/compat.h"
#include "statement.h"

#define MAX_CONSTANTS	32		/* limit for one text; a text with more constants is not changed */

/* The form of the last text whose constants were taken; count is 0 if there is none. */
static struct
{
	int			count;			/* number of constants */
	char	   *text;			/* in TopMemoryContext, as is sql */
	char	   *sql;			/* the text with $1, $2, ... in place of the constants */
	Oid			types[MAX_CONSTANTS];
	int			starts[MAX_CONSTANTS];	/* byte offsets of the constants in text */
	int			stops[MAX_CONSTANTS];	/* offsets of the ends of the constants */
	int			ends[MAX_CONSTANTS];	/* offsets of the tokens after them */
	int			new_ends[MAX_CONSTANTS];	/* offsets of the same tokens in sql */
}			form;

/* PostgreSQL's lexer, its position in a text, and the current token */
typedef struct Reader
{
	const char *sql;
	core_yyscan_t scanner;
	core_yy_extra_type extra;
	int			token;			/* code of the current token; 0: the end of the text */
	core_YYSTYPE value;			/* value of the current token */
	int			location;		/* byte offset of the current token */
} Reader;

/* Moves to the next token. */
static void
next(Reader *reader)
{
	YYLTYPE		location = 0;

	reader->token = core_yylex(&reader->value, &location, reader->scanner);
	reader->location = reader->token != 0 ? location : (int) strlen(reader->sql);
}

/* Returns true if the token is this keyword.  A quoted identifier is no keyword. */
static bool
is_word(const Reader *reader, const char *word)
{
	const char *text = reader->sql + reader->location;
	size_t		length = strlen(word);

	return reader->token > DW_TOKEN_PARAM && pg_strncasecmp(text, word, length) == 0 &&
		!isalnum((unsigned char) text[length]) && text[length] != '_' &&
		text[length] != '$' && !IS_HIGHBIT_SET(text[length]);
}

/* Returns true if the token is an integer or a string. */
static bool
is_constant(const Reader *reader)
{
	return reader->token == DW_TOKEN_ICONST || reader->token == DW_TOKEN_SCONST;
}

/*
 * Adds the current token, a constant, to *constants, and moves to the next token.  Returns false if
 * there are too many constants.
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
 * Takes the constants of SELECT f(c, ...).  The current token is SELECT.  Returns false if the text
 * has another form.
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

/* Returns true if the current token cannot belong to the expression before it. */
static bool
ends_expression(const Reader *reader)
{
	return reader->token == 0 || reader->token == ';' || reader->token == ',' ||
		reader->token == ')' || is_word(reader, "and") || is_word(reader, "or") ||
		is_word(reader, "where") || is_word(reader, "returning");
}

/*
 * Takes the constants of an UPDATE or DELETE that are between = and the end of an expression.
 * Returns false if the text contains no such constants, or contains a SELECT or a $n.
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

/* Takes the constants of a text of one of the forms; returns false for another form. */
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

/*---- Texts of the same form ----*/

/*
 * Returns the end of a plain constant of this type that begins here; NULL if no such constant does.
 * Does not check the text after the constant, see cannot_go_on().
 */
static const char *
plain_constant_end(const char *text, Oid type)
{
	const char *end = text;

	if (type == INT4OID)
	{
		while (isdigit((unsigned char) *end))
			end++;
		/* a number with more digits may have another type */
		return end > text && end - text <= 9 ? end : NULL;
	}
	if (*text != '\'')
		return NULL;
	end = text + 1 + strcspn(text + 1, "'\\");
	return *end == '\'' && end[1] != '\'' ? end + 1 : NULL;
}

/* Returns true if the text cannot belong to the constant before it. */
static bool
cannot_go_on(const char *text, const char *next_token)
{
	if (isalnum((unsigned char) *text) || IS_HIGHBIT_SET(*text) || (*text != '\0' && strchr("_.$'\"", *text) != NULL))
		return false;
	/* a string may continue in the next line */
	return memchr(text, '\'', next_token - text) == NULL;
}

/* Remembers the form of this text, if its constants are plain. */
static void
keep_form(const char *sql, const DwConstants *constants)
{
	form.count = 0;
	for (int i = 0; i < constants->count; i++)
	{
		const char *stop = plain_constant_end(sql + constants->locations[i], constants->types[i]);

		if (stop == NULL || !cannot_go_on(stop, sql + constants->ends[i]))
			return;
		form.types[i] = constants->types[i];
		form.starts[i] = constants->locations[i];
		form.stops[i] = stop - sql;
		form.ends[i] = constants->ends[i];
		form.new_ends[i] = constants->new_ends[i];
	}
	if (form.text != NULL)
	{
		pfree(form.text);
		pfree(form.sql);
	}
	form.text = MemoryContextStrdup(TopMemoryContext, sql);
	form.sql = MemoryContextStrdup(TopMemoryContext, constants->sql);
	form.count = constants->count;
}

/* Forgets the form of the last text, since settings for reading it may have changed. */
void
dw_constants_forget_form(void)
{
	form.count = 0;
}

/* Adds the plain constant from start to stop to *constants. */
static void
add_plain(const char *sql, const char *start, const char *stop, DwConstants *constants)
{
	int			i = constants->count++;

	constants->types[i] = form.types[i];
	constants->locations[i] = start - sql;
	constants->ends[i] = stop - sql + form.ends[i] - form.stops[i];
	constants->new_ends[i] = form.new_ends[i];
	constants->values[i] = form.types[i] == INT4OID ? Int32GetDatum(atoi(start)) :
		CStringGetDatum(pnstrdup(start + 1, stop - start - 2));
}

/* Takes the constants of a text with the form of the last text; returns false for another form. */
static bool
take_by_form(const char *sql, DwConstants *constants)
{
	const char *at = sql;
	int			before = 0;		/* offset in form.text of the text that must come next */

	for (int i = 0; i < form.count; i++)
	{
		const char *stop;
		int			between = form.starts[i] - before;

		if (strncmp(at, form.text + before, between) != 0 ||
			(stop = plain_constant_end(at + between, form.types[i])) == NULL)
			return false;
		add_plain(sql, at + between, stop, constants);
		at = stop;
		before = form.stops[i];
	}
	constants->sql = form.sql;
	return form.count > 0 && strcmp(at, form.text + before) == 0;
}

/*
 * Takes constants out of a text if parameters in their place certainly mean the same.  Returns
 * false, and leaves *constants unchanged, if the text has no such constants or another form.  The
 * result is in the current memory context, but constants->sql may be valid only until the next
 * call.  Raises an error if the lexer refuses a token.
 */
bool
dw_constants_take(const char *sql, DwConstants *constants)
{
	Reader		reader = {.sql = sql};
	bool		found;

	constants->types = palloc(MAX_CONSTANTS * sizeof(Oid));
	constants->values = palloc(MAX_CONSTANTS * sizeof(Datum));
	constants->locations = palloc(3 * MAX_CONSTANTS * sizeof(int));
	constants->ends = constants->locations + MAX_CONSTANTS;
	constants->new_ends = constants->ends + MAX_CONSTANTS;

	constants->count = 0;
	if (take_by_form(sql, constants))
		return true;
	constants->count = 0;
	reader.scanner = scanner_init(sql, &reader.extra, &ScanKeywords, ScanKeywordTokens);
	dw_no_escape_warning(&reader.extra);
	found = take_all(&reader, constants);
	scanner_finish(reader.scanner);
	if (found)
	{
		replace(sql, constants);
		keep_form(sql, constants);
	}
	return found;
}

/* Turns a byte offset in constants->sql into a byte offset in the original text. */
int
dw_constants_location(const DwConstants *constants, int location)
{
	int			shift = 0;

	for (int i = 0; i < constants->count && constants->new_ends[i] <= location; i++)
		shift = constants->ends[i] - constants->new_ends[i];
	return location + shift;
}
