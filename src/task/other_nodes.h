/*-------------------------------------------------------------------------
 *
 * other_nodes.h
 *	  Effects of tasks on other nodes, and what they read there.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_OTHER_NODES_H
#define DW_OTHER_NODES_H

extern void dw_other_nodes_install(void);
extern void dw_other_nodes_prepare(void);
extern bool dw_other_nodes_exist(void);
extern bool dw_other_nodes_take_part(void);
extern bool dw_other_nodes_in_two_phase(void);

#endif							/* DW_OTHER_NODES_H */
