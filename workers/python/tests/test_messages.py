"""What becomes of messages: B1 to B17."""
from __future__ import annotations

import hashlib
import json
import unittest

import psycopg

from . import harness as h

setUpModule = h.set_up
tearDownModule = h.kill_programs


class Messages(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        """Most cases share a worker: a queue of coroutines, one of functions in threads."""
        cls.mail, cls.plain, cls.timed = h.new_queue(), h.new_queue(), h.new_queue()
        cls.worker = h.start({cls.mail: {"lease": "20 s"}, cls.plain: {"plain": True}, cls.timed: {"timeout": "0.3 s"}}, around=True)

    mail: str
    plain: str
    timed: str
    worker: h.Program

    def both(self) -> tuple[str, str]:
        return self.mail, self.plain

    def test_B2_B3_results(self) -> None:
        for queue in self.both():
            options = json.dumps({"on_success": "INSERT INTO python_seen VALUES ($1, $2)"})
            none = h.send(queue, {}, "options => %s", options)
            some = h.send(queue, {"result": {"receipt": [42, "ä"]}}, "options => %s", options)
            h.until("their on_success", lambda: h.one("SELECT count(*) FROM python_seen WHERE id IN (%s, %s)", none, some) == 2)
            self.assertEqual(h.query("SELECT result FROM python_seen WHERE id IN (%s, %s) ORDER BY id", none, some), [{"result": None}, {"result": {"receipt": [42, "ä"]}}])
            self.worker.until("done", 1, some)
            self.assertEqual(len(self.worker.all("start", some)), 1)

    def test_B4_results_that_are_no_json(self) -> None:
        for odd in ("function", "nul", "long", "cycle", "surrogate", "nan", "date", "set"):
            options = json.dumps({"on_success": "INSERT INTO python_seen VALUES ($1, $2)"})
            id = h.send(self.mail, {"odd": odd}, "options => %s", options)
            h.until(f"on_success of {odd}", lambda: h.one("SELECT count(*) FROM python_seen WHERE id = %s AND result IS NULL", id) == 1)
            self.assertEqual(len(self.worker.until("done", 1, id)), 1, odd)
            self.assertEqual(len(self.worker.all("start", id)), 1, odd)
            h.until("its line in the log", lambda: f"message {id}" in self.worker.log and "result is left out" in self.worker.log)
        # others that are reported by the same statement are done as well
        ids = h.send_all(self.mail, [{"sleep": 0.2, "odd": "nul"} if n == 3 else {"sleep": 0.2, "result": n} for n in range(6)])
        for id in ids:
            self.worker.until("done", 1, id)
        self.assertTrue(h.is_gone(*ids))

    def test_B5_errors(self) -> None:
        for queue in self.both():
            id = h.send(queue, {"raise": "mailbox~full"})
            self.worker.until("failed", 1, id)
            row = h.row(id)
            self.assertEqual((row["attempts"], row["last_error"]), (1, "DW007: ValueError: mailbox\N{REPLACEMENT CHARACTER}full"))
            self.assertTrue(3500 <= row["due_in"] <= 4510, row["due_in"])
            self.assertIn(f"message {id} of {queue}, attempt 1 failed, comes again if attempts are left: ValueError: mailbox", self.worker.log)
        id = h.send(self.mail, {"raise": "x" * 20_000 + "~"})
        self.worker.until("failed", 1, id)
        self.assertTrue(h.row(id)["last_error"].startswith("DW007: ValueError: xxx"))

    def test_B5_an_exit_is_an_error(self) -> None:
        for queue in self.both():
            id = h.send(queue, {"sys_exit": 3})
            self.worker.until("failed", 1, id)
            self.assertEqual(h.row(id)["last_error"], "DW007: SystemExit: 3")

    def test_B6_B7_retry(self) -> None:
        for queue in self.both():
            id = h.send(queue, {"retry": "10 minutes"})
            self.worker.until("failed", 1, id)
            self.assertTrue(500 <= h.row(id)["due_in"] <= 600)
            self.assertEqual(h.row(id)["last_error"], "DW007: not yet")
        seconds = h.send(self.mail, {"retry": 90})
        self.worker.until("failed", 1, seconds)
        self.assertTrue(30 <= h.row(seconds)["due_in"] <= 90)
        for wrong in ("soon", "500 years"):  # no interval, and one that is too long
            id = h.send(self.mail, {"retry": wrong})
            self.worker.until("failed", 1, id)
            self.assertTrue(3500 <= h.row(id)["due_in"] <= 4510, h.row(id))
            self.assertIn(f"message {id}: its delay is left out", self.worker.log)

    def test_B8_give_up(self) -> None:
        for queue in self.both():
            id = h.send(queue, {"give_up": "no such address"})
            self.worker.until("failed", 1, id)
            self.assertEqual(h.query("SELECT sqlstate, message FROM delay_wheel.failed WHERE id = %s", id), [{"sqlstate": "DW007", "message": "no such address"}])

    def test_B10_headers_and_around(self) -> None:
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        for queue in self.both():
            id = h.send(queue, {}, "headers => %s", json.dumps({"traceparent": trace, "v": 2}))
            self.worker.until("around end", 1, id)
            start, = self.worker.all("start", id)
            self.assertEqual((start["traceparent"], start["headers"]), (trace, {"traceparent": trace, "v": 2}))
            whats = [line["what"] for line in self.worker.lines if line.get("id") == id]
            self.assertEqual(whats[:4], ["around", "start", "end", "around end"])
            self.assertEqual(start["thread"] == "MainThread", queue == self.mail)
        # B81: around raises
        id = h.send(self.mail, {"around": "no trace"})
        self.worker.until("failed", 1, id)
        self.assertEqual(h.row(id)["last_error"], "DW007: RuntimeError: no trace")
        self.assertEqual(self.worker.all("start", id), [])

    def test_B11_B12_sizes(self) -> None:
        def check(payload: object) -> None:
            id = h.send(self.mail, payload)
            start, = self.worker.until("start", 1, id)
            self.assertEqual(start["sum"], hashlib.md5(json.dumps(payload, sort_keys=True).encode()).hexdigest())
            self.worker.until("done", 1, id)

        check(1)
        check(None)
        check({"text": "x" * 1_000_000, "big": 2 ** 60, "nested": [[[]]], "ä": "\U0001f40d"})
        with self.assertRaises(psycopg.errors.ProgramLimitExceeded):
            h.send(self.mail, {"text": "x" * 10_000_000})
        self.assertEqual(h.one("SELECT count(*) FROM delay_wheel.tasks WHERE queue = %s AND payload::text LIKE '%%xxxxx%%'", self.mail), 0)

    def test_B17_timeout(self) -> None:
        id = h.send(self.timed, {"sleep": 120})
        self.worker.until("failed", 1, id)
        self.assertEqual((h.row(id)["attempts"], h.row(id)["last_error"]), (1, "DW007: TimeoutError: timeout"))
        id = h.send(self.timed, {"ignore": 0.6})
        self.worker.until("done", 1, id)
        self.assertTrue(h.is_gone(id))


class Listeners(unittest.TestCase):
    def test_B81_listeners_that_raise(self) -> None:
        queue = h.new_queue()
        worker = h.start({queue: {}}, bad_listener=True)
        ids = [h.send(queue, {}) for _ in range(5)]
        worker.until("done", 5)
        self.assertTrue(h.is_gone(*ids))
        self.assertIn("a listener of started raises", worker.log)
        self.assertIn("a listener of done raises", worker.log)
        self.assertEqual(worker.end(), 0)


class Batches(unittest.TestCase):
    def test_B13_batches(self) -> None:
        queue = h.new_queue()
        ids = [h.send(queue, {"result": 1, **({"raise": "third"} if n == 2 else {"give_up": "fourth"} if n == 3 else {})}) for n in range(25)]
        worker = h.start({queue: {"batch": 10, "concurrency": 2}})
        worker.until("done", 23)
        worker.until("failed", 2)
        sizes = [line["n"] for line in worker.all("batch")]
        self.assertEqual((sum(sizes), max(sizes)), (25, 10), sizes)
        self.assertTrue(h.is_gone(*(id for n, id in enumerate(ids) if n != 2)))
        self.assertEqual(h.row(ids[2])["last_error"], "DW007: ValueError: third")
        self.assertEqual(h.one("SELECT message FROM delay_wheel.failed WHERE id = %s", ids[3]), "fourth")
        # one error for all, one value for all
        with psycopg.connect(**h.server) as db:
            for n in range(3):
                db.execute("SELECT delay_send(%s, %s::jsonb)", (queue, json.dumps({"whole": 1, "raise": f"all {n}"})))
        worker.until("failed", 5)
        self.assertEqual(h.one("SELECT count(*) FROM delay_wheel.tasks WHERE queue = %s AND last_error LIKE 'DW007: ValueError: all _'", queue), 3)
        self.assertEqual(worker.end(), 0)


class Transactions(unittest.TestCase):
    tearDown = staticmethod(h.kill_programs)

    def test_B14_B15_exactly_once(self) -> None:
        queues = {plain: h.new_queue() for plain in (False, True)}
        worker = h.start({queue: {"transaction": True, "concurrency": 3, "plain": plain} for plain, queue in queues.items()})
        for plain, queue in queues.items():
            with self.subTest(plain=plain):
                good = [h.send(queue, {"insert": "good"}) for _ in range(20)]
                bad = h.send(queue, {"insert": "bad", "raise": "not now"})
                later = h.send(queue, {"insert": "bad", "retry": "10 minutes"})
                never = h.send(queue, {"insert": "bad", "give_up": "never"})
                wrong = h.send(queue, {"insert": "bad", "sql": "SELECT 1 / 0"})
                deferred = h.send(queue, {"insert": "bad", "sql": "INSERT INTO python_child VALUES (7)"})
                for id in good:
                    worker.until("done", 1, id)
                for id in (bad, later, never, wrong, deferred):
                    worker.until("failed", 1, id)
                self.assertEqual(h.one("SELECT array_agg(id ORDER BY id) FROM python_ledger WHERE id = ANY(%s)", good), good)
                self.assertEqual(h.one("SELECT count(*) FROM python_ledger WHERE note = 'bad' AND id >= %s", good[0]), 0)
                self.assertTrue(h.is_gone(*good))
                self.assertEqual((h.row(bad)["attempts"], h.row(bad)["last_error"]), (1, "DW007: ValueError: not now"))
                self.assertTrue(500 <= h.row(later)["due_in"] <= 600)
                self.assertEqual(h.one("SELECT message FROM delay_wheel.failed WHERE id = %s", never), "never")
                self.assertIn("DivisionByZero", h.row(wrong)["last_error"])
                self.assertIn("ForeignKeyViolation", h.row(deferred)["last_error"])
                self.assertLessEqual(h.most_at_once([line for line in worker.lines if line.get("queue") == queue]), 3)
                if plain:
                    forbidden = h.send(queue, {"insert": "bad", "commit": 1})
                    worker.until("failed", 1, forbidden)
                    self.assertIn("the worker ends this transaction", h.row(forbidden)["last_error"])
        self.assertEqual(worker.end(), 0)

    def test_B14_batches(self) -> None:
        queue = h.new_queue()
        ids = [h.send(queue, {"insert": "batch", **({"raise": "second"} if n == 1 else {})}) for n in range(7)]
        worker = h.start({queue: {"transaction": True, "batch": 5}})
        worker.until("done", 6)
        self.assertEqual([line["n"] for line in worker.all("batch")], [5, 2])
        self.assertEqual(h.row(ids[1])["attempts"], 1)
        self.assertTrue(h.is_gone(*ids[2:]))

    def test_B16_its_session_ends(self) -> None:
        queues = [h.new_queue(), h.new_queue()]
        worker = h.start({queue: {"transaction": True, "plain": queue == queues[1]} for queue in queues})
        ids = [h.send(queue, {"insert": "again", "sleep": 120}) for queue in queues]
        worker.until("start", 2)
        busy = "FROM pg_stat_activity WHERE usename = %s AND state = 'idle in transaction' AND query LIKE 'INSERT%%'"
        h.until("both have inserted", lambda: h.one(f"SELECT count(*) {busy}", h.ROLE) == 2)
        h.query(f"SELECT pg_terminate_backend(pid) {busy}", h.ROLE)
        for id in ids:
            worker.until("lost", 1, id)  # long before the handler would have ended
            self.assertEqual(worker.until("end", 1, id)[0]["how"], "told")
            worker.until("start", 2, id)
        self.assertEqual(h.one("SELECT count(*) FROM python_ledger WHERE id = ANY(%s)", ids), 0)

    def test_B17_timeout_in_a_transaction(self) -> None:
        queues = [h.new_queue(), h.new_queue()]
        worker = h.start({queue: {"transaction": True, "plain": queue == queues[1], "timeout": "300 ms"} for queue in queues})
        ids = [h.send(queue, payload) for queue in queues for payload in ({"insert": "late", "sleep": 120}, {"insert": "late", "sql": "SELECT pg_sleep(120)"})]
        for id in ids:
            worker.until("failed", 1, id)
            self.assertEqual((h.row(id)["attempts"], h.row(id)["last_error"]), (1, "DW007: TimeoutError: timeout"))
        self.assertEqual(h.one("SELECT count(*) FROM python_ledger WHERE id = ANY(%s)", ids), 0)
        self.assertEqual(worker.end(), 0)


if __name__ == "__main__":
    unittest.main()
