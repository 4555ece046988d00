/*
 * How a task gets from a commit to its one run: hints, loads, sleep, claim, and their failures.
 *
 * One lane of one database.  The names of the steps (C1, L3, ...) are those of README.md; each is one
 * indivisible step here, unless it is said why several are taken together.  Search is exhaustive and
 * sequentially consistent; a barrier that is taken out (MUT_NB_*) is a read done before the store in
 * front of it, which is what a store buffer does.
 *
 * Sizes, features and mutations are macros; test/model/run sets them.
 */

#ifndef NT
#define NT 2			/* tasks, ids 1..NT, at most 3 */
#endif
#ifndef RC
#define RC 1			/* entries the ring holds */
#endif
#ifndef ROOM
#define ROOM (rn < RC)		/* a load starts when so much is free */
#endif
#ifndef IC
#define IC 1			/* hints the inbox holds */
#endif
#ifndef NEXEC
#define NEXEC 1
#endif
#ifndef READY
#define READY 1			/* handed entries that wait for an executor */
#endif
#ifndef MAXT
#define MAXT 3			/* the clock goes from 0 to here */
#endif
#ifndef AHEAD
#define AHEAD 1			/* a load reaches this far, in ticks */
#endif
#ifndef DUE1
#define DUE1 1			/* what a task may be due at */
#endif
#ifndef DUE2
#define DUE2 MAXT
#endif
#ifndef DUE3
#define DUE3 DUE2
#endif
#ifndef NEW1
#define NEW1 1			/* rescheduled to: this or MAXT */
#endif
#ifndef MODT
#define MODT NT			/* ids 1..MODT may be cancelled or rescheduled */
#endif
/* BULK: a committer may lower reload_from instead, as a large transaction or plain SQL does. */
/* READY_SURVIVES: what has been handed outlives the timer. */
/* MOD1, MOD2: transactions that cancel or reschedule.  LOCKED: row 1 is locked for ever. */
#ifndef CRASH
#define CRASH 0			/* times the timer dies */
#endif
#ifndef ERRS
#define ERRS 0			/* loads that fail */
#endif
#ifndef PRESS
#define PRESS 0			/* times the lane's far end is dropped */
#endif
#ifndef TERMS
#define TERMS 0			/* executors terminated */
#endif
#ifndef RETRY
#define RETRY 0			/* tasks that fail and are tried again */
#endif
/* NEWS: who schedules changes catalogs, too, and the task must know of that. */
#ifndef MOVES
#define MOVES 0			/* times a row's tid changes and nothing else: VACUUM FULL */
#endif
/* LOADED: the hint of a row that a load has read since its commit is dropped (timer/hints.c). */
/* REUSE: a row has two places; its new version takes the one from which the last but one was removed. */
/* TWICE: no version of a row is put into memory twice; not with what forgets or drops entries. */

#define INF 15			/* no due time */
#define NOKEY 63
#define K(d, i) ((d) * 4 + (i))	/* the key (due, id) */
#define DUE(k) ((k) >> 2)
#define ID(k) ((k) & 3)
#define LOAD_AT(d) ((d) > AHEAD -> (d) - AHEAD : 0)

/* The table.  A version of a row is (id, tid, due); tid grows with each new version. */
bit vis[NT + 1];		/* the id has a committed version */
bit lock[NT + 1];		/* an open transaction has changed it */
byte tid[NT + 1];
byte due[NT + 1];
bit ran[NT + 1];

#ifdef NEWS
bit pub[NT + 1];		/* the writer of the row is published */
bit sent[NT + 1];		/* what it changed is known to all who look */
#endif

/* Shared memory. */
#ifdef LOADED
chan inbox = [IC] of { byte, byte, byte };	/* key, tid, number of the last load */
#else
chan inbox = [IC] of { byte, byte };	/* key, tid */
#endif
chan ready = [READY] of { byte, byte };
byte reload_from = INF;
byte next_far = INF;
bit dirty;
byte horizon;
byte sleep_until;		/* 0: awake */
bit latch;

