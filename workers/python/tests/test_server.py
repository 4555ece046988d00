"""The server is away: B40 to B47. Restarts are in test_alone.py, silence in test_silence.py."""
from __future__ import annotations

import shutil
import time
import unittest

import psycopg

from . import harness as h

setUpModule = h.set_up


class Server(unittest.TestCase):
    tearDown = staticmethod(h.kill_programs)

    def test_B40_it_begins_without_a_server(self) -> None:
        proxy = h.Proxy()
        self.addCleanup(proxy.close)
        proxy.cut()
        queue = h.new_queue()
        worker = h.Program({queue: {}}, connection=proxy.conninfo)
        h.until("it complains", lambda: "work session" in worker.log)
        time.sleep(3)
        self.assertEqual(worker.log.count("cannot connect"), 1, worker.log)  # not each time
        proxy.mend()
        since = time.time()
        id = h.send(queue, {})
        self.assertLess(worker.until("start", 1, id)[0]["at"] - since, h.SOON)

    def test_B41_each_session_is_terminated(self) -> None:
        queue, table = h.new_queue(), h.new_queue()
        worker = h.start({queue: {"lease": "2 s"}, table: {"transaction": True}})
        ids = []
        for n in range(12):
            ids += [h.send(queue, {"sleep": 0.02}), h.send(table, {"insert": "41"})]
            pids = [row["pid"] for row in h.query("SELECT pid FROM pg_stat_activity WHERE usename = %s ORDER BY backend_start", h.ROLE)]
            if pids:
                h.query("SELECT pg_terminate_backend(%s)", pids[n % len(pids)])
            time.sleep(0.05)
        h.until("all done", lambda: h.is_gone(*ids))
        self.assertEqual(h.overlaps(worker.lines), [])
        self.assertEqual(worker.all("problem"), [])  # a session is lost, no queue
        self.assertEqual(h.one("SELECT count(*) FROM python_ledger WHERE id = ANY(%s)", ids), 12)
        worker.until("done", 1, h.send(queue, {}))
        self.assertEqual(worker.end(), 0)

    def test_B42_the_network_is_cut(self) -> None:
        proxy = h.Proxy()
        self.addCleanup(proxy.close)
        queue = h.new_queue()
        worker = h.Program({queue: {"lease": "20 s"}}, connection=proxy.conninfo).waits()
        id = h.send(queue, {"sleep": 0.3})
        worker.until("start", 1, id)
        proxy.cut()
        worker.until("disconnected")
        time.sleep(0.5)
        proxy.mend()
        since = time.time()
        worker.until("done", 1, id)
        h.check_back(self, worker, queue, since)
        self.assertEqual(len(worker.all("start", id)), 1)
        # slow, but it works
        proxy.delay = 0.1
        worker.until("done", 1, h.send(queue, {}))

    def test_B43_a_server_that_cannot_be_written(self) -> None:
        queue = h.new_queue()
        worker = h.start({queue: {}})
        h.query(f"ALTER ROLE {h.ROLE} SET default_transaction_read_only = on")
        try:
            h.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", h.ROLE)
            id = h.send(queue, {})
            worker.until("disconnected", 4)  # twice by us, then because it cannot be leased
            self.assertEqual(worker.all("start", id), [])
        finally:
            h.query(f"ALTER ROLE {h.ROLE} RESET default_transaction_read_only")
        h.check_back(self, worker, queue, time.time())

    @unittest.skipUnless(shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin"), "there is no PgBouncer")
    def test_B46_B47_pooler(self) -> None:
        bouncer = h.PgBouncer()
        self.addCleanup(bouncer.stop)
        queue, table = h.new_queue(), h.new_queue()
        worker = h.Program({queue: {"lease": "2 s", "concurrency": 5}, table: {"transaction": True}},
                           connection=bouncer.conninfo, wait_connection=h.conninfo()).waits()
        ids = [h.send(queue, {"sleep": 3 if n == 0 else 0.05, "result": n}) for n in range(30)] + [h.send(table, {"insert": "46"}) for _ in range(10)]
        ids += [h.send(queue, {"raise": "46"}), h.send(table, {"raise": "46"})]
        worker.until("done", 40)
        worker.until("failed", 2)
        self.assertEqual({line["attempt"] for line in worker.all("start")}, {1})
        self.assertEqual(h.one("SELECT count(*) FROM python_ledger WHERE id = ANY(%s)", ids), 10)
        long = h.send(queue, {"sleep": 0.5})
        worker.until("start", 1, long)
        bouncer.stop()
        time.sleep(0.2)
        bouncer.start()
        worker.until("done", 1, long)
        h.check_back(self, worker, queue, time.time())
        self.assertEqual(worker.end(), 0)


if __name__ == "__main__":
    unittest.main()
