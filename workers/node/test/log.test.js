// What an operator reads (B90 to B92), and drain() without a server (B72).

import assert from 'node:assert/strict';
import net from 'node:net';
import { once } from 'node:events';
import { test } from 'node:test';
import pg from 'pg';
import { GiveUp, Retry, send, Worker } from '../src/index.js';
import { asReceiver, atEnd, newGate, newQueue, one, pool, Proxy, query, ROLE, server, startPgBouncer, startProgram, until } from './harness.js';

const asSuperuser = { ...server, user: process.env.PGUSER };
const targetOf = ({ host, port, database, user }) => `(server ${host}, port ${port}, database ${database}, user ${user})`;

/** A worker whose lines of the log are in its "lines". */
function newWorker(options) {
	const lines = [];
	const worker = new Worker({ connection: asReceiver, queues: { nothing: { handle: async () => {} } }, log: (level, text) => lines.push(`${level} ${text}`), ...options });
	return Object.assign(worker, { lines, count: (pattern) => lines.filter((line) => pattern.test(line)).length });
}

/** A server of one answer, or of none. */
async function fakeServer(answer) {
	const fake = net.createServer((socket) => {
		fake.attempts++;
		socket.on('error', () => {});
		socket.on('data', () => { if (answer) socket.end(answer); });
	}).listen(0, '127.0.0.1');
	fake.attempts = 0;
	await once(fake, 'listening');
	fake.unref();
	fake.connection = { ...asReceiver, host: '127.0.0.1', port: fake.address().port };
	return fake;
}

const fatal = (code, text) => {
	const fields = `SFATAL\0C${code}\0M${text}\0\0`;
	const head = Buffer.from('E\0\0\0\0');
	head.writeInt32BE(fields.length + 4, 1);
	return Buffer.concat([head, Buffer.from(fields)]);
};

// Connections that fail, each for its own reason: [connection, error].
const broken = {};
{
	const role = (what) => `${ROLE}_${what}`;
	const hba = await one("SELECT pg_read_file(current_setting('hba_file'))");
	const writeHba = async (text) => query("SELECT lo_export($1, current_setting('hba_file')), lo_unlink($1), pg_reload_conf()", [await one("SELECT lo_from_bytea(0, convert_to($1, 'UTF8'))", [text])]);
	await query(`CREATE ROLE ${role('password')} LOGIN PASSWORD 'right'; CREATE ROLE ${role('nologin')} NOLOGIN; CREATE ROLE ${role('crowd')} LOGIN CONNECTION LIMIT 0`);
	await writeHba(`local all ${role('password')} scram-sha-256\nhost all ${role('password')} all scram-sha-256\n${hba}`);
	atEnd(async () => {
		await writeHba(hba);
		await query(`DROP ROLE ${role('password')}, ${role('nologin')}, ${role('crowd')}`);
	});
	broken.password = [{ ...server, user: role('password'), password: 'hush' }, /password authentication failed/];
	await until('the server has read it', async () => {
		const client = new pg.Client(broken.password[0]);
		return client.connect().then(() => client.end(), (error) => error.code === '28P01');
	});
	broken.nologin = [{ ...server, user: role('nologin') }, /not permitted to log in/];
	broken.crowd = [{ ...server, user: role('crowd') }, /too many connections/];
	broken.database = [{ ...asReceiver, database: 'nowhere' }, /"nowhere" does not exist/];
	broken.refused = [{ ...asReceiver, host: '127.0.0.1', port: 1 }, /ECONNREFUSED/];
	broken.silent = [(await fakeServer()).connection, /timeout|does not answer/];
}

for (const [what, [connection, error]] of Object.entries(broken)) {
	test(`B90: a connection that fails: ${what}`, async () => {
		for (const [session, options] of [['work', { connection, waitConnection: asReceiver }], ['wait', { connection: asReceiver, waitConnection: connection }]]) {
			const worker = newWorker(options);
			const run = worker.run();
			await until('it is in the log', () => worker.count(error), 30_000);
			await worker.stop();
			await run;
			const lines = worker.lines.filter((line) => error.test(line));
			assert.equal(lines.length, 1, worker.lines.join('\n'));
			assert.ok(lines[0].startsWith(`warning ${session} session: cannot connect ${targetOf(connection)}: `), lines[0]);
			assert.ok(!worker.lines.join('\n').includes('hush'), 'never the password');
		}
	});
}

