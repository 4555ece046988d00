/*
 * The protocol of delay_wheel, what groups of tasks add; README.md says what is in it.
 *
 * Without WAKE: one lane with one group, of which memory holds MOST entries.
 *
 *   NT     tasks; task i is due at DUE(i), by default at i (1..3)
 *   HEAD   so much early tasks are handed over
 *   MOST   entries of the group in memory at most
 *   BACKS, TERMS, CANCELS, CUTS, ERRS, CRASH, STEPS (clock back)   how many of each
 *   LISTED entries are handed over to the lane's list, and executors move them to the group
 *
 * With WAKE: two lanes, a group in both, and one more in each; one task of a group runs at a time.
 *
 *   ONE    both lanes belong to one owner, else to two
 *   NE     executors of each owner
 *   RATE   a group may begin a task so many ticks after the one before
 *   SHARED, OWN0, OWN1   tasks of the group in each lane, and of the other groups
 *   EXITS  executors that end after their task
 *   FROZEN executors that are woken and never answer
 *
 * With MSG: messages of one group of an external queue, received by sessions.
 *
 *   LIMIT  of the group (1)
 *   NM     messages (2)
 *   NR     receivers (2), each of which leases, or receives in a transaction (INSIDE; one aborts)
 *   LAPSE  so many leases may end without a word
 */
#ifndef MAXT
#define MAXT 2
#endif
#define NEVER 9

#ifndef MSG
byte now;
#endif
bit latch = 1;			/* of the timer */
byte sleep_until;		/* 0: awake */

#define WAKE_TIMER(t) if :: sleep_until > (t) -> latch = 1 :: else fi

#ifdef MSG

#ifndef LIMIT
#define LIMIT 1
#endif
#ifndef NM
#define NM 2
#endif
#ifndef NR
#define NR 2
#endif
#ifndef LAPSE
#define LAPSE 0
#endif

byte ready = NM;		/* entries in the group's list */
byte rows = NM;			/* rows that are not leased */
byte running;			/* that sessions have taken */
byte leased;			/* rows that are leased, and committed */
byte inside;			/* received in transactions that are open */
byte over_;			/* messages that are done */
byte changes;			/* of the group, modulo 16 */
bit held;			/* the group is held until a lease ends */
bit news;			/* DW_NEWS_EXECUTORS */
byte lapses = LAPSE;
byte aborts = 1;
bit waits[NR];			/* in delay_await(), under the ready lock */
bit woken[NR];
byte working;			/* messages that are received or leased, whoever counts them */

#define OPEN (ready > 0 && !held && running < LIMIT)
#define TELL if :: waits[0] || waits[NR - 1] -> news = 1; WAKE_TIMER(0) :: else fi

/* Y5: after the commit, under the ready lock */
inline release()
{
	held = 0;
#ifndef MUT_CHANGES_KEPT
	changes = (changes + 1) % 16;
#endif
	if :: OPEN -> TELL :: else fi
}