byte now;
byte crash = CRASH;		/* deaths left */
bit die;
byte errs = ERRS;
byte press = PRESS;
byte terms = TERMS;
byte retries = RETRY;
byte moves = MOVES;
#ifdef MUT_SKIP_HANDED
byte out[NT + 1];
#endif

#ifdef REUSE
#define NEXT_TID(t) (3 - (t))
#else
#define NEXT_TID(t) ((t) + 1)
#endif

#ifdef TWICE
byte put[NT + 1];		/* the version that was last put into memory */
#define PUT(key, t) assert(put[ID(key)] != t); put[ID(key)] = t
#else
#define PUT(key, t) skip
#endif

/*
 * The rule of timer/hints.c.  Loads have numbers.  A process notes the number of the last load (l)
 * for its hint; the timer remembers, by id, the last row that a load has put into memory, and the
 * load's number.
 *
 * Only the order of the numbers that are in use matters.  So they begin anew, and nothing is
 * remembered, when no hint is under way: whoever notes a number later notes none that is less than
 * that of a load before.
 */
#ifdef LOADED
byte loads;			/* the number of the last load */
byte live;			/* hints under way, from the note to the timer */
byte mem_load[NT + 1];
byte mem_due[NT + 1];
byte mem_tid[NT + 1];

#define NOTE l = loads; live++
#define MESSAGE(k, t) k, t, l

inline forget_loaded()
{
	mem_load[1] = 0; mem_due[1] = 0; mem_tid[1] = 0;
#if NT > 1
	mem_load[2] = 0; mem_due[2] = 0; mem_tid[2] = 0;
#endif
#if NT > 2
	mem_load[3] = 0; mem_due[3] = 0; mem_tid[3] = 0;
#endif
}

/* A hint is not under way any more. */
inline end_note()
{
	l = 0;
	live--;
#ifndef MUT_EQUAL
	if :: live == 0 -> loads = 0; forget_loaded() :: else fi
#endif
}

#ifdef MUT_EQUAL
#define LATER(load, l) (load >= l)
#define COUNTS true
#else
#define LATER(load, l) (load > l)
#define COUNTS (live > 0)
#endif
#ifdef MUT_TID_IGNORED
#define SAME_TID(k, t) true
#else
#define SAME_TID(k, t) (mem_tid[ID(k)] == t)
#endif
#ifdef MUT_DUE_IGNORED
#define SAME_DUE_AS(k) true
#else
#define SAME_DUE_AS(k) (mem_due[ID(k)] == DUE(k))
#endif
#define HAS_LOADED(k, t) (mem_tid[ID(k)] != 0 && SAME_TID(k, t) && SAME_DUE_AS(k) && LATER(mem_load[ID(k)], l))

#define RAISE if :: COUNTS -> loads++ :: else fi
#define LOADED_NOTE(k, t) if \
	:: COUNTS -> mem_load[ID(k)] = loads; mem_due[ID(k)] = DUE(k); mem_tid[ID(k)] = t \
	:: else fi
#else
#define NOTE skip
#define MESSAGE(k, t) k, t
#define RAISE skip
#define LOADED_NOTE(k, t) skip
#endif

#define FORGET i = 0; d = 0; t = 0; n = 0

#ifdef MUT_COMMIT_LESS
#define WITHIN <
#else
#define WITHIN <=
#endif

#if defined(MUT_WAKE_NEVER)
#define C3(after) d_step { b = 0; after }
#elif defined(MUT_NB_B2)
#define C3(after) d_step { if :: s > b -> latch = 1 :: else fi; s = 0; b = 0; after }
#else
#define C3(after) d_step { if :: sleep_until > b -> latch = 1 :: else fi; b = 0; after }
#endif

/*
 * C2, C3: bring (d, i, t) to the timer.  h, b are the caller's; s too where B2 is taken out.  Reading
 * sleep_until and setting the latch are one step: a latch set later than that can only wake once more.
 * bring_noted() is for what was committed: the number of the last load was noted before that.
 */
inline bring(d, i, t)
{
#ifdef LOADED
	d_step { NOTE };
#endif
	bring_noted(d, i, t)
}

