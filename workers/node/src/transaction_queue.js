// A queue whose handlers write to this database: a message is received in the handler's transaction,
// and gone when that is committed.

import { Queue } from './queue.js';
import { textOf } from './errors.js';
import { NotConnected, Session } from './session.js';

const COMMIT_TIMEOUT = 60_000; // ms; deferred constraints may take their time

export class TransactionQueue extends Queue {
	#connection;
	#sessions = []; // of the places, opened when they are needed first
	#busy = new Set(); // sessions

	constructor(worker, name, options, connection) {
		super(worker, name, options);
		this.#connection = connection;
	}

	#place() { return this.#sessions.find((session) => session.connected && !this.#busy.has(session)); }

	canAsk() {
		if (this.#place()) return true;
		// one that is connecting asks when it is connected
		if (this.#sessions.length <= this.works.size) this.#open();
		return false;
	}

	#open() {
		const session = new Session(`${this.name} transaction`, this.#connection, { outage: this.worker.outage, ownTypes: false });
		session.on('connected', () => {
			this.worker.tell('connected', session.name);
			this.look();
		});
		session.on('disconnected', (error) => this.worker.tell('disconnected', session.name, error));
		this.#sessions.push(session.start());
	}

	async fetch() {
		const session = this.#place();
		const { client } = session;
		const query = (text, values) => session.query(text, values, { client });
		let work = null;
		this.#busy.add(session);
		try {
			await query('BEGIN');
			const rows = await query('SELECT * FROM delay_receive($1, $2)', [this.name, this.batch]);
			if (!rows.length || this.stopping) {
				await query('ROLLBACK');
				return false;
			}
			await query('SAVEPOINT delay_wheel');
			work = this.take(rows.map((row) => this.messageOf(row)));
			this.#work(session, client, work);
			return rows.length === this.batch;
		} catch (error) {
			session.drop(); // in whatever state it is
			throw error;
		} finally {
			if (!work) this.#busy.delete(session);
		}
	}

	async #work(session, client, work) {
		const onEnd = () => work.tellToStop('lost', 'its session has ended');
		client.once('end', onEnd);
		let reports = await this.handle(work, client);
		client.off('end', onEnd);
		try {
			reports = await this.#commit(session, client, work, reports);
			work.messages.forEach((message, i) => this.ended(message, reports[i], work));
		} catch (error) {
			session.drop();
			for (const message of work.messages) this.lost(message, work.reason ?? error);
		}
		this.#busy.delete(session);
		this.leave(work);
	}

	// Ends the transaction as the reports say.  Returns what they have become.
	async #commit(session, client, work, reports) {
		const query = (text, values) => session.query(text, values, { client, timeout: COMMIT_TIMEOUT });
		if (reports.some((report) => report.kind === 'release')) {
			await query('ROLLBACK');
			return reports;
		}
		let failed = reports.filter((report) => report.kind === 'fail');
		if (!failed.length) {
			try {
				// constraints first: if one fails, there is still a transaction to report it in
				await query('SET CONSTRAINTS ALL IMMEDIATE; RELEASE SAVEPOINT delay_wheel; COMMIT');
				return reports;
			} catch (error) {
				if (error instanceof NotConnected) throw error;
				reports = failed = work.messages.map(() => ({ kind: 'fail', cause: error, error: textOf(error), retryIn: null, giveUp: false }));
			}
		}
		// if all have failed, nothing of the handler's work remains
		if (failed.length === reports.length) await query('ROLLBACK TO SAVEPOINT delay_wheel');
		for (const [i, report] of reports.entries()) if (report.kind === 'fail') await this.#fail(query, work.messages[i], report);
		await query('SET CONSTRAINTS ALL IMMEDIATE; COMMIT');
		return reports;
	}

	async #fail(query, message, report) {
		const { error, retryIn, giveUp } = report;
		const fail = (delay) => query('SELECT delay_fail($1, NULL, $2, $3::interval, $4)', [message.id, error, delay, giveUp]);
		if (retryIn === null) return fail(null);
		await query('SAVEPOINT delay_wheel_fail');
		try {
			await fail(retryIn);
		} catch (reason) {
			if (!reason.code?.startsWith('22')) throw reason;
			this.worker.log('warning', `message ${message.id} of ${this.name}: its delay is left out: ${reason.message}`);
			await query('ROLLBACK TO SAVEPOINT delay_wheel_fail');
			report.retryIn = null;
			await fail(null);
		}
	}

	async close() {
		await Promise.all(this.#sessions.map((session) => session.close()));
	}
}