proctype Receiver(byte me)
{
	byte rank, seen, at;
	bit waits_, mine, fills;

Ask:
	/* Q1: looks, or waits, under the ready lock */
	atomic {
		if
		:: OPEN ->
			/* Y1: takes it */
			ready--;
			running++;
			rank = running;
			at = changes
		:: !OPEN -> waits[me] = 1; goto Sleep
		fi
	};
#ifdef MUT_SNAPSHOT_FIRST
	/* the number in memory is read after the snapshot */
	seen = leased;
	atomic { rank = running };
#else
	seen = leased;			/* Y2 */
#endif
	fills = (rank + seen == LIMIT);
	if
	:: rank + seen > LIMIT ->
		atomic {	/* Y3 */
			waits_ = 0;
			if
#ifdef MUT_HOLD_BLIND
			:: held = 1; waits_ = 1
#else
			:: changes == at -> held = 1; waits_ = 1
			:: changes != at
#endif
			fi
		};
		atomic {	/* Y4: it goes back */
			ready++;
			running--;
			if :: !waits_ -> held = 0; changes = (changes + 1) % 16 :: else fi;
			waits_ = 0;
			if :: OPEN -> TELL :: else fi
		};
		rank = 0; seen = 0; at = 0; fills = 0;
		goto Ask
	:: else
	fi;
	/* the claim */
	atomic { working++; assert(working <= LIMIT) };
	if
#ifdef INSIDE
	:: true ->
		/* the commit, or an abort, and then the callback */
		if
		:: atomic { rows--; working--; over_++ }
		:: atomic { aborts > 0 -> aborts--; working--; mine = 1 }
		fi;
		atomic {
			running--;
			if :: mine -> ready++ :: else fi;
			mine = 0;
			release()
		}
#endif
	:: true ->
		atomic { rows--; leased++ };	/* the commit is visible */
		atomic {	/* the callback */
			running--;
			if
			:: fills && changes == at -> held = 1
			:: else -> release()
			fi
		};
		if
		:: atomic { leased--; working--; over_++ };	/* done */
#ifndef MUT_OVER_UNTOLD
			atomic { release() }
#endif
#if LAPSE
		:: atomic { lapses > 0 -> lapses--; leased--; working--; rows++ };
			/* the timer, at the end of the lease, to which the group was held at most */
			atomic { ready++; held = 0; news = 1; WAKE_TIMER(0) }
#endif
		fi
	fi;
	rank = 0; seen = 0; at = 0; fills = 0;
	goto Ask;
Sleep:
	atomic { woken[me] -> woken[me] = 0; waits[me] = 0 };
	goto Ask
}

proctype Timer()
{
	do
	:: d_step { latch || news -> latch = 0; sleep_until = 0; news = 0 };
		atomic {	/* Q4 */
			if
			:: OPEN && waits[0] && !woken[0] -> woken[0] = 1
			:: OPEN && !(waits[0] && !woken[0]) && waits[NR - 1] && !woken[NR - 1] -> woken[NR - 1] = 1
			:: else
			fi
		};
		d_step { sleep_until = NEVER; if :: news -> latch = 1 :: else fi }
	od
}

init {
	byte i;
	atomic {
		run Timer();
		do :: i < NR -> run Receiver(i); i++ :: i == NR -> break od
	};
	do :: timeout -> break od;
#ifdef MUT_REACH
	assert(over_ < NM);
#endif
	/* all come to an end, and nothing is left over */
	assert(over_ == NM && running == 0 && leased == 0)
}

#else
#ifndef WAKE

#ifndef NT
#define NT 2
#endif
#ifndef HEAD
#define HEAD 1
#endif
#ifndef MOST
#define MOST 1
#endif
#ifndef DUE
#define DUE(i) (i)
#endif
#ifndef BACKS
#define BACKS 0
#endif
#ifndef TERMS
#define TERMS 0
#endif
#ifndef CANCELS
#define CANCELS 0
#endif
#ifndef CUTS
#define CUTS 0
#endif
#ifndef ERRS
#define ERRS 0
#endif
#ifndef CRASH
#define CRASH 0
#endif
#ifndef STEPS
#define STEPS 0
#endif

bit row[NT];			/* the row is visible */
bit lock[NT];			/* an executor has claimed it */
bit done[NT];
byte mem[NT];			/* entries in the group; the first is that of the first task */
byte listed[NT];		/* entries in the lane's list */
bit ring[NT];			/* entries that are not handed over */
byte count;
byte left = NEVER;		/* first task that was left in the table */
byte until;			/* last one that was left, and 1 */
bit hungry, dirty, reload;
byte backs = BACKS, terms = TERMS, cancels = CANCELS, cuts = CUTS, errs = ERRS, crash = CRASH, steps = STEPS;
bit die;
chan inbox = [NT + BACKS + TERMS + CANCELS] of { byte };

inline leave_out(i)
{
#ifdef MUT_LEFT_OVERWRITTEN
	left = i;
#else
	if :: i < left -> left = i :: else fi;
#endif
	if :: i + 1 > until -> until = i + 1 :: else fi
}

