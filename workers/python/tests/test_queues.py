"""Queues and rights: B50 to B52."""
from __future__ import annotations

import time
import unittest

from . import harness as h

setUpModule = h.set_up


class Queues(unittest.TestCase):
    tearDown = staticmethod(h.kill_programs)

    def test_B50_missing_dropped_not_ours(self) -> None:
        missing, dropped, internal, others, fine = (h.queue_name() for _ in range(5))
        for name in (dropped, internal, others, fine):
            h.create_queue(name)
        worker = h.Program({name: {} for name in (missing, dropped, internal, others, fine)}).waits(fine)
        worker.until("problem", 1)
        h.query("SELECT delay_wheel.drop_queue(%s)", dropped)
        h.query("SELECT delay_wheel.drop_queue(%s), delay_wheel.create_queue(%s)", internal, internal)
        h.query("SELECT delay_wheel.create_queue(%s, receivers => '{}')", others)
        worker.until("problem", 4)
        self.assertEqual({line["name"] for line in worker.all("problem")}, {missing, dropped, internal, others})
        for _ in range(3):
            worker.until("done", 1, h.send(fine, {}))
        time.sleep(2.5)  # they have been tried again meanwhile
        self.assertEqual(len(worker.all("problem")), 4)  # once for each episode
        h.query("SELECT delay_wheel.drop_queue(%s)", internal)
        for name in (missing, dropped, internal, others):
            h.create_queue(name)
        for name in (missing, dropped, internal, others):
            worker.until("done", 1, h.send(name, {}))
        self.assertEqual(worker.end(), 0)

    def test_B51_a_role_without_rights(self) -> None:
        queue = h.new_queue()
        worker = h.start({queue: {}})
        id = h.send(queue, {"sleep": 1})
        worker.until("start", 1, id)
        h.query("SELECT delay_wheel.disallow(%s)", h.ROLE)
        try:
            other = h.send(queue, {})
            worker.until("problem")
            worker.until("end", 1, id)
            self.assertTrue(worker.runs)
        finally:
            h.query("SELECT delay_wheel.allow(%s)", h.ROLE)
        worker.until("done", 1, id)
        worker.until("done", 1, other)
        self.assertEqual(len(worker.all("start", id)), 1)

    def test_B52_paused(self) -> None:
        queue = h.new_queue()
        worker = h.start({queue: {}})
        h.query("SELECT delay_wheel.pause_queue(%s)", queue)
        id = h.send(queue, {})
        time.sleep(0.5)
        self.assertEqual(worker.all("start"), [])
        h.query("SELECT delay_wheel.resume_queue(%s)", queue)
        worker.until("done", 1, id)
        self.assertEqual(worker.all("problem"), [])


if __name__ == "__main__":
    unittest.main()
