/*-------------------------------------------------------------------------
 *
 * args.c
 *	  The arguments of a task: the values of $1, $2, ... in its SQL.
 *
 * Run by sessions that schedule tasks, which write the arguments as text, and by executors (and
 * sessions that run a task at once), which read them back.
 *
 * README.md explains the fixed settings.  A GUC nest level costs some microseconds, so a process
 * enters it only for types whose text depends on settings.  A transaction (or subtransaction) must
 * be open: after an error its abort ends the nest level.
 *
 * A "reading" is an untyped $n coerced to one type: another parameter, with a number after the
 * arguments.  A kept plan contains these parameters, but their values are read again for each run.
 *
 * A "stranger" is a role that lacks the rights of the task's owner.  Its code, such as the CHECK of
 * its domain, never runs with the owner's rights (see stranger()).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/shortest_dec.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "../base/errors.h"
#include "../base/signature.h"
#include "statement.h"

/* An untyped argument as a value of one type, for one or more occurrences in the statement */
typedef struct Reading
{
	int			number;			/* number of the argument, counted from 1 */
	int			parameter;		/* number of the parameter that the reading has become */
	struct Reading *next;		/* an older reading of the argument, or NULL */
	Oid			type;
	int32		typmod;
	Oid			input;			/* the type's input function */
	Oid			io_param;		/* second argument of the input function */
	int			location;		/* byte offset of its first occurrence in the SQL */
	ParamExternData value;		/* value in the current run */
} Reading;

/* Connects the $n of a statement with the values of one run; state of the parser's hooks */
struct DwBinding
{
	MemoryContext context;		/* holds this struct and the readings */
	MemoryContext run_context;	/* holds the values of the readings */
	ParamListInfo params;		/* the arguments of the current run */
	const char *sql;			/* SQL of a kept plan, else NULL */
	int			nargs;
	Oid		   *types;			/* types of the arguments; InvalidOid: untyped */
	List	   *readings;
	Reading   **newest;			/* each argument's newest reading, or NULL */
};

/* State of the error context "argument n of task ..." */
typedef struct ArgumentContext
{
	int			number;			/* counted from 1; 0: no argument yet */
	const char *sql;			/* the task's SQL; NULL: not in the message */
	ErrorContextCallback callback;
} ArgumentContext;

/* State of the error context that shows the position of an untyped argument in the SQL */
typedef struct LiteralContext
{
	const char *sql;
	int			location;		/* byte offset in sql */
} LiteralContext;

/*
 * The fixed settings: every setting on which the text form of a type depends.  The search path must
 * name pg_temp last: otherwise temporary objects would hide objects of pg_catalog.
 */
static const struct
{
	const char *name;
	const char *value;
}			fixed_settings[] =
{
	{"array_nulls", "on"},
	{"bytea_output", "hex"},
	{"datestyle", "ISO, YMD"},
	{"extra_float_digits", "3"},
	{"intervalstyle", "postgres"},
	{"lc_monetary", "C"},
	{"quote_all_identifiers", "off"},
	{"search_path", "pg_catalog, pg_temp"},
	{"timezone", "UTC"},
	{"xmloption", "content"},
};

/*---- Error contexts and fixed settings ----*/

/* Error context callback; arg is an ArgumentContext. */
static void
argument_callback(void *arg)
{
	ArgumentContext *context = (ArgumentContext *) arg;

	if (context->number == 0)
		return;
	if (context->sql != NULL)
		errcontext("argument %d of task \"%s\"", context->number, context->sql);
	else
		errcontext("argument %d of task", context->number);
}

/* Begins the error context "argument n of task ..."; the caller sets context->number. */
static void
push_argument_context(ArgumentContext *context, const char *sql)
{
	context->number = 0;
	context->sql = sql;
	dw_push_context(&context->callback, argument_callback, context);
}

