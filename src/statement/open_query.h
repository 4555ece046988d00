/*-------------------------------------------------------------------------
 *
 * open_query.h
 *	  Queries that stay open from one task of a batch to the next.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_OPEN_QUERY_H
#define DW_OPEN_QUERY_H

#include "postgres.h"

#include "executor/spi.h"

typedef struct DwOpenQuery DwOpenQuery;

/* What a kept plan says of its open query. */
typedef struct DwOpenPlace
{
	DwOpenQuery *query;			/* NULL: none is open */
	int			refused;		/* generation of the plan whose query cannot stay open; -1: of none */
} DwOpenPlace;

extern void dw_open_queries_hooks_begin(void);
extern void dw_open_queries_hooks_end(void);

extern void dw_open_queries_begin(void);
extern void dw_open_queries_give_way(void);
extern void dw_open_queries_end(void);
extern void dw_open_queries_forget(void);

extern bool dw_open_query_run(DwOpenPlace *place, SPIPlanPtr spi, const SPIExecuteOptions *options,
							  int *result);
extern void dw_open_query_close(DwOpenQuery *query);

#endif							/* DW_OPEN_QUERY_H */
