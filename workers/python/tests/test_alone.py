"""What disturbs others, or must not be disturbed: B22, B40, B44, B45, B70."""
from __future__ import annotations

import asyncio
import os
import signal
import time
import unittest
from unittest import mock

import psycopg
from delay_wheel import Worker

from . import harness as h

setUpModule = h.set_up


def switches(pid: int) -> int:
    """How often threads of a process have been on a processor."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status") as f:
            total += sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)
    return total


class Alone(unittest.TestCase):
    tearDown = staticmethod(h.kill_programs)

    def test_B22_idle(self) -> None:
        queues = [h.new_queue() for _ in range(3)]
        worker = h.start({queues[0]: {}, queues[1]: {"plain": True}, queues[2]: {"transaction": True}})
        id = h.send(queues[0], {})
        worker.until("done", 1, id)
        worker.waits()
        activity = "SELECT count(*), max(query_start) AS last, array_agg(pid) AS pids FROM pg_stat_activity WHERE usename = %s"
        seconds = 60 if h.LONG else 4
        time.sleep(0.5)
        before, sessions = switches(worker.pid), h.query(activity, h.ROLE)
        backends = [switches(pid) for pid in sessions[0]["pids"]]
        time.sleep(seconds)
        self.assertEqual(switches(worker.pid), before, f"the worker has woken up in {seconds} s")
        self.assertEqual(h.query(activity, h.ROLE), sessions)
        self.assertEqual([switches(pid) for pid in sessions[0]["pids"]], backends)
        self.assertEqual(sessions[0]["count"], 3)  # wait, work, and the place of the transaction

    def test_B70_the_timer_is_late(self) -> None:
        """A message that is committed and due is waited for, though the server cannot give it yet."""
        with mock.patch("delay_wheel.worker.DRAIN_PATIENCE", 30):
            asyncio.run(self.drain())

    async def drain(self) -> None:
        timer = h.one("SELECT pid FROM pg_stat_activity WHERE backend_type = 'delay_wheel timer' AND datname = %s", h.server["dbname"])
        queue = h.new_queue()
        worker = Worker(psycopg.conninfo.make_conninfo(**h.server))
        worker.queue(queue)(lambda message, context: None)
        self.assertEqual(await worker.drain(), 0)
        os.kill(timer, signal.SIGSTOP)
        try:
            h.send(queue, {})
            draining = asyncio.ensure_future(worker.drain())
            await asyncio.sleep(0.5)
            self.assertFalse(draining.done())
        finally:
            os.kill(timer, signal.SIGCONT)
        self.assertEqual(await draining, 1)

    def test_B40_B44_B45_restarts(self) -> None:
        server = h.Server()
        queue, table = h.new_queue(), h.new_queue()
        worker = h.start({queue: {"lease": "20 s"}, table: {"transaction": True}})
        for mode in ("fast", "immediate"):
            before = len(worker.all("start"))
            # their handlers end while the server is away
            ids = [h.send(queue, {"sleep": 0.3}) for _ in range(5)]
            inside = h.send(table, {"insert": mode, "sleep": 0.5})
            worker.until("start", before + 6)
            server.ctl("stop", "-m", mode)
            time.sleep(1.5)
            server.ctl("start")
            since = time.time()
            h.check_back(self, worker, queue, since)
            for id in ids:  # reported, not done again
                worker.until("done", 1, id)
                self.assertEqual((len(worker.all("start", id)), len(worker.all("done", id))), (1, 1))
            worker.until("done", 1, inside)
            self.assertEqual(h.one("SELECT count(*) FROM python_ledger WHERE id = %s", inside), 1)
            self.assertEqual(len(worker.all("start", inside)), 2)
        self.assertEqual(worker.end(), 0)


if __name__ == "__main__":
    unittest.main()
