// What the tests share.  The server is that of PGHOST, PGPORT, PGUSER (a superuser), PGDATABASE.
//
// Workers under test are programs of their own (program.js), as a role that may only receive, so
// that they can be killed and frozen.  What they did is read from the file that their handlers
// write, and from committed rows.

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import pg from 'pg';

export const here = path.dirname(fileURLToPath(import.meta.url));
export const long = Boolean(process.env.DW_LONG);
// of each file its own, so that they do not terminate each other's sessions
export const ROLE = `dw_node_${path.basename(process.argv[1]).split('.')[0]}`;
export const scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'dw-node-'));
fs.chmodSync(scratch, 0o777);

// The address of the server, told in full: a worker gets it with another user, or another port.
export const server = { host: process.env.PGHOST ?? 'localhost', port: Number(process.env.PGPORT ?? 5432), database: process.env.PGDATABASE ?? 'postgres' };
export const asReceiver = { ...server, user: ROLE };

const programs = new Set();
const closers = [];

export const pool = new pg.Pool({ max: 3 });
pool.on('error', () => {}); // tests restart the server

/** Rows of a statement, as superuser. */
export const query = async (text, values) => (await pool.query(text, values)).rows;
export const one = async (text, values) => Object.values((await query(text, values))[0])[0];

await query('CREATE EXTENSION IF NOT EXISTS delay_wheel');
if (!(await query('SELECT FROM pg_roles WHERE rolname = $1', [ROLE])).length) await query(`CREATE ROLE ${ROLE} LOGIN`);
await query('SELECT delay_wheel.allow($1)', [ROLE]);

after(async () => {
	for (const program of programs) program.child.kill('SIGKILL');
	for (const close of closers.reverse()) await close();
	for (let i = 1; i <= queues; i++) {
		// a killed worker may still have leases
		await query("SELECT delay_cancel_all(queue => $1, due_from => '-infinity')", [nameOf(i)]).catch(() => {});
		await until(`queue ${i} is dropped`, () => query('SELECT delay_wheel.drop_queue($1)', [nameOf(i)]).then(() => true, (error) => error.code === '42704'), 3000).catch(() => {});
	}
	await Promise.race([pool.end(), sleep(2000)]); // a test that failed may have kept a client
	fs.rmSync(scratch, { recursive: true, force: true });
	setTimeout(() => process.exit(), 3000).unref(); // it may also have left something open
});

/** Called after the last test of the file. */
export function atEnd(close) {
	closers.push(close);
}

let queues = 0;
const nameOf = (n) => `node_${process.pid}_${n}`;

/** A new queue that the role may receive from. */
export async function newQueue(options = {}) {
	const name = nameOf(++queues);
	await createQueue(name, options);
	return name;
}

export function createQueue(name, options = {}) {
	return query('SELECT delay_wheel.create_queue($1, external => true, receivers => $2::name[], options => $3)',
		[name, [ROLE], JSON.stringify({ retry_delay: '1 hour', history: 'all', ...options })]);
}

/** Waits for a condition.  The limit is for what never comes: a busy machine may take its time. */
export async function until(what, condition, ms = 60_000) {
	const limit = performance.now() + ms;
	for (;;) {
		let value = false;
		try {
			value = await condition();
		} catch (error) {
			if (error instanceof pg.DatabaseError && !error.code.startsWith('57P')) throw error;
		}
		if (value) return value;
		if (performance.now() > limit) throw new Error(`in vain: ${what}`);
		await sleep(10);
	}
}

/** A gate for handlers: { hold: gate.path } lasts until open(). */
export function newGate() {
	const file = path.join(scratch, `gate${++gates}`);
	return { path: file, open: () => fs.writeFileSync(file, '') };
}
let gates = 0;

/**
 * For what depends on a process being run in time, which a busy machine may fail to do: tried with
 * longer times before it counts.
 */
export async function patiently(t, times, attempt) {
	for (const [i, time] of times.entries()) {
		try {
			return await attempt(time);
		} catch (error) {
			if (i === times.length - 1) throw error;
			t.diagnostic(`with ${time} ms: ${error.message.split('\n')[0]}`);
		}
	}
}

export function sleep(ms) {
	return new Promise((resolve) => { setTimeout(resolve, ms); });
}

/** What the table of tasks has of a message, as superuser. */
export async function row(id) {
	return (await query('SELECT *, round(extract(epoch FROM due - now()))::int AS due_in FROM delay_wheel.tasks WHERE id = $1', [id]))[0];
}

