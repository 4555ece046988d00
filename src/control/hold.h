/*-------------------------------------------------------------------------
 *
 * hold.h
 *	  Keeping our workers out of a database, for commands that need it without sessions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_HOLD_H
#define DW_HOLD_H

#include "postgres.h"

extern void dw_hold_install(void);
extern void dw_hold_database(Oid database);

#endif							/* DW_HOLD_H */
