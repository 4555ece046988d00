/*-------------------------------------------------------------------------
 *
 * constants.c
 *	  Takes the constants out of an SQL text, so that texts can share a plan.
 *
 * Run by executors, for tasks without arguments.  README.md describes the two forms of such texts.
 *
 * An integer becomes a parameter of type integer, as in the parser.  A string becomes a parameter
 * of type unknown, which args.c reads as the type that its position requires.
 *
 * Texts of one form mostly come one after the other, so a text with the form of the last text is
 * not given to the lexer: its parts between the constants are equal, byte by byte, and each
 * constant is plain (only digits, or a string without quotes and backslashes), of the same type.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "utils/memutils.h"

#include "statement.h"

/*
 * The form of the last text whose constants were taken.  constants.count is 0 if there is none.
 * The values of the constants are not part of the form.
 */
static struct
{
	char	   *text;			/* in TopMemoryContext, as is constants.sql */
	DwConstants constants;
	int			stops[DW_MAX_CONSTANTS];	/* byte offsets of the ends of the constants in text */
}			form;

/* Returns true if the token is this keyword.  A quoted identifier is no keyword. */
static bool
is_word(const DwTokens *tokens, const char *word)
{
	const char *text = tokens->sql + tokens->location;
	size_t		length = strlen(word);

	return tokens->token > DW_TOKEN_PARAM && pg_strncasecmp(text, word, length) == 0 &&
		!dw_is_word_char(text[length]);
}

/* Returns true if the token is an integer or a string. */
static bool
is_constant(const DwTokens *tokens)
{
	return tokens->token == DW_TOKEN_ICONST || tokens->token == DW_TOKEN_SCONST;
}

/*
 * Adds the current token, a constant, to *constants, and moves to the next token.  Returns false if
 * there are too many constants.
 */
static bool
take_constant(DwTokens *tokens, DwConstants *constants)
{
	int			i = constants->count;

	if (i == DW_MAX_CONSTANTS)
		return false;
	constants->locations[i] = tokens->location;
	if (tokens->token == DW_TOKEN_ICONST)
	{
		constants->types[i] = INT4OID;
		constants->values[i] = Int32GetDatum(tokens->value.ival);
	}
	else
	{
		constants->types[i] = InvalidOid;
		constants->values[i] = CStringGetDatum(tokens->value.str);
	}
	(void) dw_tokens_next(tokens);
	constants->ends[i] = tokens->location;
	constants->count++;
	return true;
}

/* Takes the constants of SELECT f(c, ...); returns false for another form. */
static bool
take_from_call(DwTokens *tokens, DwConstants *constants)
{
	(void) dw_tokens_next(tokens);
	while (tokens->token == DW_TOKEN_IDENT)
	{
		(void) dw_tokens_next(tokens);
		if (tokens->token != '.')
			break;
		(void) dw_tokens_next(tokens);
	}
	if (tokens->token != '(')
		return false;
	do
	{
		(void) dw_tokens_next(tokens);
		if (!is_constant(tokens) || !take_constant(tokens, constants))
			return false;
	} while (tokens->token == ',');
	if (tokens->token != ')')
		return false;
	(void) dw_tokens_next(tokens);
	while (tokens->token == ';')
		(void) dw_tokens_next(tokens);
	return tokens->token == 0;
}

/* Returns true if the current token cannot belong to the expression before it. */
static bool
ends_expression(const DwTokens *tokens)
{
	return tokens->token == 0 || tokens->token == ';' || tokens->token == ',' ||
		tokens->token == ')' || is_word(tokens, "and") || is_word(tokens, "or") ||
		is_word(tokens, "where") || is_word(tokens, "returning");
}

/*
 * Takes the constants of an UPDATE or DELETE that are between = and the end of an expression.
 * Returns false if the text contains no such constants, or contains a SELECT or a $n.
 */
