// What the log says of sessions that are lost, or cannot connect: a server that goes away takes all
// sessions of a worker along, and each tries again twice a second.  An outage begins when the first
// session has no connection, and ends when all have one: each kind of error of it is one line,
// whichever session meets it, and its end is another one.

const SHORT = 1000; // ms: a session that is lost sooner after the end goes on with the same outage

export class Outage {
	#log;
	#away = new Map(); // sessions without a connection: { since, error }
	#over = -Infinity; // when the last outage ended
	#told = new Set(); // texts
	#unsettled = false; // something was told since the last end

	constructor(log) {
		this.#log = log;
	}

	/** The session has no connection from now on. */
	begins(session) {
		if (this.#away.has(session)) return;
		const since = performance.now();
		if (!this.#away.size && since - this.#over > SHORT) this.#told.clear();
		this.#away.set(session, { since, error: null });
	}

	tell(session, error, text) {
		const entry = this.#away.get(session);
		if (entry) entry.error = error;
		if (this.#told.has(text)) return;
		this.#told.add(text);
		this.#unsettled = true;
		this.#log('warning', `${session.name} session: ${text}`);
	}

	/** The session has a connection, or needs none any more: without a target. */
	ends(session, target = null) {
		if (!this.#away.delete(session) || this.#away.size) return;
		this.#over = performance.now();
		if (target === null || !this.#unsettled) return;
		this.#unsettled = false;
		this.#log('info', `connected (${target})`);
	}

	/** The error of a session that has had no connection for so many ms, if there is one. */
	errorAfter(ms) {
		for (const { since, error } of this.#away.values())
			if (performance.now() - since >= ms) return error ?? new Error('the server does not answer');
		return null;
	}
}
