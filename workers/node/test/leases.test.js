// Leases (B30 to B39).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { send } from '../src/index.js';
import { asReceiver, isGone, mostAtOnce, newGate, newQueue, one, overlaps, patiently, pool, Program, Proxy, query, row, startProgram, until } from './harness.js';

test('B30: work that is longer than its lease is done by one of several', (t) => patiently(t, [600, 2000, 10_000], async (lease) => {
	const queue = await newQueue();
	const programs = await Promise.all([1, 2].map(() => startProgram({ [queue]: { concurrency: 2, lease: `${lease} ms` } })));
	const ids = await Promise.all(Array.from({ length: 4 }, () => send(pool, queue, { sleep: 4 * lease })));
	const all = (what) => programs.flatMap((program) => program.all(what));
	try {
		await until('all are done', () => isGone(...ids));
		assert.deepEqual(all('start').map((line) => line.attempt), Array(4).fill(1));
	} finally {
		for (const program of programs) assert.equal(await program.end(), 0);
	}
}));

test('B31, B33, B34: a lease that cannot be extended: told to stop before it ends', (t) => patiently(t, [1500, 5000, 20_000], async (lease) => {
	const queue = await newQueue();
	const proxy = await new Proxy().start();
	const cut = await startProgram({ [queue]: { concurrency: 2, lease: `${lease} ms` } }, { connection: proxy.connection });
	const id = await send(pool, queue, { sleep: 100_000 });
	await cut.until('start', 1, id);
	const other = await startProgram({ [queue]: { lease: `${lease} ms` } });
	await proxy.cut();
	const [end] = await cut.until('end', 1, id);
	assert.equal(end.how, 'told: lost');
	await cut.until('lost', 1, id);
	const [start] = await other.until('start', 1, id);
	await proxy.mend();
	await query('SELECT delay_cancel($1, stop_running => true)', [id]);
	for (const program of [cut, other]) assert.equal(await program.end(), 0);
	assert.equal(start.attempt, 2);
	assert.ok(start.at >= end.at, `begun elsewhere ${start.at - end.at} ms after its end`);
}));

test('B32: cancelled while it is at work', async () => {
	const queue = await newQueue();
	const program = await startProgram({ [queue]: { lease: '3 s' } });
	const id = await send(pool, queue, { sleep: 100_000 });
	await program.until('start', 1, id);
	await query('SELECT delay_cancel($1, stop_running => true)', [id]);
	const [end] = await program.until('end', 1, id);
	assert.equal(end.how, 'told: lost');
	const [lost] = await program.until('lost', 1, id);
	assert.match(lost.error, /cancelled/); // told at the next extension, not at the end of its lease
	assert.equal(await program.end(), 0);
});

test('B32: one of a batch is cancelled', async () => {
	const queue = await newQueue();
	const gate = newGate();
	const ids = [];
	for (let i = 0; i < 3; i++) ids.push(await send(pool, queue, { hold: gate.path }));
	const program = new Program({ queues: { [queue]: { lease: '3 s', batch: 3, concurrency: 1 } } });
	for (const id of ids) await program.until('start', 1, id);
	await query('SELECT delay_cancel($1, stop_running => true)', [ids[1]]);
	await program.until('lost', 1, ids[1]);
	gate.open();
	for (const i of [0, 2]) await program.until('done', 1, ids[i]);
	assert.equal(program.all('lost').length, 1);
	assert.equal(await program.end(), 0);
});

test('B35: a handler that never ends keeps its place', async () => {
	const queue = await newQueue();
	const program = await startProgram({ [queue]: { concurrency: 2, lease: '3 s' } }, { within: 300 });
	const stuck = await send(pool, queue, { never: true });
	await program.until('start', 1, stuck);
	const ids = await Promise.all(Array.from({ length: 10 }, () => send(pool, queue, { sleep: 30 })));
	await program.until('done', 10);
	assert.equal(mostAtOnce(program.lines), 2);
	assert.equal((await row(stuck)).attempts, 1);
	assert.ok(await isGone(...ids));
	program.signal('SIGKILL');
});