/* G3: the timer is to look at the lane */
inline feel_hunger(news)
{
	if
	:: left != NEVER && !hungry && count <= MOST / 2 -> hungry = 1; news = 1
	:: else
	fi
}

/* G1 */
inline add(i)
{
	if
	:: count >= MOST || i >= left ->
		leave_out(i);
		feel_hunger(dirty)
	:: else -> mem[i]++; count++
	fi
}

inline add_or_wait(i)
{
	if
	:: DUE(i) <= now + HEAD -> 
#ifdef LISTED
		listed[i]++
#else
		add(i)
#endif
	:: else -> ring[i] = 1
	fi
}

proctype Timer()
{
	byte i, from, upto, room;
	bit seen[NT], ok;

	do
	:: {
			d_step {	/* R1 */
				i = 0;
				do
				:: i < NT -> mem[i] = 0; listed[i] = 0; ring[i] = 0; seen[i] = 0; i++
				:: i == NT -> i = 0; break
				od;
				count = 0; left = NEVER; until = 0; hungry = 0; dirty = 0; room = 0; from = 0; upto = 0; ok = 0;
				reload = 1; latch = 1; sleep_until = 0
			};
			do
			:: d_step { latch || (sleep_until != NEVER && now >= sleep_until) -> latch = 0; sleep_until = 0 };
				/* D1, then D5: the row is read for its group, by a newer snapshot */
#ifdef MUT_HINT_SNAPSHOT_EARLY
				d_step { i = 0; do :: i < NT -> seen[i] = row[i]; i++ :: i == NT -> break od; i = 0 };
#endif
				do
				:: nempty(inbox) ->
					inbox?i;
#ifndef MUT_HINT_SNAPSHOT_EARLY
					seen[i] = row[i];
#endif
					d_step {
						if :: seen[i] -> add_or_wait(i) :: else fi;
						seen[i] = 0;
						i = 0
					}
				:: empty(inbox) -> break
				od;
				skip;
				/* G1, the hand-over */
				d_step {
					i = 0;
					do
					:: i < NT && ring[i] && DUE(i) <= now + HEAD -> ring[i] = 0; add_or_wait(i); i++
					:: i < NT && !(ring[i] && DUE(i) <= now + HEAD) -> i++
					:: i == NT -> i = 0; break
					od
				};
				/* a cut, from some task on: what was left from there on is forgotten, too */
				if
#if CUTS
				:: d_step { cuts > 0 -> cuts--; reload = 1 };
					if :: from = 0 :: from = 1 fi;
					goto Cut
#endif
				:: reload -> from = 0; goto Cut
				:: !reload
				fi;
				goto Feed;
Cut:
				skip;
				d_step {
					reload = 0;
					i = from;
					do
					:: i < NT -> count = count - mem[i]; mem[i] = 0; listed[i] = 0; ring[i] = 0; i++
					:: i == NT -> i = 0; break
					od;
#ifdef MUT_CUT_FORGETS_ALL
					if :: true -> left = NEVER; until = 0; hungry = 0 :: false fi;
#else
#ifndef MUT_CUT_KEEPS_LEFT
					if :: left != NEVER && left >= from -> left = NEVER; until = 0; hungry = 0 :: else fi;
#endif
#endif
					feel_hunger(dirty)
				};
				d_step {	/* the load */
					i = from;
					do
					:: i < NT && row[i] -> add_or_wait(i); i++
					:: i < NT && !row[i] -> i++
					:: i == NT -> i = 0; break
					od;
					from = 0
				};
Feed:
				skip;
				dirty = 0;
				do
				:: d_step { hungry ->	/* G4 */
						hungry = 0;
						from = left;
						upto = until;
						room = MOST - count;
#ifndef MUT_FEED_CLEARS_LATE
						left = NEVER;
						until = 0
#endif
					};
					if
					:: d_step {	/* G5: the snapshot */
							i = 0;
							do :: i < NT -> seen[i] = row[i]; i++ :: i == NT -> break od;
							i = 0;
							ok = 1
						}
#if ERRS
					:: d_step { errs > 0 ->	/* G7 */
							errs--;
#ifndef MUT_FEED_ERROR_FORGETS
							leave_out(from);
							if :: upto > until -> until = upto :: else fi;
							feel_hunger(dirty);
#endif
							ok = 0
						}
#endif
					fi;
					if
					:: d_step { ok ->	/* G6 */
							i = from;
							do
#ifdef MUT_FEED_BY_CLOCK
							:: i < NT && DUE(i) > now -> break
							:: i < NT && DUE(i) <= now && !seen[i] -> i++
							:: i < NT && DUE(i) <= now && seen[i] && room > 0 -> add_or_wait(i); room--; i++
							:: i < NT && DUE(i) <= now && seen[i] && room == 0 ->
								leave_out(i); feel_hunger(dirty); break
#else
							:: i < upto && !seen[i] -> i++
							:: i < upto && seen[i] && room > 0 -> add_or_wait(i); room--; i++
							:: i < upto && seen[i] && room == 0 ->
#ifndef MUT_FEED_ROOM_FORGETS
								leave_out(i);
#ifndef MUT_FEED_UNTIL_FORGETS
								if :: upto > until -> until = upto :: else fi;
#endif
								feel_hunger(dirty);
#endif
								break
							:: i >= upto -> break
#endif
#ifdef MUT_FEED_BY_CLOCK
							:: i == NT -> break
#endif
							od;
#ifdef MUT_FEED_CLEARS_LATE
							left = NEVER; until = 0;
#endif
							i = 0
						}
					:: !ok
					fi;
					d_step {
						do :: i < NT -> seen[i] = 0; i++ :: i == NT -> break od;
						i = 0; from = 0; upto = 0; room = 0; ok = 0
					}
				:: !hungry -> break
				od;
				skip;
				d_step {	/* H1, H2 */
					sleep_until = NEVER;
					do
					:: i < NT && ring[i] && DUE(i) < sleep_until -> sleep_until = (DUE(i) > HEAD -> DUE(i) - HEAD : 0); i++
					:: i < NT && !(ring[i] && DUE(i) < sleep_until) -> i++
					:: i == NT -> i = 0; break
					od;
					if :: len(inbox) > 0 || dirty || reload -> latch = 1 :: else fi
				}
			od
		} unless { die -> die = 0 }
	od
}

