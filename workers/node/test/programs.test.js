// Options, listeners, the functions for senders (B80 to B83), and the package itself.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { test } from 'node:test';
import * as library from '../src/index.js';
import { here, isGone, long, newQueue, one, pool, query, row, scratch, server, startProgram, until } from './harness.js';

const { GiveUp, Retry, schedule, send, Worker } = library;
const root = path.join(here, '..');
// the blocks of code of README.md, all of which are run
const blocks = [...fs.readFileSync(path.join(root, 'README.md'), 'utf8').matchAll(/^```(\w+)\n(.*?)^```$/gms)].map(([, kind, text]) => ({ kind, text }));
const [declaration, program, commands, ledger, testing, sending, adapters] = blocks.map((block) => block.text);
// as scripts/setup installs them
const require = createRequire(import.meta.url);
const have = (name) => {
	for (const from of [require, ...(process.env.DW_DRIVER_MODULES ?? '').split(':').filter(Boolean).map((dir) => createRequire(path.join(dir, 'any.js')))]) {
		try { return from(name); } catch (error) { if (error.code !== 'MODULE_NOT_FOUND') throw error; }
	}
	return null;
};

test('B80: wrong options', () => {
	const handle = async () => {};
	for (const [options, text] of [
		[undefined, /options/], [{}, /queues/], [{ queues: {} }, /queues/], [{ queues: { a: {} } }, /handle/], [{ queues: { a: { handle: 1 } } }, /handle/],
		[{ queues: { a: { handle, concurrency: 0 } } }, /concurrency/], [{ queues: { a: { handle, concurrency: 1.5 } } }, /concurrency/],
		[{ queues: { a: { handle, batch: 1001 } } }, /batch/], [{ queues: { a: { handle, lease: 30 } } }, /lease/], [{ queues: { a: { handle, transaction: true, lease: '1 s' } } }, /transaction/],
		[{ queues: { a: { handle, paralel: 3 } } }, /paralel/], [{ queues: { a: { handle } }, retry: 3 }, /retry/], [{ queues: { a: { handle } }, around: 1 }, /around/], [{ queues: { a: { handle } }, log: 1 }, /log/],
		[{ queues: Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`q${i}`, { handle }])) }, /32/],
	]) assert.throws(() => new Worker(options), { name: 'TypeError', message: text });
	assert.equal(new Retry(1500).delay, '1500 ms');
	assert.equal(new GiveUp(new Error('why')).message, 'why');
});

test('B81: what listeners, log and around throw', async () => {
	const queue = await newQueue();
	const program = await startProgram({ [queue]: {} }, { around: true, badListener: true, badLog: true });
	const [good, bad] = [await send(pool, queue, {}), await send(pool, queue, { around: 'it is around' })];
	await until('it is gone', () => isGone(good));
	await until('it has failed', async () => (await row(bad)).last_error === 'DW007: it is around');
	assert.match(program.log, /bad listener/);
	assert.match(program.log, /its log throws/);
	assert.equal(await program.end(), 0);
});