inline bring_noted(d, i, t)
{
#ifndef MUT_NB_B1
	h = horizon;
#endif
#ifdef MUT_NB_B2
	s = sleep_until;
#endif
	if
	:: d_step { d WITHIN h && len(inbox) < IC ->	/* C2p */
			inbox!MESSAGE(K(d, i), t);
			b = d;
#ifdef LOADED
			l = 0;
#endif
			h = 0
		}
#ifdef BULK
	:: d_step { h = 0 };
#else
	:: d_step { d WITHIN h && len(inbox) == IC -> h = 0 };
#endif
		d_step {		/* C2r: the inbox may have been emptied in between */
#ifndef MUT_FULL_FORGET
			if :: d < reload_from -> reload_from = d :: else fi;
#endif
#ifdef LOADED
			end_note();
#endif
#ifdef MUT_WAKE_RELOAD_DUE
			b = d
#else
			b = now
#endif
		}
	:: d_step { !(d WITHIN h) ->	/* C2f */
#ifdef MUT_DIRTY_FIRST
			dirty = 1;
#else
			if :: d < next_far -> next_far = d :: else fi;
#endif
#ifdef MUT_WAKE_FAR_DUE
			b = d;
#else
			b = LOAD_AT(d);
#endif
#ifdef LOADED
			end_note();
#endif
			h = 0
		};
		d_step {		/* C2d */
#ifdef MUT_DIRTY_FIRST
			if :: d < next_far -> next_far = d :: else fi;
#else
			dirty = 1;
#endif
		}
	fi
}

/* What the timer itself brings to next_far. */
inline lower_far(d)
{
	if :: (d) < next_far -> next_far = (d) :: else fi;
	dirty = 1
}

inline pick_due(d)
{
	if :: d = DUE1 :: d = DUE2 :: d = DUE3 fi
}

#ifdef LOADED
#define PRIVATE h, b, s, l
#else
#define PRIVATE h, b, s
#endif

proctype Sched(byte i)
{
	byte d, PRIVATE;

#ifdef MUT_NB_B1
	h = horizon;
#endif
#ifdef MUT_HINT_EARLY
	pick_due(d);
	bring(d, i, 1); C3(skip);
	d_step { due[i] = d; tid[i] = 1; vis[i] = 1; d = 0 }
#else
#if defined(NEWS) && !defined(MUT_PUB_LATE) && !defined(MUT_PUB_NEVER)
	pub[i] = 1;			/* N1 */
#endif
#if defined(LOADED) && !defined(MUT_NOTE_LATE)
	d_step { NOTE };		/* C0n */
#endif
	atomic { pick_due(d); due[i] = d; tid[i] = 1; vis[i] = 1 };	/* C1 */
#ifdef MUT_NOTE_LATE
	d_step { NOTE };
#endif
#ifdef NEWS
#ifdef MUT_PUB_LATE
	pub[i] = 1;
#endif
#ifdef MUT_WITHDRAW_EARLY
	pub[i] = 0;
#endif
#ifdef MUT_TELL_EARLY
	bring_noted(d, i, 1); C3(skip);
#endif
	sent[i] = 1;			/* N2 */
	pub[i] = 0;			/* N4 */
#endif
#ifdef MUT_TELL_EARLY
	d = 0
#else
	bring_noted(d, i, 1); C3(d = 0)
#endif
#endif
}

/* A transaction that cancels or reschedules; what: the ways it may end. */
#define CANCEL 1
#define RESCHED 2
#define ABORT 4

