/*-------------------------------------------------------------------------
 *
 * receive.h
 *	  Messages that a transaction receives.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_RECEIVE_H
#define DW_RECEIVE_H

extern void dw_receive_install(void);

#endif							/* DW_RECEIVE_H */