/* Puts the fixed settings into force, unless *nest_level, initially 0, shows that they are. */
static void
enter_fixed_settings(int *nest_level)
{
	if (*nest_level != 0)
		return;

	*nest_level = NewGUCNestLevel();
	for (int i = 0; i < lengthof(fixed_settings); i++)
		(void) set_config_option(fixed_settings[i].name,
								 fixed_settings[i].value,
								 PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
}

/* Leaves the fixed settings, if they are in force. */
static void
leave_fixed_settings(int *nest_level)
{
	if (*nest_level != 0)
		AtEOXact_GUC(true, *nest_level);
	*nest_level = 0;
}

/*---- Types ----*/

/*
 * Returns true if values of this type are read from text in the same way under all settings.  The
 * list contains only types that are often passed.  All other types are read with the fixed
 * settings, which is slower.
 */
static bool
input_is_fixed(Oid type)
{
	switch (type)
	{
		case BOOLOID:
		case BYTEAOID:
		case CHAROID:
		case NAMEOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case OIDOID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case TEXTOID:
		case BPCHAROID:
		case VARCHAROID:
		case JSONOID:
		case JSONBOID:
		case UUIDOID:
		case INETOID:
		case CIDROID:
		case BITOID:
		case VARBITOID:
		case DATEOID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return true;
		default:
			return false;
	}
}

/* Returns true for types of the system catalogs whose input function accepts no value. */
static bool
input_is_refused(Oid type)
{
	char		category;
	bool		is_preferred;

	get_type_category_preferred(type, &category, &is_preferred);
	return type == GTSVECTOROID || (category == TYPCATEGORY_INTERNAL && type != CHAROID &&
									type < FirstNormalObjectId);
}

/* Raises an error for a pseudo-type, and for a type whose values cannot be read back from text. */
static void
check_type(Oid type)
{
	if (get_typtype(type) == TYPTYPE_PSEUDO)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("argument of a delayed task cannot have pseudo-type %s",
						format_type_be(type)),
				 type == RECORDOID ?
				 errhint("Cast the row to a named composite type.") :
				 errhint("Cast the argument to a type that a table column can have.")));

	if (input_is_refused(getBaseType(type)))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("argument of a delayed task cannot have type %s",
						format_type_be(type)),
				 errdetail("Values of this type cannot be read back from text."),
				 errhint("Cast the argument to text.")));
}

/*---- Writing arguments as text ----*/

/* Looks up the type's output function.  Raises an error if values cannot be stored as text. */
void
dw_writer_init(DwWriter *writer, Oid type, MemoryContext context)
{
	Oid			output;
	bool		is_varlena;

	writer->needs_fixed_settings = false;
	if (!input_is_fixed(type))
	{
		check_type(type);
		writer->needs_fixed_settings = get_typtype(type) != TYPTYPE_ENUM;
	}
	getTypeOutputInfo(type, &output, &is_varlena);
	fmgr_info_cxt(output, &writer->output, context);
}

/* Returns \x and hexadecimal digits, for any value of bytea_output. */
static char *
write_bytea(const struct varlena *bytes)
{
	size_t		length = VARSIZE_ANY_EXHDR(bytes);
	char	   *string = palloc(length * 2 + 3);

	strcpy(string, "\\x");
	string[hex_encode(VARDATA_ANY(bytes), length, string + 2) + 2] = '\0';
	return string;
}

/* Writes a value by its type's output function, under the fixed settings if need be. */
static char *
write_other(const DwArgument *argument, int *nest_level)
{
	const DwWriter *writer = argument->writer;
	DwWriter	found;

	if (writer == NULL)
	{
		dw_writer_init(&found, argument->type, CurrentMemoryContext);
		writer = &found;
	}
	if (writer->needs_fixed_settings)
		enter_fixed_settings(nest_level);
	return OutputFunctionCall(unconstify(FmgrInfo *, &writer->output), argument->value);
}

/*
 * Writes one argument that is not NULL as a text datum.  Some types in input_is_fixed() have
 * an output function that depends on settings.  Their values are written here without it.
 */
static Datum
write_argument(const DwArgument *argument, int *nest_level)
{
	static const int utc = 0;
	Oid			type = argument->type;
	Datum		value = argument->value;
	char		buffer[MAXDATELEN + 1];
	char	   *string = buffer;

	switch (type)
	{
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			return value;
		case UNKNOWNOID:
			string = DatumGetCString(value);
			break;
		case INT2OID:
			pg_itoa(DatumGetInt16(value), buffer);
			break;
		case INT4OID:
			pg_ltoa(DatumGetInt32(value), buffer);
			break;
		case INT8OID:
			pg_lltoa(DatumGetInt64(value), buffer);
			break;
		case BYTEAOID:
			string = write_bytea(PG_DETOAST_DATUM_PACKED(value));
			break;
		case FLOAT4OID:
			float_to_shortest_decimal_buf(DatumGetFloat4(value), buffer);
			break;
		case FLOAT8OID:
			double_to_shortest_decimal_buf(DatumGetFloat8(value), buffer);
			break;
		case DATEOID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			JsonEncodeDateTime(buffer, value, type, &utc);
			break;
		default:
			string = write_other(argument, nest_level);
	}
	return CStringGetTextDatum(string);
}

/*---- Arguments of a task that is scheduled ----*/

