/*-------------------------------------------------------------------------
 *
 * svg.c
 *	  What the pictures have in common: frame, style, text.
 *
 * Run by backends.  The pictures stand for themselves: no script, font or file
 * from elsewhere; light or dark as the viewer prefers.  What differs in colour
 * differs in shape, size or words as well.  The text is plain ASCII, with
 * character references for the rest, so it is well-formed in any encoding.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/namespace.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "svg.h"

/*
 * Selectors name the picture, so that they concern nothing else where it is
 * put into a page.  Pairs that must be told apart do so in either mode, also
 * in grey.
 */
static const char style[] =
	"<style>\n"
	".dw text{font-family:system-ui,\"DejaVu Sans\",Helvetica,Arial,sans-serif;font-size:13px;fill:#1f2328}\n"
	".dw .title{font-size:18px;font-weight:600}\n"
	".dw .head{font-weight:600}\n"
	".dw .big{font-size:24px;font-weight:600}\n"
	".dw .dim,.dw .small{fill:#59636e}\n"
	".dw .small{font-size:11px}\n"
	".dw .m{text-anchor:middle}\n"
	".dw .e{text-anchor:end}\n"
	".dw .frame{fill:#fff;stroke:#d1d9e0}\n"
	".dw .line{fill:none;stroke:#818b98}\n"
	".dw .grid{fill:none;stroke:#e1e6eb}\n"
	".dw .shade0{fill:#eef2f6}.dw .shade1{fill:#c6dff5}.dw .shade2{fill:#8fc1ea}"
	".dw .shade3{fill:#4b97d6}.dw .shade4{fill:#1c66ac}.dw .shade5{fill:#0a3263}\n"
	".dw .edge{stroke:#818b98;stroke-width:.5}\n"
	".dw .hatch{stroke:#fff;stroke-width:1.5}\n"
	".dw .now{fill:#b3401a}\n"
	".dw .next{fill:#1a7f37}\n"
	".dw .far{fill:none;stroke:#7a3fb8;stroke-width:2;stroke-dasharray:5 3}\n"
	".dw .mark{fill:none;stroke:#b3401a;stroke-width:1.5}\n"
	"@media (prefers-color-scheme:dark){\n"
	".dw text{fill:#e6edf3}\n"
	".dw .dim,.dw .small{fill:#9da7b3}\n"
	".dw .frame{fill:#0d1117;stroke:#30363d}\n"
	".dw .line{stroke:#7d8793}\n"
	".dw .grid{stroke:#252b32}\n"
	".dw .shade0{fill:#1c2229}.dw .shade1{fill:#16395e}.dw .shade2{fill:#1f5a96}"
	".dw .shade3{fill:#3b86d0}.dw .shade4{fill:#7bb8f0}.dw .shade5{fill:#cfe8ff}\n"
	".dw .edge{stroke:#7d8793}\n"
	".dw .hatch{stroke:#0d1117}\n"
	".dw .now{fill:#ff9466}\n"
	".dw .next{fill:#56d364}\n"
	".dw .far{stroke:#c297ff}\n"
	".dw .mark{stroke:#ff9466}\n"
	"}\n"
	"</style>\n"
	"<defs><pattern id=\"dw-hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\""
	" patternTransform=\"rotate(45)\"><path class=\"hatch\" d=\"M0 0V5\"/></pattern></defs>\n";

/*
 * The shade of a number of tasks: 1, 10, 100, 1000 and 10000 begin a new one.
 */
int
dw_svg_shade(int64 tasks)
{
	int			shade = 0;

	for (int64 from = 1; tasks >= from && shade < DW_SVG_SHADES - 1; from *= 10)
		shade++;
	return shade;
}

/*---- Text ----*/

/* XML has no control characters, not even by reference, nor these two. */
static bool
is_xml(pg_wchar c)
{
	return (c >= 0x20 || c == '\t' || c == '\n') && c != 0x7f && c != 0xfffe && c != 0xffff;
}