test('B82: send and schedule, by whatever has query()', async (t) => {
	const queue = await newQueue({ });
	await query('DROP TABLE IF EXISTS node_sent; CREATE TABLE node_sent (id int, at timestamptz, note text, list text)');
	const knex = have('knex')?.({ client: 'pg', connection: { ...server, user: process.env.PGUSER }, pool: { min: 0, max: 1 } });
	const drizzle = have('drizzle-orm/node-postgres')?.drizzle({ client: pool });
	const { sql } = have('drizzle-orm') ?? {};
	const { PrismaClient } = have('.prisma/client') ?? {};
	const prisma = PrismaClient && new PrismaClient({ adapter: new (have('@prisma/adapter-pg').PrismaPg)({ ...server, user: process.env.PGUSER, max: 1 }) });
	const { ofKnex, ofPrisma, ofDrizzle } = new Function('sql', `${adapters}; return { ofKnex, ofPrisma, ofDrizzle };`)(sql); // as README.md has them
	const client = await pool.connect();
	const databases = {
		pool,
		client,
		knex: knex && ofKnex(knex),
		drizzle: drizzle && ofDrizzle(drizzle),
		prisma: prisma && ofPrisma(prisma),
		// as Prisma's $queryRawUnsafe(text, ...values) answers
		rows: { query: async (text, values) => (await pool.query(text, values)).rows.map((r) => ({ id: BigInt(r.id) })) },
	};
	for (const [name, db] of Object.entries(databases)) {
		if (!db) { t.diagnostic(`${name} is not there`); continue; }
		const at = new Date('2030-01-02T03:04:05Z');
		const id = await send(db, queue, { name, "it's": '?' }, { due: at, key: `key ${name}`, ifExists: 'replace', tag: "a 'tag'", priority: 3, maxAttempts: 7, headers: { a: 1 }, retryDelay: '7 minutes', onSuccess: 'SELECT $1' });
		assert.equal(typeof id, 'string');
		const { payload, due, key, tag, priority, max_attempts, headers, retry_delay, on_success } = await row(id);
		assert.deepEqual({ payload, key, tag, priority, max_attempts, headers, retry_delay, on_success },
			{ payload: { name, "it's": '?' }, key: `key ${name}`, tag: "a 'tag'", priority: 3, max_attempts: 7, headers: { a: 1 }, retry_delay: '00:07:00', on_success: 'SELECT $1' });
		assert.equal(+due, +at);
		const numbered = await schedule(db, 'INSERT INTO node_sent VALUES ($1, $2, $3, $4)', [7, at, 'a "quoted", \\ {text}', null], { delay: 10 });
		const named = await schedule(db, 'INSERT INTO node_sent (id, note) VALUES (:id, :note)', { id: 8, note: name }, { delay: '20 ms', timeout: '1 minute' });
		for (const task of [numbered, named]) assert.match(await one("SELECT delay_wait($1, '20 s')", [task]), /^(done|gone)$/);
		const done = await query('SELECT id, at, note, list FROM node_sent ORDER BY id');
		assert.deepEqual(done, [{ id: 7, at, note: 'a "quoted", \\ {text}', list: null }, { id: 8, at: null, note: name, list: null }]);
		await query('DELETE FROM node_sent');
		await query('SELECT delay_cancel($1)', [id]);
	}
	// it is part of the caller's transaction
	await client.query('BEGIN');
	const id = await send(client, queue, {});
	await client.query('ROLLBACK');
	client.release();
	assert.ok(await isGone(id));
	await knex?.destroy();
	await prisma?.$disconnect();
});

test('B83: the sources use public functions only', () => {
	const allowed = /^(delay_await_any|delay_end_await|delay_lease|delay_receive|delay_done|delay_done_all|delay_fail|delay_release|delay_extend|delay_send|delay_schedule_task|delay_wheel\.queues|delay_wheel\.tasks)$/;
	const used = new Set();
	for (const file of fs.readdirSync(path.join(root, 'src')).filter((name) => name.endsWith('.js'))) {
		const code = fs.readFileSync(path.join(root, 'src', file), 'utf8').replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$|\/\/ .*$/gm, '');
		for (const [name] of code.matchAll(/\bdelay_wheel\.\w+|\bdelay_\w+|\bdw_\w+/g)) if (!/^delay_wheel(_fail)?$/.test(name)) used.add(name); // names of savepoints
		for (const [, name] of code.matchAll(/from '([^./][^']*)'/g)) assert.match(name, /^(pg|node:\w+(\/promises)?)$/, `${file} needs ${name}`);
	}
	assert.deepEqual([...used].filter((name) => !allowed.test(name)), []);
	assert.ok(used.size > 8);
});