/* Raises an error for too many arguments.  A client's parameters have the same limit. */
void
dw_args_require_limit(int count)
{
	if (count > DW_MAX_ARGS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a task cannot have more than %d arguments", DW_MAX_ARGS),
				 errhint("Pass an array as one argument.")));
}

/* Takes the arguments from the elements of an array.  Returns their number. */
static int
fetch_from_array(ArrayType *array, DwArgument **result)
{
	bool	   *nulls;
	int			count;
	Datum	   *values = dw_elements(array, &nulls, &count);

	dw_args_require_limit(count);
	*result = palloc(count * sizeof(DwArgument));
	for (int i = 0; i < count; i++)
		(*result)[i] = (DwArgument) {
			.type = ARR_ELEMTYPE(array),
			.value = values[i],
			.isnull = nulls[i]
		};
	return count;
}

/* Takes the arguments for dw_args_collect().  Returns their number. */
static int
fetch_arguments(FunctionCallInfo fcinfo, int first, DwArgument **result)
{
	int			count = PG_NARGS() - first;

	if (count <= 0)
		return 0;
	/* the parser accepts only an array here, and casts a domain over an array to the array */
	if (get_fn_expr_variadic(fcinfo->flinfo))
		return PG_ARGISNULL(first) ? 0 : fetch_from_array(PG_GETARG_ARRAYTYPE_P(first), result);
	/* only the default of the parameter has this type */
	if (count == 1 && get_fn_expr_argtype(fcinfo->flinfo, first) == VOIDOID)
		return 0;

	*result = palloc(count * sizeof(DwArgument));
	for (int i = 0; i < count; i++)
	{
		(*result)[i] = (DwArgument) {
			.type = get_fn_expr_argtype(fcinfo->flinfo, first + i),
			.value = PG_GETARG_DATUM(first + i),
			.isnull = PG_ARGISNULL(first + i)
		};
		if (!OidIsValid((*result)[i].type))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("could not determine data type for argument %d of the task",
							i + 1)));
	}
	return count;
}

/* Returns the stored text of an argument that is not NULL, in the current memory context. */
Datum
dw_argument_text(const DwArgument *argument)
{
	int			nest_level = 0;
	Datum		result = write_argument(argument, &nest_level);

	leave_fixed_settings(&nest_level);
	return result;
}

/*
 * Returns the text[] that is stored for the arguments.  Raises an error, which names the argument,
 * for a type whose values cannot be stored as text, even if the value is NULL.
 */
Datum
dw_args_texts(const DwArgument *arguments, int count)
{
	ArgumentContext context;
	Datum	   *texts = palloc0(count * sizeof(Datum));
	bool	   *nulls = palloc(count * sizeof(bool));
	int			nest_level = 0;
	int			one = 1;

	push_argument_context(&context, NULL);
	for (int i = 0; i < count; i++)
	{
		const DwArgument *argument = &arguments[i];

		context.number = i + 1;
		nulls[i] = argument->isnull;
		if (!argument->isnull)
			texts[i] = write_argument(argument, &nest_level);
		else if (argument->writer == NULL && !input_is_fixed(argument->type) &&
				 argument->type != UNKNOWNOID)
			check_type(argument->type);
	}
	leave_fixed_settings(&nest_level);
	error_context_stack = context.callback.previous;

	return PointerGetDatum(construct_md_array(texts, nulls, 1, &count, &one,
											  TEXTOID, -1, false, TYPALIGN_INT));
}

/* Makes the columns args and arg_types of a task's row, if there are arguments. */
static int
write_arguments(const DwArgument *arguments, int count, Datum *args, Datum *types)
{
	Datum	   *type_oids;

	if (count == 0)
		return 0;
	type_oids = palloc(count * sizeof(Datum));
	*args = dw_args_texts(arguments, count);
	for (int i = 0; i < count; i++)
		type_oids[i] = ObjectIdGetDatum(arguments[i].type == UNKNOWNOID ?
										InvalidOid : arguments[i].type);
	*types = PointerGetDatum(construct_array(type_oids, count, REGTYPEOID,
											 sizeof(Oid), true,
											 TYPALIGN_INT));
	return count;
}

/*
 * Collects the task's arguments in a call of an SQL function that is declared VARIADIC "any", from
 * the function's argument number "first" (counted from 0) on.  Returns their number.  If it is not
 * 0, sets *args to the text[] for a task's row, in which a NULL element is a NULL argument, and
 * *types to a regtype[] of the same length.  An untyped literal has the type InvalidOid (printed as
 * -), and its text is stored unchanged.
 */
int
dw_args_collect(FunctionCallInfo fcinfo, int first, Datum *args, Datum *types)
{
	DwArgument *arguments = NULL;
	int			count = fetch_arguments(fcinfo, first, &arguments);

	return write_arguments(arguments, count, args, types);
}

