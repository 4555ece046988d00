/*-------------------------------------------------------------------------
 *
 * copies.h
 *	  Tasks that came with a copy of a database or a server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_COPIES_H
#define DW_COPIES_H

#include "../base/wing.h"

extern const DwWing dw_copies_wing;

#endif							/* DW_COPIES_H */
