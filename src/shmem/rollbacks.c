/*-------------------------------------------------------------------------
 *
 * rollbacks.c
 *	  Messages whose receivers were rolled back.
 *
 * Run by sessions that receive, in callbacks, and by the sweeper.  A rollback undoes all
 * that its transaction wrote, so the attempt of a message that lets its receiver fail
 * would be counted nowhere, and the message would come again at once for ever.  So
 * rollbacks are counted here.  The first two in a row cost nothing: the message is due
 * again at once.  So it is after the third, if the transaction had received others, too;
 * but from then on it is received alone, since it may be another one that fails.  A
 * message that was alone is left to the sweeper from the third rollback on
 * (sweeper/leases.c), which counts the attempt in the table.
 *
 * The memory is bounded: a message takes the place of another one that was seen longer
 * ago, and one that finds no place among those to settle is due again at once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "rollbacks.h"

/* Forgets all. */
void
dw_rollbacks_init(DwRollbacks *rollbacks)
{
	for (int i = 0; i < DW_ROLLBACKS; i++)
	{
		pg_atomic_init_u64(&rollbacks->seen[i].id, 0);
		pg_atomic_init_u32(&rollbacks->seen[i].n, 0);
	}
	for (int i = 0; i < DW_TO_SETTLE; i++)
		pg_atomic_init_u64(&rollbacks->to_settle[i], 0);
}

/* Counts a rollback of a transaction that had received the message; returns the number in a row. */
uint32
dw_rollback_note(DwRollbacks *rollbacks, int64 id)
{
	int			i = id % DW_ROLLBACKS;

	if (pg_atomic_read_u64(&rollbacks->seen[i].id) == (uint64) id)
		return pg_atomic_fetch_add_u32(&rollbacks->seen[i].n, 1) + 1;
	pg_atomic_write_u32(&rollbacks->seen[i].n, 1);
	pg_atomic_write_u64(&rollbacks->seen[i].id, (uint64) id);
	return 1;
}

/* How often in a row the receiver of the message was rolled back, as far as is known. */
uint32
dw_rollbacks_of(DwRollbacks *rollbacks, int64 id)
{
	int			i = id % DW_ROLLBACKS;

	return pg_atomic_read_u64(&rollbacks->seen[i].id) != (uint64) id ? 0 :
		pg_atomic_read_u32(&rollbacks->seen[i].n);
}

/* The message was received, or its attempt was counted. */
void
dw_rollback_forget(DwRollbacks *rollbacks, int64 id)
{
	uint64		expected = (uint64) id;

	(void) pg_atomic_compare_exchange_u64(&rollbacks->seen[id % DW_ROLLBACKS].id, &expected, 0);
}

/* Leaves the message to the sweeper, which the caller asks; false if there is no place for it. */
bool
dw_rollback_hand_over(DwRollbacks *rollbacks, int64 id)
{
	for (int i = 0; i < DW_TO_SETTLE; i++)
	{
		uint64		expected = 0;

		if (pg_atomic_compare_exchange_u64(&rollbacks->to_settle[i], &expected, (uint64) id) ||
			expected == (uint64) id)
			return true;
	}
	return false;
}

/* A message that was left to the sweeper, or 0. */
int64
dw_rollback_to_settle(DwRollbacks *rollbacks)
{
	for (int i = 0; i < DW_TO_SETTLE; i++)
	{
		uint64		id = pg_atomic_read_u64(&rollbacks->to_settle[i]);

		if (id != 0)
			return (int64) id;
	}
	return 0;
}

/* The sweeper has dealt with the message. */
void
dw_rollback_settled(DwRollbacks *rollbacks, int64 id)
{
	for (int i = 0; i < DW_TO_SETTLE; i++)
	{
		uint64		expected = (uint64) id;

		(void) pg_atomic_compare_exchange_u64(&rollbacks->to_settle[i], &expected, 0);
	}
	dw_rollback_forget(rollbacks, id);
}