/*---- Strangers ----*/

static Oid	stranger(Oid type);

/* Does the same for the column types of a row type. */
static Oid
stranger_in_columns(Oid type)
{
	TupleDesc	desc = lookup_rowtype_tupdesc(type, -1);
	Oid			found = InvalidOid;

	for (int i = 0; i < desc->natts && !OidIsValid(found); i++)
		if (!TupleDescAttr(desc, i)->attisdropped)
			found = stranger(TupleDescAttr(desc, i)->atttypid);
	ReleaseTupleDesc(desc);
	return found;
}

/*
 * Returns a role that lacks the rights of the current user (the task's owner), if code of this role
 * may run when a value of the type is read.  Returns InvalidOid if no such role exists.
 *
 * The owner of a row type counts even if no column has a domain: the owner could add such a column
 * at any moment.
 */
static Oid
stranger(Oid type)
{
	HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	FormData_pg_type form;

	check_stack_depth();
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for type %u", type);
	form = *(Form_pg_type) GETSTRUCT(tuple);
	ReleaseSysCache(tuple);

	if (form.typtype == TYPTYPE_BASE)
		return OidIsValid(form.typelem) ? stranger(form.typelem) : InvalidOid;
	if (form.typtype == TYPTYPE_ENUM)
		return InvalidOid;
	if (!has_privs_of_role(form.typowner, GetUserId()))
		return form.typowner;
	switch (form.typtype)
	{
		case TYPTYPE_DOMAIN:
			return stranger(form.typbasetype);
		case TYPTYPE_RANGE:
			return stranger(get_range_subtype(type));
		case TYPTYPE_MULTIRANGE:
			return stranger(get_multirange_range(type));
		case TYPTYPE_COMPOSITE:
			return stranger_in_columns(type);
		default:
			return InvalidOid;
	}
}

/* Number of nested calls of read_as(): greater than 0 while code of a stranger's type runs here. */
int			dw_reading_as = 0;

/*
 * Reads a value by an input function, with the rights of the role, in a security-restricted
 * operation.  After an error, the abort of the (sub)transaction restores role and settings.
 */
static Datum
read_as(Oid role, Oid input, char *string, Oid io_param, int32 typmod)
{
	Datum		result = (Datum) 0;
	int			nest_level = NewGUCNestLevel();
	Oid			userid;
	int			context;

	GetUserIdAndSecContext(&userid, &context);
	dw_reading_as++;
	PG_TRY();
	{
		SetUserIdAndSecContext(role, context |
							   SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
		result = OidInputFunctionCall(input, string, io_param, typmod);
	}
	PG_FINALLY();
	{
		dw_reading_as--;
	}
	PG_END_TRY();
	SetUserIdAndSecContext(userid, context);
	AtEOXact_GUC(false, nest_level);
	return result;
}

/*---- Arguments of an array ----*/

/* Raises an error if the array (or NULL) of the parameter "what" has several dimensions. */
static void
require_list(ArrayType *array, const char *what)
{
	if (array != NULL && ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("%s must be a one-dimensional array", what)));
}

/*
 * Splits arrays of texts and of regtype, which may be NULL, into elements.  Returns the number of
 * arguments.  The type of an untyped argument becomes InvalidOid.  The texts point into args.
 * is_row: the arrays are of a task's row, and not from the caller.
 */
static int
split_arrays(ArrayType *args, ArrayType *types, bool is_row, Datum **texts, bool **nulls,
			 Oid **type_oids)
{
	Datum	   *elements;
	bool	   *untyped;
	int			count = 0;
	int			type_count;

	if (args != NULL)
		deconstruct_array(args, ARR_ELEMTYPE(args), -1, false, TYPALIGN_INT, texts, nulls, &count);
	*type_oids = palloc0(count * sizeof(Oid));
	if (types == NULL)
		return count;
	deconstruct_array(types, REGTYPEOID, sizeof(Oid), true, TYPALIGN_INT, &elements, &untyped,
					  &type_count);
	if (type_count != count)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("number of arguments (%d) does not match number of argument types (%d)",
						count, type_count),
				 is_row ? 0 :
				 errhint("Without arg_types, all arguments take their types from the statement. For a single argument, use '-' in arg_types.")));
	for (int i = 0; i < count; i++)
		/* plain SQL may have stored the type "unknown", which means untyped */
		if (!untyped[i] && DatumGetObjectId(elements[i]) != UNKNOWNOID)
			(*type_oids)[i] = DatumGetObjectId(elements[i]);
	return count;
}

