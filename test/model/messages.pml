/*
 * How a message gets from the ready list to its receiver: pop, claim, put back, abort; leases and
 * their ends; sessions that wait for a message, and who wakes them.
 *
 * One external queue with one lane.  How rows get into memory is the subject of wheel.pml: here a
 * hint goes through an inbox, and a reload reads the whole table in one step.  The names of the
 * steps (P1, V2, ...) are those of README.md; each is one indivisible step, and so is all that is
 * done under the ready lock.
 *
 * Sizes, features and mutations are macros; test/model/run sets them.
 */

#ifndef NM
#define NM 1			/* messages, ids 0..NM-1, at most 2 */
#endif
#ifndef NR
#define NR 1			/* receivers, 1..NR, at most 3 */
#endif
#ifndef N
#define N NM			/* a call asks for so many messages */
#endif
#ifndef CALLS
#define CALLS 1			/* transactions of a receiver */
#endif
/* THERE: the messages are there from the beginning; else they are sent meanwhile. */
/* SAVE: a transaction receives a second time, in a savepoint, which may be rolled back. */
/* MARK: a transaction may cancel all messages before it receives, and be rolled back. */
/* WAIT: receivers wait before each transaction; without an end if LOOP is set. */
/* POLL: but for receiver 1, which only looks now and then. */
/* LEASE: they lease, and say a word of it or not.  WORDS: which words. */
/* SWEEP: there is a sweeper. */
/* POISON: the second rollback of a message is left to the sweeper.  Of one message only. */
/* PLAIN: plain SQL locks a row for a while, and tells nobody. */
#ifndef IC
#define IC 2			/* hints the inbox holds */
#endif
#ifndef MAXT
#define MAXT 0			/* the clock goes from 0 to here */
#endif
#ifndef LEN
#define LEN 1			/* length of a lease */
#endif
#ifndef MAXA
#define MAXA 2			/* attempts of a message */
#endif
#ifndef WORDS
#define WORDS 15
#endif
#ifndef ABORTS
#define ABORTS 0		/* transactions and savepoints rolled back, receivers killed in them */
#endif
#ifndef HOMES
#define HOMES 0			/* waiting receivers that die or go home */
#endif
#ifndef CRASH
#define CRASH 0			/* times the timer dies */
#endif
#ifndef ERRS
#define ERRS 0			/* looks of timer and sweeper that fail */
#endif
#ifndef RAISES
#define RAISES 0		/* times the queue's max_attempts is raised */
#endif
#ifndef LEAVES
#define LEAVES 0		/* times the lane is given back when it is empty */
#endif
#ifndef FULLS
#define FULLS 0			/* times that a put-back finds no memory */
#endif

#ifdef LEASE
#define DUES (MAXT + LEN + 2)
#else
#define DUES 1
#endif
#define INF (DUES + 8)		/* no time */
#define NK (DUES * NM)
#define K(d, i) ((d) * NM + (i))	/* an entry or a hint: due and id */
#define DUE(k) ((k) / NM)
#define ID(k) ((k) % NM)

/* The table.  ver grows with each version of a row, and tells it as its tid does. */
bit row[NM];
byte ver[NM];
byte due[NM];
byte lock[NM];			/* who has deleted it in an open transaction: a receiver, or */
#define SWEEPER 9
#define PLAIN_SQL 8
bit done[NM];
#ifdef LEASE
byte tok[NM];			/* the token; 0: none */
byte att[NM];			/* attempts */
byte epoch[NM];			/* leases so far, for the assertions alone */
#endif

/* Shared memory. */
byte rdy[NK];			/* the ready list: entries of this kind, 2 at most */
chan inbox = [IC] of { byte, bit };	/* key, generation of the lane */
bit reload;
bit news;			/* DW_NEWS_EXECUTORS */
byte sleep_until;		/* 0: awake */
bit latch;
bit gen;			/* generation of the lane */
byte lease_end = INF;
byte job_at = INF;

#ifdef POISON
bit rolled;			/* it was rolled back before */
bit to_settle;
bit settle_asked;
#endif
#ifdef PLAIN
bit recheck;			/* the timer reads it again some minutes later */
#endif

/* Sessions that wait. */
#ifdef WAIT
bit waits[NR + 1];
bit woken[NR + 1];
bit latches[NR + 1];
byte woken_at;			/* 0: nobody is awaited; RECENT; AGED: DW_WAKE_AGAIN_US ago */
#endif
#define RECENT 1
#define AGED 2

byte now;
byte aborts = ABORTS;
byte homes = HOMES;
byte crash = CRASH;
byte errs = ERRS;
byte leaves = LEAVES;
byte fulls = FULLS;
bit die;
#ifdef LEASE
byte max = MAXA;
byte raises = RAISES;
#endif

