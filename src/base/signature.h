/*-------------------------------------------------------------------------
 *
 * signature.h
 *	  Are the SQL functions declared as the C code needs it?
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SIGNATURE_H
#define DW_SIGNATURE_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "funcapi.h"

/* An error if the function does not return and take these types. */
extern void dw_require_signature(FunctionCallInfo fcinfo, Oid result, int nargs, const Oid *args);

/* The same for the columns of a result. */
extern void dw_require_columns(FunctionCallInfo fcinfo, TupleDesc desc, int n, const Oid *types);

/* Begins a result of rows with these columns. */
extern ReturnSetInfo *dw_begin_rows(FunctionCallInfo fcinfo, int n, const Oid *types);

/*
 * What calls a trigger function of ours must be a trigger on a table of ours,
 * maybe one for each row.
 */
extern TriggerData *dw_require_trigger(FunctionCallInfo fcinfo, const char *function, bool for_row);

#endif							/* DW_SIGNATURE_H */
