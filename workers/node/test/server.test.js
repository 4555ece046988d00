// The server stops and starts, and what stands in its log (B40, B44).  It has to be on this machine.
// These tests run alone: others would find the server away.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import { test } from 'node:test';
import { send } from '../src/index.js';
import { isGone, long, newGate, newQueue, one, pool, serverControl, serverLog, sleep, startProgram, until } from './harness.js';

const now = () => performance.timeOrigin + performance.now();

const pauses = []; // from the server's return to the first message, ms
for (const mode of long ? ['fast', 'immediate', 'fast', 'immediate', 'fast'] : ['fast', 'immediate']) {
	test(`B40, B44: the server stops (${mode}) and starts`, async (t) => {
		const queue = await newQueue();
		const pgCtl = await serverControl();
		const gate = newGate();
		const program = await startProgram({ [queue]: { lease: '60 s', concurrency: 3 }, [await newQueue()]: { transaction: true } });
		const during = await send(pool, queue, { hold: gate.path });
		await program.until('start', 1, during);
		const waiting = await send(pool, queue, {}, { delay: '1 s' });
		await pgCtl('stop', '-m', mode);
		try {
			gate.open();
			const [end] = await program.until('end', 1, during); // its handler ends meanwhile
			assert.equal(end.how, 'returned');
		} finally {
			await pgCtl('start');
		}
		const back = now();
		const [start] = await program.until('start', 1, waiting);
		pauses.push(Math.round(start.at - Math.max(back, start.due)));
		t.diagnostic(`first message after ${pauses.at(-1)} ms`);
		await program.until('done', 1, during);
		assert.ok(await isGone(during));
		assert.equal(program.all('start', during).length, 1);
		assert.equal(program.all('lost').length, 0);
		// a line for an error, not for each attempt
		assert.ok(program.log.split('\n').length < 20, program.log);
		assert.equal(await program.end(), 0);
	});
}

test('B40: the first message comes within a second', { skip: !long && 'DW_LONG is not set' }, () => {
	assert.ok(pauses.sort((a, b) => a - b)[pauses.length >> 1] < 1000, `${pauses} ms`);
});

test('B21, B60: an ordinary day leaves no error in the log of the server', async () => {
	const [mail, web, ledger] = [await newQueue(), await newQueue(), await newQueue()];
	const queues = { [mail]: { concurrency: 1 }, [web]: { concurrency: 2, lease: '30 s' }, [ledger]: { transaction: true } };
	const log = await serverLog();
	const begin = fs.statSync(log).size;
	const ids = [];
	let programs = await Promise.all([1, 2].map(() => startProgram(queues)));
	for (let day = 0; day < 4; day++) {
		for (let i = 0; i < 60; i++) {
			ids.push(await send(pool, [mail, web, ledger, mail][i % 4], i % 7 ? { sleep: 5 * (i % 3) } : { throw: 'a bad day', sleep: 1 }));
			if (i % 10 === 9) await sleep(30); // the queues are empty for a while
		}
		if (day === 3) await until('all have been worked on', async () => await one('SELECT count(*)::int FROM delay_wheel.tasks WHERE id = ANY ($1::bigint[]) AND attempts = 0', [ids]) === 0);
		// a deploy: the new ones beside the old ones
		const old = programs;
		programs = day < 3 ? await Promise.all(old.map(() => startProgram(queues))) : [];
		for (const code of await Promise.all(old.map((program) => program.end()))) assert.equal(code, 0);
		for (const program of old) assert.ok(program.all('connected').length <= 3, `no session was lost: ${program.log}`);
	}
	await until('all sessions have ended', async () => await one("SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'delay-wheel'") === 0);
	const lines = fs.readFileSync(log, 'utf8').slice(begin).split('\n');
	assert.deepEqual(lines.filter((line) => /ERROR|FATAL|PANIC|WARNING|could not|unexpected/.test(line)), []);
});
