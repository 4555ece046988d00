/*-------------------------------------------------------------------------
 *
 * copies.h
 *	  Tasks that came with a copy of another database.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DW_COPIES_H
#define DW_COPIES_H

#include "postgres.h"

#include "access/htup.h"
#include "commands/trigger.h"

/*
 * A row of task or failed_task is about to be written: notes it if that is
 * done by logical replication.  False if the row must not be written.
 */
extern bool dw_accept_replicated(TriggerData *trigger, HeapTuple row);

#endif							/* DW_COPIES_H */