static void
append_character(StringInfo svg, pg_wchar c)
{
	if (!is_xml(c))
		appendStringInfoChar(svg, '?');
	else if (c >= 0x80)
		appendStringInfo(svg, "&#%u;", c);
	else if (c == '&')
		appendStringInfoString(svg, "&amp;");
	else if (c == '<')
		appendStringInfoString(svg, "&lt;");
	else if (c == '>')
		appendStringInfoString(svg, "&gt;");
	else if (c == '"')
		appendStringInfoString(svg, "&quot;");
	else
		appendStringInfoChar(svg, (char) c);
}

static void
append_utf8(StringInfo svg, const unsigned char *c, int length)
{
	while (length > 0)
	{
		int			bytes = pg_utf_mblen(c);
		bool		valid = bytes <= length && pg_utf8_islegal(c, bytes);

		if (!valid)
			bytes = 1;
		append_character(svg, valid ? utf8_to_unicode(c) : '?');
		c += bytes;
		length -= bytes;
	}
}

/*
 * Names of roles and databases are the same in all databases, whatever the
 * encoding of the one where they were given: they need not be valid here.
 */
static void
append_escaped(StringInfo svg, const char *text)
{
	int			encoding = GetDatabaseEncoding();
	int			length = strlen(text);
	unsigned char *utf8;
	Oid			proc;

	if (encoding == PG_UTF8)
	{
		append_utf8(svg, (const unsigned char *) text, length);
		return;
	}
	/* nobody knows what a byte means in SQL_ASCII */
	proc = encoding == PG_SQL_ASCII ? InvalidOid : FindDefaultConversionProc(encoding, PG_UTF8);
	utf8 = palloc(MAX_CONVERSION_GROWTH * length + 1);
	while (length > 0)
	{
		int			done = 0;

		if (OidIsValid(proc))
			done = pg_do_encoding_conversion_buf(proc, encoding, PG_UTF8, (unsigned char *) text, length,
												 utf8, MAX_CONVERSION_GROWTH * length + 1, true);
		if (done > 0)
			append_utf8(svg, utf8, strlen((char *) utf8));
		else
		{
			append_character(svg, IS_HIGHBIT_SET(*text) ? '?' : *text);
			done = 1;
		}
		text += done;
		length -= done;
	}
	pfree(utf8);
}

static char *format_text(const char *format, va_list args) pg_attribute_printf(1, 0);

static char *
format_text(const char *format, va_list args)
{
	StringInfoData text;
	int			saved_errno = errno;

	initStringInfo(&text);
	for (;;)
	{
		va_list		copy;
		int			needed;

		va_copy(copy, args);
		errno = saved_errno;
		needed = appendStringInfoVA(&text, format, copy);
		va_end(copy);
		if (needed == 0)
			return text.data;
		enlargeStringInfo(&text, needed);
	}
}

