"""What an operator reads: B90 to B92; drain() without a server: B72; and B80a."""
from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest
from collections.abc import AsyncIterator
from typing import Any

import psycopg
from delay_wheel import Context, GiveUp, Message, Retry, Worker

from . import harness as h

broken: dict[str, tuple[dict[str, Any], str]] = {}  # connections that fail, each for its own reason, and the error


def setUpModule() -> None:
    h.set_up()

    def write_hba(text: str) -> None:
        lo = h.one("SELECT lo_from_bytea(0, convert_to(%s, 'UTF8'))", text)
        h.query("SELECT lo_export(%s, current_setting('hba_file')), lo_unlink(%s), pg_reload_conf()", lo, lo)

    def is_refused() -> bool:
        try:
            psycopg.connect(h.conninfo(**broken["password"][0])).close()
        except psycopg.OperationalError:
            return True
        return False

    def clean_up() -> None:
        write_hba(hba)
        h.query(f"DROP ROLE {', '.join(roles.values())}")

    hba = h.one("SELECT pg_read_file(current_setting('hba_file'))")
    roles = {what: f"{h.ROLE}_{what}" for what in ("password", "nologin", "crowd")}
    h.query(f"CREATE ROLE {roles['password']} LOGIN PASSWORD 'right'")
    h.query(f"CREATE ROLE {roles['nologin']} NOLOGIN")
    h.query(f"CREATE ROLE {roles['crowd']} LOGIN CONNECTION LIMIT 0")
    write_hba("".join(f"{kind} scram-sha-256\n" for kind in (f"local all {roles['password']}", f"host all {roles['password']} all")) + hba)
    unittest.addModuleCleanup(clean_up)
    silent = socket.create_server(("127.0.0.1", 0), backlog=50)
    unittest.addModuleCleanup(silent.close)
    broken["password"] = {"user": roles["password"], "password": "hush"}, "password authentication failed"
    h.until("the server has read it", is_refused)
    broken["nologin"] = {"user": roles["nologin"]}, "not permitted to log in"
    broken["crowd"] = {"user": roles["crowd"]}, "too many connections"
    broken["database"] = {"dbname": "nowhere"}, '"nowhere" does not exist'
    broken["refused"] = {"host": "127.0.0.1", "port": 1}, "refused"
    broken["silent"] = {"host": "127.0.0.1", "port": silent.getsockname()[1]}, "does not answer"


def superuser(**more: Any) -> str:
    return h.conninfo(**{"user": h.superuser, **more})


def target_of(conninfo: str) -> str:
    known = psycopg.conninfo.conninfo_to_dict(conninfo)
    return f"(server {known['host']}, port {known['port']}, database {known['dbname']}, user {known['user']})"


class Lines(logging.Logger):
    """Of a worker: "LEVEL text"."""

    def __init__(self) -> None:
        super().__init__("lines", logging.INFO)
        self.lines: list[str] = []

    def handle(self, record: logging.LogRecord) -> None:
        self.lines.append(logging.Formatter("%(levelname)s %(message)s").format(record))

    def count(self, pattern: str) -> int:
        return sum(bool(re.search(pattern, line)) for line in self.lines)


async def until(what: str, log: Lines, pattern: str) -> None:
    limit = time.monotonic() + 60
    while not log.count(pattern):
        if time.monotonic() > limit:
            raise AssertionError(f"in vain: {what}\n{log.lines}")
        await asyncio.sleep(0.01)


def new_worker(connection: str, wait_connection: str | None = None, queue: str = "nothing", **options: Any) -> tuple[Worker, Lines]:
    log = Lines()
    worker = Worker(connection, wait_connection=wait_connection, log=log)
    if queue:
        worker.queue(queue, **options)(lambda message, context: None)
    return worker, log


@contextlib.asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    run = asyncio.ensure_future(worker.run_async())
    try:
        yield
    finally:
        await worker.stop()
        await run


