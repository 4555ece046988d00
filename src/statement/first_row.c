/*-------------------------------------------------------------------------
 *
 * first_row.c
 *	  The first row that the SQL of a task returns.
 *
 * Run by executors, and by sessions that run a task at once.
 *
 * The rows that a task returns go nowhere: they may be huge.  With delay_wheel.history_result
 * the history has the first row of the last statement, so a copy of it is kept, if it is
 * short enough.  All its columns are looked at before anything is copied, so a row of any
 * size costs little.
 *
 * The row becomes a jsonb after the statement, as the user that has run it.  Functions of types
 * may fail, which must not be the task's failure.  So they run in a subtransaction.
 *
 * The owner of a type may create a cast to json, which is then called for each value of the type.
 * Nobody has asked for that, and reading a table calls no functions otherwise.  So a row for which
 * a function of another role would be called is not kept, unless that role is a superuser.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "../base/errors.h"
#include "statement.h"

/*---- The receiver ----*/

/* Forgets the row of an earlier statement of the text. */
static void
forget(DwFirstRow *row)
{
	if (row->tuple != NULL)
		heap_freetuple(row->tuple);
	if (row->desc != NULL)
		FreeTupleDesc(row->desc);
	row->tuple = NULL;
	row->desc = NULL;
	row->met = false;
}

/* The size of a value in bytes, uncompressed; it is not read for that. */
static Size
value_size(Datum value, Form_pg_attribute attribute)
{
	if (attribute->attlen == -1)
		return toast_raw_datum_size(value) - VARHDRSZ;
	return attribute->attlen == -2 ? strlen(DatumGetCString(value)) : attribute->attlen;
}

/* True if the values of a row, all together, are not longer than the limit. */
static bool
is_short(TupleTableSlot *slot, Size limit)
{
	Size		size = 0;

	slot_getallattrs(slot);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts && size <= limit; i++)
		if (!slot->tts_isnull[i])
			size += value_size(slot->tts_values[i], TupleDescAttr(slot->tts_tupleDescriptor, i));
	return size <= limit;
}

/* Keeps the first row; see DestReceiver. */
static bool
keep_if_first(TupleTableSlot *slot, DestReceiver *self)
{
	DwFirstRow *row = (DwFirstRow *) self;
	MemoryContext context;

	if (row->met)
		return true;
	row->met = true;
	if (!is_short(slot, row->limit))
		return true;
	context = MemoryContextSwitchTo(row->context);
	/* that of the slot need not have the names */
	row->desc = CreateTupleDescCopy(row->names);
	row->tuple = ExecCopySlotHeapTuple(slot);
	if (HeapTupleHasExternal(row->tuple))
		row->tuple = toast_flatten_tuple(row->tuple, row->desc);
	MemoryContextSwitchTo(context);
	return true;
}

/* A statement begins to return rows; see DestReceiver. */
static void
startup(DestReceiver *self, int operation, TupleDesc typeinfo)
{
	DwFirstRow *row = (DwFirstRow *) self;

	forget(row);
	row->names = typeinfo;
}

/*
 * Initializes a receiver that keeps a row of at most limit bytes, in the current memory
 * context; 0: no row.  It drops rows as None_Receiver does.  With None_Receiver itself, SPI
 * would not tell whether a statement was a query.
 */
void
dw_first_row_init(DwFirstRow *row, int limit)
{
	memset(row, 0, sizeof(DwFirstRow));
	row->pub = *None_Receiver;
	row->pub.mydest = DestTuplestore;
	row->limit = limit;
	row->context = CurrentMemoryContext;
	if (limit > 0)
	{
		row->pub.receiveSlot = keep_if_first;
		row->pub.rStartup = startup;
	}
}

/*
 * To be called before a utility statement that sends its rows to the receiver, which may be
 * any: forgets the row of an earlier statement.  Not each of them returns rows, and only one
 * that does tells the receiver that it begins.
 */
void
dw_first_row_forget(DestReceiver *receiver)
{
	if (receiver != NULL && receiver->receiveSlot == keep_if_first)
		forget((DwFirstRow *) receiver);
}

/*---- A row that is not kept ----*/

/* What stands for a row that is not kept: JSON's null.  Any other row is an object. */
static Jsonb *
not_kept(void)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("null")));
}

/* Returns a JSON text as jsonb; JSON's null if it is longer than the limit. */
Jsonb *
dw_jsonb_within(const char *json, int limit)
{
	Jsonb	   *jsonb;

	/* far too long: it is not even parsed */
	if (strlen(json) > (Size) limit * 8)
		return not_kept();
	jsonb = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json)));
	return VARSIZE(jsonb) > limit ? not_kept() : jsonb;
}

