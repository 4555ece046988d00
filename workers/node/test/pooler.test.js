// A pooler in transaction mode (B46, B47), and what may not be there behind one.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { send } from '../src/index.js';
import { Session } from '../src/session.js';
import { isGone, newGate, newQueue, pool, query, startPgBouncer, startProgram, until } from './harness.js';

test('B46: prepared statements that are no longer there', async () => {
	const session = new Session('test', {}, { named: true }).start();
	await session.arrived();
	await query('DROP FUNCTION IF EXISTS node_two; CREATE FUNCTION node_two(OUT a int, OUT b int) RETURNS record RETURN (1, 2)');
	const text = 'SELECT * FROM node_two() WHERE a = $1';
	const prepared = async () => (await session.query('SELECT name FROM pg_prepared_statements WHERE statement = $1', [text])).length;
	assert.deepEqual(await session.query(text, [1]), [{ a: 1, b: 2 }]);
	assert.equal(await prepared(), 1);
	await query('DROP FUNCTION node_two; CREATE FUNCTION node_two(OUT a int, OUT b int, OUT c int) RETURNS record RETURN (1, 2, 3)');
	assert.deepEqual(await session.query(text, [1]), [{ a: 1, b: 2, c: 3 }]);
	session.drop();
	await session.arrived();
	assert.deepEqual(await session.query(text, [1]), [{ a: 1, b: 2, c: 3 }]);
	await session.query('DEALLOCATE ALL');
	assert.deepEqual(await session.query(text, [1]), [{ a: 1, b: 2, c: 3 }]);
	assert.equal(await prepared(), 0);
	await query('DROP FUNCTION node_two');
	await session.close();
});

test('B46, B47: PgBouncer in transaction mode for all but waiting', async (t) => {
	const bouncer = await startPgBouncer();
	if (!bouncer) return t.skip('there is no PgBouncer');
	const [queue, ledger] = [await newQueue(), await newQueue()];
	const program = await startProgram({ [queue]: { concurrency: 20, lease: '6 s' }, [ledger]: { transaction: true, concurrency: 2 } },
		{ connection: bouncer.connection, waitConnection: { ...bouncer.connection, host: process.env.PGHOST, port: Number(process.env.PGPORT) } });
	const ids = [];
	for (let i = 0; i < 60; i++) ids.push(await send(pool, i % 3 ? queue : ledger, { sleep: i === 1 ? 2500 : 20 }));
	await program.until('done', 60);
	assert.ok(await isGone(...ids));
	assert.equal(program.all('start').length, 60);
	// the whole wait over the pooler, too: it is ended by a new connection
	const behind = await startProgram({ [await newQueue()]: { concurrency: 1 }, [await newQueue()]: {} }, { connection: bouncer.connection });
	const [a] = Object.keys(behind.options.queues);
	for (let i = 0; i < 3; i++) await behind.until('done', 1, await send(pool, a, { sleep: 20 }));
	assert.equal(await behind.end(), 0);
	// the pooler goes away, and comes back
	const gate = newGate();
	const during = await send(pool, queue, { hold: gate.path });
	await program.until('start', 1, during);
	await bouncer.stop();
	gate.open();
	const later = await send(pool, queue, {});
	await program.until('disconnected', 1);
	await bouncer.start();
	await until('both are done', () => isGone(during, later));
	assert.equal(await program.end(), 0);
});
