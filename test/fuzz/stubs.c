/*
 * What the tested files need of PostgreSQL, as far as it takes to run them
 * outside of a server, with sanitizers.  Memory is malloc()'s, each piece by
 * itself, so that what is read or written beyond it is noticed.
 *
 * What a target must not come to (the parser, errors) is a finding.
 */
#include "stubs.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>
#undef printf
#undef vsnprintf
#undef fprintf

#include "common/keywords.h"
/* its second argument has another type from PostgreSQL 16 on */
#define appendBinaryStringInfo declared_otherwise
#include "lib/stringinfo.h"
#undef appendBinaryStringInfo
#include "mb/pg_wchar.h"
#include "parser/scanner.h"
#include "utils/datetime.h"
#include "utils/memutils.h"

/*---- Memory ----*/

static void **pieces = NULL;
static size_t npieces = 0;
static size_t max_pieces = 0;

static void *
keep(void *piece)
{
	if (npieces == max_pieces)
		pieces = realloc(pieces, (max_pieces = max_pieces * 2 + 16) * sizeof(void *));
	pieces[npieces++] = piece;
	return piece;
}

void
fuzz_free_all(void)
{
	while (npieces > 0)
		free(pieces[--npieces]);
}

void *
palloc(Size size)
{
	return keep(malloc(size));
}

void *
palloc0(Size size)
{
	return keep(calloc(1, size));
}

char *
psprintf(const char *format,...)
{
	va_list		args;
	char		buffer[8192];

	va_start(args, format);
	vsnprintf(buffer, sizeof(buffer), format, args);
	va_end(args);
	return keep(strdup(buffer));
}

int
pg_snprintf(char *text, size_t size, const char *format,...)
{
	va_list		args;
	int			length;

	va_start(args, format);
	length = vsnprintf(text, size, format, args);
	va_end(args);
	return length;
}

char *
pnstrdup(const char *text, Size length)
{
	return keep(strndup(text, length));
}

char *
pstrdup(const char *text)
{
	return keep(strdup(text));
}

/* What outlives an input; pfree() is called for nothing else. */
MemoryContext TopMemoryContext = NULL;

char *
MemoryContextStrdup(MemoryContext context, const char *text)
{
	return strdup(text);
}

void
pfree(void *pointer)
{
	free(pointer);
}

extern void appendBinaryStringInfo(StringInfo string, const void *data, int length);

/* With room for no more than there is. */
void
initStringInfo(StringInfo string)
{
	string->data = palloc0(1);
	string->len = string->maxlen = string->cursor = 0;
}

void
appendBinaryStringInfo(StringInfo string, const void *data, int length)
{
	char	   *grown = palloc0(string->len + length + 1);

	if (length < 0)
		finding("a negative length is appended");
	memcpy(grown, string->data, string->len);
	memcpy(grown + string->len, data, length);
	string->data = grown;
	string->len += length;
}

void
appendStringInfoString(StringInfo string, const char *s)
{
	appendBinaryStringInfo(string, s, strlen(s));
}

void
appendStringInfo(StringInfo string, const char *format,...)
{
	va_list		args;
	char		buffer[8192];

	va_start(args, format);
	vsnprintf(buffer, sizeof(buffer), format, args);
	va_end(args);
	appendStringInfoString(string, buffer);
}

/*---- Texts: UTF-8 ----*/

int
pg_strcasecmp(const char *a, const char *b)
{
	return strcasecmp(a, b);
}

int
pg_strncasecmp(const char *a, const char *b, size_t n)
{
	return strncasecmp(a, b, n);
}

unsigned char
pg_tolower(unsigned char c)
{
	return c < 128 ? tolower(c) : c;
}

int
pg_mbcliplen(const char *text, int length, int limit)
{
	int			clipped = Min(length, limit);

	while (clipped > 0 && clipped < length && ((unsigned char) text[clipped] & 0xC0) == 0x80)
		clipped--;
	return clipped;
}

/*---- The calendar ----*/

const int	day_tab[2][13] = {
	{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0},
	{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0}
};