/* True if there is an entry in the ready list. */
#if NK == 1
#define SOME (rdy[0])
#elif NK == 2
#define SOME (rdy[0] || rdy[1])
#else
bit some;
#define SOME (some)
#endif

/* some = SOME; within a d_step, x is the caller's. */
inline recount(x)
{
#if NK > 2
	some = 0;
	x = 0;
	do
	:: x < NK && rdy[x] -> some = 1; break
	:: x < NK && !rdy[x] -> x++
	:: x == NK -> break
	od;
	x = 0
#else
	skip
#endif
}

inline push(k)
{
	if :: rdy[k] < 2 -> rdy[k]++ :: else fi;
#if NK > 2
	some = 1
#endif
}

/* Wakes one that waits and was not woken; ok tells whether there was one.  Within an atomic. */
#ifdef WAIT
#define ANY_WAITS (waits[1] || waits[NR] || waits[(NR + 1) / 2])
#ifdef MUT_WAKE_WOKEN
#define NOT_WOKEN(r) true
#else
#define NOT_WOKEN(r) (!woken[r])
#endif

inline wake_one(ok)
{
	if
	:: waits[1] && NOT_WOKEN(1) -> woken[1] = 1; latches[1] = 1; ok = 1
#if NR > 1
	:: waits[2] && NOT_WOKEN(2) -> woken[2] = 1; latches[2] = 1; ok = 1
#endif
#if NR > 2
	:: waits[3] && NOT_WOKEN(3) -> woken[3] = 1; latches[3] = 1; ok = 1
#endif
	:: else -> ok = 0
	fi;
	if :: ok -> woken_at = RECENT :: else fi
}

inline leave_wait(me)
{
	waits[me] = 0;
	woken[me] = 0
}
#endif

/* dw_wake_timer(): the timer is needed by this time. */
#define WAKE_TIMER(t) if :: sleep_until > (t) -> latch = 1 :: else fi

/*
 * C2, C3: brings a message to the timer, and wakes it; wheel.pml has what may come between.
 * g: generation of its lane, as the caller knows it.
 */
inline bring(k, g)
{
	d_step {
		if
		:: g == gen && len(inbox) < IC -> inbox!k, g; WAKE_TIMER(DUE(k))
		:: else -> reload = 1; WAKE_TIMER(0)
		fi
	}
}

/*---- Receivers ----*/

#ifdef SAVE
#define SLOTS (2 * N)
#else
#define SLOTS N
#endif

#define POPPED 1
#define RETURNED 2
#define HELD 3
#define MARKED 4

#define MAY_ABORT(where) :: d_step { aborts > 0 -> aborts-- }; goto where

/* Forgets the slot s. */
#define CLEAR(s) tk[s] = 0; ts[s] = 0; tg[s] = 0; sp[s] = 0

/* P2: pops up to N entries under the ready lock, and notes each. */
inline pop(in_savepoint)
{
#ifdef MUT_NOTE_LATE
	atomic { j = 0; do :: j < NK && !rdy[j] -> j++ :: else -> break od;
		if :: j < NK -> rdy[j]-- :: else fi };
	recount(i);
	if
	:: true
	MAY_ABORT(Aborted)
	fi;
	d_step { s = 0; do :: s < SLOTS && ts[s] -> s++ :: else -> break od;
		if :: j < NK && s < SLOTS -> tk[s] = j; ts[s] = POPPED; tg[s] = gen; sp[s] = in_savepoint :: else fi;
		s = 0; j = 0 }
#else
	d_step {
		n = 0;
		s = 0;
		j = 0;
		do
		:: n < N && s < SLOTS && ts[s] -> s++
		:: n < N && s < SLOTS && !ts[s] && j < NK && !rdy[j] -> j++
		:: n < N && s < SLOTS && !ts[s] && j < NK && rdy[j] ->
			rdy[j]--;
			tk[s] = j;
			ts[s] = POPPED;
			tg[s] = gen;
			sp[s] = in_savepoint;
			n++
		:: else -> break
		od;
		n = 0;
		s = 0;
		j = 0;
		recount(j)
	}
#endif
}

#ifdef LEASE
#define LAST_HAS_ENDED (tok[i] && att[i] >= max)
#define UNSEEN (seen[i] != ver[i])
#else
#define LAST_HAS_ENDED false
#define UNSEEN (seen[i] != ver[i])
#endif

#ifdef MUT_CLAIM_NO_DUE
#define SAME_DUE true
#else
#define SAME_DUE (due[i] == DUE(tk[s]))
#endif