test('B72: drain() with a connection that fails', async () => {
	const queues = { [await newQueue()]: { handle: async () => {} } };
	await Promise.all(Object.values(broken).flatMap(([connection, error]) => [{ connection }, { connection: asSuperuser, waitConnection: connection }].map(async (options) => {
		const began = performance.now();
		await assert.rejects(newWorker({ ...options, queues }).drain(), error);
		const ms = performance.now() - began;
		assert.ok(ms > 4500 && ms < 15_000, `after ${ms} ms`); // 5 s, and what a busy machine adds
	})));
});

test('B72: drain() waits a moment for the server, and is told of a queue that is missing', async () => {
	const queue = await newQueue();
	const proxy = await new Proxy().start();
	await send(pool, queue, {});
	await proxy.cut();
	const worker = newWorker({ connection: { ...proxy.connection, user: asSuperuser.user }, queues: { [queue]: { handle: async () => {} } } });
	const drained = worker.drain();
	await until('it has tried', () => worker.count(/ECONNREFUSED/));
	await proxy.mend();
	assert.equal(await drained, 1);
	await assert.rejects(newWorker({ connection: asSuperuser }).drain(), { code: '42704' });
});

test('B72: drain() loses the server, and meets messages that another session holds', async (t) => {
	const [lost, held] = [await newQueue(), await newQueue()];
	const proxy = await new Proxy().start();
	const other = await pool.connect();
	t.after(() => other.release());
	for (const queue of [lost, held]) await send(pool, queue, {});
	await other.query('BEGIN');
	await until('it is held', async () => (await other.query('SELECT FROM delay_receive($1)', [held])).rowCount);
	const loses = newWorker({ connection: { ...proxy.connection, user: asSuperuser.user }, queues: { [lost]: { handle: async (message, { signal }) => {
		await proxy.cut();
		await new Promise((resolve) => { signal.addEventListener('abort', resolve); });
	} } } });
	const meets = newWorker({ connection: asSuperuser, queues: { [held]: { handle: async () => {} } } });
	await Promise.all([assert.rejects(loses.drain(), /ECONNREFUSED/), meets.drain().then((n) => assert.equal(n, 0))]);
	assert.deepEqual(meets.lines, ['warning drain: due messages that cannot be received: 1']);
	await other.query('ROLLBACK');
});

test('B90: one line for all sessions and attempts', async () => {
	const fake = await fakeServer(fatal('53300', 'sorry, too many clients already'));
	const worker = newWorker({ connection: fake.connection });
	const run = worker.run();
	await until('it has tried often', () => fake.attempts > 12);
	assert.equal(worker.count(/^warning/), 1, worker.lines.join('\n'));
	assert.equal(worker.count(/too many clients/), 1);
	await worker.stop();
	await run;
	fake.close();
});

