// Receives webhooks, and verifies their signatures.  SECRET is that of the endpoint, PORT where to
// listen.
import http from 'node:http';
import { Webhook } from 'standardwebhooks';

const webhook = new Webhook(process.env.SECRET);
const seen = new Set(); // a real program has a table, with this id as its key

http.createServer(async (request, response) => {
	let body = '';
	for await (const chunk of request.setEncoding('utf8')) body += chunk;
	try {
		const order = webhook.verify(body, request.headers); // throws if anything is forged, or older than 5 minutes
		const id = request.headers['webhook-id'];
		if (!seen.has(id)) console.log('not paid:', order.oid, order.email);
		seen.add(id);
		response.writeHead(204).end();
	} catch (error) {
		response.writeHead(401).end(error.message);
	}
}).listen(Number(process.env.PORT ?? 8080), '127.0.0.1');