/* P3: claims what was popped, one after the other: X2 to X4. */
inline claim()
{
	do
	:: d_step { s < SLOTS && ts[s] != POPPED -> s++ }
	:: d_step { s < SLOTS && ts[s] == POPPED ->
			i = ID(tk[s]);
			if
			:: tg[s] != gen ->	/* its lane was given back: nothing is known of it */
				reload = 1;
#ifndef MUT_CLAIM_SILENT
				WAKE_TIMER(0);
#endif
				CLEAR(s)
#ifdef MARK
			:: tg[s] == gen && marked ->	/* a mark of this transaction has hit it */
#ifdef MUT_OWN_MARK_FORGOTTEN
				CLEAR(s)
#else
				ts[s] = MARKED
#endif
#define SAME_LANE (tg[s] == gen && !marked)
#else
#define SAME_LANE (tg[s] == gen)
#endif
#ifdef MUT_CLAIM_UNSEEN
			:: SAME_LANE && row[i] && SAME_DUE && !lock[i] && !LAST_HAS_ENDED ->
				assert(!UNSEEN);	/* received is what the snapshot sees */
#else
			:: SAME_LANE && row[i] && SAME_DUE && UNSEEN -> ts[s] = RETURNED
#ifdef MUT_LAST_TAKEN
			:: SAME_LANE && row[i] && SAME_DUE && !UNSEEN && !lock[i] ->
#else
			:: SAME_LANE && row[i] && SAME_DUE && !UNSEEN && !lock[i] && !LAST_HAS_ENDED ->
#endif
#endif
				ts[s] = HELD;
				lock[i] = me;
#ifdef LEASE
				assert(!(tok[i] && due[i] > now));	/* nobody else's lease lasts */
				assert(att[i] < max);
				until[s] = now + LEN
			:: SAME_LANE && row[i] && SAME_DUE && !UNSEEN && LAST_HAS_ENDED ->
#ifdef MUT_LAST_RETURNED
				ts[s] = RETURNED;
#else
				CLEAR(s);
#endif
#ifndef MUT_LAST_NOT_TOLD
				if :: job_at > now -> job_at = now :: else fi
#endif
#endif
#ifdef PLAIN
			:: SAME_LANE && row[i] && SAME_DUE && !UNSEEN && lock[i] == PLAIN_SQL ->
				recheck = 1;
				CLEAR(s)
#endif
#ifdef MUT_LOCKED_RETURNED
			:: SAME_LANE && row[i] && SAME_DUE && !UNSEEN && lock[i] -> ts[s] = RETURNED
#endif
#ifdef PLAIN
			:: SAME_LANE && row[i] && SAME_DUE && !UNSEEN && lock[i] && lock[i] != PLAIN_SQL -> CLEAR(s)
#endif
			:: else -> CLEAR(s)	/* X4: gone, moved, or somebody has it */
			fi;
			i = 0;
			s++
		}
#if ABORTS
	:: d_step { s < SLOTS && ts[s] == POPPED && aborts > 0 -> aborts--; s = 0 };
		goto Aborted
#endif
	:: atomic { s == SLOTS -> s = 0; break }
	od
}

/* P4: the end of the call, under the ready lock: puts back, and passes the baton on. */
#if defined(WAIT) || FULLS
#define FINISH atomic
#else
#define FINISH d_step
#endif

inline finish_call()
{
	FINISH {
		do
		:: s < SLOTS && ts[s] == RETURNED ->
#ifndef MUT_RETURN_FORGOTTEN
			if
			:: tg[s] == gen -> push(tk[s])
			:: tg[s] != gen ->
#ifdef MUT_NO_GENERATION
				skip		/* it is in the list of another lane now */
#else
				reload = 1;
#ifndef MUT_RETURN_SILENT
				WAKE_TIMER(0)
#endif
#endif
#if FULLS
			:: tg[s] == gen && fulls > 0 ->	/* there is no memory for it */
				fulls--;
				reload = 1;
#ifndef MUT_FULL_SILENT
				WAKE_TIMER(0)
#endif
#endif
			fi;
#endif
			CLEAR(s);
			s++
		:: s < SLOTS && ts[s] != RETURNED -> s++
		:: s == SLOTS -> s = 0; break
		od;
#ifdef WAIT
		woken_at = 0;
#ifndef MUT_NO_BATON
		if
		:: SOME && ANY_WAITS ->
			wake_one(ok);
#ifndef MUT_BATON_SILENT
			if :: ok -> news = 1; WAKE_TIMER(0) :: else fi;
#endif
			ok = 0
		:: else
		fi
#endif
#endif
	}
}

#ifdef SAVE
#define CONCERNS(s) (ts[s] && (!only_savepoint || sp[s]))
#else
#define CONCERNS(s) (ts[s])
#endif

