/*-------------------------------------------------------------------------
 *
 * sweeper.h
 *	  The process that removes rows of cancelled and of old failed tasks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SWEEPER_H
#define DW_SWEEPER_H

#include "postgres.h"

extern PGDLLEXPORT void dw_sweeper_main(Datum number);

#endif							/* DW_SWEEPER_H */
