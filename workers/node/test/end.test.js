// The end of a worker (B60 to B66), drain (B70, B71).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { send, Worker } from '../src/index.js';
import { asReceiver, isGone, newGate, newQueue, one, pool, Program, Proxy, query, row, server, sleep, startProgram, until } from './harness.js';

// For the last test: it goes on for 5 s beside the others.
const forgetful = await startProgram({ [await newQueue()]: {} }, { open: true });
const signalled = performance.now();
forgetful.signal('SIGTERM');
forgetful.exited.then(() => { forgetful.after = performance.now() - signalled; });

test('B60, B61: SIGTERM: what runs may end, nothing new begins', async () => {
	for (const signal of ['SIGTERM', 'SIGINT']) {
		const queue = await newQueue();
		const gates = [newGate(), newGate()];
		const ids = [];
		for (let i = 0; i < 30; i++) ids.push(await send(pool, queue, { hold: gates[i % 2].path }));
		const program = new Program({ queues: { [queue]: { concurrency: 4, lease: '30 s' } } });
		await program.until('start', 4);
		program.signal(signal);
		await until('it has heard', () => program.log.includes(signal));
		gates[0].open(); // two places are free for a while
		await program.until('done', 2);
		await sleep(50);
		gates[1].open();
		assert.equal(await program.exited, 0);
		assert.equal(program.all('start').length, 4);
		assert.equal(program.all('done').length, 4);
		assert.equal(program.all('released').length, 0, 'none is asked for');
		assert.equal(program.all('ended').length, 1, 'run() has returned');
		const left = await query('SELECT attempts, leased_until FROM delay_wheel.tasks WHERE id = ANY ($1::bigint[])', [ids]);
		assert.equal(left.length, 26);
		assert.deepEqual(left.filter((r) => r.attempts || r.leased_until), []);
	}
});

test('B60: the wait is ended, and its session says that it ends', async () => {
	const proxy = await new Proxy().start();
	const program = await startProgram({ [await newQueue()]: {} }, { waitConnection: proxy.connection });
	assert.equal(await program.end(), 0);
	assert.equal(proxy.lastSent, 'X\0\0\0\x04'); // Terminate
});

test('B60: messages whose lease is being answered are released', async () => {
	const queue = await newQueue();
	const proxy = await new Proxy().start();
	const program = await startProgram({ [queue]: { concurrency: 4, lease: '30 s' } }, { connection: proxy.connection, waitConnection: asReceiver });
	proxy.holdAnswers();
	const ids = await Promise.all([1, 2, 3].map(() => send(pool, queue, { sleep: 100_000 })));
	await until('they are leased', async () => await one('SELECT count(*)::int FROM delay_wheel.tasks WHERE id = ANY ($1::bigint[]) AND leased_until IS NOT NULL', [ids]) > 0);
	program.signal('SIGTERM');
	await until('it has heard', () => program.log.includes('SIGTERM'));
	proxy.passOn();
	assert.equal(await program.exited, 0);
	assert.equal(program.all('start').length, 0, 'the signal came before the answer');
	assert.ok(program.all('released').length > 0);
	for (const id of ids) {
		const { attempts, leased_until } = await row(id);
		assert.deepEqual([attempts, leased_until], [0, null]);
	}
});

test('B62, B63, B35: the limit passes', async () => {
	const queue = await newQueue();
	const program = await startProgram({ [queue]: { lease: '3 s' }, [await newQueue()]: { transaction: true } }, { within: 300 });
	const ledger = Object.keys(program.options.queues)[1];
	const obeys = await send(pool, queue, { sleep: 100_000 });
	const never = await send(pool, queue, { never: true });
	const inside = await send(pool, ledger, { sleep: 100_000 });
	for (const id of [obeys, never, inside]) await program.until('start', 1, id);
	program.signal('SIGTERM');
	await program.until('released', 1, obeys);
	await until('it is due again', async () => (await row(obeys)).leased_until === null);
	assert.equal((await row(obeys)).attempts, 0);
	assert.equal((await row(inside)).attempts, 0);
	assert.equal(program.all('end', obeys)[0].how, 'told: stop');
	// nobody gets it while the handler is at work, until the process ends
	assert.notEqual((await row(never)).leased_until, null);
	assert.equal(await program.exited, 0);
	assert.match(program.log, new RegExp(`still at work when the worker ends: messages ${never}`));
	const other = new Program({ queues: { [queue]: {}, [ledger]: { transaction: true } } });
	const [start] = await other.until('start', 1, never);
	assert.equal(start.attempt, 2);
	other.signal('SIGKILL');
	await other.exited;
});

