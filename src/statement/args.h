/*-------------------------------------------------------------------------
 *
 * args.h
 *	  The arguments of a task: the values of $1, $2, ... in its SQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_ARGS_H
#define DW_ARGS_H

#include "postgres.h"

#include "fmgr.h"
#include "nodes/params.h"
#include "parser/parse_node.h"
#include "utils/array.h"

#include "constants.h"

/* Limit of the number of arguments of one task */
#define DW_MAX_ARGS		65535

extern void dw_args_require_limit(int count);
extern int	dw_args_collect(FunctionCallInfo fcinfo, int first,
							Datum *args, Datum *types, bool *isnull);
extern int	dw_args_parse(ArrayType *args, ArrayType *types,
						  Datum *stored_args, Datum *stored_types, bool *isnull);

/* How to write values of a type as text, looked up once for many values */
typedef struct DwWriter
{
	bool		needs_fixed_settings;	/* the text form depends on settings */
	FmgrInfo	output;			/* the type's output function */
} DwWriter;

extern void dw_writer_init(DwWriter *writer, Oid type, MemoryContext context);

/* An argument that is to be stored in a task's row */
typedef struct DwArgument
{
	Oid			type;			/* UNKNOWNOID: an untyped literal, a C string */
	Datum		value;
	bool		isnull;
	const DwWriter *writer;		/* of the type; NULL: not looked up yet */
} DwArgument;

extern Datum dw_argument_text(const DwArgument *argument);
extern Datum dw_args_texts(const DwArgument *arguments, int count);
extern ParamListInfo dw_args_params(const char *sql,
									Datum args, bool args_null,
									Datum types, bool types_null);
extern bool dw_args_any_untyped(Datum args, bool args_null, Datum types, bool types_null);
extern ParamListInfo dw_args_constants(const DwConstants *constants);
extern const Oid *dw_args_types(ParamListInfo params, int *nargs);

/* Connects the $n of a statement with the values of one run; see args.c */
typedef struct DwBinding DwBinding;

extern DwBinding *dw_args_binding(ParamListInfo params, const char *sql);
extern void dw_args_bind(DwBinding *binding, ParamListInfo params);
extern void dw_args_parser_setup(struct ParseState *pstate, void *binding);
extern List *dw_args_analyze(RawStmt *raw, const char *sql, ParamListInfo params);

#endif							/* DW_ARGS_H */
