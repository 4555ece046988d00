/*-------------------------------------------------------------------------
 *
 * launcher.h
 *	  The process that starts a timer for each database.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_LAUNCHER_H
#define DW_LAUNCHER_H

#include "postgres.h"

extern void dw_launcher_register(void);
extern PGDLLEXPORT void dw_launcher_main(Datum arg);
extern PGDLLEXPORT void dw_look_main(Datum arg);

#endif							/* DW_LAUNCHER_H */
