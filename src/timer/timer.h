/*-------------------------------------------------------------------------
 *
 * timer.h
 *	  The timer: the process that hands over tasks of one database when they are due.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_TIMER_H
#define DW_TIMER_H

#include "postgres.h"


extern PGDLLEXPORT void dw_timer_main(Datum number);

#endif							/* DW_TIMER_H */