const run = (dir, command, ...args) => execFileSync(command, args, { cwd: dir, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

test('the package: packed and installed, the programs of README.md', async () => {
	assert.deepEqual(blocks.map((block) => block.kind), ['sql', 'js', 'sh', 'js', 'js', 'js', 'js']);
	const modules = path.resolve(require.resolve('pg'), '../../..');
	const app = path.join(scratch, 'parent', 'app');
	fs.mkdirSync(app, { recursive: true });
	fs.symlinkSync(modules, path.join(scratch, 'parent', 'node_modules')); // "pg" is the application's
	const [{ files }] = JSON.parse(run(root, 'npm', 'pack', '--json', '--pack-destination', scratch));
	assert.deepEqual(files.map((f) => f.path).filter((name) => !/^(src\/\w+\.(d\.ts|js)|README\.md|package\.json|LICENSE)$/.test(name)), []);
	assert.ok(files.some((f) => f.path === 'README.md'));
	fs.writeFileSync(path.join(app, 'package.json'), '{"private": true}');
	// the commands after "<!-- shown by: workers/node/test/programs.test.js -->"; "pg" is there, and nothing is downloaded
	const [install, start] = commands.trim().split('\n');
	assert.match(install, / pg .*~\/delay_wheel\/workers\/node/);
	Object.assign(process.env, { npm_config_offline: 'true', npm_config_legacy_peer_deps: 'true', npm_config_audit: 'false', npm_config_fund: 'false' });
	run(app, 'bash', '-ec', install.replace(' pg ', ' ').replace('~/delay_wheel/workers/node', root));
	// what the types declare is there, and nothing else
	const { types } = JSON.parse(fs.readFileSync(path.join(app, 'node_modules/delay-wheel/package.json'))).exports['.'];
	const declared = [...fs.readFileSync(path.join(app, 'node_modules/delay-wheel', types), 'utf8').matchAll(/^export (?:declare )?(?:class|function) (\w+)/gm)].map((m) => m[1]);
	assert.deepEqual(declared.sort(), Object.keys(library).sort());

	// the worker, by the installed package
	await query(declaration);
	const id = await one("SELECT id FROM delay_wheel.tasks WHERE queue = 'mail'");
	await query("SELECT delay_reschedule($1, '0')", [id]);
	fs.writeFileSync(path.join(app, 'worker.mjs'), program);
	const url = new URL(`postgresql://${process.env.PGUSER ?? 'postgres'}@localhost/${server.database}`);
	url.searchParams.set('host', server.host);
	url.searchParams.set('port', server.port);
	const worker = spawn('bash', ['-c', `exec ${start}`], { cwd: app, env: { ...process.env, DATABASE_URL: String(url) }, stdio: ['ignore', 'pipe', 'pipe'] });
	let output = '';
	let log = '';
	worker.stdout.on('data', (data) => { output += data; });
	worker.stderr.on('data', (data) => { log += data; });
	const exited = once(worker, 'close');
	await until(`it has worked: ${log}`, () => output === 'to anna@example.com\n');
	await until('the message is done', () => isGone(id));
	await query("SELECT delay_send('mail', '{}')");
	await until('it gives up what has no address', async () => (await query("SELECT FROM delay_wheel.failed WHERE queue = 'mail' AND message = 'no address'")).length === 1);
	worker.kill('SIGTERM');
	assert.equal((await exited)[0], 0, log);

	// a test of an application
	fs.writeFileSync(path.join(app, 'mail.test.mjs'), `import assert from 'node:assert/strict'
		import { test } from 'node:test'
		import pg from 'pg'
		import { send, Worker } from 'delay-wheel'
		const db = new pg.Pool({ connectionString: process.env.DATABASE_URL })
		test.after(() => db.end())
		${testing}`);
	const { NODE_TEST_CONTEXT: _, ...env } = process.env;
	assert.match(execFileSync(process.execPath, ['--test', '--test-reporter=tap', 'mail.test.mjs'], { cwd: app, encoding: 'utf8', env: { ...env, DATABASE_URL: String(url) } }), /^# pass 1$/m);

	// a queue with "transaction"
	await query('DROP TABLE IF EXISTS ledger; CREATE TABLE ledger (id int)');
	await query("SELECT delay_wheel.create_queue('ledger', external => true)");
	await send(pool, 'ledger', { id: 7 });
	const queues = new Function(`return { ${ledger} }`)();
	assert.equal(await new Worker({ connection: { ...server, user: process.env.PGUSER }, queues, log: false }).drain(), 1);
	assert.deepEqual(await query('SELECT id FROM ledger'), [{ id: 7 }]);

	// a sender
	await query('DROP TABLE IF EXISTS orders; CREATE TABLE orders (id int, stars int)');
	fs.writeFileSync(path.join(app, 'send.mjs'), `import pg from 'pg'
		const db = new pg.Client(${JSON.stringify({ ...server, user: process.env.PGUSER })})
		await db.connect()
		${sending}
		await db.end()`);
	run(app, process.execPath, 'send.mjs');
	const tasks = await query("SELECT id, key, payload, args, round(extract(epoch FROM due - now()) / 60)::int AS minutes FROM delay_wheel.tasks WHERE queue = 'mail' OR sql LIKE 'UPDATE orders SET stars%' ORDER BY id");
	for (const task of tasks) await query('SELECT delay_cancel($1)', [task.id]);
	assert.deepEqual(tasks.map(({ id: _, ...task }) => task), [{ key: 'order 7', payload: { to: 'anna@example.com' }, args: null, minutes: 30 }, { key: null, payload: null, args: ['7'], minutes: 48 * 60 }]);
	for (const queue of ['mail', 'ledger']) await query('SELECT delay_wheel.drop_queue($1)', [queue]);
	await query('DROP TABLE ledger, orders');
});

test('the types', { skip: !have('typescript') && 'typescript is not there' }, () => {
	try {
		run(root, 'npm', 'run', 'types', ...(long ? ['--', '--skipLibCheck', 'false'] : []));
	} catch (error) {
		assert.fail(error.stdout);
	}
});
