"""Places, waits, and what is sent together: B1, B2, B20, B21, B23."""
from __future__ import annotations

import statistics
import time
import unittest

from . import harness as h

setUpModule = h.set_up


class Places(unittest.TestCase):
    tearDown = staticmethod(h.kill_programs)

    def test_B1_on_time(self) -> None:
        queue = h.new_queue()
        worker = h.start({queue: {}})
        # odd times, which meet no tick of a clock
        ids = [h.send(queue, {}, "delay => %s::interval", f"{1 + n * 0.037} s") for n in range(50)]
        for id in ids:
            worker.until("end", 1, id)
        late = sorted(worker.all("start", id)[0]["at"] - worker.all("start", id)[0]["due"] for id in ids)
        self.assertGreater(late[0], -0.001)
        # the figures of a machine that has nothing else to do are those of bench/figures.py
        self.assertLess(statistics.median(late), 0.1 if h.LONG else 0.5)

    def test_B20_never_more_than_places(self) -> None:
        queues = {False: h.new_queue(), True: h.new_queue()}
        names = list(queues.values())
        ids = [id for queue in names for id in h.send_all(queue, [{"sleep": 0.5}] * 40)]
        workers = {queue: h.Program({queue: {"concurrency": 7, "plain": plain}}) for plain, queue in queues.items()}
        leased = dict.fromkeys(names, 0)
        while not h.is_gone(*ids):
            for row in h.query("SELECT queue, count(*) FROM delay_wheel.tasks WHERE queue = ANY(%s) AND leased_until > now() GROUP BY queue", names):
                leased[row["queue"]] = max(leased[row["queue"]], row["count"])
            time.sleep(0.02)
        for queue, worker in workers.items():
            self.assertEqual(h.most_at_once(worker.lines), 7)
            self.assertEqual(len(worker.all("start")), 40)
            self.assertTrue(0 < leased[queue] <= 7, leased)

    def test_B20_a_full_worker_takes_no_wake_up(self) -> None:
        queue, other = h.new_queue(), h.new_queue()
        full = h.start({queue: {"concurrency": 1}, other: {}})
        long = h.send(queue, {"sleep": 120})
        full.until("start", 1, long)
        awaiting = "SELECT awaiting FROM delay_wheel.queues WHERE name = %s"
        for n in range(5):
            full.until("done", 1, h.send(other, {}))
            full.waits(other)
            self.assertEqual(h.one(awaiting, queue), 0)
        free = h.start({queue: {"concurrency": 5}})
        for n in range(5):
            free.waits()
            self.assertEqual(h.one(awaiting, queue), 1)
            free.until("done", 1, h.send(queue, {}))
        self.assertEqual(len(full.all("start", long)), len([line for line in full.all("start") if line["queue"] == queue]))

    def by_turns(self, worker: h.Program, full: str, other: str, n: int) -> None:
        for i in range(n):
            worker.until("done", 1, h.send(full, {"sleep": 0.01 * (i % 5)}))
            worker.waits(full, other)

    def test_B21_a_wait_that_cannot_be_ended(self) -> None:
        """Another role waits: its session is closed."""
        full, other = h.new_queue(), h.new_queue()
        worker = h.start({full: {"concurrency": 1}, other: {}}, wait_connection=h.conninfo(user=h.superuser))
        self.by_turns(worker, full, other, 3)
        self.assertEqual(worker.end(), 0)

    def test_B21_one_of_two_queues_is_full(self) -> None:
        full, other = h.new_queue(), h.new_queue()
        worker = h.start({full: {"concurrency": 1}, other: {}})
        # full and free again by turns: each time the wait must begin again with it
        self.by_turns(worker, full, other, 20)
        # and while it is full the other one goes on
        long = h.send(full, {"sleep": 3})
        worker.until("start", 1, long)
        worker.until("done", 1, h.send(other, {}, "delay => '0.2 s'"))
        self.assertEqual(worker.all("end", long), [])

    def test_B23_each_once(self) -> None:
        queue = h.new_queue()
        workers = [h.start({queue: {"concurrency": 2, "lease": "3 s"}}) for _ in range(3)]
        # some take longer than their lease (B30)
        ids = h.send_all(queue, [{"sleep": 4 if n % 20 == 0 else 0.01} for n in range(60)])
        h.until("all done", lambda: h.is_gone(*ids))
        lines = [line for worker in workers for line in worker.lines]
        self.assertEqual(sorted(line["id"] for line in lines if line["what"] == "start"), ids)
        self.assertEqual({line["attempt"] for line in lines if line["what"] == "start"}, {1})

    def test_B2_reports_are_sent_together(self) -> None:
        """2,000 messages: far fewer statements."""
        proxy = h.Proxy()
        self.addCleanup(proxy.close)
        queue = h.new_queue()
        ids = h.send_all(queue, [{}] * 2000)
        worker = h.Program({queue: {"concurrency": 200}}, connection=proxy.conninfo)
        worker.until("done", 2000)
        self.assertTrue(h.is_gone(*ids))
        self.assertLess(proxy.sent, 400)
        self.assertLessEqual(h.most_at_once(worker.lines), 200)


if __name__ == "__main__":
    unittest.main()
