import { EventEmitter } from 'node:events';
import type { ClientBase, ClientConfig } from 'pg';

/** A message, as its handler gets it. */
export interface Message<Payload = any> {
	/** Number of the message; a text, since it may exceed 2^53. An idempotency key for other services. */
	readonly id: string;
	readonly queue: string;
	/** The key it was sent with, or null. */
	readonly key: string | null;
	readonly payload: Payload;
	/** 1 for the first attempt. */
	readonly attempt: number;
	readonly due: Date;
	readonly headers: Record<string, unknown> | null;
	/** `traceparent` of the headers. */
	readonly traceparent: string | null;
}

export interface Context {
	/** Aborted when the handler has to stop: its reason is a `Stopped`. */
	readonly signal: AbortSignal;
	readonly worker: Worker;
}

export interface TransactionContext extends Context {
	/** In the transaction that the message is received in. Do not commit or roll back. */
	readonly client: ClientBase;
}

/** What a handler returns: the result of the message, which must be JSON; nothing for none. */
export type Result = unknown;

interface QueueOptions {
	/** Number of handlers that run at the same time: 10; with `transaction` 1. */
	concurrency?: number;
	/** Time after which the handler is told to stop, as PostgreSQL reads intervals: '5 minutes'. */
	timeout?: string;
}

interface Leased extends QueueOptions {
	transaction?: false;
	/** Length of a lease, '30 s': the queue's own, or 1 minute. It is extended while the handler runs. */
	lease?: string;
}

interface Received extends QueueOptions {
	/** Messages are received in a transaction, which is committed when the handler has returned. */
	transaction: true;
	lease?: never;
}

type Single<C, P> = {
	batch?: undefined;
	handle(message: Message<P>, context: C): Result | Promise<Result>;
};

type Batch<C, P> = {
	/** The handler gets an array of at most so many messages. */
	batch: number;
	/** An array as long as the batch has a result, or an error, for each message. */
	handle(messages: Message<P>[], context: C): Result | Promise<Result>;
};

export type Queue<Payload = any> =
	| (Leased & Single<Context, Payload>)
	| (Leased & Batch<Context, Payload>)
	| (Received & Single<TransactionContext, Payload>)
	| (Received & Batch<TransactionContext, Payload>);

export type LogLevel = 'info' | 'warning' | 'error';

export interface WorkerOptions {
	/** As for pg. May lead to a pooler in transaction mode. Default: PGHOST and so on. */
	connection?: string | ClientConfig;
	/** For the session that waits, past the pooler. Default: `connection`. */
	waitConnection?: string | ClientConfig;
	queues: Record<string, Queue>;
	/** Default: a line on standard error. */
	log?: false | ((level: LogLevel, text: string) => void);
	/** Called around each handler, for tracing: `around: (message, next) => tracer.startActiveSpan(..., next)`. */
	around?: (message: Message | Message[], next: () => Promise<Result>) => Promise<Result>;
	/** Name that delay_wheel.tasks shows as receiver. Default: host name and process id. */
	name?: string;
}

export interface WorkerEvents {
	started: [message: Message];
	done: [message: Message];
	failed: [message: Message, error: unknown];
	released: [message: Message];
	/** Its lease could not be kept, or its report came too late: somebody else gets it, or has it. */
	lost: [message: Message, reason: Error];
	connected: [session: string];
	disconnected: [session: string, reason: Error];
	/** A queue cannot be received from: it is missing, or the role has no right. It is tried again. */
	problem: [queue: string, error: Error];
}

export class Worker extends EventEmitter {
	constructor(options: WorkerOptions);
	readonly name: string;
	readonly stopping: boolean;
	/** Works until SIGTERM, SIGINT or stop(). After a signal handlers have `within` ms (30,000). */
	run(options?: { within?: number }): Promise<void>;
	/** Takes no new message; handlers have `within` ms (30,000) before they are told to stop. */
	stop(options?: { within?: number }): Promise<void>;
	/**
	 * For tests of an application: handles all that is due, and returns the number of messages. Fails if it
	 * has no connection for 5 s, or may not receive from a queue.
	 */
	drain(): Promise<number>;
	on<E extends keyof WorkerEvents>(event: E, listener: (...values: WorkerEvents[E]) => void): this;
	once<E extends keyof WorkerEvents>(event: E, listener: (...values: WorkerEvents[E]) => void): this;
	off<E extends keyof WorkerEvents>(event: E, listener: (...values: WorkerEvents[E]) => void): this;
}

/** Thrown by a handler: the attempt has failed, the next one comes after this delay. A number is milliseconds. */
export class Retry extends Error {
	constructor(delay: string | number, reason?: string | Error);
	readonly delay: string;
}

/** Thrown by a handler: the message has failed, and is not tried again. */
export class GiveUp extends Error {
	constructor(reason?: string | Error);
}

/** Reason of the signal of a handler that has to stop. */
export class Stopped extends Error {
	private constructor();
	readonly why: 'lost' | 'stop' | 'timeout';
}

/** Whatever runs a statement: a client or pool of pg, or an adapter of one line. */
export interface Database {
	query(text: string, values: unknown[]): PromiseLike<{ rows: any[] } | any[]>;
}

interface CommonOptions {
	/** '30 minutes'; a number is milliseconds. */
	delay?: string | number;
	due?: Date | string;
	key?: string;
	ifExists?: 'keep' | 'replace' | 'replace_keep_due' | 'earlier' | 'later' | 'error';
	tag?: string;
	priority?: number;
	maxAttempts?: number;
	groupKey?: string;
	headers?: Record<string, unknown>;
	retryDelay?: string;
	retryBackoff?: 'exponential' | 'linear' | 'fixed';
	retryMaxDelay?: string;
	expires?: string;
	skipAfter?: string;
	uniqueFor?: string;
	notify?: string;
	onSuccess?: string;
	onFailure?: string;
}

export interface SendOptions extends CommonOptions {}

export interface ScheduleOptions extends CommonOptions {
	queue?: string;
	timeout?: string;
	retryOn?: string[];
	giveUpOn?: string[];
	mode?: 'at_most_once' | 'at_least_once';
	checkSql?: 'off' | 'on' | 'plan';
	keepSettings?: string[];
}

/** Sends a message, if the transaction of `db` commits. Returns its id. */
export function send(db: Database, queue: string, payload: unknown, options?: SendOptions): Promise<string>;

/** Schedules SQL, with values for `$1`, `$2` ... or for `:name`. Returns the id of the task. */
export function schedule(db: Database, sql: string, args?: unknown[] | Record<string, unknown>, options?: ScheduleOptions): Promise<string>;