export const isGone = async (...ids) => await one('SELECT count(*)::int FROM delay_wheel.tasks WHERE id = ANY ($1::bigint[])', [ids]) === 0;

/** A program with a worker; see program.js for its options. */
export class Program {
	constructor(options) {
		this.file = path.join(scratch, `${programs.size}.lines`);
		fs.writeFileSync(this.file, '');
		this.options = { connection: asReceiver, file: this.file, ...options };
		programs.add(this);
		this.child = spawn(process.execPath, [path.join(here, 'program.js'), JSON.stringify(this.options)], { stdio: ['ignore', 'ignore', 'pipe'] });
		this.log = '';
		this.child.stderr.on('data', (data) => { this.log += data; });
		this.exited = once(this.child, 'close').then(([code, signal]) => signal ?? code);
	}

	get pid() { return this.child.pid; }

	/** Lines that handlers and events have written: { what, queue, id, attempt, at, pid, ... } */
	get lines() { return linesOf(this.file); }

	all(what, id) { return this.lines.filter((line) => line.what === what && (id === undefined || line.id === id)); }

	/** Waits for so many lines of a kind. */
	async until(what, n = 1, id = undefined, ms = undefined) {
		return until(`${n} lines "${what}"${id === undefined ? '' : ` of message ${id}`}, of ${JSON.stringify(this.options.queues)}:\n${this.log}\n${fs.readFileSync(this.file, 'utf8').slice(-2000)}`, () => {
			const lines = this.all(what, id);
			return lines.length >= n ? lines : null;
		}, ms);
	}

	/** Waits until it waits for messages of these queues. */
	async waits(...names) {
		await until(`${names} are waited for:\n${this.log}`, async () => await one('SELECT count(*)::int FROM delay_wheel.queues WHERE name = ANY ($1::text[]) AND awaiting > 0', [names]) === names.length);
		return this;
	}

	signal(signal) { this.child.kill(signal); }

	/** Ends it in peace, or tells how it did not. */
	async end(signal = 'SIGTERM') {
		this.signal('SIGCONT');
		this.signal(signal);
		return this.exited;
	}
}

