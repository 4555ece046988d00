"""How a worker ends: B60 to B66."""
from __future__ import annotations

import asyncio
import signal
import time
import unittest

from delay_wheel import Context, Message, Worker

from . import harness as h

setUpModule = h.set_up


class End(unittest.TestCase):
    tearDown = staticmethod(h.kill_programs)

    def test_B60_B61_a_deploy_costs_nothing(self) -> None:
        cases = []
        for number, plain in ((signal.SIGTERM, False), (signal.SIGINT, True)):
            queue, table = h.new_queue(), h.new_queue()
            worker = h.start({queue: {"concurrency": 5, "plain": plain}, table: {"transaction": True, "plain": plain}})
            cases.append((worker, queue, table, number))
        n = 112
        for worker, queue, table, number in cases:
            self.assertEqual(n, len(h.send_all(queue, [{"sleep": 0.6}] * 100) + h.send_all(table, [{"sleep": 0.6, "insert": "deploy"}] * 12)))
            worker.until("start", 8)
            worker.signal(number)
        for worker, queue, table, number in cases:
            self.assertEqual(worker.exited(), 0)
            starts, done = worker.all("start"), worker.all("done")
            self.assertEqual(len(starts), len(done))
            taken = worker.logged("no new message is taken")
            # but for what a thread has got before, and begins when it gets the processor
            self.assertEqual([line for line in starts if line["at"] > taken + 2], [])
            self.assertEqual(len(worker.all("ended")), 1)
            left = h.query("SELECT attempts, leased_until FROM delay_wheel.tasks WHERE queue IN (%s, %s)", queue, table)
            self.assertEqual(len(left), n - len(done))
            self.assertGreater(len(left), 0)
            self.assertEqual([row for row in left if row["attempts"] or row["leased_until"]], [])
            # the others are due at once for the next worker
            other = h.start({queue: {"concurrency": 50}, table: {"transaction": True, "concurrency": 6}})
            other.until("done", len(left))
            self.assertEqual({line["attempt"] for line in other.all("start")}, {1})

    def test_B21_B60_an_ordinary_day_leaves_no_error(self) -> None:
        """Deploys, and queues that become full and empty: the server's log stays as it is."""
        log = h.ServerLog()
        if not log.shows_errors:
            self.skipTest("the server's log cannot be read")
        full, other, table = h.new_queue(), h.new_queue(), h.new_queue()
        queues: h.Queues = {full: {"concurrency": 1}, other: {"concurrency": 2, "plain": True}, table: {"transaction": True}}
        for number in (signal.SIGTERM, signal.SIGINT):
            workers = [h.start(queues, connection=h.conninfo(application_name=log.name)) for _ in range(2)]
            ids = []
            for n in range(21):
                ids += [h.send(full, {"sleep": 0.01 * (n % 4)}), h.send(other, {}), h.send(table, {"insert": "day"})]
                if n % 3 == 0:
                    h.until("all done", lambda: h.is_gone(*ids))
            ids += h.send_all(full, [{"sleep": 0.05}] * 20)
            for worker in workers:
                worker.signal(number)
            for worker in workers:
                self.assertEqual(worker.exited(), 0)
        last = h.start(queues, connection=h.conninfo(application_name=log.name))
        h.until("all done", lambda: h.is_gone(*ids))
        self.assertEqual(last.end(), 0)
        self.assertEqual(log.errors(), [])

    def test_B60_a_lease_that_is_being_answered(self) -> None:
        """SIGTERM while delay_lease() is on its way: what it brings is released."""
        proxy = h.Proxy()
        self.addCleanup(proxy.close)
        queue = h.new_queue()
        worker = h.Program({queue: {}}, connection=proxy.conninfo).waits()
        proxy.delay = 1
        id = h.send(queue, {})
        h.until("it is leased", lambda: h.row(id)["leased_until"])
        worker.signal(signal.SIGTERM)
        h.until("it is told", lambda: "no new message" in worker.log)
        proxy.delay = 0
        self.assertEqual(worker.exited(), 0)
        self.assertEqual(worker.all("start"), [])
        self.assertEqual(len(worker.all("released", id)), 1)
        self.assertEqual((h.row(id)["attempts"], h.row(id)["leased_until"]), (0, None))

    def test_B33_B62_the_limit_passes(self) -> None:
        queues = {(plain, transaction): h.new_queue() for plain in (False, True) for transaction in (False, True)}
        options: h.Queues = {queue: {"plain": plain, "transaction": transaction} for (plain, transaction), queue in queues.items()}
        worker = h.start(options, within=0.3)
        ids = [h.send(queue, {"sleep": 120, **({"insert": "62"} if transaction else {})}) for (_, transaction), queue in queues.items()]
        worker.until("start", 4)
        self.assertEqual(worker.end(), 0)
        for id in ids:
            self.assertEqual(worker.all("end", id)[0]["how"], "told")
            self.assertEqual((h.row(id)["attempts"], h.row(id)["leased_until"]), (0, None))
        self.assertEqual(len(worker.all("released")), 4)
        self.assertEqual(h.one("SELECT count(*) FROM python_ledger WHERE id = ANY(%s)", ids), 0)

    def test_B63_they_go_on_all_the_same(self) -> None:
        queues = [h.new_queue(), h.new_queue()]
        options: h.Queues = {queue: {"lease": "3 s", "plain": queue == queues[1]} for queue in queues}
        worker = h.start(options, within=0.2)
        ids = [h.send(queue, {"never": 1}) for queue in queues]
        worker.until("start", 2)
        self.assertEqual(worker.end(), 0)
        other = h.start(options)
        for id in ids:
            self.assertRegex(worker.log, f"when the worker ends: messages .*{id}")
            self.assertEqual(other.until("start", 1, id)[0]["attempt"], 2)  # when the lease has ended

    def test_B64_a_second_signal(self) -> None:
        for payload in ({"sleep": 300}, {"block": 300}):  # also if the event loop is kept
            queue = h.new_queue()
            worker = h.start({queue: {"lease": "1 s"}})
            id = h.send(queue, payload)
            worker.until("start", 1, id)
            worker.signal(signal.SIGTERM)
            time.sleep(0.3)
            self.assertTrue(worker.runs)
            worker.signal(signal.SIGTERM)
            self.assertEqual(worker.exited(), -signal.SIGTERM)  # which a shell shows as 143
            h.query("SELECT delay_cancel(%s, stop_running => true)", id)

    def test_B65_while_the_server_is_away(self) -> None:
        # it comes back; it does not; and there is nothing to report
        proxies = [h.Proxy() for _ in range(3)]
        for proxy in proxies:
            self.addCleanup(proxy.close)
        queues = [h.new_queue() for _ in proxies]
        workers = [h.Program({queue: {"lease": "2 min"}}, connection=proxy.conninfo, within=within).waits()
                   for queue, proxy, within in zip(queues, proxies, (30, 1, 30))]
        ids = [h.send(queue, {"sleep": 0.5}) for queue in queues[:2]]
        for worker, id in zip(workers, ids):
            worker.until("start", 1, id)
        for proxy in proxies:
            proxy.cut()
        for worker, id in zip(workers, ids):
            worker.until("end", 1, id)
        workers[2].until("disconnected")
        began = time.monotonic()
        for worker in workers:
            worker.signal(signal.SIGTERM)
        time.sleep(0.7)
        self.assertTrue(workers[0].runs)  # it still has to report
        proxies[0].mend()
        self.assertEqual([worker.exited() for worker in workers], [0, 0, 0])
        self.assertLess(time.monotonic() - began, 25)  # the limit is 30 s
        self.assertEqual(len(workers[0].all("done", ids[0])), 1)
        self.assertEqual(workers[1].all("done", ids[1]), [])
        self.assertIn(f"messages {ids[1]}", workers[1].log)

    def test_B65_never_connected(self) -> None:
        worker = h.Program({"none": {}}, connection=h.conninfo(host="127.0.0.1", port=1))
        h.until("it complains", lambda: "refused" in worker.log)
        self.assertEqual(worker.end(), 0)

    def test_B66_stop(self) -> None:
        queue = h.new_queue()
        log = h.ServerLog()

        async def before() -> None:
            worker = Worker(h.conninfo())
            worker.queue(queue)(lambda message, context: None)
            await worker.stop()
            await worker.run_async()

        async def twice_while_it_connects() -> None:
            worker = Worker(h.conninfo(host="127.0.0.1", port=1))
            worker.queue(queue)(lambda message, context: None)
            running = asyncio.ensure_future(worker.run_async())
            await asyncio.sleep(0.2)
            await asyncio.gather(worker.stop(), worker.stop(within=0))
            await running

        async def at_any_moment_of_its_beginning() -> None:
            for ms in range(0, 50, 2):
                worker = Worker(h.conninfo(application_name=log.name))
                worker.queue(queue)(lambda message, context: None)
                running = asyncio.ensure_future(worker.run_async())
                await asyncio.sleep(ms / 1000)
                await asyncio.gather(running, worker.stop())

        async def by_a_handler() -> int:
            worker, calls = Worker(h.conninfo()), 0

            @worker.queue(queue)
            async def handle(message: Message, context: Context) -> None:
                nonlocal calls
                calls += 1
                asyncio.ensure_future(worker.stop())

            h.send(queue, {})
            await worker.run_async()
            return calls

        async def cancelled() -> None:
            worker = Worker(h.conninfo())

            @worker.queue(queue)
            async def handle(message: Message, context: Context) -> None:
                started.set()
                await asyncio.sleep(0.3)

            started = asyncio.Event()
            id = h.send(queue, {})
            running = asyncio.ensure_future(worker.run_async())
            await started.wait()
            running.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await running
            self.assertTrue(h.is_gone(id))

        for case in (before, at_any_moment_of_its_beginning, twice_while_it_connects, by_a_handler, cancelled):
            with self.subTest(case.__name__):
                asyncio.run(asyncio.wait_for(case(), 60))
        self.assertEqual(log.errors(), [])


if __name__ == "__main__":
    unittest.main()
