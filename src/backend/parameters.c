/*-------------------------------------------------------------------------
 *
 * parameters.c
 *	  Parameters of clients that leave their types to the server.
 *
 * Run by sessions, when a client's statement with parameters is analyzed.
 *
 * Many drivers send "SELECT delay_schedule($1, $2, $3)" without types.  The server finds the types
 * of $1 and $2.  $3 is an argument of the task, which can have any type, so the server would raise
 * "could not determine data type of parameter $3".  This file makes such a parameter an untyped
 * literal: the client sends a text, and the task's statement sets the type of the argument
 * (statement/args.c).
 *
 * The parser has no hook for such a parameter.  So a hook examines each statement just before
 * PostgreSQL raises the error.  The hook coerces the parameter with the parser's own function,
 * which notes the type for the client.
 *
 * PostgreSQL stores only this type.  After a change of the catalogs or of search_path, a prepared
 * statement may be analyzed again, with this type.  If the type were text, the parameter would then
 * be a text.  So the type is "character", which clients treat like text.  In calls of our
 * functions, each argument that is a parameter of this type is an untyped literal, even if the
 * client has named the type.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/dependency.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "parser/parse_param.h"

#include "backend.h"

/* The type that clients see */
#define TOLD_TYPE		BPCHAROID

/* A statement whose parameters are examined */
typedef struct Typing
{
	ParseState *pstate;
	bool		typed;			/* this file has set the type of a parameter */
} Typing;

static post_parse_analyze_hook_type prev_post_parse_analyze = NULL;

/* PostgreSQL's hooks for parameters of a client, with variable or fixed types */
static ParseParamRefHook variable_parameters;
static ParseParamRefHook fixed_parameters;

/* Returns true if the function belongs to the extension. */
static bool
is_ours(Oid function)
{
	Oid			extension = get_extension_oid("delay_wheel", true);

	return OidIsValid(extension) && getExtensionOfObject(ProcedureRelationId, function) == extension;
}

/* Returns a parameter without a type as a literal, and any other argument of a call unchanged. */
static Node *
type_argument(Node *argument, Oid function, Typing *typing)
{
	const Param *param = (Param *) argument;
	CoerceViaIO *literal;

	if (!IsA(argument, Param) || param->paramkind != PARAM_EXTERN ||
		(param->paramtype != UNKNOWNOID && param->paramtype != TOLD_TYPE) || !is_ours(function))
		return argument;
	if (param->paramtype == UNKNOWNOID)
	{
		/* a parameter that was prepared with type "unknown" is a literal already */
		if (typing->pstate->p_coerce_param_hook == NULL)
			return argument;
		argument = typing->pstate->p_coerce_param_hook(typing->pstate, (Param *) argument, TOLD_TYPE, -1, -1);
		typing->typed = true;
	}
	/* a null stays null */
	literal = makeNode(CoerceViaIO);
	literal->arg = (Expr *) argument;
	literal->resulttype = UNKNOWNOID;
	literal->resultcollid = InvalidOid;
	literal->coerceformat = COERCE_IMPLICIT_CAST;
	literal->location = -1;
	return (Node *) literal;
}

/* Sets the type of untyped parameters in calls of our functions, in an expression or a query. */
static bool
type_parameters(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, type_parameters, context, 0);
	if (IsA(node, FuncExpr))
	{
		FuncExpr   *call = (FuncExpr *) node;
		ListCell   *cell;

		foreach(cell, call->args)
			lfirst(cell) = type_argument(lfirst(cell), call->funcid, context);
	}
	return expression_tree_walker(node, type_parameters, context);
}

/*
 * Hook, called after a statement was analyzed.  Ignores other parameters, such as variables of
 * PL/pgSQL, since they have types.  Changes no types within EXPLAIN: with the option GENERIC_PLAN,
 * the parser's list of types no longer exists.
 */
static void
look_at_parameters(ParseState *pstate, Query *query, DwJumbleState *jstate)
{
	Typing		typing = {.pstate = pstate};

	if (query->commandType != CMD_UTILITY && pstate->p_paramref_hook != NULL &&
		(pstate->p_paramref_hook == variable_parameters || pstate->p_paramref_hook == fixed_parameters))
		(void) type_parameters((Node *) query, &typing);
	/* a function of another extension may use the parameter, too, without setting the type */
	if (typing.typed)
		check_variable_parameters(pstate, query);
	if (prev_post_parse_analyze)
		prev_post_parse_analyze(pstate, query, jstate);
}

/* Installs the hook. */
void
dw_parameters_install(void)
{
	ParseState *pstate = make_parsestate(NULL);

	setup_parse_variable_parameters(pstate, NULL, NULL);
	variable_parameters = pstate->p_paramref_hook;
	setup_parse_fixed_parameters(pstate, NULL, 0);
	fixed_parameters = pstate->p_paramref_hook;
	free_parsestate(pstate);

	prev_post_parse_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = look_at_parameters;
}
