"""What an application sees: B70, B71, B80 to B83."""
from __future__ import annotations

import ast
import asyncio
import re
import unittest
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import delay_wheel
import psycopg
from delay_wheel import Context, GiveUp, Message, Retry, Worker, schedule, send
from psycopg.rows import dict_row

from . import harness as h

setUpModule = h.set_up


def superuser() -> str:
    return psycopg.conninfo.make_conninfo(**h.server)


class Drain(unittest.IsolatedAsyncioTestCase):
    """The worker is the application's, as a role that sends, too."""

    async def asyncSetUp(self) -> None:
        asyncio.get_running_loop().set_debug(False)

    async def test_B70_B71_drain(self) -> None:
        first, second, table = h.new_queue(), h.new_queue(), h.new_queue()
        worker = Worker(superuser())
        seen: list[tuple[str, Any]] = []

        @worker.queue(first)
        async def follow(message: Message, context: Context) -> None:
            seen.append((message.queue, message.payload))
            async with await psycopg.AsyncConnection.connect(superuser()) as db:
                if message.payload < 3:
                    await send(db, first, message.payload + 1)
                await send(db, second, message.payload)

        @worker.queue(second)
        def fail(message: Message, context: Context) -> None:
            seen.append((message.queue, message.payload))
            raise RuntimeError("no")

        @worker.queue(table, transaction=True)
        async def write(message: Message, context: Context) -> None:
            await context.connection.execute("INSERT INTO python_ledger VALUES (%s, 'drain')", (message.id,))

        self.assertEqual(await worker.drain(), 0)
        with psycopg.connect(superuser(), autocommit=True) as db:
            send(db, first, 1)
            send(db, first, 99, delay="1 hour")
            id = send(db, table, {})
        with self.assertLogs("delay_wheel", "WARNING"):
            self.assertEqual(await worker.drain(), 7)
        self.assertEqual(sorted(seen), sorted([(first, 1), (second, 1), (first, 2), (second, 2), (first, 3), (second, 3)]))
        self.assertEqual(h.one("SELECT count(*) FROM python_ledger WHERE id = %s", id), 1)
        self.assertEqual(h.one("SELECT count(*) FROM delay_wheel.tasks WHERE queue IN (%s, %s, %s) AND due <= now()", first, second, table), 0)
        self.assertEqual(await worker.drain(), 0)
        h.until("its sessions are closed", lambda: h.one("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'delay_wheel' AND query LIKE %s", f"%{first}%") == 0)

    async def test_B70_many(self) -> None:
        """As soon as they are committed, though the server takes them a moment later."""
        queue = h.new_queue()
        worker = Worker(superuser())
        worker.queue(queue)(lambda message, context: None)
        with psycopg.connect(superuser(), autocommit=True) as db:
            for n in range(1, 11):
                with db.transaction():
                    for _ in range(n * 10):
                        send(db, queue, n)
                self.assertEqual(await worker.drain(), n * 10)

    async def test_B70_a_queue_that_is_missing(self) -> None:
        worker = Worker(superuser())
        worker.queue("no such queue")(lambda message, context: None)
        with self.assertLogs("delay_wheel", "ERROR"), self.assertRaises(psycopg.errors.UndefinedObject):
            await asyncio.wait_for(worker.drain(), 60)


