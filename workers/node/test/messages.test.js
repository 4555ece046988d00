// What becomes of messages (B1 to B17), by the rows of the server and the files of handlers.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { send } from '../src/index.js';
import { isGone, newGate, newQueue, one, pool, query, ROLE, row, startProgram, until } from './harness.js';

await query('CREATE TABLE IF NOT EXISTS node_ledger (id bigint, n int CHECK (n <> 13), CONSTRAINT node_ledger_once UNIQUE (n) DEFERRABLE INITIALLY DEFERRED)');
await query('CREATE TABLE IF NOT EXISTS node_follow (id bigint, result jsonb)');
await query('GRANT INSERT, SELECT ON node_ledger TO public; TRUNCATE node_ledger, node_follow');

const mail = await newQueue();
const worker = await startProgram({ [mail]: { concurrency: 20 } }, { around: true });
const follow = 'INSERT INTO node_follow VALUES ($1, $2)';

test('B1: a message is in its handler within milliseconds of its due time', async () => {
	const late = [];
	for (let i = 0; i < 40; i++) {
		const id = await send(pool, mail, {}, { due: new Date(Date.now() + 25) });
		const [line] = await worker.until('start', 1, id);
		late.push(line.at - line.due);
	}
	late.sort((a, b) => a - b);
	assert.ok(late[0] >= -1, `none is early: ${late[0]}`);
	// the machine of a test is busy: bench/bench.js has the figures of a quiet one
	assert.ok(late[20] < 250, `median ${late[20]} ms`);
});

test('B2, B3: what the handler returns is the result', async () => {
	const nothing = await send(pool, mail, {}, { onSuccess: follow });
	const value = await send(pool, mail, { result: { receipt: [42, "it's"] } }, { onSuccess: follow });
	await worker.until('done', 1, nothing);
	await worker.until('done', 1, value);
	assert.ok(await isGone(nothing, value));
	await until('the tasks that follow', async () => await one('SELECT count(*)::int FROM node_follow WHERE id = ANY ($1::bigint[])', [[nothing, value]]) === 2);
	assert.equal(await one('SELECT result FROM node_follow WHERE id = $1', [nothing]), null);
	assert.deepEqual(await one('SELECT result FROM node_follow WHERE id = $1', [value]), { receipt: [42, "it's"] });
});

test('B4: a result that is no JSON: done all the same, and once', async () => {
	const ids = [];
	for (const odd of ['function', 'bigint', 'nul', 'long', 'cycle', 'surrogate', 'date']) ids.push(await send(pool, mail, { odd }, { onSuccess: follow }));
	const others = await Promise.all(Array.from({ length: 5 }, (_, n) => send(pool, mail, { result: n }, { onSuccess: follow })));
	for (const id of [...ids, ...others]) await worker.until('done', 1, id);
	await until('what follows', async () => await one('SELECT count(*)::int FROM node_follow WHERE id = ANY ($1::bigint[])', [[...ids, ...others]]) === 12);
	assert.ok(await isGone(...ids));
	for (const id of ids) assert.equal(worker.all('start', id).length, 1);
	const results = await query('SELECT result FROM node_follow WHERE id = ANY ($1::bigint[]) ORDER BY id', [ids]);
	assert.deepEqual(results.map((r) => r.result), [null, null, null, null, null, null, '1970-01-01T00:00:00.000Z']);
	assert.equal(await one('SELECT count(result)::int FROM node_follow WHERE id = ANY ($1::bigint[])', [others]), 5);
	assert.match(worker.log, /its result is left out/);
});

test('B5, B9: an error is a failed attempt', async () => {
	const cases = [[{ throw: 'mailbox full' }, /^DW007: mailbox full$/], [{ throw: 'x', text: 'a text' }, /^DW007: a text$/], [{ throwUndefined: true }, /^DW007: undefined$/], [{ throwNul: true }, /^DW007: a\ufffdbx{100}/]];
	for (const [payload, text] of cases) {
		const id = await send(pool, mail, payload);
		await worker.until('failed', 1, id);
		const { attempts, last_error, due_in } = await row(id);
		assert.equal(attempts, 1);
		assert.match(last_error, text);
		assert.ok(due_in > 3000, `due in ${due_in} s`);
	}
});

test('B6, B7: Retry says when', async () => {
	const later = await send(pool, mail, { retry: '5 minutes', reason: 'busy' });
	const wrong = await send(pool, mail, { retry: '5 lightyears', reason: 'far' });
	await worker.until('failed', 1, later);
	await worker.until('failed', 1, wrong);
	let { due_in, last_error, attempts } = await row(later);
	assert.ok(due_in > 280 && due_in <= 300, `due in ${due_in} s`);
	assert.equal(last_error, 'DW007: busy');
	assert.equal(attempts, 1);
	({ due_in, last_error } = await row(wrong));
	assert.ok(due_in > 3000, `due in ${due_in} s`);
	assert.equal(last_error, 'DW007: far');
});

test('B8: GiveUp', async () => {
	const id = await send(pool, mail, { giveUp: 'no such address' });
	await worker.until('failed', 1, id);
	assert.ok(await isGone(id));
	assert.deepEqual(await query('SELECT sqlstate, message FROM delay_wheel.failed WHERE id = $1', [id]), [{ sqlstate: 'DW007', message: 'no such address' }]);
});