class Broken(unittest.TestCase):
    """Connections that fail."""

    def test_B90_one_line(self) -> None:
        for what, (parameters, error) in broken.items():
            with self.subTest(what):
                asyncio.run(self.one_line(h.conninfo(**parameters), error))

    async def one_line(self, connection: str, error: str) -> None:
        queue = h.new_queue()
        for session, worker, log in (("work", *new_worker(connection, h.conninfo(), queue)), ("wait", *new_worker(h.conninfo(), connection, queue))):
            async with running(worker):
                await until("it is in the log", log, error)
            lines = [line for line in log.lines if error in line]
            self.assertEqual(len(lines), 1, log.lines)
            self.assertTrue(lines[0].startswith(f"WARNING {session} session: cannot connect {target_of(connection)}: "), lines[0])
            self.assertNotIn("hush", "\n".join(log.lines))  # the password
            self.assertNotIn("\n", lines[0])

    def test_B72_drain(self) -> None:
        asyncio.run(self.drains())

    async def drains(self) -> None:
        queue = h.new_queue()
        await asyncio.gather(*(self.drain(worker, error) for parameters, error in broken.values() for worker in (
            new_worker(h.conninfo(**parameters))[0], new_worker(superuser(), h.conninfo(**parameters), queue)[0])))

    async def drain(self, worker: Worker, error: str) -> None:
        began = time.monotonic()
        with self.assertRaisesRegex(psycopg.OperationalError, error):
            await worker.drain()
        self.assertTrue(4.5 < time.monotonic() - began < 15, time.monotonic() - began)  # 5 s, and what a busy machine adds


