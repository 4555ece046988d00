"""W2: a deploy costs nothing."""
import random
import signal
import time
import unittest

from harness import Case, Way, wait_until


class Stop(Case):
    def test_sigterm(self):
        program = self.program().ready()
        id = self.post("/slow?seconds=2&term")
        self.wait_for_request("/slow?seconds=2&term")
        program.signal(signal.SIGTERM)
        program.wait_for("event=stopping")
        late = self.post("/200?late")
        self.assertEqual(program.process.wait(30), 0)
        self.assertEqual(self.result(id)[0], "done")
        self.assertEqual(self.sink.lines(target="/200?late"), [])
        self.assertEqual(self.attempts(late), 0)

    def test_sigterm_while_leasing(self):
        """What is leased and not begun is released at once, and the attempt does not count."""
        way = Way()
        self.addCleanup(way.close)
        program = self.program("--connection", f"host=127.0.0.1 port={way.port}").ready()
        way.hold_after = b"delay_lease"
        id = self.post("/200?unbegun")
        wait_until(lambda: way.is_held and self.value("SELECT leased FROM delay_wheel.queues WHERE name = 'http'") == 1, "the lease")
        program.signal(signal.SIGTERM)
        program.wait_for("event=stopping")
        way.is_held = False
        self.assertEqual(program.process.wait(30), 0)
        self.assertEqual(self.sink.lines(target="/200?unbegun"), [])
        self.assertEqual(self.db.execute("SELECT attempts, due <= now() FROM delay_wheel.tasks WHERE id = %s", (id,)).fetchone(), (0, True))
        self.assertEqual(self.value("SELECT leased FROM delay_wheel.queues WHERE name = 'http'"), 0)

    def test_sigterm_limit(self):
        program = self.program("--stop-within", "1").ready()
        id = self.post("/slow?limit")
        self.wait_for_request("/slow?limit")
        began = time.monotonic()
        program.signal(signal.SIGINT)
        self.assertEqual(program.process.wait(30), 0)
        self.assertTrue(0.9 < time.monotonic() - began < 20)
        # due again at once, and the attempt did not count
        self.assertEqual(self.db.execute("SELECT attempts, due <= now() FROM delay_wheel.tasks WHERE id = %s", (id,)).fetchone(), (0, True))

    def test_second_signal(self):
        program = self.program().ready()
        self.post("/slow?second")
        self.wait_for_request("/slow?second")
        program.signal(signal.SIGTERM)
        program.wait_for("event=stopping")
        program.signal(signal.SIGTERM)
        self.assertEqual(program.process.wait(30), -signal.SIGTERM)

    def test_idle_stop_is_quick(self):
        program = self.program().ready()
        wait_until(lambda: self.value("SELECT awaiting FROM delay_wheel.queues WHERE name = 'http'"), "it waits")
        began = time.monotonic()
        self.assertEqual(program.stop(), 0)
        self.assertLess(time.monotonic() - began, 10)

    def test_deploys(self):
        """SIGTERM again and again: each call is made once."""
        self.db.execute("SELECT delay_wheel.create_queue('http', options => '{\"group_max_running\": 0}')")
        ids = []
        for n in range(10):
            program = self.program("--concurrency", "7").ready()
            ids += [self.post(f"/200?deploy{n}.{i}") for i in range(30)]
            time.sleep(random.random() / 5)
            program.signal(signal.SIGTERM)
        self.program()
        for id in ids:
            self.result(id)
        for program in self.programs[:-1]:
            self.assertEqual(program.process.wait(30), 0)
        targets = [line["target"] for line in self.sink.lines() if "deploy" in line["target"]]
        self.assertEqual((len(targets), len(set(targets))), (300, 300))
        self.assertEqual(self.value("SELECT count(*) FROM ended WHERE id = ANY(%s)", ids), 300)


if __name__ == "__main__":
    unittest.main()