/*
 * Makes an argument from a type and a text (NULL: a NULL argument).  Reads the text, unless it is
 * untyped, under the session's settings, like a literal.  is_row_type: the type comes from a task's
 * row, and not from the caller.  Then a stranger's code runs with the stranger's rights.
 */
static void
parse_argument(DwArgument *argument, Oid type, char *string, bool is_row_type)
{
	Oid			input;
	Oid			io_param;
	Oid			role;

	argument->type = type;
	argument->isnull = string == NULL;
	if (type == UNKNOWNOID)
	{
		argument->value = CStringGetDatum(string);
		return;
	}
	if (!SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(type)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("type with OID %u does not exist", type)));
	check_type(type);
	getTypeInputInfo(type, &input, &io_param);
	/* a domain may refuse NULL */
	if (string == NULL && get_typtype(type) != TYPTYPE_DOMAIN)
		return;
	role = is_row_type ? stranger(type) : InvalidOid;
	argument->value = OidIsValid(role) ? read_as(role, input, string, io_param, -1) :
		OidInputFunctionCall(input, string, io_param, -1);
}

/* Makes the columns of a task's row from an array of arguments of one type. */
static int
parse_typed(ArrayType *args, ArrayType *types, Datum *stored_args, Datum *stored_types)
{
	DwArgument *arguments;
	int			count;

	if (types != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("arg_types can be given only if args is an array of texts"),
				 errdetail("args is an array of type %s, which is the type of all arguments.", format_type_be(ARR_ELEMTYPE(args)))));
	require_list(args, "args");
	count = fetch_from_array(args, &arguments);
	return write_arguments(arguments, count, stored_args, stored_types);
}

/*
 * Makes the columns of a task's row as dw_args_collect() does, from arguments that the user passed
 * as an array (NULL: no arguments) and regtype[].  If types is NULL, all texts are untyped; a NULL
 * element of types means an untyped argument.  Elements that are no texts keep their type.
 * are_row_types: the types come from a task's row, see parse_argument().
 */
int
dw_args_parse(ArrayType *args, ArrayType *types, bool are_row_types,
			  Datum *stored_args, Datum *stored_types)
{
	ArgumentContext context;
	DwArgument *arguments;
	Datum	   *texts;
	Oid		   *type_oids;
	bool	   *nulls;
	int			count;

	if (args != NULL && ARR_ELEMTYPE(args) != TEXTOID && ARR_ELEMTYPE(args) != VARCHAROID)
		return parse_typed(args, types, stored_args, stored_types);
	require_list(args, "args");
	require_list(types, "arg_types");
	count = split_arrays(args, types, false, &texts, &nulls, &type_oids);
	dw_args_require_limit(count);

	arguments = palloc0(count * sizeof(DwArgument));
	push_argument_context(&context, NULL);
	for (int i = 0; i < count; i++)
	{
		context.number = i + 1;
		parse_argument(&arguments[i], OidIsValid(type_oids[i]) ? type_oids[i] : UNKNOWNOID,
					   nulls[i] ? NULL : TextDatumGetCString(texts[i]), are_row_types);
	}
	error_context_stack = context.callback.previous;
	return write_arguments(arguments, count, stored_args, stored_types);
}

/*---- Reading stored arguments ----*/

/*
 * Reads a value by its type's input function, under the fixed settings if need be.  Reads a domain
 * as its base type: check_domains() evaluates its CHECKs later, since a user's function in a CHECK
 * must not see the fixed settings.
 */
static Datum
read_other(Oid type, const char *string, int *nest_level)
{
	int32		typmod = -1;
	Oid			base = getBaseTypeAndTypmod(type, &typmod);
	Oid			role = InvalidOid;
	Oid			input;
	Oid			io_param;

	if (!input_is_fixed(base) && get_typtype(base) != TYPTYPE_ENUM)
	{
		enter_fixed_settings(nest_level);
		role = stranger(base);
	}
	getTypeInputInfo(base, &input, &io_param);
	if (OidIsValid(role))
		return read_as(role, input, unconstify(char *, string), io_param, typmod);
	return OidInputFunctionCall(input, unconstify(char *, string), io_param, typmod);
}

/* Reads the stored text of one typed argument.  param has the type and the null flag. */
static void
read_argument(ParamExternData *param, Datum stored, int *nest_level)
{
	if (!input_is_fixed(param->ptype) &&
		!SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(param->ptype)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("type with OID %u does not exist", param->ptype),
				 errdetail("The type that the argument had when the task was scheduled has been dropped.")));
	if (param->isnull)
		return;

	switch (param->ptype)
	{
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			param->value = stored;
			break;
		case INT4OID:
			param->value = Int32GetDatum(pg_strtoint32(TextDatumGetCString(stored)));
			break;
		case INT8OID:
			param->value = Int64GetDatum(pg_strtoint64(TextDatumGetCString(stored)));
			break;
		default:
			param->value = read_other(param->ptype, TextDatumGetCString(stored), nest_level);
	}
}