proctype Mod(byte what)
{
	byte i, d, t, n, PRIVATE;

	atomic {			/* T1 */
		if
		:: vis[1] -> i = 1
#if MODT > 1
		:: vis[2] -> i = 2
#endif
		fi;
		d = due[i];
		t = tid[i]
	};
#ifdef MUT_NOTE_AT_START
	d_step { NOTE };
#endif
#ifdef MUT_ABORT_NOTE_EARLY
	d_step { NOTE };
#endif
T2:
	if
#ifdef REUSE
	:: d_step { vis[i] && tid[i] == t && !lock[i] -> lock[i] = 1; d = due[i] }
#else
	:: d_step { vis[i] && tid[i] == t && !lock[i] -> lock[i] = 1 }
#endif
	:: atomic { vis[i] && tid[i] != t ->
#ifdef MUT_CANCEL_OLD_SNAP
			assert(false)	/* "gone", and it is not */
#else
			t = tid[i];
#ifndef MUT_LOCK_STALE
			d = due[i];
#endif
			goto T2
#endif
		}
	:: atomic { !vis[i] ->
#if defined(MUT_NOTE_AT_START) || defined(MUT_ABORT_NOTE_EARLY)
			end_note();
#endif
			FORGET;
			goto Gone
		}
	fi;
#ifdef MUT_NB_B1
	h = horizon;
#endif
	if				/* T3 */
	:: d_step { what & CANCEL -> vis[i] = 0; lock[i] = 0 };
#ifndef MUT_CANCEL_NO_HINT
		bring(d, i, t); C3(FORGET)
#endif
	:: atomic { what & RESCHED -> if :: n = NEW1 :: n = MAXT fi };
#ifdef MUT_HINT_EARLY
		bring(n, i, NEXT_TID(t)); C3(skip);
		d_step { tid[i] = NEXT_TID(t); due[i] = n; lock[i] = 0; FORGET }
#else
#if defined(LOADED) && !defined(MUT_NOTE_LATE) && !defined(MUT_NOTE_AT_START)
		d_step { NOTE };	/* C0n */
#endif
		d_step { tid[i] = NEXT_TID(t); due[i] = n; lock[i] = 0 };	/* C1 */
#ifdef MUT_NOTE_LATE
		d_step { NOTE };
#endif
#if defined(MUT_RESCHED_OLD_DUE)
		bring_noted(d, i, NEXT_TID(t)); C3(FORGET)
#elif !defined(MUT_RESCHED_NO_HINT)
		bring_noted(n, i, NEXT_TID(t)); C3(FORGET)
#endif
#endif
	:: what & ABORT ->
#ifdef MUT_ABORT_EARLY
		bring(d, i, t); C3(skip);
		d_step { lock[i] = 0; FORGET }
#else
		lock[i] = 0;		/* A1 */
#if defined(MUT_ABORT_NOTE_EARLY)
		bring_noted(d, i, t); C3(FORGET)
#elif defined(MUT_ABORT_DROPPED)
		d_step { l = 0; live++ };
		bring_noted(d, i, t); C3(FORGET)
#elif !defined(MUT_ABORT_NO_HINT)
		bring(d, i, t); C3(FORGET)	/* A2 */
#endif
#endif
	fi;
Gone:
	skip
}

#ifdef MUT_SKIP_HANDED
#define DONE out[i]--; FORGET
#else
#define DONE FORGET
#endif