proctype Executor()
{
	byte i;
	bit few;

	do
	:: d_step { count > 0 ->	/* X0, G2 */
			i = 0;
			do :: !mem[i] -> i++ :: mem[i] -> break od;
			mem[i]--;
			count--;
#ifndef MUT_NO_HUNGER
			feel_hunger(few)
#endif
		};
		if
		:: few ->
#ifndef MUT_HUNGER_SILENT
			d_step { dirty = 1; WAKE_TIMER(0) };
#endif
			few = 0
		:: !few
		fi;
		if
		:: d_step { row[i] && !lock[i] && DUE(i) <= now -> lock[i] = 1 };
			if
			:: d_step { true -> assert(!done[i]); done[i] = 1; row[i] = 0; lock[i] = 0 }
#if TERMS
			:: d_step { terms > 0 -> terms--; lock[i] = 0 };
				d_step { inbox!i; WAKE_TIMER(0) }	/* A2 */
#endif
			fi
		:: d_step { row[i] && !lock[i] && DUE(i) > now };	/* it waits until then, or puts it back */
			DUE(i) <= now || timeout;
			d_step { mem[i]++; count++ }
		:: d_step { !row[i] || lock[i] }	/* X4 */
#if BACKS
		:: d_step { backs > 0 -> backs--; mem[i]++; count++ }	/* held, or an undone batch */
#endif
		fi;
		i = 0
#ifdef LISTED
	:: d_step { listed[0] || listed[1] || listed[NT - 1] ->	/* G8: to their groups */
			i = (listed[0] -> 0 : (listed[1] -> 1 : NT - 1));
			listed[i]--;
			add(i);
			i = 0
		}
#ifndef MUT_SORT_SILENT
		; if :: d_step { hungry -> dirty = 1; WAKE_TIMER(0) } :: !hungry fi
#endif
#endif
	od
}

