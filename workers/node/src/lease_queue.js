// A queue whose messages are leased: work outside of the database.

import { Queue } from './queue.js';
import { NotConnected } from './session.js';

const MOST = 1000; // messages of one delay_lease()

export class LeaseQueue extends Queue {
	#session;
	#reports;
	#keeper = null; // timer that looks after leases
	#extending = false;
	#problem = null; // why leases could not be extended the last time

	constructor(worker, name, options, session, reports) {
		super(worker, name, options);
		this.#session = session;
		this.#reports = reports;
		session.on('connected', () => this.#keep());
	}

	/** How long before the end of a lease its handler is told to stop. */
	get #margin() { return Math.min(this.leaseLength / 10, 5000); }

	canAsk() { return this.#session.connected; }

	async fetch() {
		// of many places only half at once: while these are at work, the next are on their way
		const asked = Math.min(Math.min(this.free, Math.ceil(this.concurrency / 2)) * this.batch, MOST);
		const sent = performance.now(); // the lease does not begin before
		const length = this.leaseLength;
		const rows = await this.#session.query('SELECT * FROM delay_lease($1, $2, $3::interval, receiver => $4)', [this.name, asked, `${length} ms`, this.worker.name]);
		const messages = rows.map((row) => {
			const message = this.messageOf(row);
			return { message, lease: { id: message.id, token: row.token, queue: this.name, ends: sent + length, lost: false } };
		});
		// this process may have been frozen meanwhile: somebody else may have them by now
		const late = performance.now() >= sent + length - this.#margin;
		for (let i = 0; i < messages.length; i += this.batch) {
			const leased = messages.slice(i, i + this.batch);
			const work = this.take(leased.map(({ message }) => message));
			work.leases = leased.map(({ lease }) => lease);
			if (this.stopping || late) this.#report(work, leased.map(() => ({ kind: 'release' })));
			else this.#begin(work);
		}
		return rows.length === asked;
	}

	async #begin(work) {
		this.#keeper ??= setInterval(() => this.#keep(), Math.min(Math.max(this.leaseLength / 20, 5), 1000));
		this.#report(work, await this.handle(work));
	}

	// Tells the server what became of the messages, and then leaves their place.
	#report(work, reports) {
		let open = reports.length;
		reports.forEach((report, i) => {
			const message = work.messages[i];
			const lease = work.leases[i];
			const answer = (taken) => {
				if (taken) this.ended(message, report, work);
				else this.#lose(message, lease, new Error(taken === null ? 'it could not be reported before the lease had ended' : 'the server has refused its report'));
				if (--open === 0) this.#leave(work);
			};
			if (lease.refused) answer(false);
			else this.#reports.send(lease, report, answer);
		});
	}

	#leave(work) {
		this.leave(work);
		if (this.works.size) return;
		clearInterval(this.#keeper);
		this.#keeper = null;
	}

	#lose(message, lease, error) {
		if (lease.lost) return;
		lease.lost = true;
		this.lost(message, error);
	}

	// Extends leases a third of their length after they have begun, and tells handlers to stop
	// before a lease ends that could not be extended.
	async #keep() {
		const now = performance.now();
		const length = this.leaseLength;
		const due = [];
		for (const work of this.works) {
			if (!work.running || work.told === 'lost') continue;
			const first = Math.min(...work.leases.map((lease) => lease.ends));
			if (now >= first - this.#margin) this.#stop(work, new Error('its lease could not be extended in time'));
			else if (now >= first - length * 2 / 3) due.push(work);
		}
		if (!due.length || this.#extending || !this.#session.connected) return;
		this.#extending = true;
		const { refused, error } = await this.#reports.extend(due.flatMap((work) => work.leases), length);
		this.#extending = false;
		for (const lease of refused) lease.refused = true;
		for (const work of due) {
			const gone = work.leases.filter((lease) => lease.refused);
			if (gone.length) this.#stop(work, new Error('another receiver has it, or it was cancelled'), gone);
		}
		if (error && !(error instanceof NotConnected) && this.#problem !== error.message) this.worker.log('warning', `queue ${this.name}: leases cannot be extended: ${error.message}`);
		this.#problem = error?.message ?? null;
	}

	#stop(work, error, leases = work.leases) {
		if (!work.running) return; // its report says more
		work.messages.forEach((message, i) => { if (leases.includes(work.leases[i])) this.#lose(message, work.leases[i], error); });
		work.tellToStop('lost', error.message);
	}

	async close() {
		clearInterval(this.#keeper);
	}
}
