/*-------------------------------------------------------------------------
 *
 * parameters.h
 *	  Parameters of clients that leave their types to the server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_PARAMETERS_H
#define DW_PARAMETERS_H

/* To be called once, by the postmaster. */
extern void dw_parameters_install(void);

#endif							/* DW_PARAMETERS_H */
