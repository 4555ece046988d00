// The worker: sessions, queues, signals, the end.
//
// Two sessions.  One waits for messages of all queues that have a free place, and runs nothing but
// CALL delay_await_any().  The other one leases, extends and reports.  A queue with "transaction" has a
// session for each of its places besides.

import { EventEmitter } from 'node:events';
import { hostname } from 'node:os';
import { LeaseQueue } from './lease_queue.js';
import { TransactionQueue } from './transaction_queue.js';
import { Reports } from './reports.js';
import { NotConnected, Session } from './session.js';
import { Outage } from './outage.js';
import { checkOptions } from './options.js';

const LONGEST_WAIT = 300_000; // ms: a wait that is longer begins again
const LAST_WORDS = 1000; // ms that handlers have after they were told to stop
const EXIT_DELAY = 5000; // ms that the application has after run(), before the process is ended
const PAUSES = [50, 100, 200, 400, 800, 1000]; // ms, after a wait has failed
const QUIET = 200; // ms without a message, after which drain() believes that there is none
const PATIENCE = 5000; // ms that drain() waits for a connection, or for messages that are due and do not come
const END_WAIT_LIMIT = 5000; // ms, for the answer of a wait that is ended

export class Worker extends EventEmitter {
	#wait;
	#work;
	#reports;
	#queues = [];
	#around;
	#log;
	#awaited = null; // names of the queues of the wait that was sent and is not answered
	#ending = null; // promise of the end of that wait
	#mayEndWaits = true; // false if this server, or this role, does not let us
	#changed = null; // resolves the promise of #change()
	#stopping = null; // promise of stop()
	#running = null; // promise of run() or drain()
	#ended;
	#failed; // reject of run(): an option that the server refuses
	#says = false; // run() tells the log how it begins and ends, drain() does not

	constructor(options) {
		super();
		checkOptions(options);
		const { connection, waitConnection = connection, queues, log = logLine, around = null, name = `${hostname()} ${process.pid}` } = options;
		this.name = name;
		this.#log = log || (() => {});
		this.#around = around;
		const logOf = (level, text) => this.log(level, text);
		this.outage = new Outage(logOf); // of all sessions
		this.#wait = new Session('wait', waitConnection, { outage: this.outage });
		this.#work = new Session('work', connection, { outage: this.outage, named: true, prepare: (client) => this.#prepare(client) });
		this.#reports = new Reports(this.#work, logOf);
		for (const [queue, own] of Object.entries(queues)) {
			if (own.transaction) this.#queues.push(new TransactionQueue(this, queue, own, connection));
			else this.#queues.push(new LeaseQueue(this, queue, own, this.#work, this.#reports));
		}
		for (const session of [this.#wait, this.#work]) this.#tell(session);
		this.#work.on('connected', () => {
			this.#mayEndWaits = true;
			this.#lookAgain();
			this.#endWait(); // its queues may be full now
		});
		this.#wait.on('connected', () => this.#change());
		this.#wait.on('disconnected', () => this.#lookAgain());
	}

	/** Works until SIGTERM or SIGINT, or until stop().  Then the process ends, with 0. */
	async run({ within } = {}) {
		if (this.#running) throw new Error('the worker is running already');
		if (this.stopping) return;
		let signals = 0;
		const onSignal = (signal, number) => {
			if (++signals > 1) process.exit(128 + number);
			this.#stopFor(signal, within);
		};
		process.on('SIGTERM', onSignal).on('SIGINT', onSignal);
		this.#says = true;
		const { target: wait } = this.#wait;
		const { target } = this.#work;
		this.log('info', `begins with ${this.#queues.map((queue) => queue.name).join(', ')} (${target}${wait === target ? '' : `; waits on ${wait}`})`);
		try {
			await this.#begin();
		} finally {
			this.log('info', 'ended');
			// a second signal still ends the process; by default it would, too
			process.off('SIGTERM', onSignal).off('SIGINT', onSignal);
		}
		// The application may have something to close.  It may also have forgotten something that is
		// open, or a handler may go on for ever: a deploy does not wait for that.
		if (signals) setTimeout(() => process.exit(process.exitCode ?? 0), EXIT_DELAY).unref();
	}

	/** Handles all that is due, also what handlers send meanwhile, and returns how many messages. */
	async drain() {
		if (this.#running) throw new Error('the worker is running already');
		let handled = 0;
		const count = () => { handled++; };
		for (const event of ['done', 'failed']) this.on(event, count);
		// a test is told what is wrong, and does not wait for it to be mended
		const onProblem = (queue, error) => this.#failed(error);
		this.once('problem', onProblem);
		const end = this.#begin();
		const watch = setInterval(() => {
			const error = this.outage.errorAfter(PATIENCE);
			if (error) this.#failed(error);
		}, 100);
		try {
			await Promise.race([end, this.#drained().catch((error) => {
				if (!this.stopping) throw error;
				return end; // which tells why it is stopped
			})]);
		} finally {
			clearInterval(watch);
			this.off('problem', onProblem);
			await this.stop();
			for (const event of ['done', 'failed']) this.off(event, count);
		}
		await end;
		return handled;
	}