proctype Sender(byte i)
{
	row[i] = 1;			/* C1 */
	d_step { inbox!i; WAKE_TIMER(0) }	/* C2, C3 */
}

#if CANCELS
proctype Canceller()
{
	byte i;

	if :: i = 0 :: i = NT - 1 fi;
	d_step { row[i] && !lock[i] -> row[i] = 0; done[i] = 1 };
	d_step { inbox!i; WAKE_TIMER(0) }
}
#endif

proctype Env()
{
	do
	:: now < MAXT -> now++
#if STEPS
	:: d_step { steps > 0 && now > 0 -> steps--; now-- }
#endif
#if CRASH
	:: d_step { crash > 0 && !die -> crash--; die = 1 }
#endif
	:: now == MAXT -> break
	od;
	do
	:: timeout -> break
	od;
#ifdef MUT_REACH
	assert(!done[NT - 1]);
#endif
	assert(!(row[0] && DUE(0) <= now));
#if NT > 1
	assert(!(row[1] && DUE(1) <= now));
#endif
#if NT > 2
	assert(!(row[2] && DUE(2) <= now))
#endif
}

init {
	atomic {
		run Timer();
		run Executor();
#ifdef EXECUTORS
		run Executor();
#endif
#ifdef THERE
		row[0] = 1; row[NT - 1] = 1;
#else
		run Sender(0);
#if NT > 1
		run Sender(NT - 1);
#endif
#endif
#if NT > 2
		run Sender(1);
#endif
#if CANCELS
		run Canceller();
#endif
		run Env()
	}
}

#else							/* WAKE */

#ifndef NE
#define NE 2
#endif
#ifndef RATE
#define RATE 0
#endif
#ifndef SHARED
#define SHARED 1
#endif
#ifndef OWN0
#define OWN0 1
#endif
#ifndef OWN1
#define OWN1 1
#endif
#ifndef EXITS
#define EXITS 0
#endif
#ifndef FROZEN
#define FROZEN 0
#endif

/* Group 0 is in both lanes, group 1 in lane 0, group 2 in lane 1. */
byte cnt[4];			/* ready tasks: 0 and 1 of lane 0, 2 and 3 of lane 1, the shared group first */
byte run_[3], at[3];		/* tasks that run, and when the rate allows the next one */
#define IDLE 0
#define WOKEN 1
#define BUSY 2
#define GONE 3
#define ALL (2 * NE)
byte st[ALL];			/* executors; of two owners, the first NE are of lane 0 */
bit news;			/* DW_NEWS_EXECUTORS */
byte exits = EXITS;
#if FROZEN
byte frozen = FROZEN;
bit late[ALL];			/* woken, and the time for the answer is over */
bit alarm;			/* the timer is to look whether those that were woken have answered */
#define IS_LATE(e) (late[e])
#ifdef MUT_ALARM_STAYS
#define UNANSWERED(e) (st[e] == WOKEN)
#else
#define UNANSWERED(e) (st[e] == WOKEN && !late[e])
#endif
#else
#define IS_LATE(e) false
#endif
#ifdef MUT_LATE_COUNTS
#define COMES(e) (st[e] == WOKEN)
#else
#define COMES(e) (st[e] == WOKEN && !IS_LATE(e))
#endif

#define G(c) (c == 0 || c == 2 -> 0 : (c == 1 -> 1 : 2))
#define OPEN(c) (cnt[c] > 0 && run_[G(c)] == 0 && at[G(c)] <= now)
#define ASLEEP(c) (cnt[c] > 0 && run_[G(c)] == 0 && at[G(c)] > now)
#define NOPEN(l) (OPEN(2 * (l)) + OPEN(2 * (l) + 1))
#ifdef ONE
#define OWNER(l) 0
#define OWNER_OF(e) 0
#else
#define OWNER(l) (l)
#define OWNER_OF(e) ((e) / NE)
#endif
#define MAY(e, c) (OWNER_OF(e) == OWNER((c) / 2) && OPEN(c))
#define EARLIER(a, b) if :: (b) < a -> a = b :: else fi