/*---- Whose functions the conversion calls ----*/

static bool is_trusted_value(Oid type, Datum value);

/* True if the function is the current user's own, or a superuser's. */
static bool
is_trusted_function(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid			owner = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
		ReleaseSysCache(tuple);
	}
	return owner == GetUserId() || superuser_arg(owner);
}

/* True if row_to_json() calls no function of another role for the values of a row. */
static bool
is_trusted_row(TupleDesc desc, HeapTuple tuple)
{
	for (int i = 0; i < desc->natts; i++)
	{
		bool		isnull;
		Datum		value;

		if (TupleDescAttr(desc, i)->attisdropped)
			continue;
		value = heap_getattr(tuple, i + 1, desc, &isnull);
		if (!isnull && !is_trusted_value(TupleDescAttr(desc, i)->atttypid, value))
			return false;
	}
	return true;
}

/* The same for a value of a row type. */
static bool
is_trusted_composite(Datum value)
{
	HeapTupleHeader header = DatumGetHeapTupleHeader(value);
	TupleDesc	desc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(header),
											  HeapTupleHeaderGetTypMod(header));
	HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(header), .t_data = header};
	bool		trusted;

	ItemPointerSetInvalid(&tuple.t_self);
	trusted = is_trusted_row(desc, &tuple);
	ReleaseTupleDesc(desc);
	return trusted;
}

/* The same for an array. */
static bool
is_trusted_array(Datum value)
{
	ArrayType  *array = DatumGetArrayTypeP(value);
	Oid			type = ARR_ELEMTYPE(array);
	Datum	   *elements;
	bool	   *nulls;
	int16		len;
	bool		byval;
	char		align;
	int			n;

	get_typlenbyvalalign(type, &len, &byval, &align);
	deconstruct_array(array, type, len, byval, align, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (!nulls[i] && !is_trusted_value(type, elements[i]))
			return false;
	return true;
}

/* The same for a value of any type, as row_to_json() tells types apart. */
static bool
is_trusted_value(Oid type, Datum value)
{
	Oid			function;

	check_stack_depth();
	type = getBaseType(type);
	if (OidIsValid(get_element_type(type)) || type == ANYARRAYOID ||
		type == ANYCOMPATIBLEARRAYOID || type == RECORDARRAYOID)
		return is_trusted_array(value);
	if (type_is_rowtype(type))
		return is_trusted_composite(value);
	return type < FirstNormalObjectId ||
		find_coercion_pathway(JSONOID, type, COERCION_EXPLICIT, &function) != COERCION_PATH_FUNC ||
		is_trusted_function(function);
}

/*---- The row as jsonb ----*/

/* Returns the row as jsonb.  Functions of its types may raise any error. */
static Jsonb *
row_as_jsonb(DwFirstRow *row)
{
	Datum		record;
	text	   *json;

	if (!is_trusted_row(row->desc, row->tuple))
		return not_kept();
	if (row->desc->tdtypeid == RECORDOID && row->desc->tdtypmod < 0)
		assign_record_type_typmod(row->desc);
	record = heap_copy_tuple_as_datum(row->tuple, row->desc);
	json = DatumGetTextPP(DirectFunctionCall1(row_to_json, record));
	return dw_jsonb_within(text_to_cstring(json), row->limit);
}

/* What dw_first_row_take() tries, and what came of it. */
typedef struct RowTry
{
	DwFirstRow *row;
	Jsonb	   *result;
} RowTry;

static void
try_row_as_jsonb(void *arg)
{
	RowTry	   *try = arg;

	PushActiveSnapshot(GetTransactionSnapshot());
	try->result = row_as_jsonb(try->row);
	PopActiveSnapshot();
}

/*
 * Returns the first row of the statement that has ended last, in the memory context of
 * dw_first_row_init(); JSON's null if it is longer than the limit, or has no form as jsonb.
 * NULL if there was none.
 */
Jsonb *
dw_first_row_take(DwFirstRow *row)
{
	MemoryContext context;
	RowTry		try = {.row = row};

	if (!row->met)
		return NULL;
	context = MemoryContextSwitchTo(row->context);
	if (row->tuple == NULL || dw_try(try_row_as_jsonb, &try) != NULL)
		try.result = not_kept();
	MemoryContextSwitchTo(context);
	return try.result;
}
