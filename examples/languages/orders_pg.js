// An order is delivered, and rated 48 hours later: with "pg".  With the argument "work" it is
// a worker for the messages of a queue.  PGHOST and the like say where the database is.
const { Client } = require('pg');

async function deliver(db, id) { // within the caller's transaction
	await db.query("UPDATE orders SET state = 'delivered' WHERE id = $1", [id]);
	await db.query("SELECT delay_schedule_task('UPDATE orders SET stars = 5 WHERE id = :id AND stars IS NULL', delay => '48 hours', named => $1)", [{ id }]);
}

async function testIsRatedAfterTwoDays(db) {
	await db.query('BEGIN');
	try {
		await deliver(db, 1);
		await db.query("SELECT delay_run_due(now() + interval '48 hours')");
		const { rows } = await db.query('SELECT stars FROM orders WHERE id = 1');
		if (rows[0].stars !== 5) throw new Error('it is not rated');
	} finally {
		await db.query('ROLLBACK');
	}
}

async function work(db, queue) { // a connection of its own, outside of transactions
	for (;;) {
		await db.query("CALL delay_await($1, '30 s')", [queue]);
		const { rows: [message] } = await db.query('SELECT id, token, payload FROM delay_lease($1)', [queue]);
		if (!message) continue; // another worker was faster
		const { id, token, payload } = message;
		try {
			await send(payload.email);
		} catch (e) {
			await db.query('SELECT delay_fail($1, $2, $3)', [id, token, e.message]);
			continue;
		}
		await db.query('SELECT delay_done($1, $2)', [id, token]);
	}
}

async function send(email) {
	if (!email) throw new Error('no address');
	console.log('to', email);
}

(async () => {
	const db = new Client();
	await db.connect();
	if (process.argv[2] === 'work') await work(db, process.env.PGUSER);
	await testIsRatedAfterTwoDays(db);
	await db.query('BEGIN');
	await deliver(db, 2);
	await db.query('COMMIT');
	await db.end();
})();
