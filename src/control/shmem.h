/*-------------------------------------------------------------------------
 *
 * shmem.h
 *	  Request and set-up of shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_SHMEM_H
#define DW_SHMEM_H

#include "postgres.h"

extern void dw_shared_install(void);

#endif							/* DW_SHMEM_H */