/*
 * Checks arguments, including NULLs, against the CHECKs of their domains, which may have changed
 * since the task was scheduled.  Skips a stranger's domains, whose CHECKs would run with the
 * owner's rights.
 */
static void
check_domains(const DwBinding *binding, ArgumentContext *context)
{
	for (int i = 0; i < binding->nargs; i++)
	{
		ParamExternData *param = &binding->params->params[i];

		context->number = i + 1;
		if (OidIsValid(binding->types[i]) && !input_is_fixed(param->ptype) &&
			get_typtype(param->ptype) == TYPTYPE_DOMAIN &&
			!OidIsValid(stranger(param->ptype)))
			domain_check(param->value, param->isnull, param->ptype, NULL, NULL);
	}
}

/*---- Hooks of the parser and of parameter lists ----*/

/* Makes a Param node stand for the parameter with this number. */
static void
set_parameter(Param *param, int number, Oid type, int32 typmod)
{
	param->paramid = number;
	param->paramtype = type;
	param->paramtypmod = typmod;
	param->paramcollid = get_typcollation(type);
}

/*
 * Parser hook: returns the node for $n.  If $n has no argument, returns NULL, which makes the
 * parser raise its error.
 */
static Node *
bind_parameter(ParseState *pstate, ParamRef *ref)
{
	DwBinding  *binding = (DwBinding *) pstate->p_ref_hook_state;
	int			i = ref->number - 1;
	Oid			type;
	Param	   *param;

	if (i < 0 || i >= binding->nargs)
		return NULL;
	type = OidIsValid(binding->types[i]) ? binding->types[i] : UNKNOWNOID;
	param = makeNode(Param);
	param->paramkind = PARAM_EXTERN;
	param->location = ref->location;
	set_parameter(param, ref->number, type, -1);
	return (Node *) param;
}

/* Sets the value of a reading for the current run. */
static void
read_literal(DwBinding *binding, Reading *reading)
{
	const ParamExternData *literal = &binding->params->params[reading->number - 1];
	MemoryContext old;

	reading->value = *literal;
	reading->value.ptype = reading->type;
	if (literal->isnull)
		return;
	old = MemoryContextSwitchTo(binding->run_context);
	reading->value.value = OidInputFunctionCall(reading->input,
												DatumGetCString(literal->value),
												reading->io_param,
												reading->typmod);
	MemoryContextSwitchTo(old);
}

/*
 * Finds or adds the reading of an argument as a type.  Returns the number of its parameter.  Looks
 * only at readings of the argument, since a task may have many arguments.
 */
static int
find_reading(DwBinding *binding, int number, Oid type, int32 typmod, int location)
{
	Reading   **newest = &binding->newest[number - 1];
	Reading    *reading;
	MemoryContext old;

	/* the analysis of a statement with many untyped arguments takes long */
	CHECK_FOR_INTERRUPTS();
	for (reading = *newest; reading != NULL; reading = reading->next)
		if (reading->type == type && reading->typmod == typmod)
			return reading->parameter;

	reading = MemoryContextAlloc(binding->context, sizeof(Reading));
	reading->number = number;
	reading->parameter = binding->nargs + list_length(binding->readings) + 1;
	reading->next = *newest;
	reading->type = type;
	reading->typmod = typmod;
	reading->location = location;
	getTypeInputInfo(type, &reading->input, &reading->io_param);
	read_literal(binding, reading);
	old = MemoryContextSwitchTo(binding->context);
	binding->readings = lappend(binding->readings, reading);
	MemoryContextSwitchTo(old);
	*newest = reading;
	binding->params->numParams = reading->parameter;
	return reading->parameter;
}

/*
 * Parser hook: coerces $n to a type, if $n is an untyped argument, as coerce_type() does for a
 * literal.  Returns NULL if $n has a type.  Changes the node in place, since the parser continues
 * to use the node that it passed.
 *
 * An explicit cast cuts a value that is too long for a domain.  The hook cannot see if a cast is
 * explicit, but only explicit casts have a location.  (Explicit casts inside ARRAY[] or ROW() have
 * no location: there, a value that is too long still raises an error.)
 */