static int64
floor_div(int64 a, int64 b)
{
	return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Days since 1 January 4714 BC, Julian; years that begin in March. */
int
date2j(int year, int month, int day)
{
	int64		y = (int64) year - (month <= 2);
	int64		m = (month + 9) % 12;

	return (int) (365 * y + floor_div(y, 4) - floor_div(y, 100) + floor_div(y, 400) +
				  (153 * m + 2) / 5 + day - 1 + 1721120);
}

void
j2date(int julian, int *year, int *month, int *day)
{
	int64		days = (int64) julian - 1721120;
	int64		era = floor_div(days, 146097);
	int64		of_era = days - era * 146097;
	int64		year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	int64		of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	int64		m = (5 * of_year + 2) / 153;

	*day = (int) (of_year - (153 * m + 2) / 5 + 1);
	*month = (int) (m < 10 ? m + 3 : m - 9);
	*year = (int) (era * 400 + year_of_era + (*month <= 2));
}

int
j2day(int julian)
{
	return (int) (((int64) julian + 1) % 7 + 7) % 7;
}

int
pg_next_dst_boundary(const pg_time_t *t, long int *before, int *before_dst,
					 pg_time_t *boundary, long int *after, int *after_dst, const pg_tz *zone)
{
	int			i = 0;

	while (i + 1 < zone->n && zone->from[i + 1] <= *t)
		i++;
	*before = zone->offset[i];
	*before_dst = 0;
	if (i + 1 == zone->n)
		return 0;
	*boundary = zone->from[i + 1];
	*after = zone->offset[i + 1];
	*after_dst = 0;
	return 1;
}

/*---- A lexer ----*/

/*
 * Of the grammar's tokens, by its numbers: identifiers and keywords (no matter
 * which), strings, integers, parameters, single characters; comments.
 */
#define IDENT	258
#define SCONST	261
#define ICONST	266
#define PARAM	267
#define KEYWORD	300

const ScanKeywordList ScanKeywords = {0};
const uint16 ScanKeywordTokens[1] = {0};

typedef struct Lexer
{
	const char *text;
	int			at;
} Lexer;

core_yyscan_t
scanner_init(const char *text, core_yy_extra_type *extra, const ScanKeywordList *keywords,
			 const uint16 *tokens)
{
	Lexer	   *lexer = palloc0(sizeof(Lexer));

	lexer->text = text;
	return lexer;
}

void
scanner_finish(core_yyscan_t scanner)
{
}

static bool
is_word(unsigned char c)
{
	return isalnum(c) || c == '_' || c >= 128;
}

static int
word(Lexer *lexer, int at)
{
	static const char *const keywords[] = {"select", "update", "delete", "and", "or", "where", "returning", "set", "from"};
	int			length = lexer->at - at;

	for (size_t i = 0; i < lengthof(keywords); i++)
		if ((int) strlen(keywords[i]) == length && strncasecmp(lexer->text + at, keywords[i], length) == 0)
			return KEYWORD + i;
	return IDENT;
}

int
core_yylex(core_YYSTYPE *value, YYLTYPE *location, core_yyscan_t scanner)
{
	Lexer	   *lexer = (Lexer *) scanner;
	const char *text = lexer->text;
	int			at;

	while (isspace((unsigned char) text[lexer->at]) || strncmp(text + lexer->at, "--", 2) == 0)
	{
		if (text[lexer->at] == '-')
			while (text[lexer->at] != '\0' && text[lexer->at] != '\n')
				lexer->at++;
		else
			lexer->at++;
	}
	*location = at = lexer->at;
	if (text[at] == '\0')
		return 0;
	if (isdigit((unsigned char) text[at]) || (text[at] == '$' && isdigit((unsigned char) text[at + 1])))
	{
		value->ival = 0;
		lexer->at += text[at] == '$';
		while (isdigit((unsigned char) text[lexer->at]))
			value->ival = (int) ((unsigned) value->ival * 10 + (text[lexer->at++] - '0'));
		return text[at] == '$' ? PARAM : ICONST;
	}
	if (text[at] == '\'')
	{
		const char *end = strchr(text + at + 1, '\'');

		if (end == NULL)
			return 0;
		lexer->at = end + 1 - text;
		value->str = keep(strndup(text + at + 1, end - text - at - 1));
		return SCONST;
	}
	if (!is_word(text[at]))
		return (unsigned char) text[lexer->at++];
	while (is_word(text[lexer->at]))
		lexer->at++;
	return word(lexer, at);
}