class Options(unittest.TestCase):
    def test_B80_wrong_options(self) -> None:
        wrong: list[Callable[[Worker], object]] = [
            lambda worker: worker.queue("q", concurrency=0),
            lambda worker: worker.queue("q", concurrency=1.5),  # type: ignore[arg-type]
            lambda worker: worker.queue("q", batch=1001),
            lambda worker: worker.queue("q", transaction=True, lease="1 min"),
            lambda worker: worker.queue(""),
            lambda worker: worker.queue("q")("no function"),  # type: ignore[type-var]
            lambda worker: [worker.queue("q")(print), worker.queue("q")],
            lambda worker: [worker.queue(f"q{n}")(print) for n in range(33)],
            lambda worker: worker.on("finished", print),
            lambda worker: worker.run(),
            lambda worker: Worker("host=a =b"),
        ]
        for case in wrong:
            with self.assertRaises(ValueError):
                case(Worker(superuser()))
        with self.assertRaises(TypeError):
            Worker(superuser()).queue("q", places=3)  # type: ignore[call-arg]

    def test_B80_wrong_intervals(self) -> None:
        for options in ({"lease": "soon"}, {"lease": "0 s"}, {"timeout": "-1 s"}):
            worker = Worker(superuser())
            worker.queue(h.new_queue(), **options)(lambda message, context: None)  # type: ignore[arg-type]
            with self.assertRaises(ValueError):
                worker.run()

    def test_intervals(self) -> None:
        """As a text, as seconds, as a timedelta; and the queue's own lease."""
        cases: list[tuple[Any, float]] = [("100 s", 100), (200.5, 200.5), (timedelta(minutes=6), 360), (None, 300)]
        for lease, seconds in cases:
            queue = h.new_queue(lease="5 minutes")
            worker, leased = Worker(superuser()), []

            @worker.queue(queue, lease=lease)
            async def handle(message: Message, context: Context) -> None:
                leased.append(h.one("SELECT extract(epoch FROM leased_until - now())::float FROM delay_wheel.tasks WHERE id = %s", message.id))
                asyncio.ensure_future(worker.stop())

            h.send(queue, {})
            worker.run()
            self.assertTrue(seconds - 50 < leased[0] <= seconds, (lease, leased))

    def test_intervals_without_the_view(self) -> None:
        """A role that may only receive does see its queue's lease."""
        queue = h.new_queue(lease="5 minutes")
        worker = h.start({queue: {}})
        id = h.send(queue, {"sleep": 1})
        worker.until("start", 1, id)
        self.assertGreater(h.one("SELECT extract(epoch FROM leased_until - now()) FROM delay_wheel.tasks WHERE id = %s", id), 200)
        h.kill_programs()

    def test_run_in_a_thread_of_the_application(self) -> None:
        import threading
        queue, worker = h.new_queue(), Worker(superuser())

        @worker.queue(queue)
        async def handle(message: Message, context: Context) -> None:
            asyncio.ensure_future(worker.stop())

        h.send(queue, {})
        thread = threading.Thread(target=worker.run)
        thread.start()
        thread.join(60)
        self.assertFalse(thread.is_alive())

    def test_the_worker_goes_on_though_its_handler_catches_all(self) -> None:
        queue, worker, told = h.new_queue(), Worker(superuser()), []

        @worker.queue(queue, timeout="100 ms")
        async def handle(message: Message, context: Context) -> None:
            try:
                await asyncio.sleep(10)
            except BaseException as e:
                told.append(type(e))
                self.assertTrue(context.stopping.is_set())
            asyncio.ensure_future(worker.stop())

        id = h.send(queue, {})
        worker.run()
        self.assertEqual(told, [asyncio.CancelledError])
        self.assertTrue(h.is_gone(id))

    def test_context_variables(self) -> None:
        """What one handler sets, another does not see; what around sets, its handler sees, also in a thread."""
        import contextvars
        variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
        seen = []

        async def around(message: Any, call_next: Any) -> Any:
            self.assertEqual(variable.get(), 0)
            variable.set(message.payload)
            return await call_next()

        queues = [h.new_queue(), h.new_queue()]
        worker = Worker(superuser(), around=around)

        @worker.queue(queues[0])
        async def handle(message: Message, context: Context) -> None:
            seen.append(variable.get())

        @worker.queue(queues[1])
        def plain(message: Message, context: Context) -> None:
            seen.append(variable.get())

        for n in (1, 2):
            for queue in queues:
                h.send(queue, n)
        self.assertEqual(asyncio.run(worker.drain()), 4)
        self.assertEqual(sorted(seen), [1, 1, 2, 2])


