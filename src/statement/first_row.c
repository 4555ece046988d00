/*-------------------------------------------------------------------------
 *
 * first_row.c
 *	  The first row that the SQL of a task returns.
 *
 * Run by executors, and by sessions that run a task at once.
 *
 * The rows that a task returns are dropped: they may be huge.  With delay_wheel.history_result the
 * history contains the first row of the last statement, if it is short enough.  The sizes of the
 * columns are checked before the row is copied, so a row of any size costs little.
 *
 * After the statement, the row is converted to jsonb with the rights of the user that ran the
 * statement, in a subtransaction: an error of a type's function must not make the task fail.
 *
 * The owner of a type may create a cast to json, which the conversion would call for each value of
 * the type.  But the user has only read a table, and has not asked for this call.  So a row is not
 * kept if the conversion would call a function of another role that is not a superuser.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/heaptoast.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "../base/errors.h"
#include "../base/signature.h"
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

/*
 * Returns true if all values of a row together are not longer than the limit.  Compressed values
 * count with their uncompressed size, and are not read.
 */
static bool
is_short(TupleTableSlot *slot, Size limit)
{
	Size		size = 0;

	slot_getallattrs(slot);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts && size <= limit; i++)
	{
		int			length = TupleDescAttr(slot->tts_tupleDescriptor, i)->attlen;
		Datum		value = slot->tts_values[i];

		if (!slot->tts_isnull[i])
			size += length == -1 ? toast_raw_datum_size(value) - VARHDRSZ :
				length == -2 ? strlen(DatumGetCString(value)) : length;
	}
	return size <= limit;
}

/* Keeps the first row, see DestReceiver. */
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
	/* the slot's descriptor may lack the names */
	row->desc = CreateTupleDescCopy(row->names);
	row->tuple = ExecCopySlotHeapTuple(slot);
	if (HeapTupleHasExternal(row->tuple))
		row->tuple = toast_flatten_tuple(row->tuple, row->desc);
	MemoryContextSwitchTo(context);
	return true;
}

/* Prepares for a statement that begins to return rows, see DestReceiver. */
static void
startup(DestReceiver *self, int operation, TupleDesc typeinfo)
{
	DwFirstRow *row = (DwFirstRow *) self;

	forget(row);
	row->names = typeinfo;
}

/*
 * Initializes a receiver that keeps a first row of at most limit bytes (0: keeps no row) in the
 * current memory context.  With None_Receiver, SPI would not show if a statement was a query.
 */
void
dw_first_row_init(DwFirstRow *row, int limit)
{
	*row = (DwFirstRow) {.pub = *None_Receiver, .limit = limit, .context = CurrentMemoryContext};
	row->pub.mydest = DestTuplestore;
	if (limit > 0)
	{
		row->pub.receiveSlot = keep_if_first;
		row->pub.rStartup = startup;
	}
}

/*
 * Called before a utility statement that sends its rows to this receiver (of any kind).  Forgets
 * the row of an earlier statement, since a utility statement without rows does not call the
 * receiver's startup.
 */
void
dw_first_row_forget(DestReceiver *receiver)
{
	if (receiver != NULL && receiver->receiveSlot == keep_if_first)
		forget((DwFirstRow *) receiver);
}

/*---- A row that is not kept ----*/

/* Returns JSON's null, which stands for a row that is not kept.  Any other row is an object. */
static Jsonb *
not_kept(void)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("null")));
}

/* Returns a JSON text as jsonb; JSON's null if the text is longer than the limit. */
Jsonb *
dw_jsonb_within(const char *json, int limit)
{
	Jsonb	   *jsonb;

	/* a text that is far too long is not even parsed */
	if (strlen(json) > (Size) limit * 8)
		return not_kept();
	jsonb = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json)));
	return VARSIZE(jsonb) > limit ? not_kept() : jsonb;
}

/* Owners of the functions that the conversion calls */

static bool is_trusted_value(Oid type, Datum value);

/* Returns true if the function is the current user's own, or a superuser's. */
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

/* Returns true if row_to_json() calls no function of another role for the values of a row. */
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
	bool	   *nulls;
	int			n;
	Datum	   *elements = dw_elements(array, &nulls, &n);

	for (int i = 0; i < n; i++)
		if (!nulls[i] && !is_trusted_value(ARR_ELEMTYPE(array), elements[i]))
			return false;
	return true;
}

/* The same for a value of any type. */
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

/* For dw_try(): sets row->jsonb.  Functions of its types may raise any error. */
static void
convert_row(void *arg)
{
	DwFirstRow *row = arg;
	Datum		record;
	Datum		json;

	PushActiveSnapshot(GetTransactionSnapshot());
	if (is_trusted_row(row->desc, row->tuple))
	{
		if (row->desc->tdtypeid == RECORDOID && row->desc->tdtypmod < 0)
			assign_record_type_typmod(row->desc);
		record = heap_copy_tuple_as_datum(row->tuple, row->desc);
		json = DirectFunctionCall1(row_to_json, record);
		row->jsonb = dw_jsonb_within(TextDatumGetCString(json), row->limit);
	}
	PopActiveSnapshot();
}

/*
 * Returns the first row of the last statement, in the memory context of dw_first_row_init().
 * Returns JSON's null if the row is longer than the limit, or cannot become jsonb.  Returns NULL if
 * there was no row.
 */
Jsonb *
dw_first_row_take(DwFirstRow *row)
{
	MemoryContext context;

	if (!row->met)
		return NULL;
	context = MemoryContextSwitchTo(row->context);
	row->jsonb = NULL;
	if (row->tuple == NULL || dw_try(convert_row, row) != NULL || row->jsonb == NULL)
		row->jsonb = not_kept();
	MemoryContextSwitchTo(context);
	return row->jsonb;
}
