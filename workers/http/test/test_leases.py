"""W1: no call is lost, and none is made by two at once."""
import signal
import unittest

import psycopg

from harness import DATABASE, Case, Way, wait_until


class Leases(Case):
    def test_long_request_keeps_its_lease(self):
        self.program("--lease", "2")
        self.program("--lease", "2")  # would get the message if its lease ended
        id = self.post("/slow?seconds=4")
        self.assertEqual(self.result(id)[0], "done")
        self.assertEqual(len(self.sink.lines(target="/slow?seconds=4")), 1)

    def test_stops_before_its_lease_ends(self):
        """The network to the server is cut: the request ends before somebody else can have the message."""
        way = Way()
        self.addCleanup(way.close)
        first = self.program("--lease", "3", "--connection", f"host=127.0.0.1 port={way.port}").ready()
        target = "/slow?seconds=20"
        id = self.post(target)
        self.wait_for_request(target)
        way.cut()
        self.program("--lease", "3").ready()
        self.wait_for_request(target, 2)
        first_end = wait_until(lambda: self.sink.lines("end", target=target), "the end of the first request")[0]
        self.assertTrue(first_end["gone"])
        self.assertLess(first_end["at"], sorted(line["at"] for line in self.sink.lines(target=target))[1])
        self.assertIn("the lease could not be extended", first.log())

    def test_cancelled_while_it_runs(self):
        self.program("--lease", "3")
        id = self.post("/slow?cancelled")
        self.wait_for_request("/slow?cancelled")
        self.value("SELECT delay_cancel(%s, stop_running => true)", id)
        wait_until(lambda: self.sink.lines("end", target="/slow?cancelled", gone=True), "the request ends")

    def test_frozen(self):
        """SIGSTOP for longer than the lease: another one does the work, and the word of the first is refused."""
        first = self.program("--lease", "1").ready()
        target = "/slow?seconds=0.8&frozen"
        id = self.post(target)
        self.wait_for_request(target)
        first.signal(signal.SIGSTOP)
        self.program("--lease", "10").ready()
        self.result(id)
        first.signal(signal.SIGCONT)
        first.wait_for("the lease is over")
        self.assertEqual(self.value("SELECT count(*) FROM ended WHERE id = %s", id), 1)
        self.assertEqual(len(self.sink.lines(target=target)), 2)

    def test_killed(self):
        first = self.program("--lease", "1").ready()
        target = "/slow?seconds=0.5&killed"
        id = self.post(target)
        self.wait_for_request(target)
        first.kill()
        self.program("--lease", "10")
        self.assertEqual(self.result(id)[0], "done")
        self.assertEqual(len({line["id"] for line in self.sink.lines(target=target)}), 1)

    def test_locked_message(self):
        """A row that another transaction has locked does not hold up the reports of others."""
        self.program()
        stuck = self.post("/slow?seconds=1&stuck")
        self.wait_for_request("/slow?seconds=1&stuck")
        with psycopg.connect(dbname=DATABASE) as other:
            other.execute("SELECT FROM delay_wheel_data.task WHERE id = %s FOR UPDATE", (stuck,))
            wait_until(lambda: self.sink.lines("end", target="/slow?seconds=1&stuck"), "its answer")
            for n in range(5):
                self.assertEqual(self.result(self.post(f"/200?free{n}"))[0], "done")
            other.rollback()
        self.assertEqual(self.result(stuck), ("done", {"status": 200, "answer": "late"}))
        self.assertEqual(len(self.sink.lines(target="/slow?seconds=1&stuck")), 1)


if __name__ == "__main__":
    unittest.main()
