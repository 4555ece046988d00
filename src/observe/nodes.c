/*-------------------------------------------------------------------------
 *
 * nodes.c
 *	  The figures of all nodes of Citus, for the view delay_wheel.nodes.
 *
 * Run by sessions.  The session asks each node by a connection of Citus, as its own user.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/extension.h"
#include "executor/spi.h"
#include "utils/tuplestore.h"
#include "fmgr.h"
#include "funcapi.h"

#include "../base/compat.h"
#include "../base/own_sql.h"
#include "../base/signature.h"

PG_FUNCTION_INFO_V1(dw_get_nodes);

/* What a node says of itself, a json for the view. */
#define FIGURES \
	"SELECT pg_catalog.row_to_json(n)::text FROM (" \
	"SELECT s.*, c.pending, f.count AS failed" \
	" FROM (SELECT state, ready, running, done, lateness_p50, lateness_p95, lateness_max, last_problem" \
	" FROM delay_wheel_internal.get_status() WHERE database OPERATOR(pg_catalog.=) pg_catalog.current_database()) s," \
	" (SELECT pg_catalog.sum(tasks) AS pending FROM delay_wheel_internal.count_due(ARRAY[]::timestamptz[])) c," \
	" (SELECT pg_catalog.count(*) FROM delay_wheel.failed) f) n"

/*
 * SQL function delay_wheel_internal.get_nodes(): a row for each node, with its address, its
 * figures as json, or its error.  Without Citus one row, without an address.
 */
Datum
dw_get_nodes(PG_FUNCTION_ARGS)
{
	static const char *const ask_all =
		"SELECT COALESCE(n.nodename || ':' || n.nodeport, r.nodeid::text),"
		" CASE WHEN r.success THEN r.result END, CASE WHEN NOT r.success THEN r.result END"
		" FROM pg_catalog.run_command_on_all_nodes('" FIGURES "') r"
		"	LEFT JOIN pg_catalog.pg_dist_node n ON n.nodeid = r.nodeid";
	static const char *const ask_this = "SELECT NULL::text, (" FIGURES "), NULL::text";
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int			nest_level;

	InitMaterializedSRF(fcinfo, 0);
	nest_level = dw_own_sql_begin();
	if (SPI_execute(OidIsValid(get_extension_oid("citus", true)) ? ask_all : ask_this, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not ask the nodes");
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(result->setResult, SPI_tuptable->vals[i]);
	dw_own_sql_end(nest_level);
	return (Datum) 0;
}
