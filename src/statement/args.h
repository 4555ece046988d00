/*-------------------------------------------------------------------------
 *
 * args.h
 *	  The arguments of a task: what $1, $2, ... in its SQL stand for.
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

/* A task has no more arguments than this: SQLSTATE 54000. */
#define DW_MAX_ARGS		65535

extern int	dw_args_collect(FunctionCallInfo fcinfo, int first,
							Datum *args, Datum *types, bool *isnull);
extern int	dw_args_parse(ArrayType *args, ArrayType *types,
						  Datum *stored_args, Datum *stored_types, bool *isnull);

/*
 * How values of a type are written, for who writes many of them.  Types without
 * values that can be kept as text raise an error.
 */
typedef struct DwWriter
{
	bool		needs_fixed_settings;
	FmgrInfo	output;
} DwWriter;
extern void dw_writer_init(DwWriter *writer, Oid type, MemoryContext context);

/* An argument on its way into a row */
typedef struct DwArgument
{
	Oid			type;			/* UNKNOWNOID: an untyped literal */
	Datum		value;
	bool		isnull;
	const DwWriter *writer;		/* NULL: to be looked up */
} DwArgument;

/* The text of one that is not NULL, and the text[] of some. */
extern Datum dw_argument_text(const DwArgument *argument);
extern Datum dw_args_texts(const DwArgument *arguments, int count);
extern ParamListInfo dw_args_params(const char *sql,
									Datum args, bool args_null,
									Datum types, bool types_null);
extern ParamListInfo dw_args_constants(const DwConstants *constants);
extern const Oid *dw_args_types(ParamListInfo params, int *nargs);

/*
 * For a plan that is kept: what its parser setup is given, made in the current
 * memory context, which is to live as long as the plan, and so is sql, the
 * text of the plan.  It is good for arguments of the same types.
 *
 * Before the plan is prepared, and before each run, it is bound to the
 * arguments of that run.  What untyped ones are read as is put into the
 * memory context that is the current one then.
 */
typedef struct DwBinding DwBinding;
extern DwBinding *dw_args_binding(ParamListInfo params, const char *sql);
extern void dw_args_bind(DwBinding *binding, ParamListInfo params);
extern void dw_args_parser_setup(struct ParseState *pstate, void *binding);

#endif							/* DW_ARGS_H */