/* A1: the abort is finished, the locks are gone. */
inline unlock()
{
	d_step {
		do
		:: s < SLOTS ->
			if :: CONCERNS(s) && ts[s] == HELD -> lock[ID(tk[s])] = 0 :: else fi;
			s++
		:: s == SLOTS -> break
		od;
		s = 0
	}
}

/* A2: brings back what was taken. */
inline bring_back()
{
	do
	:: d_step { s < SLOTS && CONCERNS(s) ->
#ifdef MUT_ABORT_POPPED_FORGOTTEN
			if :: ts[s] != HELD -> j = 1 :: else fi;
#endif
#ifndef MUT_ABORT_NO_HINT
			if
			:: j -> j = 0
#ifdef POISON
			:: !j && ts[s] == HELD && rolled -> to_settle = 1; settle_asked = 1
#define TO_HINT (!j && !(ts[s] == HELD && rolled))
#else
#define TO_HINT (!j)
#endif
			:: TO_HINT && tg[s] == gen && len(inbox) < IC -> inbox!tk[s], tg[s]; WAKE_TIMER(DUE(tk[s]))
			:: TO_HINT && !(tg[s] == gen && len(inbox) < IC) -> reload = 1; WAKE_TIMER(0)
			fi;
#endif
#ifdef POISON
			if :: ts[s] == HELD -> rolled = 1 :: else fi;
#endif
			CLEAR(s);
			s++
		}
	:: d_step { s < SLOTS && !CONCERNS(s) -> s++ }
	:: atomic { s == SLOTS -> s = 0; break }
	od
}

/* A transaction is rolled back, or only its savepoint; also when its process is killed. */
inline roll_back()
{
#ifdef MUT_ABORT_EARLY
	d_step {
		do
		:: s < SLOTS ->
			if
			:: CONCERNS(s) ->
				if
				:: len(inbox) < IC -> inbox!tk[s], tg[s]; WAKE_TIMER(DUE(tk[s]))
				:: else -> reload = 1; WAKE_TIMER(0)
				fi
			:: else
			fi;
			s++
		:: s == SLOTS -> break
		od;
		s = 0
	};
	unlock();
	d_step {
		do
		:: s < SLOTS -> if :: CONCERNS(s) -> CLEAR(s) :: else fi; s++
		:: s == SLOTS -> break
		od;
		s = 0
	}
#else
	unlock();
	bring_back()
#endif
}

/* P1: the snapshot of a statement. */
inline look()
{
	atomic {
		seen[0] = row[0] * ver[0];
#if NM > 1
		seen[1] = row[1] * ver[1]
#endif
	}
}

/* V1, for a lease that goes on. */
inline ask_for_look(end)
{
	d_step { if :: end < lease_end -> lease_end = end :: else fi; WAKE_TIMER(end) }
}

#define DONE 1
#define EXTEND 2
#define RELEASE 4
#define FAIL 8

