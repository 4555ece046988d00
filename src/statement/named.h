/*-------------------------------------------------------------------------
 *
 * named.h
 *	  Arguments of a task that have names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_NAMED_H
#define DW_NAMED_H

#include "postgres.h"

#include "utils/array.h"
#include "utils/jsonb.h"

extern text *dw_named_numbered(const text *sql, Jsonb *values, ArrayType **args);

#endif							/* DW_NAMED_H */
