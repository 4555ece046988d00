// Sends the mails of the queue "mail".  PGHOST and the like say where the database is,
// SMTP_HOST and SMTP_PORT where mails go.  SIGTERM: ends when the mail in hand is sent.
const net = require('net');
const { Client } = require('pg');

let ending = false;
let waiting = null;

process.on('SIGTERM', () => {
	ending = true;
	if (waiting) process.exit(0);
});

// One mail, by the few words of SMTP that it takes.
function send(id, attempt, payload) {
	const lines = [`EHLO example.com`, `MAIL FROM:<shop@example.com>`, `RCPT TO:<${payload.email}>`, `DATA`,
		`From: shop@example.com\r\nTo: ${payload.email}\r\nSubject: ${payload.subject || `Your order ${payload.id}`}\r\n` +
		`Message-ID: <${id}.${attempt}@example.com>\r\n\r\n${payload.text || 'It is not paid yet.'}\r\n.`, `QUIT`];
	return new Promise((resolve, reject) => {
		const socket = net.connect(Number(process.env.SMTP_PORT || 25), process.env.SMTP_HOST || 'localhost');
		let answer = '';
		socket.setTimeout(20000, () => socket.destroy(new Error('the mail server does not answer')));
		socket.on('error', reject);
		socket.on('close', () => reject(new Error('the mail server has gone')));
		socket.on('data', (data) => {
			answer += data;
			const last = answer.match(/(?:^|\n)(\d{3}) .*\r?\n$/);
			if (!last) return;
			answer = '';
			if (last[1] >= 400) { reject(Object.assign(new Error(last[0].trim()), { smtp: Number(last[1]) })); socket.destroy(); return; }
			if (lines.length === 1) resolve();
			socket.write(lines.shift() + '\r\n');
		});
	});
}

// Says that these are done, by one call: each call takes a connection of a pooler, if there is one.
async function finish(db, sent) {
	const done = sent.splice(0);
	if (done.length) await db.query('SELECT delay_done_all($1::bigint[], $2::bigint[])', [done.map((m) => m.id), done.map((m) => m.token)]);
}

async function work(db, sent, { id, token, payload, attempt }) {
	if (ending) return db.query('SELECT delay_release($1, $2)', [id, token]); // no attempt is counted
	try {
		await send(id, attempt, payload);
	} catch (e) {
		console.log(id, payload.email, e.message);
		return db.query('SELECT delay_fail($1, $2, $3, give_up => $4)', [id, token, e.message, e.smtp >= 500]);
	}
	sent.push({ id, token });
	console.log(id, payload.email, 'sent');
}

async function serve() {
	const db = new Client();
	try {
		await new Promise((resolve, reject) => {
			db.on('error', reject); // also while nothing is asked
			(async () => {
				await db.connect();
				while (!ending) {
					waiting = true;
					await db.query("CALL delay_await('mail', '30 s')");
					waiting = false;
					const sent = [];
					let began = Date.now();
					for (const message of (await db.query("SELECT id, token, payload, attempt FROM delay_lease('mail', 10)")).rows) {
						await work(db, sent, message);
						if (Date.now() - began < 1000) continue; // should this program die, only these are sent twice
						await finish(db, sent);
						began = Date.now();
					}
					await finish(db, sent);
				}
				await db.end();
			})().then(resolve, reject);
		});
	} catch (e) { // the server restarts, the network is cut
		console.error(e.message);
		await new Promise((resolve) => setTimeout(resolve, 1000));
	}
	waiting = null;
}

(async () => { while (!ending) await serve(); process.exit(0); })();