proctype Receiver(byte me)
{
	byte tk[SLOTS];			/* what was taken: the entry, */
	byte ts[SLOTS];			/* its state, */
	bit tg[SLOTS];			/* the lane's generation, */
	bit sp[SLOTS];			/* whether it was taken in the savepoint */
	byte seen[NM];
	byte s, i, j, n, calls;
	bit ok;
#ifdef MARK
	bit marked;
#endif
#ifdef SAVE
	bit only_savepoint;
#endif
#ifdef LEASE
	byte until[SLOTS];
	byte mine, word, v, age;
	bit lasts;
#endif

	calls = CALLS;
Next:
#ifdef WAIT
#ifdef POLL
	if :: me == 1 -> goto Found :: me != 1 fi;
#endif
	/* Q1: nothing can be taken: registers, under the same lock */
Look:
#ifdef MUT_REGISTER_LATE
	if
	:: SOME -> d_step { leave_wait(me) }; goto Found
	:: else -> d_step { waits[me] = 1; woken[me] = 0 }
	fi;
#else
	if
	:: atomic { SOME -> leave_wait(me); goto Found }
#ifdef MUT_WOKEN_STAYS
	:: d_step { !SOME -> waits[me] = 1 }
#else
	:: d_step { !SOME -> waits[me] = 1; woken[me] = 0 }
#endif
	fi;
#endif
	/* Q2: sleeps; Q3: looks again */
	if
	:: atomic { latches[me] -> latches[me] = 0; goto Look }
	:: atomic { homes > 0 -> homes--; leave_wait(me); latches[me] = 0; goto End }
	fi;
Found:
	/* the client hears of it, and receives; or not */
	if
	:: latches[me] = 0
	:: atomic { homes > 0 -> homes--; latches[me] = 0; goto End }
	fi;
#endif
#ifdef MARK
	if :: marked = 1 :: true fi;
#endif
	look();
	pop(0);
	if
	:: true
	MAY_ABORT(Aborted)
	fi;
	claim();
	finish_call();
#ifdef SAVE
	look();
	pop(1);
	claim();
	finish_call();
	if
	:: true
	:: d_step { aborts > 0 -> aborts-- };
		only_savepoint = 1;
#if defined(MUT_SAVE_FORGOTTEN)
		unlock();
		d_step {
			do
			:: s < SLOTS -> if :: CONCERNS(s) -> CLEAR(s) :: else fi; s++
			:: s == SLOTS -> break
			od;
			s = 0
		};
#elif defined(MUT_SAVE_STAYS)
		unlock();
#else
		roll_back();
#endif
		only_savepoint = 0
	fi;
#endif
	if
	:: true
	MAY_ABORT(Aborted)
	fi;

	/* P5: C1, the commit is visible */
#ifdef LEASE
#ifdef MUT_LEASE_ASK_EARLY
	d_step { if :: ts[0] == HELD -> if :: until[0] < lease_end -> lease_end = until[0] :: else fi;
		WAKE_TIMER(until[0]) :: else fi };
#endif
#ifdef MUT_JOB_ASK_EARLY
	d_step { if :: ts[0] == HELD && att[ID(tk[0])] + 1 >= max ->
		if :: until[0] < job_at -> job_at = until[0] :: else fi :: else fi };
#endif
	d_step {
		i = ID(tk[0]);
		if
		:: ts[0] == HELD ->
			assert(lock[i] == me);
			lock[i] = 0;
			ver[i]++;
			due[i] = until[0];
			att[i]++;
			epoch[i]++;
			age = epoch[i];
#ifdef MUT_TOKEN_KEPT
			tok[i] = 1;
#else
			tok[i] = epoch[i];
#endif
			mine = tok[i];
			ok = att[i] >= max
		:: else
		fi
	};
	/* V1: after the commit */
	if
	:: mine ->
#if !defined(MUT_LEASE_NO_ASK) && !defined(MUT_LEASE_ASK_EARLY)
		d_step {
			if :: until[0] < lease_end -> lease_end = until[0] :: else fi;
#ifndef MUT_LEASE_NO_WAKE
			WAKE_TIMER(until[0])
#endif
		};
#endif
#if !defined(MUT_JOB_NO_ASK) && !defined(MUT_JOB_ASK_EARLY)
		if
		:: ok -> d_step { if :: until[0] < job_at -> job_at = until[0] :: else fi }
		:: else
		fi
#endif
	:: else
	fi;
	d_step { CLEAR(0); ok = 0; until[0] = 0 };
	if
	:: !mine -> i = 0; goto Over
	:: mine
	fi;
	/* K1: a word of the receiver: finds the row by its id, and compares the token */
Say:
	if
	:: WORDS & DONE -> word = DONE
	:: (WORDS & EXTEND) && due[i] < now + LEN -> word = EXTEND
	:: WORDS & RELEASE -> word = RELEASE
	:: WORDS & FAIL -> word = FAIL
	:: goto Silent
	fi;
	d_step {
#ifdef MUT_TOKEN_IGNORED
		v = row[i] * ver[i]
#else
		v = (row[i] && tok[i] == mine -> ver[i] : 0)
#endif
	};
	/*
	 * K2: deletes this version of the row.  A word that waits for another transaction, and looks
	 * again, is here one that comes later.
	 */
	if
#ifdef MUT_WORD_NO_VERSION
	:: d_step { v && row[i] && !lock[i] -> lock[i] = me; lasts = due[i] > now }
#else
	:: d_step { v && row[i] && ver[i] == v && !lock[i] -> lock[i] = me; lasts = due[i] > now }
#endif
	:: atomic { else -> goto Silent }	/* too late, or somebody has it */
	fi;
	/* K3 */
	if
	:: d_step { word == DONE ->
			assert(epoch[i] == age);	/* nobody has leased it since */
			assert(!done[i]);
			done[i] = 1;
			row[i] = 0;
			lock[i] = 0
		};
		goto Silent
	:: d_step { word == EXTEND ->
			assert(epoch[i] == age);
			due[i] = now + LEN;
			ver[i]++;
			lock[i] = 0;
			j = due[i]
		};
#ifndef MUT_EXTEND_NO_ASK
		ask_for_look(j);
#endif
		j = 0;
		goto Say
	:: d_step { word == RELEASE ->
			assert(epoch[i] == age);
			due[i] = 0;
			ver[i]++;
			tok[i] = 0;
			att[i]--;
			lock[i] = 0
		};
#ifndef MUT_RELEASE_NO_HINT
		bring(K(0, i), gen);
#endif
		goto Silent
	:: d_step { word == FAIL && att[i] < max ->
			assert(epoch[i] == age);
			due[i] = now + 1;
			ver[i]++;
			tok[i] = 0;
			lock[i] = 0;
			j = due[i]
		};
		bring(K(j, i), gen);
		j = 0;
		goto Silent
	:: d_step { word == FAIL && att[i] >= max -> row[i] = 0; lock[i] = 0 };
		goto Silent
	:: d_step { aborts > 0 -> aborts--; lock[i] = 0; j = due[i] };
#ifndef MUT_WORD_ABORT_NO_HINT
		if
		:: !lasts -> bring(K(j, i), gen)
#ifndef MUT_WORD_ABORT_NO_ASK
		:: lasts -> ask_for_look(j)
#else
		:: lasts
#endif
		fi;
#endif
		j = 0;
		goto Silent
	fi;
Silent:
	atomic { i = 0; j = 0; v = 0; word = 0; mine = 0; age = 0; lasts = 0 };
	goto Over;
#else
	atomic {
		s = 0;
		do
		:: s < SLOTS ->
			if
			:: ts[s] == HELD ->
				i = ID(tk[s]);
				assert(lock[i] == me && row[i] && !done[i]);	/* by one alone, and once */
				row[i] = 0;
				lock[i] = 0;
				done[i] = 1;
				i = 0
#ifdef MARK
			:: ts[s] == MARKED -> row[ID(tk[s])] = 0	/* the sweeper removes it */
#endif
			:: else
			fi;
			CLEAR(s);
			s++
		:: s == SLOTS -> s = 0; break
		od
	};
	goto Over;
#endif
Aborted:
	atomic { j = 0; s = 0 };
	roll_back();
Over:
#ifdef LOOP
	seen[0] = 0;
	goto Next;
#else
	atomic {
		calls--;
		seen[0] = 0
#if NM > 1
		; seen[1] = 0
#endif
	};
	if
	:: calls > 0 -> goto Next
	:: calls == 0
	fi;
#endif
End:
	skip
}