static Node *
coerce_parameter(ParseState *pstate, Param *param, Oid type, int32 typmod, int location)
{
	DwBinding  *binding = (DwBinding *) pstate->p_ref_hook_state;
	ParseCallbackState callback;
	int32		base_typmod = typmod;
	Oid			base;
	int			number;

	if (param->paramkind != PARAM_EXTERN || param->paramtype != UNKNOWNOID)
		return NULL;
	base = getBaseTypeAndTypmod(type, &base_typmod);
	typmod = base == INTERVALOID ? base_typmod : -1;

	setup_parser_errposition_callback(&callback, pstate, param->location);
	number = find_reading(binding, param->paramid, base, typmod, param->location);
	cancel_parser_errposition_callback(&callback);

	set_parameter(param, number, base, typmod);
	if (base == type)
		return (Node *) param;
	return coerce_to_domain((Node *) param, base, base_typmod, type,
							location < 0 ? COERCION_IMPLICIT : COERCION_EXPLICIT,
							COERCE_IMPLICIT_CAST, location, false);
}

/*
 * Parser setup: installs the hooks for the arguments.  arg is a DwBinding.  Each analysis makes new
 * readings, since the type of an occurrence may have changed.  Each statement is analyzed
 * separately, so this function loops over the readings only, not over all arguments.
 */
void
dw_args_parser_setup(ParseState *pstate, void *arg)
{
	DwBinding  *binding = (DwBinding *) arg;
	ListCell   *lc;

	foreach(lc, binding->readings)
		binding->newest[((Reading *) lfirst(lc))->number - 1] = NULL;
	list_free_deep(binding->readings);
	binding->readings = NIL;
	pstate->p_paramref_hook = bind_parameter;
	pstate->p_coerce_param_hook = coerce_parameter;
	pstate->p_ref_hook_state = binding;
}

/* paramFetch hook: returns the value of an argument or a reading. */
static ParamExternData *
fetch_parameter(ParamListInfo params, int number, bool speculative, ParamExternData *workspace)
{
	DwBinding  *binding = (DwBinding *) params->paramFetchArg;

	if (number <= binding->nargs)
		return &params->params[number - 1];
	return &((Reading *) list_nth(binding->readings, number - binding->nargs - 1))->value;
}

/*---- Bindings ----*/

/* Error context callback: adds an untyped argument's position, as the parser does for a literal. */
static void
literal_callback(void *arg)
{
	const LiteralContext *context = (LiteralContext *) arg;

	if (geterrcode() == ERRCODE_QUERY_CANCELED)
		return;
	internalerrposition(pg_mbstrlen_with_len(context->sql, context->location) + 1);
	internalerrquery(context->sql);
}

/* Sets the values of all readings of a kept plan for the current run. */
static void
read_literals(DwBinding *binding)
{
	LiteralContext context = {.sql = binding->sql};
	ErrorContextCallback callback;
	ListCell   *lc;

	dw_push_context(&callback, literal_callback, &context);
	foreach(lc, binding->readings)
	{
		CHECK_FOR_INTERRUPTS();
		context.location = ((Reading *) lfirst(lc))->location;
		read_literal(binding, lfirst(lc));
	}
	error_context_stack = callback.previous;
}

/* Makes a binding for nargs arguments, all of them untyped so far. */
static DwBinding *
make_binding(int nargs)
{
	DwBinding  *binding = palloc0(sizeof(DwBinding));

	binding->context = CurrentMemoryContext;
	binding->nargs = nargs;
	binding->types = palloc0(nargs * sizeof(Oid));
	binding->newest = palloc0(nargs * sizeof(Reading *));
	return binding;
}

/*
 * Makes the binding for a kept plan of the text sql, for arguments with the number and types of
 * params.  The current memory context and sql must live as long as the plan.
 */
DwBinding *
dw_args_binding(ParamListInfo params, const char *sql)
{
	const DwBinding *first = (DwBinding *) params->parserSetupArg;
	DwBinding  *binding = make_binding(first->nargs);

	binding->sql = sql;
	memcpy(binding->types, first->types, first->nargs * sizeof(Oid));
	return binding;
}

/*
 * Binds a kept plan to the arguments of a run.  To be called before the plan is prepared, and
 * before each run.  Puts the values of untyped arguments into the current memory context, which
 * must outlive the run.
 */
void
dw_args_bind(DwBinding *binding, ParamListInfo params)
{
	binding->params = params;
	binding->run_context = CurrentMemoryContext;
	params->parserSetupArg = params->paramFetchArg = binding;
	params->numParams = binding->nargs + list_length(binding->readings);
	if (binding->readings != NIL)
		read_literals(binding);
}

