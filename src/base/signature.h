/*-------------------------------------------------------------------------
 *
 * signature.h
 *	  Arguments and rows of SQL functions, calls by triggers, and own SQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SIGNATURE_H
#define DW_SIGNATURE_H

#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/timestamp.h"

/* A column of a row that an SQL function returns. */
typedef struct DwColumn
{
	Oid			type;
	Datum		value;
	bool		isnull;
} DwColumn;

#define DW_BOOL(b)		((DwColumn) {BOOLOID, BoolGetDatum(b), false})
#define DW_INT2(n)		((DwColumn) {INT2OID, Int16GetDatum(n), false})
#define DW_INT4(n)		((DwColumn) {INT4OID, Int32GetDatum(n), false})
#define DW_INT8(n)		((DwColumn) {INT8OID, Int64GetDatum(n), false})
#define DW_FLOAT8(x)	((DwColumn) {FLOAT8OID, Float8GetDatum(x), false})
#define DW_ROLE(oid)	((DwColumn) {REGROLEOID, ObjectIdGetDatum(oid), false})
#define DW_TIME(t)		((DwColumn) {TIMESTAMPTZOID, TimestampTzGetDatum(t), false})
#define DW_NULL(type)	((DwColumn) {type, (Datum) 0, true})

/* Adds a row with these columns to the result of a set-returning function. */
#define dw_put_row(fcinfo, ...) \
	dw_put_columns(fcinfo, (DwColumn[]) {__VA_ARGS__}, \
				   sizeof((DwColumn[]) {__VA_ARGS__}) / sizeof(DwColumn))

/* Returns the column, or null if the condition is true. */
static inline DwColumn
dw_null_if(bool condition, DwColumn column)
{
	column.isnull = condition;
	return column;
}

extern DwColumn dw_text_or_null(const char *text);
extern DwColumn dw_name_or_null(const char *name);
extern void dw_put_columns(FunctionCallInfo fcinfo, const DwColumn *row, int n);
extern Datum dw_make_row(FunctionCallInfo fcinfo, const DwColumn *row, int n);
extern bool dw_is_our_schema(Oid schema);
extern bool dw_is_channel(const char *name);
extern Datum *dw_elements(ArrayType *array, bool **nulls, int *n);
extern Datum *dw_elements_not_null(ArrayType *array, const char *what, int *n);
extern TriggerData *dw_require_trigger(FunctionCallInfo fcinfo, const char *function, bool for_row);
extern int	dw_own_sql_begin(void);
extern void dw_own_sql_end(int nest_level);

#endif							/* DW_SIGNATURE_H */
