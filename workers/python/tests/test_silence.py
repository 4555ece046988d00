"""A network that is silent: nobody answers, and nobody tells: B31, B34, B42."""
from __future__ import annotations

import unittest

from . import harness as h

setUpModule = h.set_up


class Silence(unittest.TestCase):
    tearDown = staticmethod(h.kill_programs)

    def test_B31_B34_cannot_be_extended(self) -> None:
        """The network becomes silent: told to stop before the lease ends, and only then it is done elsewhere."""
        proxy = h.Proxy()
        self.addCleanup(proxy.close)
        queue = h.new_queue()
        options = {queue: {"lease": "8 s", "concurrency": 2}}
        worker = h.Program(options, connection=proxy.conninfo).waits()
        obeys, ignores = h.send_all(queue, [{"sleep": 60, "once": 1}, {"ignore": 9, "once": 1}])
        worker.until("start", 2)
        proxy.silent = True
        other = h.start(options)  # it has them the moment that the leases end
        other.until("start", 2)
        told, = worker.all("end", obeys)
        self.assertEqual(told["how"], "told")
        self.assertLess(told["at"], other.all("start", obeys)[0]["at"])
        self.assertGreater(told["at"] - worker.all("start", obeys)[0]["at"], 6)  # and not long before
        proxy.mend()
        other.until("done", 1, ignores)
        worker.until("end", 1, ignores)
        self.assertEqual(worker.all("done"), [])  # its word does not count any more
        self.assertEqual(len(worker.all("lost", ignores)), 1)

    def test_B42_the_network_is_silent(self) -> None:
        """Nobody answers, and nobody says so: a statement that waits for 5 s has lost its session."""
        proxy = h.Proxy()
        self.addCleanup(proxy.close)
        queue = h.new_queue()
        worker = h.Program({queue: {"lease": "20 s"}}, connection=proxy.conninfo).waits()
        id = h.send(queue, {"sleep": 0.5})
        worker.until("start", 1, id)
        proxy.silent = True
        disconnected = worker.until("disconnected", 1)[0]
        self.assertGreater(disconnected["at"] - worker.all("end", id)[0]["at"], 4)
        proxy.mend()
        worker.until("done", 1, id)
        self.assertEqual(len(worker.all("start", id)), 1)


if __name__ == "__main__":
    unittest.main()
