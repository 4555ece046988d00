/*-------------------------------------------------------------------------
 *
 * receive.h
 *	  Messages that a transaction receives.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RECEIVE_H
#define DW_RECEIVE_H

#include "nodes/nodes.h"

/* Utility statements within which a session works. */
typedef struct DwReceiveWithin
{
	bool		explain;		/* EXPLAIN, which throws rows away */
	bool		copy_to;		/* COPY ... TO */
} DwReceiveWithin;

extern void dw_receive_install(void);
extern DwReceiveWithin dw_receive_enter(const Node *statement);
extern void dw_receive_leave(DwReceiveWithin outer);

#endif							/* DW_RECEIVE_H */
