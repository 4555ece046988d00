// Queues and rights (B50 to B53).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { send } from '../src/index.js';
import { createQueue, newQueue, pool, Program, query, server, sleep, startProgram, until } from './harness.js';

const breaks = {
	missing: null,
	dropped: 'SELECT delay_wheel.drop_queue($1)',
	'SQL-only': 'SELECT delay_wheel.create_queue($1, external => false)',
	'without rights': "SELECT delay_wheel.create_queue($1, receivers => '{}')",
};
for (const [name, broken] of Object.entries(breaks)) {
	test(`B50, B53: a queue that is ${name}`, async () => {
		const [good, bad] = [await newQueue(), `node_bad_${process.pid}_${name.replace(/\W/g, '_')}`];
		const program = new Program({ queues: { [good]: {}, [bad]: { lease: '1 s' } } });
		const works = (queue) => send(pool, queue, {}).then((id) => program.until('done', 1, id));
		if (broken) {
			await createQueue(bad);
			await program.waits(good, bad);
			const held = name === 'without rights' ? await send(pool, bad, { sleep: 100_000 }) : null;
			if (held) await program.until('start', 1, held);
			else await works(bad);
			await until(`it is ${name}`, () => query(broken, [bad]).then(() => true, (error) => { if (error.code !== '55006') throw error; }));
			if (held) {
				await program.until('lost', 1, held);
				assert.match(program.log, /leases cannot be extended/);
				await query('SELECT delay_cancel($1, stop_running => true)', [held]);
			}
		}
		await works(good);
		await program.until('problem');
		await works(good);
		await createQueue(bad);
		await works(bad);
		assert.equal(program.all('problem').length, 1, 'one event for each episode');
		assert.equal(program.all('problem')[0].name, bad);
		assert.equal(await program.end(), 0);
	});
}

test('B51: the role is not allowed at all', async () => {
	const queue = await newQueue();
	await query('CREATE ROLE dw_node_none LOGIN');
	try {
		const program = new Program({ queues: { [queue]: {} }, connection: { ...server, user: 'dw_node_none' } });
		await program.until('problem');
		await query("SELECT delay_wheel.allow('dw_node_none')");
		await query("SELECT delay_wheel.create_queue($1, receivers => '{dw_node_none}')", [queue]);
		await program.until('done', 1, await send(pool, queue, {}));
		assert.equal(await program.end(), 0);
		// of other errors of a connection it tries again, too
		const nobody = new Program({ queues: { [queue]: {} }, connection: { ...server, user: 'dw_node_nobody' } });
		await until('it has tried', () => /dw_node_nobody/.test(nobody.log));
		assert.equal(await nobody.end(), 0);
	} finally {
		await query("SELECT delay_wheel.create_queue($1, receivers => '{}')", [queue]);
		await query('SELECT delay_wheel.disallow($1)', ['dw_node_none']).catch(() => {});
		await query('DROP OWNED BY dw_node_none; DROP ROLE dw_node_none');
	}
});

test('B52: a paused queue', async () => {
	const queue = await newQueue();
	const program = await startProgram({ [queue]: {} });
	await query('SELECT delay_wheel.pause_queue($1)', [queue]);
	const id = await send(pool, queue, {});
	await sleep(300); // it would have begun by now
	assert.equal(program.all('start').length, 0);
	await query('SELECT delay_wheel.resume_queue($1)', [queue]);
	await program.until('done', 1, id);
	assert.equal(program.all('problem').length, 0);
	assert.equal(await program.end(), 0);
});