test('B10: traceparent, headers and key reach the handler, "around" is around it', async () => {
	const headers = { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', version: 2 };
	const id = await send(pool, mail, {}, { headers, key: 'its key' });
	const [start] = await worker.until('start', 1, id);
	assert.equal(start.traceparent, headers.traceparent);
	assert.equal(start.key, 'its key');
	assert.deepEqual(start.headers, headers);
	assert.ok(worker.all('around', id)[0].at <= start.at);
});

test('B11, B12: payloads of 1 byte, of almost 1 MB, of 10 MB', async () => {
	const small = await send(pool, mail, 1);
	const big = await send(pool, mail, 'y'.repeat(1_000_000));
	const sum = await one("SELECT md5(to_json(repeat('y', 1000000))::text)");
	await worker.until('done', 1, small);
	await worker.until('done', 1, big);
	assert.equal(worker.all('start', big)[0].sum, sum);
	const client = await pool.connect();
	await client.query('BEGIN');
	await assert.rejects(send(client, mail, 'y'.repeat(10_000_000)), { code: '54000' });
	await client.query('ROLLBACK');
	client.release();
});

test('B13: batches', async () => {
	const queue = await newQueue();
	const ids = [];
	for (const payload of [{ result: 1 }, { throw: 'one of them' }, { result: 2 }, { giveUp: 'never' }, { retry: '2 minutes' }]) ids.push(await send(pool, queue, payload, { onSuccess: follow, delay: '100 ms' }));
	await until('all are due', async () => await one('SELECT ready::int FROM delay_wheel.queues WHERE name = $1', [queue]) === 5);
	const batches = await startProgram({ [queue]: { batch: 100, concurrency: 2 } });
	await until('they have ended', async () => batches.all('done').length === 2 && batches.all('failed').length === 3);
	assert.deepEqual(batches.all('batch').map((line) => line.n), [5]);
	assert.ok(await isGone(ids[0], ids[2], ids[3]));
	assert.equal((await row(ids[1])).last_error, 'DW007: one of them');
	assert.ok((await row(ids[4])).due_in <= 120);
	// thrown for all of them
	const first = await send(pool, queue, { whole: true, throw: 'all' });
	await batches.until('failed', 1, first);
	assert.equal((await row(first)).last_error, 'DW007: all');
	assert.equal(await batches.end(), 0);
});

test('B14, B15: in a transaction', async () => {
	const queue = await newQueue();
	const receiver = await startProgram({ [queue]: { transaction: true, concurrency: 3 } });
	const good = await Promise.all([1, 2, 3, 4, 5, 6].map((n) => send(pool, queue, { insert: n })));
	for (const id of good) await receiver.until('done', 1, id);
	assert.equal(await one('SELECT string_agg(n::text, $1 ORDER BY n) FROM node_ledger', [' ']), '1 2 3 4 5 6');
	const bad = {};
	for (const [name, payload] of Object.entries({ thrown: { insert: 7, throw: 'no' }, check: { insert: 13 }, deferred: { insert: 1 }, retry: { insert: 8, retry: '3 minutes' }, wrong: { insert: 9, retry: 'soon' }, give: { insert: 10, giveUp: 'never' } }))
		bad[name] = await send(pool, queue, payload);
	for (const id of Object.values(bad)) await receiver.until('failed', 1, id);
	assert.equal(await one('SELECT count(*)::int FROM node_ledger'), 6);
	assert.equal((await row(bad.thrown)).last_error, 'DW007: no');
	assert.equal((await row(bad.thrown)).attempts, 1);
	assert.match((await row(bad.check)).last_error, /node_ledger_n_check/);
	assert.match((await row(bad.deferred)).last_error, /node_ledger_once/);
	assert.ok((await row(bad.retry)).due_in <= 180);
	assert.ok((await row(bad.wrong)).due_in > 3000);
	assert.equal(await one('SELECT message FROM delay_wheel.failed WHERE id = $1', [bad.give]), 'never');
	// a handler that ends the transaction itself
	const own = await send(pool, queue, { insert: 20, sql: 'COMMIT' });
	await receiver.until('lost', 1, own);
	const next = await send(pool, queue, { insert: 21 }, { key: 'its key' });
	await receiver.until('done', 1, next);
	assert.equal(receiver.all('start', next)[0].key, 'its key');
	assert.equal(await receiver.end(), 0);
});

test('B16: its session ends in the middle', async () => {
	const queue = await newQueue();
	const receiver = await startProgram({ [queue]: { transaction: true } });
	const gate = newGate();
	const id = await send(pool, queue, { insert: 30, hold: gate.path, obey: true });
	await receiver.until('start', 1, id);
	await until('it has written', async () => (await query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND state LIKE 'idle in%' AND query LIKE 'INSERT INTO node_ledger%'", [ROLE])).length === 1);
	const [end] = await receiver.until('end', 1, id);
	assert.equal(end.how, 'told: lost');
	await receiver.until('lost', 1, id);
	gate.open();
	await receiver.until('done', 1, id);
	assert.equal(await one('SELECT count(*)::int FROM node_ledger WHERE n = 30'), 1);
	assert.equal(await receiver.end(), 0);
});

test('B17: the timeout of a queue', async () => {
	const queue = await newQueue();
	const program = await startProgram({ [queue]: { timeout: '200 ms' } });
	const obeys = await send(pool, queue, { sleep: 20_000 });
	const ignores = await send(pool, queue, { ignore: 600 });
	await program.until('failed', 1, obeys);
	assert.equal((await row(obeys)).last_error, 'DW007: timeout');
	assert.equal(program.all('end', obeys)[0].how, 'told: timeout');
	await program.until('done', 1, ignores);
	assert.ok(await isGone(ignores));
	assert.equal(await program.end(), 0);
});
