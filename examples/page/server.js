// Serves web/delay_wheel.html and its data to browsers on this machine: see doc/web.md.
// PGHOST and the like say which database, and as which role; PORT where to listen.
// ACTIONS=on lets the page cancel, move, retry and pause, with the rights of that role.
const crypto = require('crypto');
const fs = require('fs');
const http = require('http');
const { Pool } = require('pg');

const packaged = `${__dirname}/../web/delay_wheel.html`; // as Debian's package has it
const page = fs.readFileSync(fs.existsSync(packaged) ? packaged : `${__dirname}/../../web/delay_wheel.html`);
// all that the database is ever asked, without ACTIONS=on
const query = "BEGIN READ ONLY; SET LOCAL statement_timeout = '20s'; SELECT delay_wheel.page_data()::text AS data; COMMIT";
const headers = {
	'Cache-Control': 'no-store', 'Content-Security-Policy': "frame-ancestors 'none'; connect-src 'self'",
	'Cross-Origin-Resource-Policy': 'same-origin', 'Referrer-Policy': 'no-referrer', 'X-Content-Type-Options': 'nosniff',
};
const settings = { max: 1, connectionTimeoutMillis: 5000, query_timeout: 25000, fallback_application_name: 'delay_wheel page' };
const pool = (more) => {
	const made = new Pool({ ...settings, ...more });
	made.on('error', () => {}); // a connection has ended while nothing was asked: the next query makes a new one
	return made;
};
const db = pool();

// what the page may do: the call, whose values are parameters; never more than this
const actions = new Map(process.env.ACTIONS !== 'on' ? [] : Object.entries({
	retry: 'delay_retry($1::bigint)', discard: 'delay_discard($1::bigint)', cancel: 'delay_cancel($1::bigint)', stop: 'delay_cancel($1::bigint, true)',
	move: 'delay_reschedule($1::bigint, $2::timestamptz)', run: "delay_reschedule($1::bigint, interval '0')",
	pause: 'delay_wheel.pause_queue($1::text)', resume: 'delay_wheel.resume_queue($1::text)',
	pause_recurring: 'delay_pause_recurring($1::text)', resume_recurring: 'delay_resume_recurring($1::text)',
}));
const token = crypto.randomBytes(32).toString('hex'); // only a page that has read the data knows it
const schema = "SELECT pg_catalog.quote_ident(n.nspname) AS name FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'delay_wheel'";
const actor = pool();

async function act({ action, values }) {
	const call = actions.get(action);
	if (!call || !Array.isArray(values) || values.length !== new Set(call.match(/\$\d/g)).size || !values.every((v) => typeof v === 'string')) return [400, { message: 'there is no such action' }];
	let client;
	try {
		client = await actor.connect();
		await client.query("BEGIN; SET LOCAL statement_timeout = '20s'");
		const where = (await client.query(schema)).rows[0].name;
		const { result } = (await client.query(`SELECT ${call.startsWith('delay_wheel.') ? '' : `${where}.`}${call} AS result`, values)).rows[0];
		await client.query('COMMIT');
		client.release();
		return [200, { result }];
	} catch (e) {
		if (client) client.release(true); // ends the connection, and so the transaction
		return [409, { message: [e.message || e.code, e.detail, e.hint].filter(Boolean).join(' ') }];
	}
}

async function body(request) {
	let text = '';
	for await (const chunk of request) if ((text += chunk).length > 10000) return null;
	try { return JSON.parse(text); } catch (e) { return null; }
}

let trouble = null;
const ask = () => db.query(query).then((results) => [200, results[2].rows[0].data], (e) => {
	const why = 'database: ' + ((e.errors || [e]).map((each) => each.message).join(', ') || e.code);
	return [503, JSON.stringify({ message: why }), why];
}).then((answer) => {
	if (answer[2] && answer[2] !== trouble) console.error(answer[2]);
	trouble = answer[2];
	asked = null;
	if (answer[0] === 200 && actions.size > 0) answer[1] = answer[1].replace(/^\{/, `{"act": {"token": "${token}"}, `);
	return answer;
});
let asked = null; // however many browsers there are, there is one query at a time

const server = http.createServer(async (request, response) => {
	const { method, url, headers: { host, origin, 'content-type': type, 'x-delay-wheel-token': shown = '' } } = request;
	const send = (status, kind, text) => response.writeHead(status, { ...headers, 'Content-Type': `${kind}; charset=utf-8` }).end(text);
	const path = url.split('?')[0];

	// a page from elsewhere, whose name has been made to lead to this machine, gets nothing
	if (!/^(127\.0\.0\.1|localhost)(:\d+)?$/.test(host)) return send(421, 'text/plain', 'this server does not have that name\n');
	if (method === 'POST' && path === '/act' && actions.size > 0) {
		// nor does it act: it neither has this origin, nor can it read the token
		if (origin !== `http://${host}` || type !== 'application/json' || shown.length !== token.length ||
			!crypto.timingSafeEqual(Buffer.from(shown, 'latin1'), Buffer.from(token, 'latin1'))) return send(403, 'text/plain', 'only for the page of this server\n');
		const [status, answer] = await act(await body(request) || {});
		return send(status, 'application/json', JSON.stringify(answer));
	}
	if (method !== 'GET' && method !== 'HEAD') return send(405, 'text/plain', 'only GET\n');
	if (path === '/' || path === '/delay_wheel.html') return send(200, 'text/html', page);
	if (path !== '/delay_wheel.json') return send(404, 'text/plain', 'no such page\n');
	const [status, text] = await (asked = asked || ask());
	return send(status, 'application/json', text);
});
server.on('error', (e) => { console.error(e.message); process.exit(1); });
server.listen(Number(process.env.PORT || 8080), '127.0.0.1', () => {
	console.log(`http://127.0.0.1:${server.address().port}/`);
	asked = ask(); // if the database cannot be reached, that is said at once
});
