/*-------------------------------------------------------------------------
 *
 * spi_run.h
 *	  Running the SQL of a task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SPI_RUN_H
#define DW_SPI_RUN_H

#include "postgres.h"

#include "nodes/params.h"

/* Runs it in the current transaction, as the current user; errors are raised. */
extern void dw_spi_run(const char *sql, ParamListInfo params);

#endif							/* DW_SPI_RUN_H */
