/*-------------------------------------------------------------------------
 *
 * signature.h
 *	  Checks of the columns that functions return, and of calls by triggers.
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

extern void dw_require_columns(FunctionCallInfo fcinfo, TupleDesc desc, int n, const Oid *types);
extern ReturnSetInfo *dw_begin_rows(FunctionCallInfo fcinfo, int n, const Oid *types);
extern bool dw_is_our_schema(Oid schema);
extern TriggerData *dw_require_trigger(FunctionCallInfo fcinfo, const char *function, bool for_row);

#endif							/* DW_SIGNATURE_H */