/* A text, escaped; the class says how it looks. */
void
dw_svg_text(StringInfo svg, double x, double y, const char *class, const char *format, ...)
{
	va_list		args;

	va_start(args, format);
	appendStringInfo(svg, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
	append_escaped(svg, format_text(format, args));
	appendStringInfoString(svg, "</text>\n");
	va_end(args);
}

/* What a browser shows where the pointer is; to stand inside an element. */
void
dw_svg_tooltip(StringInfo svg, const char *format, ...)
{
	va_list		args;

	va_start(args, format);
	appendStringInfoString(svg, "<title>");
	append_escaped(svg, format_text(format, args));
	appendStringInfoString(svg, "</title>");
	va_end(args);
}

void
dw_svg_begin(StringInfo svg, int width, int height, const char *title, const char *description)
{
	appendStringInfo(svg,
					 "<svg class=\"dw\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\""
					 " width=\"%d\" height=\"%d\" role=\"img\">\n<title>", width, height, width, height);
	append_escaped(svg, title);
	appendStringInfoString(svg, "</title>\n<desc>");
	append_escaped(svg, description);
	appendStringInfo(svg, "</desc>\n%s", style);
	appendStringInfo(svg, "<rect class=\"frame\" x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n",
					 width - 1, height - 1);
	dw_svg_text(svg, 20, 32, "title", "%s", title);
}

void
dw_svg_end(StringInfo svg)
{
	appendStringInfoString(svg, "</svg>\n");
}

/*
 * How many characters there are, up to a number, and how many bytes these take.
 * The last one need not be complete, see append_escaped().
 */
static int
characters(const char *text, int most, int *bytes)
{
	int			length = strlen(text);
	int			at = 0;
	int			n = 0;

	for (; at < length && n < most; n++)
		at += Min(pg_encoding_mblen(GetDatabaseEncoding(), text + at), length - at);
	if (bytes != NULL)
		*bytes = at;
	return n;
}

/* The text, or its begin and its end, so that it has no more characters. */
char *
dw_svg_clip(const char *text, int most)
{
	int			length = characters(text, INT_MAX, NULL);
	int			end = (most - 3) / 3;
	int			head;
	int			tail;

	if (length <= most)
		return pstrdup(text);
	(void) characters(text, most - 3 - end, &head);
	(void) characters(text, length - end, &tail);
	return psprintf("%.*s...%s", head, text, text + tail);
}

/*---- Numbers ----*/

char *
dw_svg_number(int64 n)
{
	char	   *digits = psprintf(INT64_FORMAT, n);
	int			length = strlen(digits);
	StringInfoData result;

	initStringInfo(&result);
	for (int i = 0; i < length; i++)
	{
		if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-')
			appendStringInfoChar(&result, ',');
		appendStringInfoChar(&result, digits[i]);
	}
	return result.data;
}

char *
dw_svg_short_number(int64 n)
{
	static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
	double		value = (double) n;
	int			unit = 0;

	/* 999.95 would be written as 1000.0 */
	while (value >= 999.95 && unit < (int) lengthof(units) - 1)
	{
		value /= 1000;
		unit++;
	}
	return psprintf(value >= 99.95 || value == floor(value) ? "%.0f%s" : "%.1f%s", value, units[unit]);
}

static char *
two_units(int64 n, int64 part, const char *large, const char *small)
{
	if (n % part == 0)
		return psprintf(INT64_FORMAT " %s", n / part, large);
	return psprintf(INT64_FORMAT " %s " INT64_FORMAT " %s", n / part, large, n % part, small);
}

/* One decimal, if it says anything. */
static char *
one_unit(double value, const char *unit)
{
	return psprintf(value >= 9.95 || value == floor(value) ? "%.0f %s" : "%.1f %s", value, unit);
}

/*
 * A duration for people: 350 us, 2.5 ms, 12 s, 3 min 20 s, 5 h 12 min, 3 d 4 h.
 */
char *
dw_svg_duration(double us)
{
	double		s = us / 1e6;

	if (us < 999.5)
		return one_unit(rint(us), "us");
	if (us < 999500)
		return one_unit(us / 1e3, "ms");
	if (s < 59.5)
		return one_unit(s, "s");
	if (s < 3599.5)
		return two_units((int64) rint(s), 60, "min", "s");
	if (s < 86370)
		return two_units((int64) rint(s / 60), 60, "h", "min");
	return two_units((int64) rint(s / 3600), 24, "d", "h");
}

/*---- What is drawn ----*/

/*
 * What a query says, one row: texts, or NULL.  Between SPI_connect and SPI_finish.
 */
char **
dw_svg_row(const char *query, int columns)
{
	char	  **row;

	if (SPI_execute(query, true, 2) != SPI_OK_SELECT)
		elog(ERROR, "could not read what is to be drawn");
	if (SPI_processed == 0)
		return NULL;
	if (SPI_processed > 1 || SPI_tuptable->tupdesc->natts != columns)
		elog(ERROR, "what is to be drawn has another form");
	row = palloc0(sizeof(char *) * columns);
	for (int i = 0; i < columns; i++)
		row[i] = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1);
	return row;
}

int64
dw_svg_int64(uint64 row, int column)
{
	bool		isnull;

	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, &isnull));
}

char *
dw_svg_text_at(uint64 row, int column)
{
	return SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column);
}
