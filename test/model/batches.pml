/*
 * The end of a batch (src/batches): members end, one adds a member, others join and close it, a
 * failed member is put back, and a sweeper looks for the end.
 *
 * What a transaction has done is visible at its commit, which is one step.  A lock of the batch's
 * row is released with the commit, too.  Afterwards the process notes the batch.
 *
 * Broken rules (a check breaks): NOTE_EARLY, CLEAR_LATE, LOOK_ONCE, JOIN_UNLOCKED, ABORT_UNNOTED,
 * BACK_UNLOCKED, BACK_STAYS_ENDED.
 */
#ifndef MEMBERS
#define MEMBERS 2
#endif

byte pending = MEMBERS;	/* visible members that have not ended */
bool closed = false;	/* committed */
bool ended = false;		/* committed */
byte shared = 0;		/* locks of the batch's row FOR SHARE, and FOR UPDATE */
bool exclusive = false;
bool noted = false;
byte joining = 0;		/* members that a transaction has written and not committed */
byte ends = 0;			/* how often the batch has ended */
byte backs = 0;			/* how often its end was taken back */
byte failed = 0;		/* members that failed, and can be put back */

/* B1: after the end of the transaction */
#define note() noted = true

/* A member runs.  The first one adds another one, in the transaction of its own end. */
proctype member(bool adds; bool fails)
{
	bool add_ends = adds;

#ifdef NOTE_EARLY
	note();
#endif
	atomic {
		/* its own row is visible until this commit, so the batch is pending */
		assert(!ended);
		if :: fails -> failed++ :: else fi;
		if :: adds -> skip :: else -> pending-- fi
	}
#ifndef NOTE_EARLY
	note();
#endif
	if
	:: add_ends ->
		/* the added member runs: it takes the place of the first one in "pending" */
		atomic { assert(!ended); pending-- };
		note()
	:: else
	fi
}

/* Another session joins, if the batch is open, and commits or rolls back. */
proctype joiner()
{
#ifndef JOIN_UNLOCKED
	atomic { !exclusive; shared++ };
#endif
	if
	:: closed -> goto out
	:: else
	fi;
	joining++;
	if
	:: atomic {
			/* commit */
			joining--;
			pending++;
#ifndef JOIN_UNLOCKED
			shared--
#endif
		};
		note();
		/* the new member runs */
		atomic { assert(!ended); pending-- };
		note();
		goto done
	:: joining--
	fi;
out:
#ifndef JOIN_UNLOCKED
	shared--;
#endif
#ifndef ABORT_UNNOTED
	note();
#endif
done:
	skip
}

/* The session that made the batch closes it. */
proctype closer()
{
	atomic { shared == 0 && !exclusive; exclusive = true };
	atomic { closed = true; exclusive = false };
	note()
}

/* A session puts a failed member back. */
proctype putter_back()
{
	if
	:: atomic { failed > 0; failed-- }
	:: timeout -> goto done
	fi;
#ifndef BACK_UNLOCKED
	atomic { shared == 0 && !exclusive; exclusive = true };
#endif
	/* under the lock it sees whether the batch has ended */
	if
	:: ended ->
		atomic {
#ifndef BACK_STAYS_ENDED
			ended = false;
			backs++;
#endif
			pending++;
			exclusive = false
		}
	:: else ->
		atomic {
			pending++;
			exclusive = false
		}
	fi;
	note();
	atomic { assert(!ended); pending-- };
	note();
done:
	skip
}

proctype sweeper()
{
	bool seen;

end:
	do
	:: noted ->
#ifndef CLEAR_LATE
		noted = false;
#endif
		/* a look without a lock, since most often there are members */
		seen = pending > 0;
		if
		:: seen -> goto next
		:: else
		fi;
		/* SKIP LOCKED */
		if
		:: atomic { shared == 0 && !exclusive -> exclusive = true }
		:: shared > 0 || exclusive -> goto next
		fi;
		if
		:: !closed || ended -> exclusive = false; goto next
		:: else
		fi;
#ifndef LOOK_ONCE
		/* a snapshot that is newer than the lock */
		seen = pending > 0;
#endif
		if
		:: seen -> exclusive = false; goto next
		:: else
		fi;
		atomic {
			/* commit */
			assert(pending == 0 && joining == 0);
			ended = true;
			ends++;
			exclusive = false
		};
next:
#ifdef CLEAR_LATE
		noted = false
#else
		skip
#endif
	od
}

init {
	atomic {
		run sweeper();
		run member(true, false);
#if MEMBERS > 1
		run member(false, true);
#endif
#if MEMBERS > 2
		run member(false, false);
#endif
		run joiner();
		run closer();
#ifdef BACK
		run putter_back()
#endif
	};
	/* when all processes rest, the batch has ended, once for each time that it could */
	timeout;
	assert(ended && pending == 0);
	assert(ends == backs + 1)
}