test('B90: the server goes, and comes back', async () => {
	const [queue, ledger] = [await newQueue(), await newQueue()];
	const proxy = await new Proxy().start();
	const program = await startProgram({ [queue]: {}, [ledger]: { transaction: true, concurrency: 5 } }, { connection: proxy.connection });
	const gate = newGate();
	for (let i = 0; i < 5; i++) await send(pool, ledger, { hold: gate.path });
	await program.until('start', 5);
	gate.open();
	await program.until('done', 5); // now it has seven sessions
	const count = (pattern) => program.log.split('\n').filter((line) => pattern.test(line)).length;
	await proxy.cut();
	await program.until('disconnected', 7);
	await until('it has tried', () => count(/cannot connect/));
	await proxy.mend();
	await program.until('connected', 14);
	await until('the end is in the log', () => count(/info: connected \(/));
	assert.equal(await program.end(), 0);
	assert.equal(count(/cannot connect \(.*ECONNREFUSED/), 1, program.log);
	assert.equal(count(/info: connected/), 1, program.log);
	assert.ok(program.log.trimEnd().split('\n').length < 9, program.log); // begins, lost, reset at once, refused, connected, told to stop, ended
});

test('B90: behind a pooler', async (t) => {
	const bouncer = await startPgBouncer();
	if (!bouncer) return t.skip('there is no PgBouncer');
	const connection = { ...bouncer.connection, database: 'nowhere' };
	const worker = newWorker({ connection, waitConnection: asReceiver });
	const run = worker.run();
	await until('it is in the log', () => worker.count(/nowhere.*no such database|nowhere.*does not exist/));
	assert.equal(worker.count(/^warning/), 1, worker.lines.join('\n'));
	assert.ok(worker.lines.some((line) => line.startsWith(`warning work session: cannot connect ${targetOf(connection)}: `)));
	await worker.stop();
	await run;
	await assert.rejects(newWorker({ connection, waitConnection: asSuperuser }).drain(), /no such database|does not exist/);
});

test('B91: a failed attempt, and what follows', async () => {
	const queue = await newQueue();
	const ledger = await newQueue();
	const batch = await newQueue();
	const fail = {
		error: () => { throw new TypeError('fetch failed', { cause: new Error('no route') }); },
		text: () => { throw 'only a text'; },
		retry: () => { throw new Retry('5 minutes', 'busy'); },
		odd: () => { throw new Retry('soon', 'odd'); },
		giveUp: () => { throw new GiveUp('no address'); },
	};
	const one = async ({ payload }) => fail[payload]();
	for (const name of [queue, ledger]) {
		const ids = {};
		for (const what of Object.keys(fail)) ids[what] = await send(pool, name, what);
		const worker = newWorker({ connection: asSuperuser, queues: { [name]: { handle: one, transaction: name === ledger } } });
		assert.equal(await worker.drain(), 5);
		const line = (what) => worker.lines.find((l) => l.includes(`message ${ids[what]} of ${name}, attempt 1 failed`))?.split(' failed, ')[1];
		assert.match(line('error'), /^comes again if attempts are left: fetch failed\nTypeError: fetch failed\n    at .*log\.test\.js.*\ncaused by Error: no route\n/s);
		assert.equal(line('text'), 'comes again if attempts are left: only a text');
		assert.equal(line('retry'), 'comes again in 5 minutes if attempts are left: busy');
		assert.equal(line('odd'), 'comes again if attempts are left: odd');
		assert.equal(line('giveUp'), 'given up: no address');
	}
	for (let i = 0; i < 3; i++) await send(pool, batch, i);
	const worker = newWorker({ connection: asSuperuser, queues: { [batch]: { batch: 3, handle: fail.error } } });
	const calls = [];
	worker.on('failed', (message) => calls.push(message.id));
	assert.equal(await worker.drain(), 3);
	assert.ok(worker.count(/caused by/) <= new Set(calls).size);
	assert.equal(worker.count(/failed, comes again/), 3);
});

test('B92: how it begins and ends, and nothing of what is well', async () => {
	const queues = [await newQueue(), await newQueue()];
	const program = await startProgram(Object.fromEntries(queues.map((queue) => [queue, {}])));
	for (const queue of queues) await program.until('done', 1, await send(pool, queue, {}));
	const gate = newGate();
	await program.until('start', 1, await send(pool, queues[0], { hold: gate.path }));
	program.signal('SIGTERM');
	await until('it has heard', () => program.log.includes('SIGTERM'));
	gate.open();
	assert.equal(await program.exited, 0);
	assert.deepEqual(program.log.trimEnd().split('\n').map((line) => line.replace(/^\S+ delay-wheel /, '')), [
		`info: begins with ${queues.join(', ')} ${targetOf(asReceiver)}`,
		'info: SIGTERM: no new message is taken, handlers still running: 1',
		'info: ended',
	]);
	// drain() is quiet
	const worker = newWorker({ connection: asSuperuser, queues: { [queues[0]]: { handle: async () => {} } } });
	await send(pool, queues[0], {});
	assert.equal(await worker.drain(), 1);
	assert.deepEqual(worker.lines, []);
});