proctype Exec()
{
	byte k, i, d, t, n, PRIVATE;
#ifdef MUT_OLD_SNAP
	bit ovis[NT + 1];
	byte otid[NT + 1];
#endif

E0:
#ifdef MUT_OLD_SNAP
	atomic {
		ovis[1] = vis[1]; otid[1] = tid[1];
#if NT > 1
		ovis[2] = vis[2]; otid[2] = tid[2]
#endif
	};
#endif
	atomic { ready?k, t; i = ID(k); d = DUE(k); k = 0 };	/* X0 */
X2:
#ifdef MUT_CLAIM_NO_DUE
#define SAME_DUE true
#else
#define SAME_DUE (due[i] == d)
#endif
	if
	:: d_step { vis[i] && tid[i] == t && !lock[i] && SAME_DUE -> lock[i] = 1 }
	:: atomic { vis[i] && tid[i] == t && (lock[i] || !SAME_DUE) -> DONE; goto E0 }	/* X4 */
#ifdef MUT_OLD_SNAP
	:: atomic { !(vis[i] && tid[i] == t) ->
			if
			:: ovis[i] && vis[i] && tid[i] == otid[i] && due[i] == d -> t = tid[i]; goto X2
			:: else -> DONE; goto E0
			fi }
#else
#ifdef MUT_NO_LOOKUP
	:: atomic { !(vis[i] && tid[i] == t) -> DONE; goto E0 }
#else
	:: !(vis[i] && tid[i] == t) ->
		if		/* X3 */
		:: atomic { vis[i] && SAME_DUE -> t = tid[i]; goto X2 }
		:: atomic { !(vis[i] && SAME_DUE) -> DONE; goto E0 }	/* X4 */
#if TERMS
		:: d_step { terms > 0 -> terms-- };
			goto A2
#endif
		fi
#endif
#endif
#if TERMS
	:: d_step { terms > 0 -> terms-- };
#ifdef MUT_TERM_ONLY_CLAIMED
		atomic { DONE; goto E0 };
#else
		goto A2
#endif
#endif
	fi;
#ifdef NEWS
#ifdef MUT_NEWS_FIRST
	n = sent[i];
#endif
#ifndef MUT_NO_N3
	!pub[i];			/* N3: waits, then takes in the news */
#endif
#ifndef MUT_NEWS_FIRST
	n = sent[i];
#endif
	d_step { assert(n); n = 0 };	/* X5: it sees what its transaction did */
#endif
	assert(now >= due[i]);		/* X5: never early */
	if
	:: atomic {			/* X6 */
			assert(!ran[i]);	/* never twice */
			ran[i] = 1;
			vis[i] = 0;
			lock[i] = 0;
			DONE;
			goto E0
		}
#if RETRY
	:: atomic { retries > 0 -> retries--; if :: n = d :: n = MAXT fi };
#ifdef MUT_NB_B1
		h = horizon;
#endif
#if defined(LOADED) && !defined(MUT_NOTE_LATE)
		d_step { NOTE };
#endif
		d_step { t = NEXT_TID(t); tid[i] = t; due[i] = n; lock[i] = 0 };
#ifdef MUT_NOTE_LATE
		d_step { NOTE };
#endif
#ifndef MUT_RETRY_NO_HINT
		bring_noted(n, i, t);
#endif
		C3(DONE);
		goto E0
#endif
#if TERMS
	:: d_step { terms > 0 -> terms-- }	/* X7 */
#endif
	fi;
#if TERMS
#ifdef MUT_NB_B1
	h = horizon;
#endif
#ifdef MUT_ABORT_EARLY
	bring(d, i, t);
	C3(skip);
	atomic { lock[i] = 0; DONE; goto E0 };
#else
	lock[i] = 0;			/* A1 */
#endif
A2:
#if defined(MUT_TERM_NO_HINT)
	atomic { DONE };
#elif defined(MUT_TERM_ENTRY)
	bring(d, i, t);
	C3(DONE);
#else
	if
	:: d_step { vis[i] -> n = due[i]; t = tid[i] };
#ifdef MUT_NB_B1
		h = horizon;
#endif
		bring(n, i, t);
		C3(DONE)
	:: atomic { !vis[i] -> DONE }
	fi;
#endif
	goto E0
#endif
}

/* The ring, in the order of keys.  Only the timer sees it. */
inline ring_put(key, t)
{
	d_step {
		j = rn;
		do
		:: j > 0 && rk[j - 1] > key -> rk[j] = rk[j - 1]; rt[j] = rt[j - 1]; j--
		:: else -> break
		od;
		rk[j] = key;
		rt[j] = t;
		rn++;
		j = 0
	}
}

inline ring_drop(key)
{
	do
	:: rn > 0 && rk[rn - 1] >= key -> rn--; rk[rn] = 0; rt[rn] = 0
	:: else -> break
	od
}

