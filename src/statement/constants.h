/*-------------------------------------------------------------------------
 *
 * constants.h
 *	  Takes the constants out of an SQL text, so that texts can share a plan.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CONSTANTS_H
#define DW_CONSTANTS_H

#include "postgres.h"

/* An SQL text, and the constants that were taken out of it */
typedef struct DwConstants
{
	char	   *sql;			/* the text with $1, $2, ... in place of the constants */
	int			count;
	Oid		   *types;			/* InvalidOid: the type unknown */
	Datum	   *values;			/* C strings for the type unknown */
	int		   *locations;		/* byte offsets of the constants in the original text */
	int		   *ends;			/* offsets of the tokens after them in the original text */
	int		   *new_ends;		/* offsets of the same tokens in sql */
} DwConstants;

extern bool dw_constants_take(const char *sql, DwConstants *constants);
extern void dw_constants_forget_form(void);
extern int	dw_constants_location(const DwConstants *constants, int location);

#endif							/* DW_CONSTANTS_H */
