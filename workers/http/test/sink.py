"""The other side: answers requests as their path says, and writes a line of JSON for the begin and the
end of each into a file.  "end" has "gone": true if the client hung up before its answer.

    sink.py FILE [CERTIFICATE KEY]        prints its port
"""
import asyncio
import gzip
import json
import ssl
import sys
import time
from urllib.parse import parse_qs, urlsplit

out = open(sys.argv[1], "a", buffering=1)
seen = {}


def note(what, request, **more):
    print(json.dumps({"what": what, "at": time.time(), **request, **more}), file=out)


def plain(status, body=b"", **headers):
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def gone(reader):
    while await reader.read(65536):
        pass


async def answer(kind, query, request, reader, writer):
    """Returns whether the connection can be used again."""
    first = lambda name, default=None: query.get(name, [default])[0]
    if kind.isdigit():
        headers = {name.title(): first(name) for name in ("retry-after", "location", "connection") if first(name)}
        writer.write(plain(int(kind), first("body", "" if kind == "204" else "an answer").encode("latin1"), **headers))
    elif kind == "flaky":  # the first N times 503
        key = request["headers"].get("webhook-id")
        seen[key] = seen.get(key, 0) + 1
        writer.write(plain(503 if seen[key] <= int(first("times", "1")) else 200))
    elif kind == "slow":
        hung_up = asyncio.ensure_future(gone(reader))
        done, _ = await asyncio.wait([hung_up], timeout=float(first("seconds", "60")))
        if done:
            raise ConnectionResetError
        hung_up.cancel()
        writer.write(plain(200, b"late", Connection="close"))
        return False
    elif kind == "half":
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\nhalf")
        return False
    elif kind == "large":
        writer.write(plain(200, b"x" * 10_000_000))
    elif kind == "endless":
        writer.write(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"400\r\n" + b"y" * 1024 + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)
    elif kind == "headers":
        writer.write(b"HTTP/1.1 200 X\r\n")
        while True:
            writer.write(b"X-More: " + b"z" * 1000 + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)
    elif kind == "gzip":
        writer.write(plain(200, gzip.compress(b"a" * 100_000), Content_Encoding="gzip"))
    elif kind == "euro":
        writer.write(plain(200, "€".encode()))
    elif kind == "bytes":  # no UTF-8, and a NUL
        writer.write(plain(200, bytes(range(256))))
    else:
        writer.write(plain(404))
    return True


async def serve(reader, writer):
    try:
        again = True
        while again:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1")
            line, *rest = head.rstrip("\r\n").split("\r\n")
            method, target, _ = line.split(" ", 2)
            headers = {name.lower(): value.strip() for name, value in (h.split(":", 1) for h in rest)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            url = urlsplit(target)
            request = {"id": headers.get("webhook-id"), "method": method, "target": target, "headers": headers,
                       "head": head, "body": body.decode("utf8", "replace")}
            note("begin", request)
            is_answered = False
            try:
                again = await answer(url.path.strip("/"), parse_qs(url.query), request, reader, writer)
                await writer.drain()
                is_answered = True
            finally:
                note("end", request, gone=not is_answered)
            again = again and "connection" not in parse_qs(url.query)
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


async def main():
    context = None
    if len(sys.argv) > 2:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[2], sys.argv[3])
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context, limit=1 << 20, backlog=2000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