/*---- The timer ----*/

/* D1 to D4: an entry goes into the ready list if it is due. */
inline take_in(k)
{
	if
	:: DUE(k) <= now -> push(k)
#ifdef LEASE
	:: DUE(k) > now -> mem[k] = 1
#endif
	fi
}

#ifdef LEASE
#define EARLIER(a, b) if :: (b) < a -> a = b :: else fi
#endif
#ifdef WAIT
#define APPOINTMENT (again && woken_at != RECENT)
#else
#define APPOINTMENT false
#endif

proctype Timer()
{
	byte k, j, su;
	bit g, ok, again;
#ifdef LEASE
	bit mem[NK];			/* entries that are not due */
	byte looked, at, from, upto, next;
#endif

	do
	:: {
			d_step {	/* R1: begins: nothing is in memory, and all is read */
				k = 0;
				do
				:: k < NK -> rdy[k] = 0;
#ifdef LEASE
					mem[k] = 0;
#endif
					k++
				:: k == NK -> break
				od;
				k = 0; j = 0; su = 0; g = 0; ok = 0; again = 0;
				reload = 1;
				latch = 1;
				sleep_until = 0;
				news = 1;
#ifdef LEASE
				looked = now;
				EARLIER(lease_end, now);
				at = 0; from = 0; upto = 0; next = 0;
#endif
				recount(k)
			};
			do
#ifdef PLAIN
			:: d_step { recheck -> recheck = 0; reload = 1; latch = 1 }
#endif
			:: d_step { latch || now >= su || APPOINTMENT ->	/* H3, W0; D1 to D4, G1 */
					latch = 0;
					sleep_until = 0;
					su = 0;
					do
					:: nempty(inbox) ->
						inbox?k, g;
						if
						:: g == gen -> take_in(k)
						:: else -> reload = 1
						fi
					:: empty(inbox) -> break
					od;
					if
					:: reload ->
						reload = 0;
						j = 0;
						do
						:: j < NM && row[j] ->
							k = K(due[j], j);
							if :: !rdy[k] -> take_in(k) :: else fi;
							j++
						:: j < NM && !row[j] -> j++
						:: j == NM -> break
						od
					:: else
					fi;
#ifdef LEASE
					j = 0;
					do
					:: j < NK && mem[j] && DUE(j) <= now -> mem[j] = 0; push(j); j++
					:: j < NK && !(mem[j] && DUE(j) <= now) -> j++
					:: j == NK -> break
					od;
#endif
					j = 0;
					k = 0;
					g = 0
				};
#ifdef LEASE
				if
				:: d_step { lease_end <= now ->	/* V2 */
						upto = now;
						from = (lease_end < looked -> lease_end : looked);
#ifdef MUT_WATCH_SINCE_LOOK
						from = looked;
#endif
#ifndef MUT_WATCH_TAKE_LATE
						lease_end = INF
#endif
					};
					if
					:: d_step {	/* V3: snapshot and scan; V4 */
							next = INF;
							j = 0;
							do
							:: j < NM && row[j] && tok[j] && due[j] >= from && due[j] <= upto ->
								k = K(due[j], j);
								take_in(k);
								j++
							:: j < NM && row[j] && tok[j] && due[j] > upto ->
								EARLIER(next, due[j]);
								j++
							:: j < NM && !(row[j] && tok[j] && due[j] >= from) -> j++
							:: j == NM -> break
							od;
							j = 0;
							k = 0;
							looked = (next < upto -> next : upto);
#if !defined(MUT_WATCH_TAKE_LATE) && !defined(MUT_WATCH_NO_NEXT)
							EARLIER(lease_end, next)
#endif
						}
#ifdef MUT_WATCH_TAKE_LATE
						; lease_end = next
#endif
#if ERRS
					:: d_step { errs > 0 ->	/* V5: nothing was read */
							errs--;
#ifdef MUT_WATCH_ERR_FORGETS
							looked = upto;
#else
							EARLIER(looked, from);
#endif
							EARLIER(lease_end, now)
						}
#endif
					fi
				:: else
				fi;
				at = lease_end;
#endif
				/* Q4: wakes a session */
#ifdef WAIT
#ifdef MUT_NO_REWAKE
#define MAY_WAKE (woken_at == 0)
#else
#define MAY_WAKE (woken_at != RECENT)
#endif
				atomic {
					if
					:: news || SOME || APPOINTMENT ->
						news = 0;
						if
						:: !ANY_WAITS -> again = 0
						:: ANY_WAITS && !MAY_WAKE -> again = (woken_at == RECENT)
						:: ANY_WAITS && MAY_WAKE && SOME -> wake_one(ok); again = ok; ok = 0
						:: ANY_WAITS && MAY_WAKE && !SOME -> again = 0
						fi
					:: else
					fi
				};
#else
				news = 0;
#endif
#if LEAVES
				if
				:: d_step { leaves > 0 && !SOME && !reload ->	/* Y1: the lane is empty */
						leaves--;
#ifndef MUT_LANE_LEFT_LATE
						gen = 1 - gen
#endif
					}
#ifdef MUT_LANE_LEFT_LATE
					; d_step {	/* Y2: its place is free; what is in its list is nobody's */
						gen = 1 - gen;
						do
						:: k < NK -> rdy[k] = 0; k++
						:: k == NK -> break
						od;
						k = 0;
						recount(k)
					}
#endif
				:: true
				fi;
#endif
				d_step {	/* H1, H2 */
					su = INF;
#ifdef LEASE
					EARLIER(su, at);
					j = 0;
					do
					:: j < NK && mem[j] -> EARLIER(su, DUE(j)); j++
					:: j < NK && !mem[j] -> j++
					:: j == NK -> break
					od;
					j = 0;
					from = 0; upto = 0; next = 0;
#ifndef MUT_NO_H2V
					if :: lease_end < at -> latch = 1 :: else fi;
#endif
#endif
					if :: len(inbox) > 0 || reload || news -> latch = 1 :: else fi;
					sleep_until = su
				}
			od
		} unless { die -> die = 0 }
	od
}

