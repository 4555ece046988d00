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

/* An executor has ended while it ran the task; or it was to be stopped. */
extern void dw_quit_note(Oid database, int64 id, bool stopped);

/* Has the task ended its executor? */
extern bool dw_quit_is_noted(int64 id);

/* If so that is forgotten, and the error returned that it has failed with. */
extern ErrorData *dw_quit_take(int64 id);

/* The extension is gone: if it is created again, other tasks have the same ids. */
extern void dw_quits_forget_database(Oid database);

#endif							/* DW_QUITS_H */
