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

/*
 * Read the arguments of an SQL function that is declared VARIADIC "any",
 * from its argument number first (counted from 0) on, and make what a task's
 * row keeps of them: *args, a text[] in which NULL is a NULL argument, and
 * *types, a regtype[] of the same length.  A literal without a type has an
 * invalid type there (printed as -) and keeps the text as it was written.
 *
 * Returns how many there are.  Without any, *isnull is true and both Datums
 * are 0.  The result is in the current memory context.
 *
 * A type whose values cannot be kept as text raises an error.
 */
extern int	dw_args_collect(FunctionCallInfo fcinfo, int first,
							Datum *args, Datum *types, bool *isnull);

/*
 * The same for arguments that are given as such arrays.  A value of a type is
 * read under the settings of the session, as a literal would be; types may be
 * NULL, as a whole or in its elements: untyped.
 */
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

/*
 * Turn what a task's row keeps back into values, to be passed to
 * SPI_execute_extended() as options.params.  NULL if there are no arguments.
 *
 * A typed argument becomes a parameter with that value.  An untyped one
 * means, wherever $n stands, the same as a literal written there: it takes
 * its type from that place, each place by itself, and is read under the
 * settings of the moment, as a literal would be.  This works through the
 * parserSetup of the result, by further parameters after the arguments.
 *
 * types may be NULL, as a whole or in its elements: untyped.  The result and
 * its values are in the current memory context, which must outlive the run;
 * args and types need not.  sql is only for messages; may be NULL.
 *
 * Can run code of the user's (a domain's CHECK, an input function): call it
 * as the task's owner, in the transaction in which its SQL is to run.  Code of
 * roles that do not have this one's rights runs with their own only.
 */
extern ParamListInfo dw_args_params(const char *sql,
									Datum args, bool args_null,
									Datum types, bool types_null);

/* The same for the constants of a text, which must outlive the run. */
extern ParamListInfo dw_args_constants(const DwConstants *constants);

/* The types of the arguments; InvalidOid is untyped. */
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
