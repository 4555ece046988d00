// What handlers throw to tell what comes next, and what they find as the reason of their signal.

/** The attempt has failed, and the next one comes after this delay ('5 minutes', or milliseconds). */
export class Retry extends Error {
	constructor(delay, reason = 'tried again later') {
		super(String(reason instanceof Error ? reason.message : reason));
		this.name = 'Retry';
		this.delay = typeof delay === 'number' ? `${delay} ms` : String(delay);
	}
}

/** The message has failed, and is not tried again. */
export class GiveUp extends Error {
	constructor(reason = 'given up') {
		super(String(reason instanceof Error ? reason.message : reason));
		this.name = 'GiveUp';
	}
}

/** Why a handler is told to stop: reason of its signal. */
export class Stopped extends Error {
	constructor(why, text) {
		super(text);
		this.name = 'Stopped';
		this.why = why; // 'lost', 'stop' or 'timeout'
	}
}

/** The text of whatever was thrown, as delay_fail() takes it. */
export function textOf(error) {
	const text = error instanceof Error ? error.message || error.name : String(error);
	return text.slice(0, 16384).replaceAll('\0', '\ufffd');
}

/**
 * Where an unexpected error was thrown, as lines after one of the log: of what a handler throws on
 * purpose, and of what is no error, nothing.  Of an error itself the stack only, since libraries
 * keep secrets in errors.
 */
export function stackOf(error) {
	if (!(error instanceof Error) || error instanceof Retry || error instanceof GiveUp || error instanceof Stopped) return '';
	let text = '';
	for (let e = error, depth = 0; e instanceof Error && depth < 5; e = e.cause, depth++) text += `\n${e === error ? '' : 'caused by '}${e.stack}`;
	return text.slice(0, 16384);
}
