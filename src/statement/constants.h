/*-------------------------------------------------------------------------
 *
 * constants.h
 *	  Texts that differ in their constants only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CONSTANTS_H
#define DW_CONSTANTS_H

#include "postgres.h"

/* A text of which the constants were taken out. */
typedef struct DwConstants
{
	char	   *sql;			/* with $1, $2, ... in their places */
	int			count;
	Oid		   *types;			/* InvalidOid: of the type unknown */
	Datum	   *values;			/* of type unknown: C strings */
	int		   *locations;		/* in the text as it was */
	int		   *ends;			/* what follows, in the text as it was */
	int		   *new_ends;		/* ... and in sql */
} DwConstants;
extern bool dw_constants_take(const char *sql, DwConstants *constants);
extern int	dw_constants_location(const DwConstants *constants, int location);

#endif							/* DW_CONSTANTS_H */
