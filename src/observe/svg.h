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

extern int	dw_svg_shade(int64 tasks);

/* The picture, with its frame; title and description are for screen readers. */
extern void dw_svg_begin(StringInfo svg, int width, int height,
						 const char *title, const char *description);
extern void dw_svg_end(StringInfo svg);
extern void dw_svg_text(StringInfo svg, double x, double y, const char *class,
						const char *format, ...) pg_attribute_printf(5, 6);
extern void dw_svg_tooltip(StringInfo svg, const char *format, ...) pg_attribute_printf(2, 3);

/* A number for people: 1,234,567; or with a unit: 12k, 3.5M. */
extern char *dw_svg_number(int64 n);
extern char *dw_svg_short_number(int64 n);
extern char *dw_svg_duration(double us);
extern char *dw_svg_clip(const char *text, int most);
extern char **dw_svg_row(const char *query, int columns);

/* A value of the last query's result: one that is not null; a text, or NULL. */
extern int64 dw_svg_int64(uint64 row, int column);
extern char *dw_svg_text_at(uint64 row, int column);

#endif							/* DW_SVG_H */
