"""Figures: requests a second, requests at a time and their memory, and from due to the sink.
Needs PGHOST and the like, as the tests do.  bench.py [REQUESTS]"""
import asyncio
import os
import subprocess
import sys
import time

import psycopg

from harness import DATABASE, HERE, PROGRAM


def sink(seconds, file):
    """Answers each request after that time, and notes when it came."""
    class Connection(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport, self.data = transport, b""

        def data_received(self, data):
            self.data += data
            while (end := self.data.find(b"\r\n\r\n")) >= 0:
                head = self.data[:end].lower()
                at = head.find(b"content-length: ")
                length = end + 4 + (int(head[at + 16:].split(b"\r", 1)[0]) if at >= 0 else 0)
                if len(self.data) < length:
                    return
                if file:
                    file.write(f"{time.time()} {self.data.split(b' ', 2)[1].decode()}\n")
                self.data = self.data[length:]
                asyncio.get_running_loop().call_later(seconds, self.answer) if seconds else self.answer()

        def answer(self):
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async def serve():
        server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=4000)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(serve())


class Process:
    def __init__(self, *command, **more):
        self.process = subprocess.Popen(command, **more)

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def start_sink(seconds, file=""):
    process = Process(sys.executable, __file__, "sink", str(seconds), file, stdout=subprocess.PIPE, text=True)
    return process, f"http://127.0.0.1:{process.process.stdout.readline().strip()}"


def program(*options):
    return Process(PROGRAM, "--allow-address", "127.0.0.1", *options, env={**os.environ, "PGDATABASE": DATABASE, "PGUSER": "delay_http_worker"},
                   stderr=subprocess.DEVNULL)


def main(total):
    admin = psycopg.connect("", dbname=os.environ.get("PGDATABASE", "postgres"), autocommit=True)
    admin.execute(f"CREATE DATABASE {DATABASE}")
    subprocess.run(["psql", "-Xq", "-d", DATABASE, "-f", str(HERE.parent / "setup.sql")], check=True)
    db = psycopg.connect(dbname=DATABASE, autocommit=True)
    db.execute("SELECT delay_wheel.create_queue('http', options => '{\"group_max_running\": 0}')")
    # cheap: the view delay_wheel.tasks, asked again and again, holds up the server
    left = lambda: db.execute("SELECT EXISTS (SELECT FROM delay_wheel_data.task)").fetchone()[0]
    post = "SELECT count(delay_http.post(%s || n, '{\"order\": 7}', due => to_timestamp(%s + n * %s::float8))) FROM generate_series(1, %s::int) n"

    process, url = start_sink(0)
    with process:
        db.execute(post, (url + "/", time.time(), 0, total))
        db.execute("VACUUM ANALYZE")
        began = time.time()
        with program("--concurrency", "100"):
            while left():
                time.sleep(0.02)
            print(f"{total / (time.time() - began):.0f} requests/s, 100 at a time")

    process, url = start_sink(8)
    with process, program("--concurrency", "1000") as running:
        db.execute(post, (url + "/", time.time(), 0, 1000))
        most = 0
        while left():
            most = max(most, db.execute("SELECT leased FROM delay_wheel.queues WHERE name = 'http'").fetchone()[0])
            time.sleep(0.05)
        with open(f"/proc/{running.pid}/status") as status:
            memory = int(status.read().split("VmHWM:")[1].split()[0])
        print(f"{most} requests at a time, {memory / 1024:.0f} MB")

    for rate, count in ((50, 500), (500, 3000)):
        file = f"/tmp/{DATABASE}.{rate}"
        process, url = start_sink(0, file)
        with process, program():
            time.sleep(1)
            base = time.time() + 1.5
            db.execute(post, (url + "/", base, 1 / rate, count))
            while left():
                time.sleep(0.3)
        with open(file) as lines:
            late = sorted(float(at) - base - int(path[1:]) / rate for at, path in map(str.split, lines))
        os.remove(file)
        print(f"due to sink, {rate}/s: n {len(late)} median {late[count // 2] * 1000:.1f} ms, 90% {late[count * 9 // 10] * 1000:.1f} ms, 99% {late[count * 99 // 100] * 1000:.1f} ms")
    db.close()
    admin.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


if sys.argv[1:2] == ["sink"]:
    sink(float(sys.argv[2]), open(sys.argv[3], "w", buffering=1) if sys.argv[3] else None)
else:
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20000)
