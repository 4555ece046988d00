/*-------------------------------------------------------------------------
 *
 * other_nodes.h
 *	  Effects of tasks on other nodes, and what they read there.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_OTHER_NODES_H
#define DW_OTHER_NODES_H

/* Called once by the postmaster. */
extern void dw_other_nodes_install(void);

/*
 * Before the commit of a transaction that has run tasks: what they have changed on
 * other nodes is to be prepared there, not committed.
 */
extern void dw_other_nodes_prepare(void);

#endif							/* DW_OTHER_NODES_H */
