"""W3: the network to the server is cut or slow, and poolers."""
import os
import subprocess
import tempfile
import time
import unittest

from harness import LONG, Case, Way, free_port, wait_until


class Network(Case):
    def test_comes_back(self):
        """Within a second, but for a busy machine."""
        way = Way()
        self.addCleanup(way.close)
        self.program("--connection", f"host=127.0.0.1 port={way.port}").ready()
        for seconds in (0.1, 2.6):
            way.cut()
            time.sleep(seconds)  # as long as the server is away
            target = f"/200?back{seconds}"
            id = self.post(target)
            way.mend()
            at = time.time()
            self.wait_for_request(target)
            self.assertLess(self.sink.lines(target=target)[0]["at"] - at, 1 if LONG else 4)
            self.result(id)

    def test_report_is_sent_again(self):
        """The request ends while the server is away, for longer than the lease: it is not made again."""
        way, wait_way = Way(), Way()
        self.addCleanup(way.close)
        self.addCleanup(wait_way.close)
        program = self.program("--lease", "4", "--connection", f"host=127.0.0.1 port={way.port}",
                               "--wait-connection", f"host=127.0.0.1 port={wait_way.port}").ready()
        target = "/slow?seconds=0.5&again"
        id = self.post(target)
        self.wait_for_request(target)
        way.cut()
        wait_way.cut()
        wait_until(lambda: self.sink.lines("end", target=target), "the answer")
        time.sleep(4)  # until the lease has ended
        wait_way.mend()  # it could lease the message now
        program.wait_for("event=connected session=wait", 2)
        time.sleep(0.5)
        way.mend()
        self.assertEqual(self.result(id)[0], "done")
        self.assertEqual(len(self.sink.lines(target=target)), 1)

    def test_held_network(self):
        """Nothing comes through, and no connection ends: a report that is not answered is sent over a new one."""
        way = Way()
        self.addCleanup(way.close)
        program = self.program("--lease", "60", "--connection", f"host=127.0.0.1 port={way.port}", "--wait-connection", "").ready()
        way.is_held = True
        time.sleep(0.2)  # its threads see it
        id = self.post("/200?held")
        self.wait_for_request("/200?held")
        program.wait_for("the server does not answer", limit=20)
        way.cut()  # so that what was held never arrives
        way.is_held = False
        way.mend()
        self.assertEqual(self.result(id)[0], "done")
        self.assertEqual(len(self.sink.lines(target="/200?held")), 1)

    def test_no_server(self):
        program = self.program("--connection", "host=127.0.0.1 port=1")
        program.wait_for("event=disconnected", 2)
        self.assertEqual(program.stop(), 0)

    @unittest.skipUnless(os.path.exists("/usr/sbin/pgbouncer"), "needs PgBouncer")
    def test_pgbouncer(self):
        directory = tempfile.mkdtemp(dir=self.directory)
        host, server_port = os.environ.get("PGHOST", "localhost"), os.environ.get("PGPORT", "5432")
        port = free_port()
        with open(f"{directory}/ini", "w") as out:
            out.write(f"[databases]\n* = host={host} port={server_port} user=delay_http_worker\n"
                      f"[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\nunix_socket_dir=\nauth_type=any\n"
                      "pool_mode=transaction\ndefault_pool_size=1\n")
        os.chmod(directory, 0o755)
        os.chmod(self.directory, 0o755)
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        bouncer = subprocess.Popen(["/usr/sbin/pgbouncer", *user, f"{directory}/ini"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(lambda: (bouncer.kill(), bouncer.wait()))
        self.program("--connection", f"host=127.0.0.1 port={port}", "--wait-connection", "", "--lease", "2").ready()
        ids = [self.post(f"/200?bouncer{n}") for n in range(50)] + [self.post("/slow?seconds=3&bouncer")]
        for id in ids:
            self.assertEqual(self.result(id)[0], "done")
        self.assertEqual(len([line for line in self.sink.lines() if "bouncer" in line["target"]]), 51)


if __name__ == "__main__":
    unittest.main()