/* A hint from the inbox. */
inline take_hint()
{
	d_step {
		inbox?MESSAGE(k, t);		/* D1 */
		if
#ifdef LOADED
#ifdef MUT_LOADED_PAST_CURSOR
		:: HAS_LOADED(k, t)
#else
		:: k < cursor && HAS_LOADED(k, t)	/* D2l */
#endif
		:: else -> if
#endif
#ifndef MUT_HINT_PAST_CURSOR
#ifdef DRAIN_TO_RING
		:: k >= cursor && k < to && rn < RC -> ring_put(k, t)
		:: k >= cursor && !(k < to && rn < RC) ->
#else
		:: k >= cursor ->	/* D3 */
#endif
#ifndef MUT_D3_FORGET
			lower_far(DUE(k))
#endif
		:: k < cursor && rn < RC -> PUT(k, t); ring_put(k, t)	/* D2 */
		:: k < cursor && rn == RC ->	/* D4 */
#else
		:: rn < RC -> ring_put(k, t)
		:: rn == RC && k >= cursor -> lower_far(DUE(k))
		:: rn == RC && k < cursor ->
#endif
#ifndef MUT_D4_FORGET
			ring_drop(k);
#ifndef MUT_D4_KEEP_CURSOR
			cursor = k;
			horizon = DUE(k);
#endif
			lower_far(DUE(k))
#endif
		fi;
#ifdef LOADED
		fi;
		end_note();
#endif
		k = 0;
		t = 0
	}
}

/*
 * L4, L5: one step, since what lies between them is private to the timer; SPLIT_SCAN makes them two,
 * DRAIN_IN_LOAD takes a hint from the inbox between them, DRAIN_TO_RING puts it into the ring if it is
 * in the interval.  Leaves cut, the first key not kept, and nf, the due of the first row from there on.
 * It may stop after any kept entry: a slice is over, or an error comes there.
 */
#ifdef SPLIT_SCAN
#define S(a) old_##a
#else
#define S(a) a
#endif

inline scan()
{
#ifdef MUT_RAISE_EARLY
	d_step { RAISE };
#endif
#ifdef SPLIT_SCAN
	d_step {			/* L4 */
		j = 1;
		do
		:: j <= NT -> old_vis[j] = vis[j]; old_due[j] = due[j]; old_tid[j] = tid[j]; j++
		:: else -> break
		od;
		j = 0
	};
#endif
#ifdef DRAIN_IN_LOAD
	if :: nempty(inbox) -> take_hint() :: true fi;
#endif
#ifdef MUT_DROP_LATE
	d_step { ring_drop(from) };	/* L2 */
#endif
	atomic {
#ifndef MUT_RAISE_EARLY
		d_step { RAISE };	/* L4n */
#endif
		cut = to;
		nf = INF;
		kept = 0;
		lo = from;
#ifdef MUT_SCAN_OPEN
		if :: from > 0 -> lo = from + 1 :: else fi;
#endif
		do
		:: d_step {
				m = NOKEY;
				j = 1;
				do
				:: j <= NT ->
					if
#ifdef MUT_SKIP_HANDED
					:: out[j] -> skip
#endif
					:: S(vis)[j] && K(S(due)[j], j) >= lo && K(S(due)[j], j) < m -> m = K(S(due)[j], j)
					:: else
					fi;
					j++
				:: else -> break
				od;
				j = 0
			};
			if
			:: m == NOKEY -> break
			:: m != NOKEY && m >= to -> nf = DUE(m); break
			:: m < to && rn == RC ->
				nf = DUE(m);
#ifdef MUT_CUT_PAST
				cut = to;
				nf = INF;
#else
				cut = m;
#endif
				break
			:: m < to && rn < RC && kept -> cut = m; nf = DUE(m); break
			:: m < to && rn < RC ->
				d_step { PUT(m, S(tid)[ID(m)]); LOADED_NOTE(m, S(tid)[ID(m)]) };
				ring_put(m, S(tid)[ID(m)]);
				kept = 1;
				lo = m + 1
			fi
		od;
#ifdef MUT_CURSOR_DUE_PAST
		if :: ID(cut) -> cut = K(DUE(cut) + 1, 0) :: else fi;
#endif
#ifdef MUT_CURSOR_DUE_BEFORE
		cut = K(DUE(cut), 0);
#endif
		m = 0;
		lo = 0;
		kept = 0;
#ifdef SPLIT_SCAN
		d_step {
			j = 1;
			do
			:: j <= NT -> old_vis[j] = 0; old_due[j] = 0; old_tid[j] = 0; j++
			:: else -> break
			od;
			j = 0
		};
#endif
	}
}

