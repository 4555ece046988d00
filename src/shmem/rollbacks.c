/*-------------------------------------------------------------------------
 *
 * rollbacks.c
 *	  Messages whose receivers were rolled back.
 *
 * Run by receiving sessions, in callbacks, and by the sweeper.  A rollback undoes all writes of its
 * transaction.  So if a message makes its receiver fail, the attempt is not in the table, and the
 * message would come again at once, for ever.  Therefore rollbacks are counted here.  After the
 * first two rollbacks in a row, the message is due again at once.  After the third, the message is
 * received alone, since another message may have caused the failure.  If a message was alone in its
 * transaction, the third and each later rollback leaves the message to the sweeper
 * (sweeper/leases.c), which counts the attempt in the table.
 *
 * The memory is bounded: a message replaces an older message.  If the list for the sweeper is full,
 * the message is due again at once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "parts.h"

/* Forgets all rollbacks. */
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

/* Counts a rollback of a receiver of the message.  Returns the new number of rollbacks in a row. */
uint32
dw_rollback_note(DwRollbacks *rollbacks, int64 id)
{
	int			i = (uint64) id % DW_ROLLBACKS;

	if (pg_atomic_read_u64(&rollbacks->seen[i].id) == (uint64) id)
		return pg_atomic_fetch_add_u32(&rollbacks->seen[i].n, 1) + 1;
	pg_atomic_write_u32(&rollbacks->seen[i].n, 1);
	pg_atomic_write_u64(&rollbacks->seen[i].id, (uint64) id);
	return 1;
}

/* Returns how many rollbacks in a row are counted for the message. */
uint32
dw_rollbacks_of(DwRollbacks *rollbacks, int64 id)
{
	int			i = (uint64) id % DW_ROLLBACKS;

	return pg_atomic_read_u64(&rollbacks->seen[i].id) != (uint64) id ? 0 :
		pg_atomic_read_u32(&rollbacks->seen[i].n);
}

/* Forgets the rollbacks of a message, since it was received, or its attempt was counted. */
void
dw_rollback_forget(DwRollbacks *rollbacks, int64 id)
{
	uint64		expected = (uint64) id;

	(void) pg_atomic_compare_exchange_u64(&rollbacks->seen[(uint64) id % DW_ROLLBACKS].id, &expected, 0);
}

/* Leaves the message to the sweeper, which the caller wakes.  Returns false if the list is full. */
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

/* Returns a message that was left to the sweeper, or 0. */
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

/* Notes that the sweeper has settled the message. */
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