/* Returns the types of the arguments (InvalidOid: untyped) and their number; params may be NULL. */
const Oid *
dw_args_types(ParamListInfo params, int *nargs)
{
	const DwBinding *binding;

	*nargs = 0;
	if (params == NULL)
		return NULL;
	binding = (DwBinding *) params->parserSetupArg;
	*nargs = binding->nargs;
	return binding->types;
}

/*---- Parameter lists ----*/

/* Splits the arrays of a task's row like split_arrays().  Copies the texts. */
static int
read_arrays(Datum args, Datum types, bool types_null, Datum **texts, bool **nulls, Oid **type_oids)
{
	return split_arrays(DatumGetArrayTypePCopy(args),
						types_null ? NULL : DatumGetArrayTypeP(types), true, texts, nulls, type_oids);
}

/* Returns true if one argument in the columns args and arg_types is untyped and not null. */
bool
dw_args_any_untyped(Datum args, bool args_null, Datum types, bool types_null)
{
	Datum	   *texts;
	Oid		   *type_oids;
	bool	   *nulls;
	int			count = args_null ? 0 : read_arrays(args, types, types_null, &texts, &nulls, &type_oids);

	for (int i = 0; i < count; i++)
		if (!nulls[i] && !OidIsValid(type_oids[i]))
			return true;
	return false;
}

/* Sets an argument, whose value may be set later.  InvalidOid: it is untyped. */
static void
set_argument(DwBinding *binding, int i, Oid type, Datum value, bool isnull)
{
	ParamListInfo params = binding->params;

	binding->types[i] = type;
	if (!OidIsValid(type))
		params->paramFetch = fetch_parameter;
	params->params[i] = (ParamExternData) {
		.value = value,
		.isnull = isnull,
		.pflags = PARAM_FLAG_CONST,
		.ptype = OidIsValid(type) ? type : UNKNOWNOID
	};
}

/* Makes a binding and a parameter list for count arguments, without values. */
static DwBinding *
make_list(int count)
{
	DwBinding  *binding = make_binding(count);
	ParamListInfo params = makeParamList(count);

	binding->run_context = CurrentMemoryContext;
	binding->params = params;
	params->parserSetup = dw_args_parser_setup;
	params->parserSetupArg = params->paramFetchArg = binding;
	return binding;
}

/*
 * Returns a parameter list with the constants that dw_constants_take() took out of a text.  The
 * constants must outlive the run.
 */
ParamListInfo
dw_args_constants(const DwConstants *constants)
{
	DwBinding  *binding = make_list(constants->count);

	for (int i = 0; i < constants->count; i++)
		set_argument(binding, i, constants->types[i], constants->values[i], false);
	return binding->params;
}

/*
 * Turns the columns args and arg_types of a task's row back into values, for SPI_execute_extended()
 * (options.params).  Returns NULL if there are no arguments.  If types is NULL, all arguments are
 * untyped; a NULL element of types means an untyped argument.  The result and its values are in the
 * current memory context, which must outlive the run.  sql is only for messages, and may be NULL.
 *
 * This function can run code of users (a domain's CHECK, an input function).  So call this function
 * as the task's owner, in the transaction that will run the task's SQL.
 */
ParamListInfo
dw_args_params(const char *sql, Datum args, bool args_null, Datum types, bool types_null)
{
	ArgumentContext context;
	DwBinding  *binding;
	Datum	   *texts;
	Oid		   *type_oids;
	bool	   *nulls;
	int			nest_level = 0;
	int			count;

	if (args_null)
		return NULL;
	count = read_arrays(args, types, types_null, &texts, &nulls, &type_oids);
	if (count == 0)
		return NULL;

	binding = make_list(count);
	push_argument_context(&context, sql);
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		context.number = i + 1;
		set_argument(binding, i, type_oids[i], (Datum) 0, nulls[i]);
		if (OidIsValid(type_oids[i]))
			read_argument(&binding->params->params[i], texts[i], &nest_level);
		else if (!nulls[i])
			binding->params->params[i].value = CStringGetDatum(TextDatumGetCString(texts[i]));
	}
	leave_fixed_settings(&nest_level);
	check_domains(binding, &context);
	error_context_stack = context.callback.previous;
	return binding->params;
}

/* Analyzes and rewrites a statement of a task with the arguments of dw_args_params(). */
List *
dw_args_analyze(RawStmt *raw, const char *sql, ParamListInfo params)
{
	if (params == NULL)
		return pg_analyze_and_rewrite_fixedparams(raw, sql, NULL, 0, NULL);
	return pg_analyze_and_rewrite_withcb(raw, sql, params->parserSetup, params->parserSetupArg,
										 NULL);
}
