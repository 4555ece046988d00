/*-------------------------------------------------------------------------
 *
 * signature.c
 *	  Between SQL and C: checks the declared columns of rows that SQL functions return, checks that
 *	  a trigger function is called by a trigger of delay_wheel, reads arrays, and executes
 *	  delay_wheel's own SQL.
 *
 * Run by sessions, in calls of the extension's functions, and by processes that execute own SQL.
 *
 * A query may declare the columns of a function's result.  If these columns differed from the
 * columns that the C code makes, PostgreSQL would read rows beyond their end.  The arguments of a
 * function need no check, since only a superuser can declare a C function with other arguments.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

#include "errors.h"
#include "signature.h"

/* Maximum number of columns of a row that a function returns. */
#define MAX_COLUMNS		32

/* Returns a column of type text, which is null if "text" is NULL. */
DwColumn
dw_text_or_null(const char *text)
{
	return (DwColumn) {TEXTOID, text == NULL ? (Datum) 0 : CStringGetTextDatum(text), text == NULL};
}

/* Returns a column of type name, which is null if "name" is NULL. */
DwColumn
dw_name_or_null(const char *name)
{
	return (DwColumn) {NAMEOID, name == NULL ? (Datum) 0 :
					   DirectFunctionCall1(namein, CStringGetDatum(name)), name == NULL};
}

/* Copies a row to "values" and "nulls".  Raises an error if the declared columns differ. */
static void
split_row(FunctionCallInfo fcinfo, TupleDesc desc, const DwColumn *row, int n, Datum *values,
		  bool *nulls)
{
	bool		matches = desc->natts == n;

	Assert(n <= MAX_COLUMNS);
	for (int i = 0; matches && i < n; i++)
	{
		matches = TupleDescAttr(desc, i)->atttypid == row[i].type;
		values[i] = row[i].value;
		nulls[i] = row[i].isnull;
	}
	if (!matches)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("function %s does not match the library of extension \"%s\"",
						format_procedure(fcinfo->flinfo->fn_oid), "delay_wheel"),
				 errhint("Use ALTER EXTENSION delay_wheel UPDATE if the library was replaced.")));
}

/* Adds a row of n columns to the tuplestore of InitMaterializedSRF(). */
void
dw_put_columns(FunctionCallInfo fcinfo, const DwColumn *row, int n)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		values[MAX_COLUMNS];
	bool		nulls[MAX_COLUMNS];

	split_row(fcinfo, result->setDesc, row, n, values, nulls);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Returns a row of n columns, for a function that returns one row. */
Datum
dw_make_row(FunctionCallInfo fcinfo, const DwColumn *row, int n)
{
	TupleDesc	desc;
	Datum		values[MAX_COLUMNS];
	bool		nulls[MAX_COLUMNS];

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	split_row(fcinfo, desc, row, n, values, nulls);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

/* Returns true if the schema belongs to the extension. */
bool
dw_is_our_schema(Oid schema)
{
	return OidIsValid(schema) &&
		(schema == get_namespace_oid("delay_wheel", true) ||
		 schema == get_namespace_oid("delay_wheel_data", true) ||
		 schema == get_namespace_oid("delay_wheel_internal", true));
}

/*
 * Returns the data of the trigger that calls this function.  Raises an error unless the caller is a
 * trigger on a table of the extension, and, if "for_row" is true, a row trigger.
 */
TriggerData *
dw_require_trigger(FunctionCallInfo fcinfo, const char *function, bool for_row)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		!dw_is_our_schema(RelationGetNamespace(trigger->tg_relation)))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by a trigger of extension \"%s\"",
						function, "delay_wheel")));
	if (for_row && !TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired for each row", function)));
	return trigger;
}

/* Returns true if the text can be the name of a notification channel. */
bool
dw_is_channel(const char *name)
{
	return name[0] != '\0' && strlen(name) < NAMEDATALEN;
}

/* Returns the elements of an array, and sets *nulls and *n. */
Datum *
dw_elements(ArrayType *array, bool **nulls, int *n)
{
	Oid			type = ARR_ELEMTYPE(array);
	int16		length;
	bool		by_value;
	char		align;
	Datum	   *elements;

	get_typlenbyvalalign(type, &length, &by_value, &align);
	deconstruct_array(array, type, length, by_value, align, &elements, nulls, n);
	return elements;
}

/* Does the same, and raises an error if an element is null.  "what" names an element. */
Datum *
dw_elements_not_null(ArrayType *array, const char *what, int *n)
{
	bool	   *nulls;
	Datum	   *elements = dw_elements(array, &nulls, n);

	for (int i = 0; i < *n; i++)
		dw_refuse_null(nulls[i], what);
	return elements;
}

/*---- Own SQL, in a session of any user, outside of functions with a search_path ----*/

/*
 * Connects to SPI, with a search_path that no user controls.  Returns a nest level for
 * dw_own_sql_end().  The end of the transaction cleans up after an error.
 */
int
dw_own_sql_begin(void)
{
	int			nest_level = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to the SPI manager");
	return nest_level;
}

/* Disconnects from SPI, and restores the search_path. */
void
dw_own_sql_end(int nest_level)
{
	SPI_finish();
	AtEOXact_GUC(true, nest_level);
}
