/*-------------------------------------------------------------------------
 *
 * first_row.h
 *	  The first row that the SQL of a task returns.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_FIRST_ROW_H
#define DW_FIRST_ROW_H

#include "postgres.h"

#include "access/htup.h"
#include "access/tupdesc.h"
#include "tcop/dest.h"
#include "utils/jsonb.h"

/* A receiver that keeps the first row of the last statement, and drops all others */
typedef struct DwFirstRow
{
	DestReceiver pub;			/* must be first */
	int			limit;			/* bytes of a row that is kept; 0: none is */
	MemoryContext context;		/* memory for the row */
	bool		met;			/* the last statement has returned a row */
	TupleDesc	names;			/* of the statement: its columns, with their names */
	TupleDesc	desc;			/* a copy of names, for the tuple */
	HeapTuple	tuple;			/* NULL: it is too long */
} DwFirstRow;

extern void dw_first_row_init(DwFirstRow *row, int limit);
extern void dw_first_row_forget(DestReceiver *receiver);
extern Jsonb *dw_first_row_take(DwFirstRow *row);
extern Jsonb *dw_jsonb_within(const char *json, int limit);

#endif							/* DW_FIRST_ROW_H */