static bool
take_from_change(DwTokens *tokens, DwConstants *constants)
{
	while (tokens->token != 0)
	{
		bool		compared = tokens->token == '=';

		(void) dw_tokens_next(tokens);
		if (tokens->token == DW_TOKEN_PARAM || is_word(tokens, "select"))
			return false;
		if (!compared || !is_constant(tokens))
			continue;
		if (!take_constant(tokens, constants))
			return false;
		if (!ends_expression(tokens))
			constants->count--;
	}
	return constants->count > 0;
}

/* Makes constants->sql.  A comment after a constant is removed with the constant. */
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
	if (dw_is_word_char(*text) || *text == '.' || *text == '\'' || *text == '"')
		return false;
	/* a string may continue in the next line */
	return memchr(text, '\'', next_token - text) == NULL;
}

/* Remembers the form of this text, if its constants are plain. */
static void
keep_form(const char *sql, const DwConstants *constants)
{
	form.constants.count = 0;
	for (int i = 0; i < constants->count; i++)
	{
		const char *stop = plain_constant_end(sql + constants->locations[i], constants->types[i]);

		if (stop == NULL || !cannot_go_on(stop, sql + constants->ends[i]))
			return;
		form.stops[i] = stop - sql;
	}
	if (form.text != NULL)
	{
		pfree(form.text);
		pfree(form.constants.sql);
		form.text = NULL;
	}
	form.constants = *constants;
	form.constants.count = 0;
	form.constants.sql = MemoryContextStrdup(TopMemoryContext, constants->sql);
	form.text = MemoryContextStrdup(TopMemoryContext, sql);
	form.constants.count = constants->count;
}

/* Forgets the form of the last text, since settings for reading it may have changed. */
void
dw_constants_forget_form(void)
{
	form.constants.count = 0;
}

/* Adds the plain constant from start to stop to *constants. */
static void
add_plain(const char *sql, const char *start, const char *stop, DwConstants *constants)
{
	int			i = constants->count++;

	constants->types[i] = form.constants.types[i];
	constants->locations[i] = start - sql;
	constants->ends[i] = stop - sql + form.constants.ends[i] - form.stops[i];
	constants->new_ends[i] = form.constants.new_ends[i];
	constants->values[i] = constants->types[i] == INT4OID ? Int32GetDatum(atoi(start)) :
		CStringGetDatum(pnstrdup(start + 1, stop - start - 2));
}

/* Takes the constants of a text with the form of the last text; returns false for another form. */
static bool
take_by_form(const char *sql, DwConstants *constants)
{
	const char *at = sql;
	int			before = 0;		/* offset in form.text of the text that must come next */

	for (int i = 0; i < form.constants.count; i++)
	{
		const char *stop;
		int			between = form.constants.locations[i] - before;

		if (strncmp(at, form.text + before, between) != 0 ||
			(stop = plain_constant_end(at + between, form.constants.types[i])) == NULL)
			return false;
		add_plain(sql, at + between, stop, constants);
		at = stop;
		before = form.stops[i];
	}
	constants->sql = form.constants.sql;
	return form.constants.count > 0 && strcmp(at, form.text + before) == 0;
}

/*
 * Takes constants out of a text if parameters in their place certainly mean the same.  Returns
 * false if the text has no such constants or another form.  The result is in the current memory
 * context, but constants->sql may be valid only until the next call.  Raises an error if the lexer
 * refuses a token.
 */
bool
dw_constants_take(const char *sql, DwConstants *constants)
{
	DwTokens	tokens;
	bool		found = false;

	constants->original = sql;
	constants->count = 0;
	if (take_by_form(sql, constants))
		return true;
	constants->count = 0;
	dw_tokens_begin(&tokens, sql);
	(void) dw_tokens_next(&tokens);
	if (is_word(&tokens, "select"))
		found = take_from_call(&tokens, constants);
	else if (is_word(&tokens, "update") || is_word(&tokens, "delete"))
		found = take_from_change(&tokens, constants);
	dw_tokens_end(&tokens);
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
