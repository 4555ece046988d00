// Figures: messages a second with an empty handler, beside delay_lease() and delay_done_all() by
// 100 in SQL alone, and due to handler.  The server is that of PGHOST and so on; its user is a
// superuser.  node bench/bench.js [messages]
import pg from 'pg';
import { Worker, send } from '../src/index.js';

const N = Number(process.argv[2] ?? 5000);
const QUEUE = 'bench_node';
const db = new pg.Client();
await db.connect();
await db.query('SELECT delay_wheel.create_queue($1, external => true)', [QUEUE]);
await db.query("SELECT delay_cancel_all(queue => $1, due_from => '-infinity')", [QUEUE]);

async function fill() {
	await db.query(`SELECT count(delay_send($1, '{"n": 1}')) FROM generate_series(1, $2)`, [QUEUE, N]);
	for (;;) { // the first of them are in memory
		const { rows: [{ ready }] } = await db.query('SELECT ready FROM delay_wheel.queues WHERE name = $1', [QUEUE]);
		if (Number(ready) >= Math.min(N, 5000)) return;
		await new Promise((resolve) => { setTimeout(resolve, 50); });
	}
}

async function bySql() {
	await fill();
	const begin = performance.now();
	for (let done = 0; done < N;) {
		const { rows } = await db.query('SELECT id::text, token::text, payload FROM delay_lease($1, 100)', [QUEUE]);
		await db.query('SELECT delay_done_all($1::bigint[], $2::bigint[])', [rows.map((r) => r.id), rows.map((r) => r.token)]);
		done += rows.length;
		if (!rows.length) await db.query('CALL delay_await($1)', [QUEUE]);
	}
	return N / (performance.now() - begin) * 1000;
}

async function byWorker(concurrency) {
	await fill();
	let done = 0;
	let begin;
	const all = {};
	all.promise = new Promise((resolve) => { all.resolve = resolve; });
	const worker = new Worker({ connection: {}, log: false, queues: { [QUEUE]: { concurrency, handle: async () => { begin ??= performance.now(); } } } });
	worker.on('done', () => { if (++done === N) all.resolve(); });
	const run = worker.run();
	await all.promise;
	const ms = performance.now() - begin;
	await worker.stop();
	await run;
	return N / ms * 1000;
}

async function latency(n = 200) {
	const late = [];
	const worker = new Worker({ connection: {}, log: false, queues: { [QUEUE]: { handle: async (message) => { late.push(clock() - Number(message.payload)); } } } });
	const run = worker.run();
	// the due time in the payload, in ms with fractions: a Date has none
	const clock = () => performance.timeOrigin + performance.now();
	for (let i = 0; i < n; i++) {
		const due = Date.now() + 30;
		await send(db, QUEUE, due, { due: new Date(due) });
		await new Promise((resolve) => { setTimeout(resolve, 40); });
	}
	await worker.stop();
	await run;
	late.sort((a, b) => a - b);
	return [0.5, 0.99, 1].map((p) => late[Math.min(late.length - 1, Math.floor(p * late.length))].toFixed(2));
}

const round = Math.round;
const [p50, p99, max] = await latency();
console.log(`due to handler, ms: p50 ${p50}, p99 ${p99}, max ${max}`);
// in turns, since other programs of the machine take their share
// With 200 places the worker leases 100 at a time, half of them, as the SQL does.
const places = [200, 100, 20];
const figures = Object.fromEntries(['sql', ...places].map((name) => [name, []]));
for (let i = 0; i < 9; i++) {
	figures.sql.push(await bySql());
	for (const n of places) figures[n].push(await byWorker(n));
}
const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];
const sql = median(figures.sql);
console.log(`messages a second, medians of 9: SQL alone by 100 ${round(sql)}`);
for (const n of places) console.log(`worker with concurrency ${n}: ${round(median(figures[n]))} (${(median(figures[n]) / sql).toFixed(2)})`);
await db.query('SELECT delay_cancel_all(queue => $1, due_from => $2)', [QUEUE, '-infinity']);
await db.end();
