// Places and waiting (B20 to B23).

import assert from 'node:assert/strict';
import fs from 'node:fs';
import { test } from 'node:test';
import { send } from '../src/index.js';
import { asReceiver, isGone, long, mostAtOnce, newGate, newQueue, one, pool, Program, Proxy, query, server, sleep, startProgram, until } from './harness.js';

// For B22.  Its start has been a while ago then, and node's timers of that time are over.
const idleQueues = [await newQueue(), await newQueue(), await newQueue()];
const idle = await startProgram(Object.fromEntries(idleQueues.map((queue) => [queue, {}])), { connection: { ...asReceiver, application_name: 'node idle' } });

test('B20: never more handlers than places, and no more messages', async () => {
	const queue = await newQueue();
	const ids = await Promise.all(Array.from({ length: 60 }, () => send(pool, queue, { sleep: 30 })));
	const name = 'places';
	const program = new Program({ queues: { [queue]: { concurrency: 7 } }, name });
	let leased = 0;
	await until('all are done', async () => {
		leased = Math.max(leased, await one('SELECT count(*)::int FROM delay_wheel.tasks WHERE receiver = $1 AND leased_until IS NOT NULL', [name]));
		return program.all('done').length === 60;
	});
	assert.equal(mostAtOnce(program.lines), 7);
	assert.ok(leased <= 7, `${leased} leased`);
	assert.equal(program.all('start').length, 60);
	assert.ok(await isGone(...ids));
	assert.equal(await program.end(), 0);
});

for (const batch of [undefined, 10]) {
	test(`B20: a worker without a free place does not take the wake-up of another${batch ? ', with batches' : ''}`, async () => {
		const queue = await newQueue();
		const gate = newGate();
		const busy = await startProgram({ [queue]: { concurrency: 1, batch } });
		await busy.until('start', 1, await send(pool, queue, { hold: gate.path }));
		await sleep(200); // it would wait by now
		assert.equal(await one('SELECT awaiting FROM delay_wheel.queues WHERE name = $1', [queue]), 0);
		const other = await startProgram({ [queue]: { concurrency: 1 } });
		await other.until('start', 1, await send(pool, queue, {}));
		gate.open();
		for (const program of [busy, other]) assert.equal(await program.end(), 0);
	});
}

test('B21: two queues, one of which is full now and then', async () => {
	const [a, b] = [await newQueue(), await newQueue()];
	const program = await startProgram({ [a]: { concurrency: 1 }, [b]: { concurrency: 2 } });
	for (let round = 0; round < 3; round++) {
		const gate = newGate();
		const first = await send(pool, a, { hold: gate.path });
		await program.until('start', 1, first);
		// a is full: b is waited for alone
		for (let i = 0; i < 3; i++) await program.until('done', 1, await send(pool, b, {}));
		await until('b is waited for', async () => await one('SELECT awaiting FROM delay_wheel.queues WHERE name = $1', [b]) === 1);
		gate.open();
		await program.until('done', 1, first);
		// a is free and empty, and b is waited for: that wait is ended, and begins again with both
		await program.waits(a, b);
		await program.until('done', 1, await send(pool, a, {}));
	}
	assert.equal(program.all('connected').length, 2, `no connection was lost for it: ${program.log}`);
	assert.equal(await program.end(), 0);
});

test('B21: a wait that is ended while it is on its way', async () => {
	const [a, b] = [await newQueue(), await newQueue()];
	const proxy = await new Proxy().start();
	const program = await startProgram({ [a]: { concurrency: 1 }, [b]: {} }, { waitConnection: proxy.connection });
	proxy.delay = 100;
	for (let round = 0; round < 3; round++) {
		const gate = newGate();
		await program.until('start', 1, await send(pool, a, { hold: gate.path }));
		await program.until('done', 1, await send(pool, b, {}));
		gate.open(); // the wait for b alone has not begun
		await program.waits(a, b);
		await program.until('done', 1, await send(pool, a, {}));
	}
	assert.equal(program.all('connected').length, 2, `no connection was lost for it: ${program.log}`);
	assert.equal(await program.end(), 0);
});

test('B21: a role that may not end the wait', async () => {
	const [a, b] = [await newQueue(), await newQueue()];
	const program = await startProgram({ [a]: { concurrency: 1 }, [b]: {} }, { waitConnection: server });
	const gate = newGate();
	await program.until('start', 1, await send(pool, a, { hold: gate.path }));
	await program.until('done', 1, await send(pool, b, {}));
	await until('b is waited for', async () => await one('SELECT awaiting FROM delay_wheel.queues WHERE name = $1', [b]) === 1);
	gate.open();
	await program.waits(a, b);
	await program.until('done', 1, await send(pool, a, {}));
	assert.equal(program.all('connected').length, 3, 'its session was closed, and another one opened');
	assert.match(program.log, /a wait is ended by closing its session: permission denied/);
	assert.equal(await program.end(), 0);
});

test('B23: four workers wait for the same messages', async () => {
	const queue = await newQueue();
	const programs = await Promise.all([1, 2, 3, 4].map(() => startProgram({ [queue]: { concurrency: 2 } })));
	const gate = newGate();
	const ids = await Promise.all(Array.from({ length: 8 }, () => send(pool, queue, { hold: gate.path })));
	const all = (what) => programs.flatMap((program) => program.all(what));
	await until('each has its share', () => all('start').length === 8);
	gate.open();
	await until('all are done', () => isGone(...ids));
	for (const program of programs) assert.equal(program.all('start').length, 2);
	for (const program of programs) assert.equal(await program.end(), 0);
});

test('B22: idle: no statement, no wake-up', async () => {
	const program = idle;
	const statements = () => query("SELECT pid, query, state_change FROM pg_stat_activity WHERE application_name = 'node idle' ORDER BY pid");
	const switches = () => Number(fs.readFileSync(`/proc/${program.pid}/status`, 'utf8').match(/^voluntary_ctxt_switches:\s*(\d+)/m)[1]);
	const before = await statements();
	// node itself wakes up now and then, for its memory
	let quiet = false;
	for (let i = 0; i < 5 && !quiet; i++) {
		const asleep = switches();
		await sleep(long ? 60_000 : 5000);
		quiet = switches() === asleep;
	}
	assert.ok(quiet, 'a time without a wake-up');
	assert.deepEqual(await statements(), before);
	assert.equal(await program.end(), 0);
});