inline take(e, c)
{
	cnt[c]--;
	run_[G(c)]++;
	at[G(c)] = now + RATE;
	has = c + 1;
	st[e] = BUSY
}

proctype Executor(byte e)
{
	byte has, look, n0, n1, opened;
	bit exit;

Sleep:
#if FROZEN
	/* W5: it may never answer; one that only takes long is one that has not run yet */
	atomic { st[e] == WOKEN -> if :: frozen > 0 -> frozen--; goto End :: true fi };
#else
	atomic { st[e] == WOKEN -> skip };
#endif
Next:
	/* all under the ready lock */
	atomic {
#if FROZEN
		late[e] = 0;
#endif
		look = NEVER;
		opened = 0;
		if
		:: has ->	/* W1: the end of a task, which opens groups */
			has--;
			n0 = NOPEN(0);
			n1 = NOPEN(1);
			run_[G(has)]--;
#ifdef MUT_OPENED_IF_NONE_WAS
#define COUNTS(l, n) (NOPEN(l) > n && n == 0)
#else
#define COUNTS(l, n) (NOPEN(l) > n && (n == 0 || OWNER(l) != OWNER(has / 2)))
#endif
			if :: COUNTS(0, n0) -> opened = opened + 1 :: else fi;
			if :: COUNTS(1, n1) -> opened = opened + 2 :: else fi;
#ifndef MUT_ASLEEP_SILENT
			if :: G(has) == 0 && (ASLEEP(0) || ASLEEP(2)) -> EARLIER(look, at[0]) :: else fi;
			if :: G(has) == 1 && ASLEEP(1) -> EARLIER(look, at[1]) :: else fi;
			if :: G(has) == 2 && ASLEEP(3) -> EARLIER(look, at[2]) :: else fi;
#endif
			has = 0;
			n0 = 0; n1 = 0
		:: !has
		fi;
		if
		:: exits > 0 -> exits--; exit = 1; st[e] = GONE
		:: MAY(e, 0) -> take(e, 0)
		:: MAY(e, 1) -> take(e, 1)
		:: MAY(e, 2) -> take(e, 2)
		:: MAY(e, 3) -> take(e, 3)
		:: !MAY(e, 0) && !MAY(e, 1) && !MAY(e, 2) && !MAY(e, 3) -> st[e] = IDLE
		fi;
		/* W2: the lanes at which it has looked, of its owner */
		if
		:: !exit && (st[e] == IDLE || NOPEN((has - 1) / 2) == 0) ->
			if :: ASLEEP(0) && OWNER_OF(e) == OWNER(0) && (!has || has <= 2) -> EARLIER(look, at[0]) :: else fi;
			if :: ASLEEP(1) && OWNER_OF(e) == OWNER(0) && (!has || has <= 2) -> EARLIER(look, at[1]) :: else fi;
			if :: ASLEEP(2) && OWNER_OF(e) == OWNER(1) && (!has || has > 2) -> EARLIER(look, at[0]) :: else fi;
			if :: ASLEEP(3) && OWNER_OF(e) == OWNER(1) && (!has || has > 2) -> EARLIER(look, at[2]) :: else fi
		:: else
		fi;
		/* W3 */
#ifndef MUT_OPENED_SILENT
		if
		:: opened == 3 || (opened == 1 && NOPEN(0) > 0) || (opened == 2 && NOPEN(1) > 0) -> look = 0
		:: else
		fi;
#endif
		opened = 0
	};
#ifndef MUT_EXIT_SILENT
	if :: exit -> look = 0 :: !exit fi;
#endif
	if
	:: look != NEVER -> news = 1; d_step { WAKE_TIMER(look); look = 0 }
	:: look == NEVER -> look = 0
	fi;
	if
	:: exit -> goto End
	:: !exit && !has -> goto Sleep
	:: !exit && has -> goto Next	/* a task that ends */
	:: !exit && has		/* or goes on and on */
	fi;
End:
	skip
}

