// The network is cut, sessions end (B40 to B45).

import assert from 'node:assert/strict';
import net from 'node:net';
import { test } from 'node:test';
import { send, Worker } from '../src/index.js';
import { pauseAfter } from '../src/session.js';
import { asReceiver, isGone, newGate, newQueue, one, pool, Proxy, query, ROLE, startProgram, until } from './harness.js';

test('B40: how long it pauses before it connects again', async () => {
	const attempts = { wait: [], work: [] };
	const servers = Object.values(attempts).map((times) => net.createServer((socket) => {
		times.push(performance.now());
		socket.destroy();
	}).listen(0, '127.0.0.1'));
	await until('they listen', () => servers.every((s) => s.listening));
	const [waitConnection, connection] = servers.map((s) => ({ ...asReceiver, host: '127.0.0.1', port: s.address().port }));
	const worker = new Worker({ connection, waitConnection, log: false, queues: { any: { handle: async () => {} } } });
	const run = worker.run();
	await until('it has tried', () => attempts.wait.length > 12 && attempts.work.length > 12);
	await worker.stop();
	await run;
	for (const s of servers) s.close();
	for (const times of Object.values(attempts)) {
		const pauses = times.slice(1).map((time, i) => time - times[i]);
		const late = pauses.slice(5).sort((a, b) => a - b);
		assert.ok(late[late.length >> 1] < 1000, `pauses of ${pauses.map(Math.round)} ms`);
		assert.ok(late[late.length >> 1] > 240, `pauses of ${pauses.map(Math.round)} ms`);
	}
	// and not all of them the same
	const last = Array.from({ length: 100 }, () => pauseAfter(50));
	assert.ok(Math.min(...last) >= 250 && Math.max(...last) <= 500);
	assert.ok(Math.max(...last) - Math.min(...last) > 100);
});

test('B41: each session is terminated', async () => {
	const name = 'node terminated';
	const [queue, ledger] = [await newQueue(), await newQueue()];
	const program = await startProgram({ [queue]: {}, [ledger]: { transaction: true } }, { connection: { ...asReceiver, application_name: name } });
	for (let i = 0; i < 5; i++) {
		const ids = [];
		for (const to of [queue, ledger]) ids.push(await send(pool, to, { ignore: 300 }));
		for (const id of ids) await program.until('start', 1, id);
		const victims = await until('all sessions are there', async () => {
			const rows = await query('SELECT pid FROM pg_stat_activity WHERE application_name = $1 ORDER BY random()', [name]);
			return rows.length >= 3 ? rows : null;
		});
		for (const { pid } of i ? victims.slice(0, 1) : victims) await query('SELECT pg_terminate_backend($1)', [pid]);
		for (const id of ids) await program.until('done', 1, id);
		assert.equal(program.all('start', ids[0]).length, 1, 'under a lease it is done once');
		assert.ok(await isGone(...ids));
	}
	assert.equal(await program.end(), 0);
});

test('B42: a network that swallows everything, and a slow one', async () => {
	const queue = await newQueue();
	const proxy = await new Proxy().start();
	const program = await startProgram({ [queue]: { lease: '20 s' } }, { connection: proxy.connection });
	const gate = newGate();
	const id = await send(pool, queue, { hold: gate.path });
	await program.until('start', 1, id);
	proxy.silent = true;
	gate.open();
	await program.until('end', 1, id);
	await program.until('disconnected', 1); // its report had no answer
	await proxy.mend();
	await program.until('done', 1, id);
	proxy.delay = 40;
	for (let i = 0; i < 3; i++) await program.until('done', 1, await send(pool, queue, {}));
	proxy.delay = 0;
	assert.equal(program.all('start', id).length, 1);
	assert.equal(await program.end(), 0);
});

test('B43: a server that only reads is no server', async () => {
	const queue = await newQueue();
	const name = 'node read-only';
	const program = await startProgram({ [queue]: {} }, { connection: { ...asReceiver, application_name: name } });
	await query(`ALTER ROLE ${ROLE} SET default_transaction_read_only = on`);
	try {
		await query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1', [name]);
		await program.until('disconnected', 2);
		const id = await send(pool, queue, {});
		await until('it has been refused', () => /read-only/.test(program.log));
		await query(`ALTER ROLE ${ROLE} RESET default_transaction_read_only`);
		await program.until('done', 1, id);
	} finally {
		await query(`ALTER ROLE ${ROLE} RESET default_transaction_read_only`);
	}
	assert.equal(await program.end(), 0);
});

test('B45: the answer of a report is lost', async () => {
	const queue = await newQueue();
	const proxy = await new Proxy().start();
	const program = await startProgram({ [queue]: { lease: '30 s' } }, { connection: proxy.connection, waitConnection: asReceiver });
	const gate = newGate();
	const ids = await Promise.all([1, 2, 3].map(() => send(pool, queue, { hold: gate.path })));
	for (const id of ids) await program.until('start', 1, id);
	proxy.holdAnswers();
	gate.open();
	await until('the server has one', async () => await one('SELECT count(*)::int FROM delay_wheel.tasks WHERE id = ANY ($1::bigint[])', [ids]) < 3);
	await proxy.cut();
	await proxy.mend();
	for (const id of ids) await program.until('done', 1, id);
	assert.deepEqual(program.all('lost'), []);
	assert.equal(await program.end(), 0);
});

test('B45: a report that comes too late is given up', async () => {
	const queue = await newQueue();
	const proxy = await new Proxy().start();
	const program = await startProgram({ [queue]: { lease: '3 s' } }, { connection: proxy.connection });
	const gate = newGate();
	const id = await send(pool, queue, { hold: gate.path });
	await program.until('start', 1, id);
	await proxy.cut();
	gate.open();
	await program.until('end', 1, id);
	await program.until('lost', 1, id);
	await proxy.mend();
	await program.until('start', 2, id);
	await program.until('done', 1, id);
	assert.equal(program.all('done', id)[0].attempt, 2);
	assert.equal(await program.end(), 0);
});
