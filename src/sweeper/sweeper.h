/*-------------------------------------------------------------------------
 *
 * sweeper.h
 *	  The sweeper: the process that removes old rows of one database.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SWEEPER_H
#define DW_SWEEPER_H

#include "postgres.h"

extern PGDLLEXPORT void dw_sweeper_main(Datum number);

#endif							/* DW_SWEEPER_H */