proctype Timer()
{
	byte su, e, want, woken;
	byte l;

	do
	::
#if FROZEN
		if
		:: d_step { latch || (sleep_until != NEVER && now >= sleep_until) -> latch = 0; sleep_until = 0 }
		/* W6: its time is over, which may be at any moment, and the timer has set an alarm */
		:: d_step { alarm && UNANSWERED(0) -> late[0] = 1; sleep_until = 0 }
		:: d_step { alarm && UNANSWERED(1) -> late[1] = 1; sleep_until = 0 }
#if NE > 1
		:: d_step { alarm && UNANSWERED(2) -> late[2] = 1; sleep_until = 0 }
		:: d_step { alarm && UNANSWERED(3) -> late[3] = 1; sleep_until = 0 }
#endif
		fi;
#else
		d_step { latch || (sleep_until != NEVER && now >= sleep_until) -> latch = 0; sleep_until = 0 };
#endif
		news = 0;
		/* W4: dispatch, under the ready lock */
		d_step {
			su = NEVER;
			woken = 0;
			l = 0;
			do
			:: l < 2 ->
				want = NOPEN(l);
#ifdef MUT_ROOM_OF_QUEUE
				want = (want > woken -> want - woken : 0);
#endif
				e = 0;
				do	/* those who are about to look */
				:: e < ALL && COMES(e) && OWNER_OF(e) == OWNER(l) && l == 0 && want > 0 -> want--; e++
#ifndef ONE
				:: e < ALL && COMES(e) && OWNER_OF(e) == OWNER(l) && l == 1 && want > 0 -> want--; e++
#endif
				:: else -> if :: e < ALL -> e++ :: else -> break fi
				od;
				e = 0;
				do
				:: e < ALL && want > 0 && st[e] == IDLE && OWNER_OF(e) == OWNER(l) ->
					st[e] = WOKEN; want--; woken++; e++
				:: e < ALL && !(want > 0 && st[e] == IDLE && OWNER_OF(e) == OWNER(l)) -> e++
				:: e == ALL -> break
				od;
				if :: ASLEEP(2 * l) -> EARLIER(su, at[0]) :: else fi;
				if :: ASLEEP(2 * l + 1) -> EARLIER(su, at[1 + l]) :: else fi;
				l++
			:: l == 2 -> break
			od;
			e = 0; l = 0; want = 0; woken = 0
		};
#if FROZEN
		d_step {	/* W6 */
			alarm = 0;
#ifndef MUT_NO_ALARM
			do
			:: e < ALL && UNANSWERED(e) -> alarm = 1; e++
			:: e < ALL && !UNANSWERED(e) -> e++
			:: e == ALL -> e = 0; break
			od
#endif
		};
#endif
		d_step {	/* H1, H2 */
			sleep_until = su;
			su = 0;
			if :: news -> latch = 1 :: else fi
		}
	od
}

/* Tasks become ready in the timer, before it dispatches. */
proctype Comes(byte c)
{
	d_step { cnt[c]++; latch = 1 }
}

proctype Env()
{
	do
	:: now < MAXT -> now++
	:: break
	od;
	do
	:: timeout -> break
	od;
#ifdef MUT_REACH
	assert(cnt[0] + cnt[1] + cnt[2] + cnt[3] > 0);
#endif
#define RESTS(e) (st[e] == IDLE && (MAY(e, 0) || MAY(e, 1) || MAY(e, 2) || MAY(e, 3)))
	assert(!RESTS(0) && !RESTS(1));
#if NE > 1
	assert(!RESTS(2) && !RESTS(3))
#endif
}

init {
	byte i;
	atomic {
		run Timer();
		do :: i < ALL -> run Executor(i); i++ :: i == ALL -> break od;
		i = 0; do :: i < SHARED -> run Comes(0); run Comes(2); i++ :: i == SHARED -> break od;
		i = 0; do :: i < OWN0 -> run Comes(1); i++ :: i == OWN0 -> break od;
		i = 0; do :: i < OWN1 -> run Comes(3); i++ :: i == OWN1 -> break od;
		run Env()
	}
}
#endif
#endif
