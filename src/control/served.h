/*-------------------------------------------------------------------------
 *
 * served.h
 *	  The file that tells which databases were served.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SERVED_H
#define DW_SERVED_H

#include "postgres.h"

#include "nodes/pg_list.h"

extern List *dw_served_read(void);
extern void dw_served_write(List *databases);

#endif							/* DW_SERVED_H */
