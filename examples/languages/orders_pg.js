// An order is delivered, and rated 48 hours later: with "pg".  PGHOST and the like say where the
// database is.
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

(async () => {
	const db = new Client();
	await db.connect();
	await testIsRatedAfterTwoDays(db);
	await db.query('BEGIN');
	await deliver(db, 2);
	await db.query('COMMIT');
	await db.end();
})();