/*---- The sweeper ----*/

#ifdef POISON
/* Its other job: an attempt that was rolled back.  The message is due again, at once for simplicity. */
proctype Settler()
{
	bit v;

	do
	:: d_step { settle_asked -> settle_asked = 0 };	/* S1 */
#ifdef MUT_SETTLED_EARLY
		to_settle = 0;
#endif
		d_step {		/* S2, S3 */
			if
#ifdef MUT_SETTLE_LEASED_FORGOTTEN
			:: row[0] && !lock[0] -> to_settle = 0	/* it was leased before, and has a token */
#else
			:: row[0] && !lock[0] -> lock[0] = SWEEPER; v = 1
#endif
			:: row[0] && lock[0] ->
#ifdef MUT_SETTLE_LOCKED_FORGOTTEN
				to_settle = 0
#else
				settle_asked = 1
#endif
			:: !row[0] -> to_settle = 0
			fi
		};
		if
		:: d_step { v -> v = 0; ver[0]++; rolled = 0; lock[0] = 0 };	/* S4 */
			bring(K(0, 0), gen);
			to_settle = 0
#if ERRS
		:: d_step { v && errs > 0 -> errs--; v = 0; lock[0] = 0; settle_asked = to_settle }
#endif
		:: !v
		fi
	od
}
#endif