test('B64: a second signal ends it now', async () => {
	const queue = await newQueue();
	const program = await startProgram({ [queue]: {} });
	await program.until('start', 1, await send(pool, queue, { sleep: 100_000 }));
	program.signal('SIGTERM');
	await until('it has heard', () => program.log.includes('SIGTERM'));
	program.signal('SIGINT');
	assert.equal(await program.exited, 130);
});

test('B65: SIGTERM while the server is away', async () => {
	const queue = await newQueue();
	const proxy = await new Proxy().start();
	const program = await startProgram({ [queue]: { lease: '30 s' } }, { connection: proxy.connection, within: 60_000 });
	const gate = newGate();
	const id = await send(pool, queue, { hold: gate.path });
	await program.until('start', 1, id);
	await proxy.cut();
	program.signal('SIGTERM');
	gate.open();
	await program.until('end', 1, id);
	await proxy.mend();
	assert.equal(await program.exited, 0);
	assert.ok(await isGone(id));
	// and never comes back
	const away = new Program({ queues: { [queue]: {} }, connection: { ...asReceiver, host: '127.0.0.1', port: 1 } });
	await until('it has tried', () => /ECONNREFUSED/.test(away.log));
	assert.equal(await away.end(), 0);
});

test('B65: the limit passes while a report is on its way', async () => {
	const queue = await newQueue();
	const proxy = await new Proxy().start();
	const gate = newGate();
	const program = await startProgram({ [queue]: { lease: '60 s' } }, { connection: proxy.connection, within: 500 });
	const id = await send(pool, queue, { hold: gate.path });
	await program.until('start', 1, id);
	proxy.silent = true;
	gate.open();
	await program.until('end', 1, id);
	assert.equal(await program.end(), 0);
	const told = program.lines.map((line) => line.what);
	assert.ok(told.includes('lost') && told.indexOf('lost') < told.indexOf('ended'), `${told}`);
	await query('SELECT delay_cancel($1, stop_running => true)', [id]);
});

const silent = { connection: asReceiver, log: false };

test('B66: stop() at any time', async () => {
	const queue = await newQueue();
	const worker = () => new Worker({ ...silent, queues: { [queue]: { handle: async () => {} } } });
	const before = worker();
	await before.stop();
	await before.run();
	const during = worker();
	const run = during.run();
	await Promise.all([during.stop(), during.stop({ within: 0 }), run]);
	await assert.rejects(new Worker({ ...silent, queues: { [queue]: { lease: 'soon', handle: async () => {} } } }).run(), /queue .*soon/);
});

test('B70, B71: drain', async () => {
	const queue = await newQueue();
	const results = [];
	const handle = async ({ payload }) => {
		results.push(payload.n);
		if (payload.n === 2) throw new Error('two');
		if (payload.n === 3) await send(pool, queue, { n: 30 });
	};
	const client = { ...server, user: undefined };
	for (const n of [1, 2, 3]) await send(pool, queue, { n });
	const later = await send(pool, queue, { n: 4 }, { delay: '1 hour' });
	const worker = new Worker({ connection: client, log: false, queues: { [queue]: { handle } } });
	assert.equal(await worker.drain(), 4);
	assert.deepEqual(results.sort((a, b) => a - b), [1, 2, 3, 30]);
	assert.equal(process.listenerCount('SIGTERM'), 0);
	assert.ok(await row(later));
	// one after the other: each sends the next
	await send(pool, queue, { chain: 5 });
	const chain = async ({ payload }) => { if (payload.chain) await send(pool, queue, { chain: payload.chain - 1 }); };
	assert.equal(await new Worker({ connection: client, log: false, queues: { [queue]: { concurrency: 1, handle: chain } } }).drain(), 6);
	// hundred at once: nothing that was committed before is left
	for (let i = 0; i < 3; i++) {
		await Promise.all(Array.from({ length: 100 }, () => send(pool, queue, { n: 5 })));
		assert.equal(await new Worker({ connection: client, log: false, queues: { [queue]: { handle } } }).drain(), 100);
	}
	await query('SELECT delay_cancel($1)', [later]);
});

test('B61: an application that has forgotten something is ended', async () => {
	assert.equal(await forgetful.exited, 0);
	assert.equal(forgetful.all('ended').length, 1, 'run() has returned');
	assert.ok(forgetful.after > 4000, `after ${forgetful.after} ms`);
});
