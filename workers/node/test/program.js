// A program with a worker, for the tests: its argument says which queues it has.  The payload of a
// message says what its handler does.  Each handler writes a line at its start and one at its end,
// with one write() each: what is in the file has happened, whatever becomes of this program.
//
//   { sleep: ms }     work that stops when it is told to
//   { ignore: ms }    work that does not
//   { hold: path }    work that lasts until the file is there, and does not stop; with obey it does
//   { never: true }   work that never ends, and does not stop
//   { block: path }   work that keeps the event loop until the file is there
//   { throw, giveUp, retry, reason, result, odd, exit, crash, insert, sql, wait }

import fs from 'node:fs';
import crypto from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { GiveUp, Retry, Worker } from '../src/index.js';

const options = JSON.parse(process.argv[2]);
const file = fs.openSync(options.file, 'a');
const now = () => performance.timeOrigin + performance.now();
const write = (what, values) => fs.writeSync(file, `${JSON.stringify({ what, at: now(), pid: process.pid, ...values })}\n`);
const ODD = { function: () => () => {}, bigint: () => 7n, nul: () => 'a\0b', long: () => 'x'.repeat(2_000_000), cycle() { const a = {}; a.a = a; return a; }, surrogate: () => '\ud800', date: () => new Date(0) };

async function work(payload, message, context) {
	const { signal, client } = context;
	if (payload.insert !== undefined) await client.query('INSERT INTO node_ledger VALUES ($1, $2)', [message.id, payload.insert]);
	if (payload.sql) await client.query(payload.sql);
	if (payload.sleep) await sleep(payload.sleep, null, { signal }).catch(() => { throw signal.reason; });
	if (payload.ignore) await sleep(payload.ignore);
	while (payload.hold && !fs.existsSync(payload.hold)) {
		if (payload.obey) signal.throwIfAborted();
		await sleep(10);
	}
	while (payload.block && !fs.existsSync(payload.block)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
	if (payload.never) await new Promise(() => { setInterval(() => {}, 1000); });
	if (payload.exit !== undefined) process.exit(payload.exit);
	if (payload.crash) { setImmediate(() => { throw new Error('crash'); }); await sleep(1000); }
	if (payload.giveUp) throw new GiveUp(payload.giveUp);
	if (payload.retry) throw new Retry(payload.retry, payload.reason);
	if (payload.throw) throw payload.text ?? new Error(payload.throw);
	if (payload.throwNul) throw new Error(`a\0b${'x'.repeat(20_000)}`);
	if (payload.throwUndefined) throw undefined;
	if (payload.odd) return ODD[payload.odd]();
	return payload.result;
}

async function handle(message, context) {
	if (Array.isArray(message)) {
		write('batch', { n: message.length });
		if (message[0].payload.whole) return work(message[0].payload, message[0], context);
		return Promise.all(message.map((m) => handle(m, context).catch((error) => error)));
	}
	const { id, queue, key, attempt, payload, due, traceparent, headers } = message;
	const given = payload ?? {};
	write('start', { queue, id, key, attempt, traceparent, headers, due: +due, sum: crypto.createHash('md5').update(JSON.stringify(payload)).digest('hex') });
	let how = 'returned';
	try {
		return await work(given, message, context);
	} catch (error) {
		how = error?.why ? `told: ${error.why}` : 'thrown';
		throw error;
	} finally {
		write('end', { queue, id, attempt, how });
	}
}

const queues = Object.fromEntries(Object.entries(options.queues).map(([name, queue]) => [name, { ...queue, handle }]));
const around = options.around && (async (message, next) => {
	write('around', { id: message.id });
	if (message.payload.around) throw new Error(message.payload.around);
	return next();
});
const worker = new Worker({ connection: options.connection, waitConnection: options.waitConnection, queues, around, name: options.name, ...(options.badLog && { log() { throw new Error('no log'); } }) });
for (const event of ['done', 'failed', 'released', 'lost'])
	worker.on(event, (message, error) => write(event, { queue: message.queue, id: message.id, attempt: message.attempt, error: error === undefined ? undefined : String(error?.message ?? error) }));
for (const event of ['connected', 'disconnected', 'problem']) worker.on(event, (name, error) => write(event, { name, error: error && error.message }));
if (options.badListener) for (const event of ['started', 'done']) worker.on(event, () => { throw new Error('bad listener'); });
await worker.run({ within: options.within });
write('ended');
if (options.open) setInterval(() => {}, 1000); // an application that has forgotten something
