// Reports: what became of messages, sent over the work session.
//
// Those that come at about the same time are one statement for each kind.  A report that cannot be
// sent, or fails, is sent again until its lease has ended.  A statement waits for the locks of
// others only for a moment, since all extensions of leases come after it on the same session.

import { NotConnected } from './session.js';

const LOCK_TIMEOUT = '500ms';
const LOCK_TIMEOUT_ALONE = '20ms'; // of reports that have failed before
const PAUSES = [50, 100, 200, 400, 800, 1000]; // ms, before a failed report is sent again
const MOST = 1000; // reports of one statement

// lock_timeout for this statement only: the session may be one of a pooler
const withLockTimeout = (n, select) => `WITH s AS MATERIALIZED (SELECT set_config('lock_timeout', $${n}, true)) ${select}`;

const STATEMENTS = {
	done: withLockTimeout(3, 'SELECT unnest(delay_done_all($1::bigint[], $2::bigint[])) AS id, true AS ok FROM s'),
	result: withLockTimeout(4, `SELECT w.id, delay_done(w.id, w.token, w.result) AS ok
		FROM s, unnest($1::bigint[], $2::bigint[], $3::jsonb[]) AS w(id, token, result)`),
	fail: withLockTimeout(6, `SELECT w.id, delay_fail(w.id, w.token, w.error, w.retry_in, w.give_up) AS ok
		FROM s, unnest($1::bigint[], $2::bigint[], $3::text[], $4::interval[], $5::boolean[]) AS w(id, token, error, retry_in, give_up)`),
	release: withLockTimeout(3, `SELECT w.id, delay_release(w.id, w.token) AS ok
		FROM s, unnest($1::bigint[], $2::bigint[]) AS w(id, token)`),
	extend: withLockTimeout(4, `SELECT w.id, delay_extend(w.id, w.token, $3::interval) AS ok
		FROM s, unnest($1::bigint[], $2::bigint[]) AS w(id, token)`),
};

const VALUES = {
	done: () => [],
	result: (reports) => [reports.map((r) => r.result)],
	fail: (reports) => [reports.map((r) => r.error), reports.map((r) => r.retryIn), reports.map((r) => r.giveUp)],
	release: () => [],
};

export class Reports {
	#session;
	#log;
	#waiting = []; // reports to be sent
	#failing = []; // reports to be sent, each of which has failed before
	#sending = false;
	#timers = new Set();
	#over = false;

