/*-------------------------------------------------------------------------
 *
 * shards.c
 *	  Shards of Citus: which one a table is, and where it is.
 *
 * Run by sessions whose triggers schedule tasks.
 *
 * A trigger on a distributed table fires on the shard that gets the row: a table of its
 * own, on one node.  The rows of a reference table, and of replicated shards, are on
 * several nodes, and the trigger fires on each.
 *
 * All is read from the tables of Citus, which all roles may read, and not kept here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "../base/own_sql.h"
#include "shards.h"

/* The number at the end of a shard's name, after an underscore; 0 if there is none. */
static int64
number_of_name(const char *name)
{
	const char *number = strrchr(name, '_');

	if (number == NULL || number[1] == '\0' || strlen(number + 1) > 18 ||
		number[1 + strspn(number + 1, "0123456789")] != '\0')
		return 0;
	return strtoll(number + 1, NULL, 10);
}

/*
 * Fills *shard for a table, by its name and Citus' catalog.  Executes a query, if the name
 * could be that of a shard and the database has Citus.
 */
void
dw_shard_of(Relation rel, DwShard *shard)
{
	/* a long name of a table is shortened in the name of its shard */
	static const char *const query =
		"SELECT pg_catalog.count(*) > 1 OR pg_catalog.bool_or(d.partmethod = 'n' AND d.repmodel = 't'),"
		" pg_catalog.min(p.groupid) = pg_catalog.min(l.groupid)"
		" FROM pg_catalog.pg_dist_shard s"
		" JOIN pg_catalog.pg_class c ON c.oid = s.logicalrelid"
		" JOIN pg_catalog.pg_dist_partition d ON d.logicalrelid = s.logicalrelid"
		" JOIN pg_catalog.pg_dist_placement p ON p.shardid = s.shardid AND p.shardstate = 1"
		" CROSS JOIN pg_catalog.pg_dist_local_group l"
		" WHERE s.shardid = $1 AND c.relnamespace = $2"
		" AND (c.relname::text || '_' || s.shardid = $3 OR pg_catalog.octet_length($3) > 50)"
		" HAVING pg_catalog.count(*) > 0";
	Oid			types[] = {INT8OID, OIDOID, TEXTOID};
	Datum		values[3];
	int			nest_level;
	bool		isnull;

	memset(shard, 0, sizeof(DwShard));
	shard->is_first = true;
	shard->id = number_of_name(RelationGetRelationName(rel));
	if (shard->id == 0 || !OidIsValid(get_extension_oid("citus", true)))
	{
		shard->id = 0;
		return;
	}
	values[0] = Int64GetDatum(shard->id);
	values[1] = ObjectIdGetDatum(RelationGetNamespace(rel));
	values[2] = CStringGetTextDatum(RelationGetRelationName(rel));
	nest_level = dw_own_sql_begin();
	if (SPI_execute_with_args(query, 3, types, values, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not look for a shard");
	if (SPI_processed == 0)
		shard->id = 0;
	else
	{
		shard->is_copy = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
		shard->is_first = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));
	}
	dw_own_sql_end(nest_level);
}
