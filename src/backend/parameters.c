/*-------------------------------------------------------------------------
 *
 * parameters.c
 *	  Parameters of clients that leave their types to the server.
 *
 * Run by sessions, when a client's statement with parameters is parsed.
 *
 * Many drivers send "SELECT delay_schedule($1, $2, $3)" without types.  The server finds
 * the types of $1 and $2, but $3 is one of the task's arguments, which can be of any type:
 * "could not determine data type of parameter $3" would be the answer.  Here such a
 * parameter becomes what an untyped literal in its place is: the client sends a text, and
 * the argument gets its type from the task's statement (statement/args.c).
 *
 * The parser itself asks nobody what becomes of such a parameter.  So this looks at each
 * statement just before PostgreSQL complains, and coerces the parameter by the parser's own
 * function, which notes the type for the client.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/dependency.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "parser/parse_node.h"
#include "utils/lsyscache.h"

#include "parameters.h"

static post_parse_analyze_hook_type prev_post_parse_analyze = NULL;

/* True if the argument is a parameter whose type nobody has found. */
static bool
is_untyped(Node *argument)
{
	return IsA(argument, Param) && ((Param *) argument)->paramkind == PARAM_EXTERN &&
		((Param *) argument)->paramtype == UNKNOWNOID;
}

/* True if the function is one of ours. */
static bool
is_ours(Oid function)
{
	Oid			extension = get_extension_oid("delay_wheel", true);

	return OidIsValid(extension) && getExtensionOfObject(ProcedureRelationId, function) == extension;
}

/* Returns a parameter of the type text as an untyped literal; a null stays null. */
static Node *
as_literal(Node *parameter)
{
	CoerceViaIO *literal = makeNode(CoerceViaIO);

	literal->arg = (Expr *) parameter;
	literal->resulttype = UNKNOWNOID;
	literal->resultcollid = InvalidOid;
	literal->coerceformat = COERCE_IMPLICIT_CAST;
	literal->location = -1;
	return (Node *) literal;
}

/* Gives the untyped parameters of calls of our functions a type, in an expression or a query. */
static bool
type_parameters(Node *node, void *context)
{
	ParseState *pstate = context;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, type_parameters, context, 0);
	if (IsA(node, FuncExpr))
	{
		FuncExpr   *call = (FuncExpr *) node;
		ListCell   *cell;

		foreach(cell, call->args)
			if (is_untyped(lfirst(cell)) && is_ours(call->funcid))
			{
				Node	   *parameter = pstate->p_coerce_param_hook(pstate, lfirst(cell), TEXTOID, -1, -1);

				if (parameter != NULL)
					lfirst(cell) = as_literal(parameter);
			}
	}
	return expression_tree_walker(node, type_parameters, context);
}

/* Hook: a statement was parsed.  Only where types are still to be found is there such a function. */
static void
look_at_parameters(ParseState *pstate, Query *query, JumbleState *jstate)
{
	if (pstate->p_coerce_param_hook != NULL)
		(void) type_parameters((Node *) query, pstate);
	if (prev_post_parse_analyze)
		prev_post_parse_analyze(pstate, query, jstate);
}

/* Installs the hook. */
void
dw_parameters_install(void)
{
	prev_post_parse_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = look_at_parameters;
}