export function linesOf(file) {
	return fs.readFileSync(file, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
}

/** A worker of these queues, which already waits for them: { name: options }. */
export async function startProgram(queues, options = {}) {
	const program = new Program({ queues, ...options });
	return program.waits(...Object.keys(queues));
}

/** Between a worker and the server: a network that can be cut, slowed, and become silent. */
export class Proxy {
	#sockets = new Set();
	#server;
	silent = false;
	delay = 0; // ms, in each direction
	lastSent = ''; // to the server
	#held = null; // functions: answers that have not been passed on

	async start(port = 0) {
		this.#server = net.createServer((client) => this.#accept(client));
		this.#server.listen(port, '127.0.0.1');
		await once(this.#server, 'listening');
		this.port = this.#server.address().port;
		this.#server.unref();
		return this;
	}

	get connection() { return { ...asReceiver, host: '127.0.0.1', port: this.port }; }

	#accept(client) {
		const upstream = server.host.startsWith('/') ? net.connect(`${server.host}/.s.PGSQL.${server.port}`) : net.connect(server.port, server.host);
		for (const [from, to] of [[client, upstream], [upstream, client]]) {
			this.#sockets.add(from);
			from.on('error', () => {});
			from.on('close', () => { this.#sockets.delete(from); if (!this.silent) to.destroy(); });
			from.on('data', (data) => {
				if (from === client) this.lastSent = data.toString('latin1');
				if (this.silent) return; // lost on the way
				if (this.#held && from === upstream) return this.#held.push(() => { if (!to.destroyed) to.write(data); });
				if (!this.delay) to.write(data);
				else setTimeout(() => { if (!to.destroyed && !this.silent) to.write(data); }, this.delay);
			});
		}
	}

	/** Connections break, new ones are refused. */
	async cut() {
		this.#server.close();
		this.reset();
		await sleep(0);
	}

	async mend() {
		this.silent = false;
		this.#held = null;
		this.reset(); // of silent connections nobody knows how much was lost
		if (!this.#server.listening) await this.start(this.port);
	}

	/** The server hears, its answers are on their way until passOn(). */
	holdAnswers() { this.#held = []; }

	passOn() {
		const held = this.#held;
		this.#held = null;
		for (const pass of held) pass();
	}

	reset() {
		for (const socket of this.#sockets) socket.destroy();
	}
}

/** Where the server writes its log: what the postmaster has as standard error. */
export async function serverLog() {
	const [pid] = fs.readFileSync(path.join(await one('SHOW data_directory'), 'postmaster.pid'), 'utf8').split('\n');
	const file = fs.readlinkSync(`/proc/${pid}/fd/2`);
	if (!fs.statSync(file).isFile()) throw new Error(`the log of the server is no file: ${file}`);
	return file;
}

export async function serverControl() {
	const data = await one('SHOW data_directory');
	const bin = await one("SELECT setting FROM pg_config WHERE name = 'BINDIR'");
	return (...args) => runPgCtl(bin, data, ...args);
}

async function runPgCtl(bin, data, ...args) {
	const { uid, gid } = fs.statSync(data);
	const child = spawn(`${bin}/pg_ctl`, ['-D', data, '-w', '-s', '-l', `${data}/../restarted.log`, ...args],
		{ stdio: 'ignore', cwd: '/', ...(process.getuid() !== uid && { uid, gid }) });
	const [code] = await once(child, 'close');
	if (code !== 0) throw new Error(`pg_ctl ${args.join(' ')} ends with ${code}`);
}

/** PgBouncer in transaction mode; null if there is none. */
export async function startPgBouncer() {
	const bin = ['/usr/sbin/pgbouncer', '/usr/local/bin/pgbouncer', '/usr/bin/pgbouncer'].find((file) => fs.existsSync(file));
	if (!bin) return null;
	const port = await freePort();
	const ini = path.join(scratch, 'pgbouncer.ini');
	fs.writeFileSync(path.join(scratch, 'users'), `"${ROLE}" ""\n`);
	fs.writeFileSync(ini, `[databases]
${server.database} = host=${server.host} port=${server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${path.join(scratch, 'users')}
pool_mode = transaction
default_pool_size = 3
server_lifetime = 3
logfile = ${path.join(scratch, 'pgbouncer.log')}
`);
	const start = async () => {
		const root = process.getuid() === 0 && fs.statSync('/var/tmp') && Number(spawnSync('id', ['-u', 'nobody'], { encoding: 'utf8' }).stdout);
		const child = spawn(bin, ['-q', ini], { stdio: 'ignore', ...(root && { uid: root }) });
		await until('PgBouncer accepts connections', () => new Promise((resolve) => {
			const socket = net.connect(port, '127.0.0.1', () => { socket.destroy(); resolve(true); });
			socket.on('error', () => resolve(false));
		}));
		return child;
	};
	const bouncer = { connection: { ...asReceiver, host: '127.0.0.1', port }, child: await start() };
	bouncer.stop = async () => {
		const ended = once(bouncer.child, 'close');
		bouncer.child.kill('SIGQUIT');
		await ended;
	};
	bouncer.start = async () => { bouncer.child = await start(); };
	atEnd(() => bouncer.stop().catch(() => {}));
	return bouncer;
}

async function freePort() {
	const socket = net.createServer().listen(0, '127.0.0.1');
	await once(socket, 'listening');
	const { port } = socket.address();
	socket.close();
	await once(socket, 'close');
	return port;
}

/**
 * Messages that were at work twice at the same time, by the lines of all programs.  Work that was
 * begun and not ended lasts until its program was killed or frozen: ends has the times of that.
 */
export function overlaps(lines, ends = []) {
	const spans = new Map();
	for (const line of lines) {
		const key = `${line.pid} ${line.id} ${line.attempt}`;
		if (line.what === 'start') spans.set(key, { id: line.id, pid: line.pid, from: line.at, to: Infinity });
		if (line.what === 'end' && spans.has(key)) spans.get(key).to = line.at;
	}
	const byId = new Map();
	for (const span of spans.values()) {
		for (const end of ends) if (end.pid === span.pid && end.at >= span.from && end.at < span.to) span.to = end.at;
		byId.set(span.id, [...byId.get(span.id) ?? [], span]);
	}
	const found = [];
	for (const list of byId.values()) {
		list.sort((a, b) => a.from - b.from);
		for (let i = 1; i < list.length; i++) if (list[i].from < list[i - 1].to) found.push([list[i - 1], list[i]]);
	}
	return found;
}

/** Most handlers that were at work at the same time. */
export function mostAtOnce(lines) {
	let now = 0;
	let most = 0;
	for (const line of lines) {
		if (line.what === 'start') most = Math.max(most, ++now);
		if (line.what === 'end') now--;
	}
	return most;
}