#ifdef PLAIN
proctype Plain()
{
	d_step { row[0] && !lock[0] -> lock[0] = PLAIN_SQL };
	lock[0] = 0
}
#endif

#ifdef SWEEP
proctype Sweeper()
{
	byte i, v, next;
	bit retry;

S0:
	job_at <= now;
#ifndef MUT_JOB_TAKE_LATE
	job_at = INF;			/* S1 */
#endif
	next = INF;
	/* S2: looks at each message by a snapshot, and ends it if its last lease has ended */
	i = 0;
	do
	:: i < NM ->
		d_step {
			v = 0;
			if
			:: row[i] && tok[i] && att[i] >= max && due[i] <= now -> v = ver[i]
			:: row[i] && tok[i] && att[i] >= max && due[i] > now && due[i] < next -> next = due[i]
#if RAISES && !defined(MUT_NOT_LAST_FORGOTTEN)
			/* it may have been left to us before max_attempts was raised */
			:: row[i] && tok[i] && att[i] < max && due[i] <= now -> reload = 1; WAKE_TIMER(0)
#endif
			:: else
			fi
		};
		if
		:: d_step { v && row[i] && ver[i] == v && !lock[i] -> lock[i] = SWEEPER }	/* S3 */
		:: d_step { v && !(row[i] && ver[i] == v && !lock[i]) -> retry = 1; v = 0 }
		:: !v
		fi;
		if
		:: d_step { v -> assert(due[i] <= now && !done[i]); row[i] = 0; lock[i] = 0 }	/* S4 */
#if ERRS
		:: d_step { v && errs > 0 -> errs--; lock[i] = 0; retry = 1 }
#endif
		:: !v
		fi;
		atomic { v = 0; i++ }
	:: i == NM -> i = 0; break
	od;
#ifdef MUT_JOB_TAKE_LATE
	job_at = INF;
#endif
	atomic {			/* S5 */
#ifndef MUT_SWEEP_NO_NEXT
		if :: next < job_at -> job_at = next :: else fi;
#endif
#ifndef MUT_SWEEP_NO_RETRY
		if :: retry && now < job_at -> job_at = now :: else fi;
#endif
		next = 0
	};
	if
	:: retry -> 
progress_later:
		retry = 0
	:: !retry
	fi;
	goto S0
}
#endif

/* A transaction that sends. */
proctype Sender(byte i)
{
	bit g;

	g = gen;
	d_step { row[i] = 1; ver[i] = 1 };	/* C1 */
	bring(K(0, i), g)
}

/*
 * The clock, and what comes from outside.  It may stop at any moment: then everything else comes to
 * rest, each row that is due, visible and unlocked is in the ready list, and nobody waits if there is
 * anything in it.
 */
proctype Env()
{
	do
	:: now < MAXT -> now++
#if CRASH
	:: d_step { crash > 0 && !die -> crash--; die = 1 }
#endif
#if RAISES
	:: d_step { raises > 0 -> raises--; max++ }
#endif
	:: break
	od;
	do
#ifdef WAIT
	:: woken_at == RECENT -> woken_at = AGED
#endif
	:: timeout -> break
	od;
#ifdef MUT_REACH
	assert(!(done[0] && done[NM - 1]));
#endif
#ifdef LEASE
#define LAST(i) (tok[i] && att[i] >= max)
#else
#define LAST(i) false
#endif
	assert(!(row[0] && !lock[0] && due[0] <= now && !LAST(0) && !rdy[K(due[0], 0)]));
#if NM > 1
	assert(!(row[1] && !lock[1] && due[1] <= now && !LAST(1) && !rdy[K(due[1], 1)]));
#endif
#ifdef SWEEP
	assert(!(row[0] && due[0] <= now && LAST(0)));
#if NM > 1
	assert(!(row[1] && due[1] <= now && LAST(1)));
#endif
#endif
#ifdef WAIT
	assert(!(SOME && ANY_WAITS))
#endif
}

init {
	atomic {
		run Timer();
		run Receiver(1);
#if NR > 1
		run Receiver(2);
#endif
#if NR > 2
		run Receiver(3);
#endif
#ifdef THERE
		row[0] = 1; ver[0] = 1;
#if NM > 1
		row[1] = 1; ver[1] = 1;
#endif
#else
		run Sender(0);
#if NM > 1
		run Sender(1);
#endif
#endif
#ifdef SWEEP
		run Sweeper();
#endif
#ifdef POISON
		run Settler();
#endif
#ifdef PLAIN
		run Plain();
#endif
		run Env()
	}
}
