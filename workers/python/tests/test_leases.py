"""Leases of handlers that take long: B30 to B35, without B31."""
from __future__ import annotations

import unittest

from . import harness as h

setUpModule = h.set_up


class Leases(unittest.TestCase):
    tearDown = staticmethod(h.kill_programs)

    def test_B30_extended(self) -> None:
        queue, plain = h.new_queue(), h.new_queue()
        workers = [h.start({queue: {"lease": "3 s", "concurrency": 5}, plain: {"lease": "3 s", "plain": True}})]
        # one of them keeps the event loop of its worker, as a call that waits does, and others behind it
        ids = [h.send(plain, {"ignore": 5}), *h.send_all(queue, [{"sleep": 5}, {"block": 5}, {"sleep": 0.1}, {"sleep": 0.1}])]
        workers[0].until("start", 3)
        workers.append(h.start({queue: {"lease": "3 s"}, plain: {"lease": "3 s"}}))
        h.until("all done", lambda: h.is_gone(*ids))
        starts = [line for worker in workers for line in worker.all("start")]
        self.assertEqual(sorted(line["id"] for line in starts), ids)
        self.assertEqual(h.one("SELECT sum(lapsed) FROM delay_wheel.queues WHERE name IN (%s, %s)", queue, plain), 0)

    def test_B32_cancelled_at_work(self) -> None:
        queues = [h.new_queue(), h.new_queue()]
        worker = h.start({queue: {"lease": "4 s", "plain": queue == queues[1]} for queue in queues})
        ids = [h.send(queue, {"sleep": 120}) for queue in queues]
        worker.until("start", 2)
        for id in ids:
            self.assertEqual(h.one("SELECT delay_cancel(%s, stop_running => true)", id), "cancelled")
        for id in ids:
            end, = worker.until("end", 1, id)
            self.assertEqual(end["how"], "told")
            lost, = worker.until("lost", 1, id)
            self.assertIn("cancelled", lost["error"])  # at the next extension, not at the end of the lease
        self.assertEqual(worker.all("released") + worker.all("done") + worker.all("failed"), [])

    def test_B35_never_ends(self) -> None:
        queues = [h.new_queue(), h.new_queue()]
        worker = h.start({queue: {"concurrency": 2, "lease": "2 s", "plain": queue == queues[1]} for queue in queues})
        never = [h.send(queue, {"never": 1}) for queue in queues]
        worker.until("start", 2)
        for queue in queues:
            ids = [h.send(queue, {"sleep": 0.2}) for _ in range(15)]
        h.until("the others", lambda: h.is_gone(*ids))
        for queue, id in zip(queues, never):
            self.assertEqual(h.most_at_once([line for line in worker.lines if line.get("queue") == queue]), 2)
            self.assertEqual(len(worker.all("start", id)), 1)

    def test_B35_told_and_goes_on(self) -> None:
        """It keeps its place until it has ended."""
        queue = h.new_queue()
        worker = h.start({queue: {"concurrency": 1, "lease": "1500 ms"}})
        id = h.send(queue, {"ignore": 3})
        worker.until("start", 1, id)
        h.one("SELECT delay_cancel(%s, stop_running => true)", id)
        worker.until("lost", 1, id)
        self.assertEqual(worker.all("end", id), [])
        next_one = h.send(queue, {})
        self.assertGreater(worker.until("start", 1, next_one)[0]["at"], worker.until("end", 1, id)[0]["at"])


if __name__ == "__main__":
    unittest.main()