test('B36, B37: frozen for longer than its lease: its word is refused', async () => {
	const queue = await newQueue();
	const gate = newGate();
	const frozen = await startProgram({ [queue]: { concurrency: 1, lease: '500 ms' } });
	await query('CREATE TABLE IF NOT EXISTS node_ends (id bigint)');
	const id = await send(pool, queue, { hold: gate.path }, { onSuccess: 'INSERT INTO node_ends VALUES ($1)' });
	await frozen.until('start', 1, id);
	frozen.signal('SIGSTOP');
	const at = performance.timeOrigin + performance.now();
	const other = await startProgram({ [queue]: { lease: '20 s' } });
	await other.until('start', 1, id);
	frozen.signal('SIGCONT');
	await frozen.until('lost', 1, id);
	gate.open();
	await frozen.until('end', 1, id);
	await other.until('done', 1, id);
	await until('one end', async () => await one('SELECT count(*)::int FROM node_ends WHERE id = $1', [id]) === 1);
	assert.equal(frozen.all('done', id).length, 0);
	assert.deepEqual(overlaps([...frozen.lines, ...other.lines], [{ pid: frozen.pid, at }]), []);
	for (const program of [frozen, other]) assert.equal(await program.end(), 0);
});

const hasLapsed = async (id) => {
	const { attempts, leased_until } = await row(id);
	return attempts === 1 && leased_until === null;
};

test('B34: a report after the end of the lease is sent once', async () => {
	const queue = await newQueue();
	const gate = newGate();
	const program = await startProgram({ [queue]: { concurrency: 1, lease: '500 ms' } });
	const id = await send(pool, queue, { block: gate.path }); // so that nothing is extended
	await program.until('start', 1, id);
	await until('its lease has ended', () => hasLapsed(id));
	gate.open();
	const [done] = await program.until('done', 1, id);
	assert.equal(done.attempt, 1);
	assert.ok(await isGone(id));
	assert.equal(await program.end(), 0);
});

test('B37a: a lease whose answer comes too late is not begun with', async () => {
	const queue = await newQueue();
	const proxy = await new Proxy().start();
	const slow = await startProgram({ [queue]: { lease: '500 ms' } }, { connection: proxy.connection, waitConnection: asReceiver });
	proxy.holdAnswers();
	const id = await send(pool, queue, {});
	await until('its lease has begun and ended', () => hasLapsed(id));
	proxy.passOn();
	await slow.until('done', 1, id);
	assert.match(slow.lines.find((line) => line.id === id).what, /released|lost/, 'that comes before its start');
	assert.equal(await slow.end(), 0);
});

test('B38: a handler that ends its process, a worker that is killed', () => Promise.all([{ exit: 3 }, { crash: true }, { sleep: 100_000 }].map(async (payload) => {
	const queue = await newQueue();
	const first = await startProgram({ [queue]: { lease: '700 ms' } });
	const id = await send(pool, queue, payload);
	await first.until('start', 1, id);
	if (payload.sleep) first.signal('SIGKILL');
	await first.exited;
	const second = new Program({ queues: { [queue]: { lease: '20 s' } } }); // which may end before it waits
	const [start] = await second.until('start', 1, id);
	assert.equal(start.attempt, 2);
	second.signal('SIGKILL');
	await second.exited;
	await query('SELECT delay_cancel($1, stop_running => true)', [id]);
})));

test('B39: the row of one message is locked: the others do not suffer', (t) => patiently(t, [6000, 30_000], async (lease) => {
	const queue = await newQueue();
	const program = await startProgram({ [queue]: { concurrency: 10, lease: `${lease} ms` } });
	const [gate, never] = [newGate(), newGate()];
	const locked = await send(pool, queue, { hold: gate.path });
	const working = await send(pool, queue, { hold: never.path });
	const others = await Promise.all(Array.from({ length: 5 }, () => send(pool, queue, { hold: gate.path })));
	await program.until('start', 7);
	const { leased_until } = await row(working);
	const client = await pool.connect();
	await client.query('BEGIN');
	await client.query('SELECT delay_cancel($1, stop_running => true)', [locked]);
	gate.open();
	for (const id of others) await program.until('done', 1, id);
	await until('the lease of the one at work is extended', async () => (await row(working)).leased_until > leased_until);
	assert.equal(program.all('done', locked).length, 0);
	await client.query('ROLLBACK');
	client.release();
	await until('it has an end', () => program.all('done', locked).length || program.all('lost').length);
	never.open();
	await program.until('done', 1, working);
	assert.equal(await program.end(), 0);
	assert.deepEqual(program.all('lost'), []);
	assert.equal(program.all('connected').length, 2, 'no statement was without an answer');
}));
