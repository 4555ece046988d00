/*-------------------------------------------------------------------------
 *
 * cursors.h
 *	  The session's cursors, and those that have received messages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_CURSORS_H
#define DW_CURSORS_H

#include "nodes/pg_list.h"

extern List *dw_cursors_list(void);
extern void dw_cursors_note(void);
extern void dw_cursors_undo(SubTransactionId subid);
extern void dw_cursors_forget(void);

#endif							/* DW_CURSORS_H */
