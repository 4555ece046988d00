/*-------------------------------------------------------------------------
 *
 * rights.h
 *	  Who may schedule tasks, and how many.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RIGHTS_H
#define DW_RIGHTS_H

#include "postgres.h"

/* An error if delay_wheel.max_pending does not let the role have another task. */
extern void dw_require_room(Oid owner);

#endif							/* DW_RIGHTS_H */
