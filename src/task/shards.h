/*-------------------------------------------------------------------------
 *
 * shards.h
 *	  Shards of Citus: which one a table is, and where it is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SHARDS_H
#define DW_SHARDS_H

#include "postgres.h"

#include "utils/relcache.h"

typedef struct DwShard
{
	int64		id;				/* 0: the table is no shard */
	bool		is_copy;		/* other nodes have the same rows, or may: a reference table */
	bool		is_first;		/* this node is the first one of these */
} DwShard;

extern void dw_shard_of(Relation rel, DwShard *shard);

#endif							/* DW_SHARDS_H */