	/** Takes no new message, and ends when handlers have ended, or have been told to. */
	stop({ within } = {}) {
		return this.#stopFor('stop()', within);
	}

	#stopFor(why, within = 30_000) {
		if (this.#says && !this.stopping) {
			const running = this.#queues.reduce((n, queue) => n + queue.works.size, 0);
			this.log('info', `${why}: no new message is taken, handlers still running: ${running}`);
		}
		this.#stopping ??= this.#stop(within);
		return this.#stopping;
	}

	get stopping() { return this.#stopping !== null; }

	// What queues need of their worker

	/** Events and log are the application's: what they throw is logged, and goes no further. */
	tell(event, ...values) {
		if (!this.listenerCount(event)) return;
		for (const listener of this.rawListeners(event)) {
			try {
				const value = listener.apply(this, values);
				value?.catch?.((error) => this.log('error', `a listener of "${event}" fails: ${error?.message ?? error}`));
			} catch (error) {
				this.log('error', `a listener of "${event}" throws: ${error?.message ?? error}`);
			}
		}
	}

	log(level, text) {
		try {
			this.#log(level, text);
		} catch (error) {
			console.error(`delay-wheel: ${text} (and its log throws: ${error?.message ?? error})`);
		}
	}

	/** Calls a handler, or whatever the application puts around it. */
	async call(handle, given, context) {
		if (!this.#around) return handle(given, context);
		return this.#around(given, async () => handle(given, context));
	}

	/** A queue has a free place, and no message as far as it knows: somebody has to wait for it. */
	needsWait(queue) {
		if (this.#awaited && !this.#awaited.has(queue.name)) this.#endWait();
		else this.#change();
	}

	// Connections

	#tell(session) {
		session.on('connected', () => this.tell('connected', session.name));
		session.on('disconnected', (error) => this.tell('disconnected', session.name, error));
	}

	// Reads the lengths of leases.  PostgreSQL takes intervals apart.
	async #prepare(client) {
		const queues = this.#queues;
		const ms = 'extract(epoch FROM %::interval)::float8 * 1000';
		const length = async (text) => Number((await client.query(`SELECT ${ms.replace('%', '$1')} AS ms`, [text])).rows[0].ms);
		let own = new Map();
		try {
			const { rows } = await client.query(`SELECT name, ${ms.replace('%', 'lease')} AS ms FROM delay_wheel.queues WHERE name = ANY ($1::text[])`, [queues.map((q) => q.name)]);
			own = new Map(rows.map((row) => [row.name, Number(row.ms) || 60_000]));
		} catch (error) {
			if (!error.code) throw error; // there may be no extension yet
		}
		for (const queue of queues) {
			try {
				queue.leaseLength = queue.options.lease == null ? own.get(queue.name) ?? 60_000 : await length(queue.options.lease);
				queue.timeout = queue.options.timeout == null ? null : await length(queue.options.timeout);
				if (!(queue.leaseLength > 0)) throw Object.assign(new Error('a lease must be longer than 0'), { code: '22023' });
			} catch (error) {
				if (!error.code?.startsWith('22')) throw error;
				throw Object.assign(new TypeError(`queue ${queue.name}: ${error.message}`), { isWrongOption: true });
			}
		}
	}

	// Messages may have come while a session was away.
	#lookAgain() {
		for (const queue of this.#queues) queue.look();
		this.#change();
	}

	// Waiting

	#change() {
		this.#changed?.();
	}

	async #waitForMessages() {
		let failures = 0;
		for (;;) {
			// wait only when it is known which queues have more: a wait for others would have to be ended
			await Promise.all(this.#queues.map((queue) => queue.asked));
			if (this.stopping) return;
			const changed = new Promise((resolve) => { this.#changed = resolve; });
			const queues = this.#work.connected && this.#wait.connected ? this.#queues.filter((queue) => queue.wantsWait) : [];
			if (!queues.length) {
				await changed;
				continue;
			}
			this.#awaited = new Set(queues.map((queue) => queue.name));
			let found = [];
			try {
				const [row] = await this.#wait.query('CALL delay_await_any($1::text[], $2::interval)', [[...this.#awaited], `${LONGEST_WAIT} ms`], { timeout: LONGEST_WAIT + 10_000 });
				found = queues.filter((queue) => row.found?.includes(queue.name));
				failures = 0;
			} catch (error) {
				if (!(error instanceof NotConnected)) {
					// a queue is no longer what it was: asked for messages, it says so itself
					if (failures === 1) this.log('warning', `cannot wait for messages: ${error.message}`);
					await Promise.race([changed, pauseOf(PAUSES[Math.min(failures++, PAUSES.length - 1)])]);
					found = queues;
				}
			} finally {
				this.#awaited = null;
				this.#ending = null;
			}
			for (const queue of found) queue.look();
		}
	}

	// Ends the wait that is going on, if any: other queues are to be waited for, or none.
	#endWait() {
		if (this.#awaited) this.#ending ??= this.#endThisWait(this.#awaited);
		return this.#ending;
	}

	// The wait may have been sent and not have begun, so it is ended again and again until it is
	// answered.  Closing its session ends it in any case.
	async #endThisWait(wait) {
		const limit = performance.now() + END_WAIT_LIMIT;
		for (let pause = 1; this.#awaited === wait; pause = Math.min(2 * pause, 100)) {
			const hope = performance.now() < limit && await this.#askForEndOfWait();
			if (this.#awaited !== wait) return;
			if (!hope) return this.#wait.drop();
			await pauseOf(pause);
		}
	}

	// Returns false if it is of no use to ask again.
	async #askForEndOfWait() {
		const { pid } = this.#wait; // null behind a pooler
		if (pid === null || !this.#mayEndWaits) return false;
		try {
			await this.#work.query('SELECT delay_end_await($1)', [pid]);
		} catch (error) {
			if (error instanceof NotConnected) return !this.#work.closed;
			this.#mayEndWaits = false;
			this.log('warning', `a wait is ended by closing its session: ${error.message}`);
			return false;
		}
		return true;
	}

	// Beginning and end

	async #begin() {
		if (this.stopping) return;
		const failed = new Promise((_, reject) => { this.#failed = reject; });
		failed.catch(() => {}); // it may come too late for anybody
		this.#running = new Promise((resolve) => { this.#ended = resolve; });
		this.#wait.start();
		this.#work.start().arrived().catch((error) => { if (error.isWrongOption) this.#failed(error); });
		this.#waitForMessages().catch((error) => this.#failed(error));
		try {
			await Promise.race([this.#running, failed]);
		} catch (error) {
			await this.#stopFor('an error', 0);
			throw error;
		}
	}

	async #stop(within) {
		await null; // so that stopping is true for all that follows
		const until = performance.now() + within;
		const idle = Promise.all(this.#queues.map((queue) => queue.stop()));
		this.#change();
		const closing = this.#closeWait();
		if (!await inTime(idle, until - performance.now())) {
			for (const queue of this.#queues) queue.tellAllToStop();
			if (!await inTime(idle, LAST_WORDS)) {
				const left = this.#queues.flatMap((queue) => queue.ids);
				if (left.length) this.log('warning', `still at work when the worker ends: messages ${left.join(', ')}`);
			}
			this.#reports.giveUp();
		}
		for (const queue of this.#queues) await queue.close();
		await closing; // by the work session
		await this.#work.close();
		this.#ended?.();
	}

	// A wait that is being answered while its session is closed would leave an error in the server's log.
	async #closeWait() {
		await inTime(Promise.resolve(this.#endWait()), LAST_WORDS);
		await this.#wait.close();
	}

	// Until nothing is due, as far as one can see: the server takes messages a moment after their
	// sender's COMMIT, and shows them in delay_wheel.tasks to their sender only.
	async #drained() {
		let last = performance.now(); // when there was something to do
		const onWork = () => { last = performance.now(); };
		for (const event of ['started', 'done', 'failed', 'connected']) this.on(event, onWork);
		for (;;) {
			await Promise.all([this.#wait.arrived(), this.#work.arrived()]);
			await Promise.all(this.#queues.map((queue) => queue.idle()));
			const quiet = performance.now() - last;
			if (quiet > QUIET) {
				const due = await this.#countDue();
				if (!due) break;
				if (quiet > PATIENCE) {
					this.log('warning', `drain: due messages that cannot be received: ${due}`);
					break;
				}
			}
			await pauseOf(QUIET / 4);
		}
		for (const event of ['started', 'done', 'failed', 'connected']) this.off(event, onWork);
	}

	async #countDue() {
		const rows = await this.#work.query(`SELECT count(*)::int AS due FROM delay_wheel.tasks AS t
			JOIN delay_wheel.queues AS q ON q.name = t.queue AND NOT q.paused
			WHERE t.queue = ANY ($1::text[]) AND t.due <= clock_timestamp() AND t.leased_until IS NULL`, [this.#queues.map((q) => q.name)])
			.catch((error) => { if (!(error instanceof NotConnected)) throw error; });
		return rows ? rows[0].due : 1;
	}
}

function logLine(level, text) {
	console.error(`${new Date().toISOString()} delay-wheel ${level}: ${text}`);
}

function pauseOf(ms) {
	return new Promise((resolve) => { setTimeout(resolve, ms).unref(); });
}

// Whether the promise is fulfilled within this time.
async function inTime(promise, ms) {
	let timer;
	const late = new Promise((resolve) => { timer = setTimeout(resolve, Math.max(ms, 0), false); });
	const ended = await Promise.race([promise.then(() => true), late]);
	clearTimeout(timer);
	return ended;
}