	constructor(session, log) {
		this.#session = session;
		this.#log = log;
		session.on('connected', () => this.#hurry());
	}

	/**
	 * Sends what became of a leased message.  kind: 'done' (with result, JSON, or null), 'fail'
	 * (error, retryIn, giveUp), 'release'.  Calls answer(true) when the server has taken it,
	 * answer(false) if the lease was no longer ours, answer(null) if it could not be sent before the
	 * lease had ended.  What the server does not like is left out of the caller's report, too.
	 */
	send(lease, report, answer) {
		const { result = null, error = null, retryIn = null, giveUp = false } = report;
		this.#add(Object.assign(report, { lease, result, error, retryIn, giveUp, answer, failures: 0, mayHaveArrived: false }));
	}

	/** Extends leases.  Returns those that are ours no longer, and the error of those that are in doubt. */
	async extend(leases, length) {
		try {
			return { refused: await this.#extend(leases, length, LOCK_TIMEOUT), error: null };
		} catch (error) {
			if (error instanceof NotConnected || leases.length === 1) return { refused: [], error };
		}
		// one of them fails, or is locked: it must not keep the others
		const refused = [];
		let error = null;
		for (const lease of leases) {
			try {
				refused.push(...await this.#extend([lease], length, LOCK_TIMEOUT_ALONE));
			} catch (reason) {
				error = reason;
			}
		}
		return { refused, error };
	}

	async #extend(leases, length, lockTimeout) {
		const sent = performance.now();
		const rows = await this.#session.query(STATEMENTS.extend, [leases.map((l) => l.id), leases.map((l) => l.token), `${length} ms`, lockTimeout]);
		const ours = new Set(rows.filter((row) => row.ok).map((row) => row.id));
		for (const lease of leases) if (ours.has(lease.id)) lease.ends = sent + length;
		return leases.filter((lease) => !ours.has(lease.id));
	}

	#add(report) {
		if (report.failures) this.#failing.push(report);
		else this.#waiting.push(report);
		if (!this.#sending) {
			this.#sending = true;
			setImmediate(() => this.#sendAll()); // with those that end in this turn of the loop
		}
	}

	// Those that have failed before come last, one by one.
	async #sendAll() {
		while (this.#waiting.length || this.#failing.length) {
			const all = this.#waiting.splice(0);
			if (!all.length) await this.#sendSome([this.#failing.shift()], LOCK_TIMEOUT_ALONE);
			for (const kind of ['done', 'result', 'fail', 'release']) {
				const some = all.filter((r) => kindOf(r) === kind);
				for (let i = 0; i < some.length; i += MOST) await this.#sendSome(some.slice(i, i + MOST), LOCK_TIMEOUT);
			}
		}
		this.#sending = false;
	}

	// Sends reports of one kind by one statement.  If that fails, none has arrived, and each is sent
	// by its own: the error may be that of one of them.
	async #sendSome(reports, lockTimeout) {
		const kind = kindOf(reports[0]);
		const values = [reports.map((r) => r.lease.id), reports.map((r) => r.lease.token), ...VALUES[kind](reports), lockTimeout];
		let rows;
		try {
			rows = await this.#session.query(STATEMENTS[kind], values);
		} catch (error) {
			if (reports.length > 1 && !(error instanceof NotConnected)) for (const report of reports) await this.#sendSome([report], LOCK_TIMEOUT_ALONE);
			else for (const report of reports) this.#again(report, error);
			return;
		}
		const taken = new Set();
		for (const row of rows) if (row.ok) taken.add(row.id);
		for (const report of reports) report.answer(taken.has(report.lease.id) || hasArrivedBefore(report));
	}

	// A report has failed, alone or for want of a connection.
	#again(report, error) {
		const { lease } = report;
		// the result, or the delay, may be what the server does not like
		if (error.code?.startsWith('22') || error.code === '54000') {
			if (report.result !== null || report.retryIn !== null) {
				this.#log('warning', `message ${lease.id} of ${lease.queue}: ${report.result !== null ? 'its result' : 'its delay'} is left out: ${error.message}`);
				report.result = report.retryIn = null;
				return this.#add(report);
			}
		}
		const left = lease.ends - performance.now();
		if (left <= 0 || this.#over) return report.answer(null);
		const away = error instanceof NotConnected;
		if (away) report.mayHaveArrived ||= error.wasSent;
		else {
			if (!report.failures) this.#log('warning', `message ${lease.id} of ${lease.queue}: its report fails, and is sent again: ${error.message}`);
			report.failures++;
		}
		// without a connection the next one is waited for, see #hurry()
		const pause = away ? left : Math.min(left, PAUSES[Math.min(report.failures, PAUSES.length) - 1]);
		const entry = { report, timer: setTimeout(() => this.#retry(entry), pause) };
		this.#timers.add(entry);
	}

	#retry(entry) {
		clearTimeout(entry.timer);
		if (this.#timers.delete(entry)) this.#add(entry.report);
	}

	// A new connection: all that has been waiting for it goes together.
	#hurry() {
		for (const entry of this.#timers) this.#retry(entry);
	}

	/** Gives up what is not answered: the worker ends. */
	giveUp() {
		this.#over = true;
		for (const entry of this.#timers) {
			clearTimeout(entry.timer);
			entry.report.answer(null);
		}
		this.#timers.clear();
		for (const report of [...this.#waiting.splice(0), ...this.#failing.splice(0)]) report.answer(null);
	}
}

function kindOf(report) {
	return report.kind === 'done' && report.result !== null ? 'result' : report.kind;
}

// Before the lease has ended, only a report of our own, whose answer was lost with its connection,
// makes the next one come too late.
function hasArrivedBefore(report) {
	return report.mayHaveArrived && performance.now() < report.lease.ends;
}
