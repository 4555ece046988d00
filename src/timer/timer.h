/*-------------------------------------------------------------------------
 *
 * timer.h
 *	  The process that turns a database's ring.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TIMER_H
#define DW_TIMER_H

#include "postgres.h"


extern PGDLLEXPORT void dw_timer_main(Datum number);

#endif							/* DW_TIMER_H */
