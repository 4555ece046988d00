// What both kinds of queues have in common: places, the call of the handler, and what follows from
// its end.

import { GiveUp, Retry, Stopped, stackOf, textOf } from './errors.js';

const PROBLEM_PAUSES = [1000, 2000, 4000, 8000, 10_000]; // ms, before a queue with a problem is tried again

/** Messages of one call of the handler.  They hold one place. */
export class Work {
	#controller = null; // made when somebody asks for the signal: most handlers do not
	told = null; // why the handler is told to stop
	reason = null; // the same, for its signal
	running = false; // the handler
	traced = null; // the error whose stack is in the log

	constructor(messages) {
		this.messages = messages;
	}

	get signal() {
		if (!this.#controller) {
			this.#controller = new AbortController();
			if (this.told) this.#controller.abort(this.reason);
		}
		return this.#controller.signal;
	}

	tellToStop(why, text) {
		if (this.told) return;
		this.told = why;
		this.reason = new Stopped(why, text);
		this.#controller?.abort(this.reason);
	}
}

/** What a handler gets beside its message. */
class Context {
	#work;

	constructor(work, worker, client) {
		this.#work = work;
		this.worker = worker;
		this.client = client;
	}

	get signal() { return this.#work.signal; }
}

export class Queue {
	works = new Set();
	#idle = []; // resolve of promises that wait until no place is taken
	#looks = 0;
	#more = false; // there may be messages that nobody asked for yet
	#leaving = null;
	#problem = 0; // failures in a row
	#problemTimer = null;
	asked = null; // promise that is fulfilled when the server has answered
	stopping = false;
	leaseLength = 60_000; // ms, read from the server at each connect
	timeout = null;

	constructor(worker, name, options) {
		this.worker = worker;
		this.name = name;
		this.options = options;
		this.concurrency = options.concurrency ?? (options.transaction ? 1 : 10);
		this.batch = options.batch ?? 1;
	}

	get free() { return this.concurrency - this.works.size; }
	get ids() { return [...this.works].flatMap((work) => work.messages.map((message) => message.id)); }