#if ERRS
#define MAY_FAIL if :: d_step { errs > 0 -> errs-- }; goto L7 :: true fi
#else
#define MAY_FAIL skip
#endif

proctype Timer()
{
	byte rk[RC + 1], rt[RC + 1];	/* one more than it holds, for the index of the last */
	byte rn, cursor, kf, su;
	byte k, t, j, from, to, cut, nf, lo, m;
#ifdef LOADED
	byte l;
#endif
	bit kept, x;
#ifdef MUT_ERR_LESS
	byte oldcur;
#endif
#ifdef SPLIT_SCAN
	byte old_vis[NT + 1], old_due[NT + 1], old_tid[NT + 1];
#endif

	do
	:: {
			d_step {	/* R1 */
			ring_drop(0);
			cursor = 0;
			kf = INF;
#ifndef MUT_RESTART_NO_RELOAD
			reload_from = 0;
#endif
			sleep_until = 0;
			k = 0; t = 0; j = 0; from = 0; to = 0; cut = 0; nf = 0; lo = 0; m = 0; su = 0;
			kept = 0; x = 0;
#if defined(LOADED) && !defined(MUT_LOADED_SURVIVES)
			forget_loaded();
#endif
#ifndef READY_SURVIVES
			do
			:: nempty(ready) -> ready?k, t;
#ifdef MUT_SKIP_HANDED
				out[ID(k)]--;
#endif
				k = 0;
				t = 0
			:: empty(ready) -> break
			od
#endif
			};
W0:
			atomic {
#ifndef MUT_LATCH_LATE
				latch = 0;
#endif
#ifndef MUT_NOT_AWAKE
				sleep_until = 0;
#endif
				su = 0
			};
D1:
			if
			:: nempty(inbox) -> take_hint(); goto D1
#if PRESS
			:: d_step { press > 0 && rn > 0 ->	/* M1 */
					press--;
					k = rk[rn - 1];
					ring_drop(k);
#ifndef MUT_M1_KEEP_CURSOR
					cursor = k;
#endif
					k = 0
				};
#ifndef MUT_M1_KEEP_CURSOR
				horizon = DUE(cursor);
#ifndef MUT_M1_NO_FAR
				d_step { lower_far(DUE(cursor)) };
#endif
#endif
				goto D1
#endif
			:: empty(inbox)
			fi;
#ifdef MUT_DIRTY_LATE
			if :: dirty -> kf = next_far; x = 0; dirty = 0 :: else fi;
#else
			d_step { x = dirty; dirty = 0 };	/* F1 */
			if
			:: x -> d_step { kf = next_far; x = 0 }	/* F2 */
			:: else
			fi;
#endif
			if
			:: reload_from < INF || (kf < INF && kf <= now + AHEAD && ROOM)
			:: rn > 0 && DUE(rk[0]) <= now ->
				atomic {	/* G1 */
					ready!rk[0], rt[0];
					d_step {
#ifdef MUT_SKIP_HANDED
						out[ID(rk[0])]++;
#endif
						j = 1;
						do
						:: j <= rn -> rk[j - 1] = rk[j]; rt[j - 1] = rt[j]; j++
						:: else -> break
						od;
						rn--;
						j = 0
					}
				};
				goto D1
			:: else -> goto H1
			fi;

			/* L1 */
			d_step {
				from = reload_from * 4;
#ifndef MUT_CLEAR_LATE
				reload_from = INF;
#endif
				if :: cursor < from -> from = cursor :: else fi;
#ifdef MUT_ERR_LESS
				oldcur = cursor;
#endif
				cursor = from
			};
#ifndef MUT_FAR_LATE
			d_step { next_far = INF; kf = INF };
#endif
#if !defined(MUT_DROP_LATE) && !defined(MUT_DROP_AFTER_SCAN)
			d_step { ring_drop(from) };	/* L2 */
#endif
			MAY_FAIL;
			to = K(now + AHEAD + 1, 0);
#ifdef MUT_SNAP_EARLY
			scan();			/* which is also what L3 without B3 looks like */
			horizon = DUE(to);
#else
			horizon = DUE(to);	/* L3, B3 */
			scan();			/* L4, L5 */
#endif
#ifdef MUT_DROP_AFTER_SCAN
			d_step { ring_drop(from) };
#endif
			MAY_FAIL;
#ifdef MUT_CLEAR_LATE
			reload_from = INF;
#endif
#ifdef MUT_FAR_LATE
			d_step { next_far = INF; kf = INF };
#endif
			/* L6 */
			d_step {
#ifdef L6_MIN
				if :: cursor < from && cursor < cut -> cut = cursor :: else fi;
#endif
				cursor = cut;
#ifndef MUT_HORIZON_HIGH
				horizon = DUE(cut)
#endif
			};
			if
			:: nf < INF ->
#ifdef MUT_FAR_OVERWRITE
				d_step { next_far = nf; dirty = 1 }
#else
				d_step { lower_far(nf) }
#endif
			:: else
#ifdef MUT_FAR_OVERWRITE
				next_far = nf
#endif
			fi;
			d_step { from = 0; to = 0; cut = 0; nf = 0 };
			goto D1;
L7:
			atomic {
#ifndef MUT_ERR_FORGET
#ifdef MUT_ERR_LESS
				cursor = oldcur;
				from = oldcur;
#endif
#ifdef MUT_ERR_ANY
				from = K(MAXT, 0);
#endif
				if :: DUE(from) < reload_from -> reload_from = DUE(from) :: else fi;
#endif
				from = 0; to = 0; cut = 0; nf = 0
			};
			goto D1;
H1:
			atomic {
				su = INF;
				if :: rn > 0 -> su = DUE(rk[0]) :: else fi;
				if
				:: kf < INF && ROOM && LOAD_AT(kf) < su ->
					su = LOAD_AT(kf)
				:: else
				fi
#ifndef MUT_NB_B4
				; sleep_until = su
#endif
			};
			/* H2 */
#ifndef MUT_NO_H2I
			if :: nempty(inbox) -> goto W0 :: empty(inbox) fi;
#endif
#ifndef MUT_NO_H2R
			if :: reload_from < INF -> goto W0 :: else fi;
#endif
#ifndef MUT_NO_H2D
			if :: dirty -> goto W0 :: else fi;
#endif
#ifdef MUT_NB_B4
			sleep_until = su;
#endif
#ifdef MUT_LATCH_LATE
			latch = 0;
#endif
			latch || now >= su;	/* H3 */
			goto W0
		} unless { die -> die = 0 }
	od
}