class Calls(unittest.TestCase):
    """B82: by each driver, in the transaction of who calls."""

    def check_message(self, queue: str, id: Any) -> None:
        row = h.row(id)
        self.assertEqual((row["queue"], row["payload"], row["key"], row["headers"]), (queue, {"to": "anna", "%s": "%"}, "key's", {"v": 1}))
        self.assertTrue(1700 <= row["due_in"] <= 1800)
        h.query("SELECT delay_cancel(%s)", id)

    more: dict[str, Any] = {"delay": "30 minutes", "key": "key's", "headers": {"v": 1}}
    payload = {"to": "anna", "%s": "%"}

    def test_B82_psycopg(self) -> None:
        queue = h.new_queue()
        with psycopg.connect(superuser()) as db:
            with self.assertRaises(ZeroDivisionError), db.transaction():
                send(db, queue, {})
                1 / 0
            self.assertEqual(h.one("SELECT count(*) FROM delay_wheel.tasks WHERE queue = %s", queue), 0)
            with db.transaction():
                id = send(db, queue, self.payload, **self.more)
            self.check_message(queue, id)
            db.row_factory = dict_row  # type: ignore[assignment]
            with db.transaction():
                id = send(db.cursor(), queue, self.payload, **self.more)
            self.check_message(queue, id)
            with db.transaction():
                due = datetime.now(timezone.utc) + timedelta(days=1)
                ids = [send(db, queue, None, due=due, priority=3, tag="t", max_attempts=2, key="one", if_exists="error", options={"retry_delay": "1 s"}),
                       send(db, queue, [1], delay=timedelta(seconds=90)), send(db, queue, 7, delay=120)]
            rows = [h.row(id) for id in ids]
            self.assertEqual((rows[0]["due"], rows[0]["priority"], rows[0]["tag"], rows[0]["max_attempts"], rows[0]["retry_delay"]), (due, 3, "t", 2, "00:00:01"))
            self.assertEqual([row["payload"] for row in rows], [None, [1], 7])
            self.assertTrue(30 <= rows[1]["due_in"] <= 90 and 91 <= rows[2]["due_in"] <= 120)
            with self.assertRaises(TypeError):
                send(db, queue, {}, dely="1 s")  # type: ignore[call-overload]

    def test_B82_psycopg_async(self) -> None:
        async def both() -> tuple[int, int]:
            async with await psycopg.AsyncConnection.connect(superuser()) as db:
                return await send(db, queue, self.payload, **self.more), await send(db.cursor(), queue, self.payload, key="other")

        queue = h.new_queue()
        ids = asyncio.run(both())
        self.check_message(queue, ids[0])
        self.assertEqual(h.row(ids[1])["key"], "other")

    def test_B82_psycopg2(self) -> None:
        try:
            import psycopg2  # type: ignore[import]
        except ImportError:
            self.skipTest("there is no psycopg2")
        queue = h.new_queue()
        db = psycopg2.connect(superuser())
        with db, db.cursor() as cursor:
            id = send(cursor, queue, self.payload, **self.more)
        db.close()
        self.check_message(queue, id)

    def test_B82_sqlalchemy(self) -> None:
        try:
            import sqlalchemy  # type: ignore[import]
            import psycopg2  # noqa: F401
        except ImportError:
            self.skipTest("there is no SQLAlchemy with psycopg2")
        queue = h.new_queue()
        engine = sqlalchemy.create_engine("postgresql+psycopg2://", creator=lambda: psycopg2.connect(superuser()))
        with engine.begin() as connection:
            id = send(connection.connection.cursor(), queue, self.payload, **self.more)
        engine.dispose()
        self.check_message(queue, id)

    def test_B82_schedule(self) -> None:
        with psycopg.connect(superuser(), autocommit=True) as db:
            ids = [schedule(db, "INSERT INTO python_ledger VALUES ($1, $2)", [n, note]) for n, note in ((-1, "it's"), (-2, None), (-3, "10%"))]
            ids += [schedule(db, "INSERT INTO python_ledger VALUES (:id, :note)", {"id": -4, "note": "named"}), schedule(db, "INSERT INTO python_ledger VALUES (-5)")]
            ids += [schedule(db, "INSERT INTO python_ledger SELECT -6, $1 FROM (SELECT $2::int[], $3::bool, $4::date) t", ["typed", "{1}", True, datetime(2026, 1, 1)])]
            later = schedule(db, "SELECT 1", delay="1 hour", key="later", queue=None, tag="t", options={"retry_delay": "1 s"})
            self.assertEqual((h.row(later)["key"], h.row(later)["tag"]), ("later", "t"))
            h.query("SELECT delay_cancel(%s)", later)
        h.until("they have run", lambda: h.is_gone(*ids))
        self.assertEqual(h.query("SELECT id, note FROM python_ledger WHERE id < 0 ORDER BY id DESC"),
                         [{"id": -1, "note": "it's"}, {"id": -2, "note": None}, {"id": -3, "note": "10%"}, {"id": -4, "note": "named"}, {"id": -5, "note": None}, {"id": -6, "note": "typed"}])
        h.query("DELETE FROM python_ledger WHERE id < 0")


class Public(unittest.TestCase):
    def test_B83_public_sql_only(self) -> None:
        allowed = {"delay_end_await", "delay_await_any", "delay_lease", "delay_receive", "delay_done", "delay_done_all", "delay_fail", "delay_release", "delay_extend", "delay_send",
                   "delay_schedule_task", "delay_wheel.queues", "delay_wheel.tasks"}
        used = set()
        package = Path(delay_wheel.__file__).parent
        for file in package.glob("*.py"):
            tree = ast.parse(file.read_text())
            documentation = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation:
                    used |= set(re.findall(r"\bdelay_wheel\w*\.\w+|\bdelay_(?!wheel)\w+", node.value))
        self.assertEqual(used, allowed)


if __name__ == "__main__":
    unittest.main()
