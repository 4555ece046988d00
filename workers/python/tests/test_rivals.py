"""Workers that are frozen, killed or locked out, and others that get their messages: B36 to B39."""
from __future__ import annotations

import json
import signal
import time
import unittest

import psycopg

from . import harness as h

setUpModule = h.set_up


class Rivals(unittest.TestCase):
    tearDown = staticmethod(h.kill_programs)

    def test_B36_B37_frozen(self) -> None:
        queue = h.new_queue()
        frozen = h.start({queue: {"lease": "3 s"}})
        id = h.send(queue, {"sleep": 4, "once": 1, "result": "only one counts"}, "options => %s", json.dumps({"on_success": "INSERT INTO python_seen VALUES ($1, $2)"}))
        # the word of the second one is the first thing that is sent afterwards
        ignores, ready = h.send_all(queue, [{"ignore": 4, "once": 1}, {"ignore": 2.5, "once": 1}])
        frozen.until("start", 3)
        frozen.signal(signal.SIGSTOP)
        other = h.start({queue: {"lease": "10 s"}})
        other.until("start", 3)
        frozen.signal(signal.SIGCONT)
        frozen.until("end", 3)
        other.until("done", 3)
        h.until("all refused", lambda: len(frozen.all("lost")) == 3)
        self.assertEqual(frozen.all("done"), [])
        self.assertEqual(h.one("SELECT done FROM delay_wheel.queues WHERE name = %s", queue), 3)
        self.assertTrue(h.is_gone(id, ignores, ready))
        h.until("its on_success", lambda: h.one("SELECT count(*) FROM python_seen WHERE id = %s", id) == 1)

    def test_B37_frozen_while_it_leases(self) -> None:
        """The answer of delay_lease() comes when the lease has ended: nothing is begun."""
        proxy = h.Proxy()
        self.addCleanup(proxy.close)
        queue = h.new_queue()
        frozen = h.Program({queue: {"lease": "1 s"}}, connection=proxy.conninfo).waits()
        proxy.delay = 0.5
        id = h.send(queue, {"sleep": 2})
        h.until("it is leased", lambda: h.row(id)["leased_until"])
        frozen.signal(signal.SIGSTOP)
        other = h.start({queue: {"lease": "10 s"}})
        other.until("start", 1, id)
        frozen.signal(signal.SIGCONT)
        other.until("done", 1, id)
        self.assertEqual(frozen.all("start"), [])
        frozen.end()
        self.assertEqual(frozen.all("start"), [])

    def test_B38_the_process_ends(self) -> None:
        queue, exiting = h.new_queue(), h.new_queue(max_attempts=2)
        killed = h.start({queue: {"lease": "2 s"}})
        id = h.send(queue, {"sleep": 10, "once": 1})
        killed.until("start", 1, id)
        killed.signal(signal.SIGKILL)
        killed.exited()
        leased_until = h.row(id)["leased_until"]
        workers = [h.Program({exiting: {"lease": "2 s"}}) for _ in range(2)]
        exits = h.send(exiting, {"exit": 3})
        other = h.start({queue: {"lease": "2 s"}})
        other.until("done", 1, id)
        start, = other.all("start", id)
        self.assertEqual(start["attempt"], 2)
        if leased_until:
            self.assertGreater(start["at"], leased_until.timestamp())
        h.until("it is given up", lambda: h.query("SELECT sqlstate FROM delay_wheel.failed WHERE id = %s", exits))
        self.assertEqual(sorted(worker.exited() for worker in workers), [3, 3])
        self.assertEqual(h.one("SELECT sqlstate FROM delay_wheel.failed WHERE id = %s", exits), "DW006")

    def test_B39_one_row_is_locked(self) -> None:
        queue = h.new_queue()
        worker = h.start({queue: {"lease": "20 s", "concurrency": 20}})
        ids = h.send_all(queue, [{"sleep": 2}] * 10)
        worker.until("start", 10)
        with psycopg.connect(**h.server) as db:
            db.execute("SELECT FROM delay_wheel_data.task WHERE id = %s FOR UPDATE", (ids[4],))
            worker.until("done", 9)
            others = h.send(queue, {})
            worker.until("done", 1, others)
            time.sleep(1)
            self.assertEqual(worker.all("done", ids[4]), [])
            self.assertFalse(h.is_gone(ids[4]))
        worker.until("done", 1, ids[4])
        self.assertEqual(len(worker.all("start", ids[4])), 1)


if __name__ == "__main__":
    unittest.main()
