// Options are checked when the worker is made, not when the first message comes.

const WORKER = ['connection', 'waitConnection', 'queues', 'log', 'around', 'name'];
const QUEUE = ['concurrency', 'lease', 'batch', 'transaction', 'timeout', 'handle'];
const MOST_QUEUES = 32; // of one delay_await_any()
const MOST_MESSAGES = 1000; // of one delay_lease() or delay_receive()

export function checkOptions(options) {
	const fail = (text) => { throw new TypeError(`delay-wheel: ${text}`); };
	const known = (object, names, where) => {
		for (const name of Object.keys(object)) if (!names.includes(name)) fail(`there is no option "${name}"${where}`);
	};
	const whole = (value, what, most) => {
		if (value !== undefined && !(Number.isInteger(value) && value >= 1 && value <= most)) fail(`${what} must be a whole number from 1 to ${most}`);
	};
	if (options === null || typeof options !== 'object') fail('options are missing');
	known(options, WORKER, '');
	const { queues, around, log } = options;
	if (queues === null || typeof queues !== 'object' || !Object.keys(queues).length) fail('"queues" must have a queue');
	if (Object.keys(queues).length > MOST_QUEUES) fail(`a worker has at most ${MOST_QUEUES} queues`);
	if (around != null && typeof around !== 'function') fail('"around" must be a function');
	if (log != null && log !== false && typeof log !== 'function') fail('"log" must be a function, or false');
	for (const [name, queue] of Object.entries(queues)) {
		const where = ` of queue "${name}"`;
		if (queue === null || typeof queue !== 'object' || typeof queue.handle !== 'function') fail(`"handle"${where} must be a function`);
		known(queue, QUEUE, where);
		whole(queue.concurrency, `"concurrency"${where}`, 100_000);
		whole(queue.batch, `"batch"${where}`, MOST_MESSAGES);
		for (const option of ['lease', 'timeout'])
			if (queue[option] !== undefined && typeof queue[option] !== 'string') fail(`"${option}"${where} must be an interval such as '30 s'`);
		if (queue.transaction && queue.lease !== undefined) fail(`"lease"${where} is not for a queue with "transaction"`);
	}
}
