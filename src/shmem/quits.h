/*-------------------------------------------------------------------------
 *
 * quits.h
 *	  Tasks that have ended their executor.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_QUITS_H
#define DW_QUITS_H

#include "postgres.h"

extern void dw_quit_note(Oid database, int64 id, bool stopped);
extern bool dw_quit_is_noted(int64 id);
extern ErrorData *dw_quit_take(int64 id);
extern void dw_quits_forget_database(Oid database);

#endif							/* DW_QUITS_H */