	/** Nothing is there to be had now, and there is a place for what comes. */
	get wantsWait() { return !this.stopping && !this.asked && !this.#more && !this.#problemTimer && this.free > 0; }

	/** There may be messages. */
	look() {
		this.#looks++;
		this.#more = true;
		this.next();
	}

	/** Asks for messages if there may be some, and a place is free. */
	next() {
		if (!this.#more || this.asked || this.#problemTimer || this.stopping || this.free < 1 || !this.canAsk()) return;
		this.asked = this.#ask();
	}

	async #ask() {
		const looks = this.#looks;
		try {
			const all = await this.fetch(); // whether it got as many as it has asked for
			if (!all && looks === this.#looks) this.#more = false;
			if (this.#problem) this.worker.log('info', `queue ${this.name}: messages can be received again`);
			this.#problem = 0;
		} catch (error) {
			if (error.name !== 'NotConnected') this.hasProblem(error); // otherwise look() follows when it is connected
		} finally {
			this.asked = null;
			this.#settled();
		}
		this.#goOn();
	}

	/** The queue is missing, is not for us ...  The others go on, this one is tried again. */
	hasProblem(error) {
		if (!this.#problem) {
			this.worker.log('error', `queue ${this.name}: ${error.message}`);
			this.worker.tell('problem', this.name, error);
		}
		if (this.stopping) return;
		const pause = PROBLEM_PAUSES[Math.min(this.#problem++, PROBLEM_PAUSES.length - 1)];
		this.#problemTimer = setTimeout(() => {
			this.#problemTimer = null;
			this.look();
		}, pause);
	}

	take(messages) {
		const work = new Work(messages);
		this.works.add(work);
		return work;
	}

	leave(work) {
		this.works.delete(work);
		this.#settled();
		this.#leaving ??= setImmediate(() => { // with others that leave in this turn of the loop
			this.#leaving = null;
			this.#goOn();
		});
	}

	// A place is free, or messages have been asked for.
	#goOn() {
		if (this.#more) this.next();
		else if (this.wantsWait) this.worker.needsWait(this);
	}

	/** Fulfilled when no place is taken, and none is about to be. */
	idle() {
		return new Promise((resolve) => {
			this.#idle.push(resolve);
			this.#settled();
		});
	}

	stop() {
		this.stopping = true;
		clearTimeout(this.#problemTimer);
		return this.idle();
	}

	tellAllToStop() {
		for (const work of this.works) work.tellToStop('stop', 'the worker ends');
	}

	#settled() {
		if (this.works.size || this.asked) return;
		for (const resolve of this.#idle.splice(0)) resolve();
	}

	/** A row of delay_lease() or delay_receive() as the handler gets it. */
	messageOf({ id, key, payload, attempt, due, headers }) {
		const traceparent = typeof headers?.traceparent === 'string' ? headers.traceparent : null;
		return { id: String(id), queue: this.name, key, payload, attempt, due, headers, traceparent };
	}

	/** Calls the handler.  Returns what is to be reported of each message; never throws. */
	async handle(work, client) {
		const { messages } = work;
		const { handle, batch } = this.options;
		const timer = this.timeout === null ? null : setTimeout(() => work.tellToStop('timeout', 'timeout'), this.timeout);
		work.running = true;
		for (const message of messages) this.worker.tell('started', message);
		try {
			const value = await this.worker.call(handle, batch ? messages : messages[0], new Context(work, this.worker, client));
			if (!batch) return [this.#done(messages[0], value)];
			if (Array.isArray(value) && value.length === messages.length) return messages.map((message, i) => (value[i] instanceof Error ? failure(value[i]) : this.#done(message, value[i])));
			return messages.map(() => ({ kind: 'done', result: null }));
		} catch (error) {
			if (work.told === 'timeout') return messages.map(() => failure(error instanceof Retry || error instanceof GiveUp ? error : work.reason));
			if (work.told) return messages.map(() => ({ kind: 'release' }));
			return messages.map(() => failure(error));
		} finally {
			work.running = false;
			clearTimeout(timer);
		}
	}

	#done(message, value) {
		let result = null;
		if (value !== undefined && value !== null) {
			try {
				result = JSON.stringify(value) ?? null;
				if (result === null) throw new TypeError(`a ${typeof value} is no JSON`);
			} catch (error) {
				this.worker.log('warning', `message ${message.id} of ${this.name}: its result is left out: ${error?.message ?? error}`);
			}
		}
		return { kind: 'done', result };
	}

	/** What became of a message: an event, and a line of the log unless all is well. */
	ended(message, report, work) {
		const { worker } = this;
		if (report.kind === 'done') return worker.tell('done', message);
		if (report.kind === 'fail') {
			// delay_fail() does not tell whether this was the last attempt
			const next = report.giveUp ? 'given up' : `comes again${report.retryIn === null ? '' : ` in ${report.retryIn}`} if attempts are left`;
			const stack = report.cause === work.traced ? '' : stackOf(report.cause); // of a batch that fails once
			work.traced = report.cause;
			worker.log('warning', `message ${message.id} of ${this.name}, attempt ${message.attempt} failed, ${next}: ${report.error}${stack}`);
			return worker.tell('failed', message, report.cause);
		}
		worker.log('info', `message ${message.id} of ${this.name}: released, ${work.reason?.message ?? 'the worker ends'}`);
		return worker.tell('released', message);
	}

	lost(message, error) {
		this.worker.log('warning', `message ${message.id} of ${this.name}, attempt ${message.attempt}: lost, ${error.message}`);
		this.worker.tell('lost', message, error);
	}
}

function failure(error) {
	return { kind: 'fail', cause: error, error: textOf(error), retryIn: error instanceof Retry ? error.delay : null, giveUp: error instanceof GiveUp };
}
