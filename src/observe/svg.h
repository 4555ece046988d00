/*-------------------------------------------------------------------------
 *
 * svg.h
 *	  What the pictures have in common: frame, style, text.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SVG_H
#define DW_SVG_H

#include "postgres.h"

#include "lib/stringinfo.h"

#define DW_SVG_SHADES	6		/* classes shade0, for nothing, to shade5 */

/* The shade of a number of tasks: 1, 10, 100, 1000 and 10000 begin a new one. */
extern int	dw_svg_shade(int64 tasks);

/* The picture, with its frame; title and description are for screen readers. */
extern void dw_svg_begin(StringInfo svg, int width, int height,
						 const char *title, const char *description);
extern void dw_svg_end(StringInfo svg);

/* A text, escaped; the class says how it looks. */
extern void dw_svg_text(StringInfo svg, double x, double y, const char *class,
						const char *format, ...) pg_attribute_printf(5, 6);

/* What a browser shows where the pointer is; to stand inside an element. */
extern void dw_svg_tooltip(StringInfo svg, const char *format, ...) pg_attribute_printf(2, 3);

/* A number for people: 1,234,567; or with a unit: 12k, 3.5M. */
extern char *dw_svg_number(int64 n);
extern char *dw_svg_short_number(int64 n);

/* A duration for people: 350 us, 2.5 ms, 12 s, 3 min 20 s, 5 h 12 min, 3 d 4 h. */
extern char *dw_svg_duration(double us);

/* The text, or its begin and its end, so that it has no more characters. */
extern char *dw_svg_clip(const char *text, int most);

/* What a query says, one row: texts, or NULL.  Between SPI_connect and SPI_finish. */
extern char **dw_svg_row(const char *query, int columns);

/* A value of the last query's result: one that is not null; a text, or NULL. */
extern int64 dw_svg_int64(uint64 row, int column);
extern char *dw_svg_text_at(uint64 row, int column);

#endif							/* DW_SVG_H */
