// 20,000 messages through four workers that are killed, frozen, deployed and cut off, on a server
// that restarts (W1 to W3).  Runs with DW_LONG=1, for about two minutes, and alone.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { atEnd, isGone, linesOf, long, mostAtOnce, newQueue, one, overlaps, Program, Proxy, query, ROLE, serverControl, sleep, until } from './harness.js';

const N = Number(process.env.DW_MESSAGES ?? 20_000);
const LEASE = 3000;
const CONCURRENCY = 20;
const now = () => performance.timeOrigin + performance.now();
const random = (n) => Math.floor(Math.random() * n);

test(`${N} messages, four workers, all faults`, { skip: !long }, async (t) => {
	await query('DROP TABLE IF EXISTS node_long; CREATE TABLE node_long (id bigint)');
	const queue = await newQueue({ retry_delay: '100 ms', max_attempts: 32_767, history: 'off' });
	const pgCtl = await serverControl();
	const proxies = [];
	const files = [];
	const ends = []; // when programs were killed or frozen
	const count = {};
	const start = (i) => {
		// two of them by a network that is cut now and then
		const program = new Program({ queues: { [queue]: { concurrency: CONCURRENCY, lease: `${LEASE} ms` } }, ...(proxies[i] && { connection: proxies[i].connection }) });
		files.push(program.file);
		return program;
	};
	for (const i of [0, 1]) proxies[i] = await new Proxy().start();
	const programs = [0, 1, 2, 3].map(start);
	let over = false;
	atEnd(() => { over = true; });
	const faults = {
		async kill(i) {
			programs[i].signal('SIGKILL');
			await programs[i].exited;
			ends.push({ pid: programs[i].pid, at: now() });
			programs[i] = start(i);
		},
		async deploy(i) {
			const old = programs[i];
			if (!old.lines.length) return; // node has not begun to listen to signals
			programs[i] = start(i); // the new one beside the old one
			const code = await old.end();
			assert.equal(code, 0, old.log);
		},
		async freeze(i) {
			ends.push({ pid: programs[i].pid, at: now() });
			programs[i].signal('SIGSTOP');
			await sleep(LEASE + 1000);
			programs[i].signal('SIGCONT');
		},
		async cut(i) {
			if (!proxies[i]) return;
			await proxies[i].cut();
			await sleep(random(2) ? 100 : LEASE + 500);
			await proxies[i].mend();
		},
		async swallow(i) {
			if (!proxies[i]) return;
			proxies[i].silent = true;
			await sleep(random(2) ? 500 : LEASE + 500);
			await proxies[i].mend();
		},
		async terminate() {
			await query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND random() < 0.4', [ROLE]);
		},
	};
	const trouble = async (i) => {
		while (!over) {
			await sleep(500 + random(1000));
			const names = Object.keys(faults);
			const name = names[random(names.length)];
			count[name] = (count[name] ?? 0) + 1;
			await faults[name](i).catch((error) => { if (!/^57P/.test(error.code) && !/terminat|ECONN|ENOENT|EPIPE/.test(error.message)) throw error; });
		}
	};
	const restarts = async () => {
		while (!over) {
			await sleep(12_000);
			if (over) return;
			count.restart = (count.restart ?? 0) + 1;
			await pgCtl('restart', '-m', random(2) ? 'fast' : 'immediate');
		}
	};
	const all = Promise.all([0, 1, 2, 3].map(trouble).concat(restarts()));
	all.catch(() => { over = true; });
	// most are short, some last longer than a lease, some fail at first
	for (let sent = 0; sent < N;) {
		try {
			await query(`SELECT count(delay_send($1, jsonb_build_object('sleep', CASE WHEN n % 100 = 0 THEN 5000 ELSE n % 50 END),
				options => '{"on_success": "INSERT INTO node_long VALUES ($1)"}')) FROM generate_series(1, 500) n`, [queue]);
			sent += 500;
		} catch (error) {
			// the restart may have come after the commit: the messages are counted below
			sent = Number(await until('the server is back', () => one('SELECT (SELECT count(*) FROM node_long) + (SELECT count(*) FROM delay_wheel.tasks WHERE queue = $1)', [queue])));
			t.diagnostic(`sending: ${error.message}`);
		}
		await sleep(1500);
	}
	over = true;
	await all;
	await until('nothing is left', async () => await one("SELECT count(*)::int FROM delay_wheel.tasks WHERE queue = $1 OR sql LIKE '%node_long%'", [queue]) === 0, 120_000);
	for (const program of programs) assert.equal(await program.end(), 0, program.log);
	const lines = files.flatMap(linesOf).sort((a, b) => a.at - b.at);
	const started = new Set(lines.filter((line) => line.what === 'start').map((line) => line.id));
	t.diagnostic(`faults: ${JSON.stringify(count)}; programs ${files.length}; starts ${lines.filter((line) => line.what === 'start').length} of ${started.size} messages, lost ${lines.filter((line) => line.what === 'lost').length}, released ${lines.filter((line) => line.what === 'released').length}`);
	assert.ok(started.size >= N);
	assert.equal(await one('SELECT count(*)::int FROM delay_wheel.failed WHERE queue = $1', [queue]), 0);
	// each has ended once, by the word of one worker
	assert.equal(await one('SELECT count(*)::int FROM node_long'), started.size);
	assert.equal(await one('SELECT count(DISTINCT id)::int FROM node_long'), started.size);
	assert.deepEqual(overlaps(lines, ends), []);
	for (const file of files) assert.ok(mostAtOnce(linesOf(file)) <= CONCURRENCY);
	assert.ok(await isGone(...[...started].slice(0, 10)));
});
