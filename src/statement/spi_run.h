/*-------------------------------------------------------------------------
 *
 * spi_run.h
 *	  Runs the SQL of a task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SPI_RUN_H
#define DW_SPI_RUN_H

#include "postgres.h"

#include "nodes/params.h"
#include "tcop/cmdtag.h"
#include "utils/jsonb.h"

/* The command that was the last statement of a text, and its row count */
typedef struct DwSpiResult
{
	int			code;			/* SPI's, for example SPI_OK_UPDATE */
	CommandTag	utility;		/* the command, if code is SPI_OK_UTILITY */
	uint64		rows;			/* that the statement processed */
	Jsonb	   *first_row;		/* that it returned, if that was wanted, or NULL */
} DwSpiResult;

extern DwSpiResult dw_spi_run(const char *sql, ParamListInfo params, int max_row);
extern DwSpiResult dw_spi_run_once(const char *sql, ParamListInfo params, int max_row);
extern void dw_spi_note_utility(CommandTag tag, const QueryCompletion *qc);
extern DwSpiResult dw_spi_noted_utility(void);

#endif							/* DW_SPI_RUN_H */