/*
 * The clock, and what comes from outside.  It may stop at any moment: then everything else comes to
 * rest, and no task that is due, visible and unlocked may be left.
 */
proctype Env()
{
	do
	:: now < MAXT -> now++
#if CRASH
	:: d_step { crash > 0 && !die -> crash--; die = 1 }
#endif
#if MOVES
	:: d_step { moves > 0 && vis[1] && !lock[1] -> moves--; tid[1] = tid[1] + 1 }
#endif
	:: break
	od;
	timeout;
#ifdef MUT_REACH
	assert(!(now == MAXT && ran[1] && ran[NT]));
#endif
	assert(!(vis[1] && !lock[1] && due[1] <= now));
#if NT > 1
	assert(!(vis[2] && !lock[2] && due[2] <= now));
#endif
#if NT > 2
	assert(!(vis[3] && !lock[3] && due[3] <= now))
#endif
}

init {
	atomic {
		run Timer();
		run Exec();
#if NEXEC > 1
		run Exec();
#endif
#ifdef LOCKED
		vis[1] = 1; lock[1] = 1; tid[1] = 1; due[1] = DUE1;
#else
		run Sched(1);
#endif
#if NT > 1
		run Sched(2);
#endif
#if NT > 2
		run Sched(3);
#endif
#ifdef MOD1
		run Mod(MOD1);
#endif
#ifdef MOD2
		run Mod(MOD2);
#endif
		run Env()
	}
}