class Log(unittest.TestCase):
    tearDown = staticmethod(h.kill_programs)

    def test_B72_drain_waits_a_moment(self) -> None:
        proxy, queue = h.Proxy(), h.new_queue()
        self.addCleanup(proxy.close)
        h.send(queue, {})
        proxy.cut()

        async def drain() -> int:
            worker, log = new_worker(proxy.conninfo.replace(h.ROLE, h.superuser), None, queue)
            draining = asyncio.ensure_future(worker.drain())
            await until("it has tried", log, "cannot connect")
            proxy.mend()
            return await draining

        self.assertEqual(asyncio.run(drain()), 1)

    def test_B72_drain_loses_the_server(self) -> None:
        """And meets messages that another session holds."""
        proxy, lost, held = h.Proxy(), h.new_queue(), h.new_queue()
        self.addCleanup(proxy.close)
        for queue in (lost, held):
            h.send(queue, {})
        loses, _ = new_worker(proxy.conninfo.replace(h.ROLE, h.superuser), queue="")

        @loses.queue(lost)
        async def handle(message: Message, context: Context) -> None:
            proxy.cut()
            await asyncio.sleep(1000)

        meets, log = new_worker(superuser(), None, held)

        async def both() -> int:
            async def lose() -> None:
                with self.assertRaisesRegex(psycopg.OperationalError, "refused"):
                    await loses.drain()

            _, n = await asyncio.gather(lose(), meets.drain())
            return n

        with psycopg.connect(superuser()) as other:
            h.until("it is held", lambda: other.execute("SELECT FROM delay_receive(%s)", [held]).rowcount)
            self.assertEqual(asyncio.run(both()), 0)
            other.rollback()
        self.assertEqual(log.lines, ["WARNING drain: due messages that cannot be received: 1"])

    def test_B90_the_server_goes_and_comes_back(self) -> None:
        proxy = h.Proxy()
        self.addCleanup(proxy.close)
        queue, table = h.new_queue(), h.new_queue()
        worker = h.Program({queue: {}, table: {"transaction": True, "concurrency": 5}}, connection=proxy.conninfo).waits()
        h.send_all(table, [{"insert": "90", "sleep": 0.5}] * 5)
        worker.until("done", 5)  # it has several sessions now
        sessions = len(worker.all("connected"))
        long = h.send(queue, {"sleep": 1})
        worker.until("start", 1, long)
        proxy.cut()
        worker.until("disconnected", 1)
        h.until("it has tried", lambda: "cannot connect" in worker.log)
        proxy.mend()
        ids = h.send_all(table, [{"insert": "90", "sleep": 0.5}] * 5)
        for id in [*ids, long]:
            worker.until("done", 1, id)
        self.assertGreater(len(worker.all("connected")), sessions)
        h.until("the end is in the log", lambda: "INFO connected (" in worker.log)
        self.assertEqual(worker.end(), 0)
        self.assertEqual(len(re.findall(r"cannot connect \(.*refused", worker.log)), 1, worker.log)
        self.assertEqual(worker.log.count("INFO connected ("), 1, worker.log)
        self.assertLess(worker.log.count("\n"), 9, worker.log)

    @unittest.skipUnless(shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin"), "there is no PgBouncer")
    def test_B72_B90_behind_a_pooler(self) -> None:
        bouncer = h.PgBouncer()
        self.addCleanup(bouncer.stop)
        connection = h.conninfo(host="127.0.0.1", port=bouncer.port, dbname="nowhere")
        error = "no such database|does not exist"

        async def both() -> None:
            worker, log = new_worker(connection, h.conninfo(), h.new_queue())
            async with running(worker):
                await until("it is in the log", log, error)
                self.assertEqual(log.count("^WARNING"), 1, log.lines)
                self.assertEqual(log.count(re.escape(f"WARNING work session: cannot connect {target_of(connection)}: ")), 1, log.lines)
            with self.assertRaisesRegex(psycopg.OperationalError, error):
                await new_worker(connection, superuser())[0].drain()

        asyncio.run(both())

    def test_B91_a_failed_attempt(self) -> None:
        async def fail(message: Message, context: Context) -> None:
            if message.payload == "error":
                try:
                    raise OSError("no route")
                except OSError as e:
                    raise TypeError("fetch failed") from e
            raise {"retry": Retry("5 minutes", "busy"), "odd": Retry("soon", "odd"), "give up": GiveUp("no address")}[message.payload]

        for options in ({}, {"transaction": True}):
            queue = h.new_queue()
            worker, log = new_worker(superuser(), queue="")
            worker.queue(queue, **options)(fail)  # type: ignore[arg-type]
            ids = {what: h.send(queue, what) for what in ("error", "retry", "odd", "give up")}
            self.assertEqual(asyncio.run(worker.drain()), 4)
            lines = {what: line.partition(" failed, ")[2] for what, id in ids.items() for line in log.lines if line.startswith(f"WARNING message {id} of {queue}, attempt 1 failed")}
            self.assertRegex(lines.pop("error"), r"(?s)^comes again if attempts are left: TypeError: fetch failed\nTraceback .*OSError: no route\n.*test_log.py.*\nTypeError: fetch failed$")
            self.assertEqual(lines, {"retry": "comes again in 5 minutes if attempts are left: busy", "odd": "comes again if attempts are left: odd", "give up": "given up: no address"})

    def test_B91_a_batch(self) -> None:
        queue, calls = h.new_queue(), 0
        worker, log = new_worker(superuser(), queue="")

        @worker.queue(queue, batch=3)
        async def fail(messages: list[Message], context: Context) -> None:
            nonlocal calls
            calls += 1
            raise ValueError("all")

        h.send_all(queue, [1, 2, 3])
        self.assertEqual(asyncio.run(worker.drain()), 3)
        self.assertEqual(log.count("failed, comes again"), 3)
        self.assertEqual(log.count("Traceback"), calls)

    def test_B92_how_it_begins_and_ends(self) -> None:
        queues = [h.new_queue(), h.new_queue()]
        worker = h.start({queue: {} for queue in queues})
        for queue in queues:
            worker.until("done", 1, h.send(queue, {}))
        worker.until("start", 1, h.send(queues[0], {"sleep": 2}))
        self.assertEqual(worker.end(), 0)
        self.assertEqual([line.partition(" ")[2] for line in worker.log.splitlines()], [
            f"INFO begins with {', '.join(queues)} {target_of(h.conninfo())}",
            "INFO SIGTERM: no new message is taken, handlers still running: 1",
            "INFO ended"])
        # drain() is quiet
        h.send(queues[0], {})
        drains, log = new_worker(superuser(), None, queues[0])
        self.assertEqual(asyncio.run(drains.drain()), 1)
        self.assertEqual(log.lines, [])

    def test_B80a_within(self) -> None:
        queue = h.new_queue()
        (h.scratch / "slow.py").write_text(f"""
import asyncio
from delay_wheel import Worker
worker = Worker()

@worker.queue("{queue}")
async def wait(message, context):
    print("begun", flush=True)
    await asyncio.sleep(1000)
""")
        env = {**os.environ, "PGHOST": str(h.server["host"]), "PGPORT": str(h.server["port"]), "PGDATABASE": h.server["dbname"], "PGUSER": h.ROLE}
        command = [sys.executable, "-m", "delay_wheel", "run", "slow:worker", "--within"]
        id = h.send(queue, {})
        process = subprocess.Popen([*command, "0.3"], cwd=h.scratch, env=env, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        with process.stdout:
            self.assertEqual(process.stdout.readline(), "begun\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 0)
        self.assertEqual((h.row(id)["attempts"], h.row(id)["leased_until"]), (0, None))
        self.assertNotEqual(subprocess.run([*command, "soon"], cwd=h.scratch, env=env, capture_output=True).returncode, 0)


if __name__ == "__main__":
    unittest.main()
