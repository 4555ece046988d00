// A session of the server that comes back by itself.
//
// One connection at a time.  When it is lost, for whatever reason, the next one is tried after a
// growing pause with jitter, which stays below half a second: work goes on within a second of the
// server's return.  A session keeps no setting, so a pooler may stand before it.

import { EventEmitter } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { Outage } from './outage.js';

const PAUSES = [0, 50, 100, 200, 400, 500]; // ms, of which 0.5 to 1
const CONNECT_TIMEOUT = 5000;
const ANSWER_TIMEOUT = 5000;

// Tokens are random numbers of 64 bits, whatever parser the application has set for bigint.
const types = { getTypeParser: (oid, format) => (oid === 20 ? String : pg.types.getTypeParser(oid, format)) };

/** Events: 'connected', 'disconnected' (error). */
export class Session extends EventEmitter {
	#config;
	#prepare;
	#outage;
	#named;
	#names = null; // of prepared statements, by their texts; null without
	#client = null;
	#trying = null; // the client that is being connected
	#closing = new AbortController();
	#arrived; // promise of the next client, and what resolves it
	#kept = null; // promise of the loop
	#onLost = () => {};

	/**
	 * prepare(client) runs when a connection is there, before anybody else uses it.  named: for few
	 * texts of statements, which are sent often.
	 */
	constructor(name, config, { outage = new Outage(() => {}), prepare = async () => {}, named = false, ownTypes = true } = {}) {
		super();
		this.name = name;
		this.#config = {
			keepAlive: true,
			keepAliveInitialDelayMillis: 10_000,
			connectionTimeoutMillis: CONNECT_TIMEOUT,
			fallback_application_name: 'delay-wheel',
			...(ownTypes && { types }),
			...(typeof config === 'string' ? { connectionString: config } : config),
		};
		this.target = targetOf(new pg.Client(this.#config));
		this.#prepare = prepare;
		this.#outage = outage;
		this.#named = named;
		this.#expect();
	}

	get connected() { return this.#client !== null; }
	get closed() { return this.#closing.signal.aborted; }

	/** Whether another backend can cancel this session by its pid; behind a pooler it cannot. */
	pid = null;

	/** Connects, and connects again until close(). */
	start() {
		this.#kept ??= this.#keep();
		return this;
	}

	/** The client of this connection; null without one. */
	get client() { return this.#client; }

	/** Fulfilled when there is a connection.  Fails when the session is closed. */
	async arrived() {
		if (!this.#client) await this.#arrived.promise;
	}

	/**
	 * Rows of a statement.  A server that does not answer in time has lost this session.  With a
	 * client it is this one's, or nobody's: a transaction does not go on over the next connection.
	 */
	async query(text, values, { timeout = ANSWER_TIMEOUT, client = this.#client } = {}) {
		if (!client || client !== this.#client) throw new NotConnected(this.name);
		const timer = setTimeout(() => this.#lose(client, new Error(`no answer within ${timeout} ms`)), timeout);
		try {
			return (await this.#send(client, text, values)).rows;
		} catch (error) {
			if (error instanceof pg.DatabaseError && !isOfSession(error)) throw error;
			this.#lose(client, error);
			throw new NotConnected(this.name, error);
		} finally {
			clearTimeout(timer);
		}
	}

	// Prepared statements spare the server their planning, a fifth of its time.  Behind a pooler there
	// are none.  If one is not there, or has changed with the extension, it has had no effect.
	async #send(client, text, values) {
		if (!this.#names) return client.query(text, values);
		if (!this.#names.has(text)) this.#names.set(text, `worker ${this.#names.size}`);
		try {
			return await client.query({ name: this.#names.get(text), text, values });
		} catch (error) {
			if (!/^(26000|42P05|0A000)$/.test(error.code)) throw error;
			this.#names = null;
			return client.query(text, values);
		}
	}

	/** Ends this connection; the next one is tried. */
	drop(reason = new Error('dropped by the worker')) {
		if (this.#client) this.#lose(this.#client, reason);
	}

	/** Ends the session for good, within a second. */
	async close() {
		this.#closing.abort();
		this.#outage.ends(this);
		this.#arrived.promise.catch(() => {});
		this.#arrived.reject(new NotConnected(this.name));
		if (this.#client) await end(this.#client); // which fulfils "lost"
		else if (this.#trying) cut(this.#trying);
		await this.#kept;
	}

	#expect() {
		this.#arrived = Promise.withResolvers?.() ?? withResolvers();
		this.#arrived.promise.catch(() => {}); // nobody may be waiting
	}

	async #keep() {
		let failures = 0;
		this.#outage.begins(this);
		while (!this.closed) {
			const client = this.#trying = new pg.Client(this.#config);
			const lost = new Promise((resolve) => { this.#onLost = resolve; });
			client.on('error', (error) => this.#lose(client, error));
			client.on('end', () => this.#lose(client, new Error('the connection has ended')));
			try {
				await client.connect();
				await this.#check(client);
			} catch (error) {
				cut(client);
				if (this.closed) break;
				if (error.isWrongOption) {
					this.#closing.abort();
					this.#arrived.reject(error);
					break;
				}
				error.message ||= error.errors?.map((one) => one.message).join('; ') || error.name; // of each address of the host
				this.#outage.tell(this, error, `cannot connect (${this.target}): ${error.message}`);
				await this.#pause(failures++);
				continue;
			}
			if (this.closed) {
				await end(client);
				break;
			}
			const since = performance.now();
			this.#client = client;
			this.#outage.ends(this, this.target);
			this.#arrived.resolve(client);
			this.emit('connected');
			const reason = await lost;
			if (this.closed) break;
			if (performance.now() - since > 1000) failures = 0;
			this.#outage.begins(this);
			this.#outage.tell(this, reason, `lost (${this.target}): ${reason.message}`);
			this.emit('disconnected', reason);
			await this.#pause(failures++);
		}
	}

	// From now on nobody uses this connection: that it is lost is known before its socket is closed.
	#lose(client, reason) {
		cut(client);
		if (client !== this.#client) return;
		this.#client = null;
		this.#expect();
		this.#onLost(reason);
	}

	// A standby cannot give messages: its successor is looked for at the same address.
	async #check(client) {
		let late = false;
		const timer = setTimeout(() => {
			late = true;
			cut(client);
		}, CONNECT_TIMEOUT);
		try {
			const { rows: [row] } = await client.query('SELECT pg_is_in_recovery() AS standby, pg_backend_pid() AS pid');
			if (row.standby) throw new Error('the server is a standby');
			this.pid = row.pid === client.processID ? row.pid : null;
			this.#names = this.#named && this.pid !== null ? new Map() : null;
			await this.#prepare(client);
		} catch (error) {
			throw late ? new Error('the server does not answer') : error; // a pooler may have let us in
		} finally {
			clearTimeout(timer);
		}
	}

	#pause(failures) {
		return sleep(pauseAfter(failures), null, { signal: this.#closing.signal }).catch(() => {});
	}
}

/** In ms.  Many workers that have lost the same server do not come back at the same moment. */
export function pauseAfter(failures) {
	return PAUSES[Math.min(failures, PAUSES.length - 1)] * (0.5 + Math.random() / 2);
}

/** There is no connection now, or it was lost before the answer. */
export class NotConnected extends Error {
	constructor(name, cause) {
		super(`the ${name} session is not connected${cause ? `: ${cause.message}` : ''}`, { cause });
		this.name = 'NotConnected';
		this.wasSent = cause !== undefined; // the statement; what became of it is not known
	}
}

// Where a client connects, for the log: never the password.
function targetOf({ host, port, database, user }) {
	return `server ${host}, port ${port}, database ${database}, user ${user}`;
}

// Errors after which this session, or this server, is of no more use.
function isOfSession(error) {
	return /^(08|57P|25006)/.test(error.code ?? '');
}

// Ends a connection without a word, as one to which nobody may be listening.
function cut(client) {
	client.connection.stream.destroy();
}

async function end(client) {
	const timer = setTimeout(() => cut(client), 1000);
	await client.end().catch(() => {});
	clearTimeout(timer);
}

function withResolvers() {
	const all = {};
	all.promise = new Promise((resolve, reject) => Object.assign(all, { resolve, reject }));
	return all;
}
