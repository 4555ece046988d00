"""All faults at once, at length: with DW_LONG=1."""
import os
import random
import signal
import subprocess
import threading
import time
import unittest

import psycopg

from harness import DATABASE, LONG, Case, Way


@unittest.skipUnless(LONG, "DW_LONG=1")
class Chaos(Case):
    def test_chaos(self):
        """Calls through four processes, with kills, freezes, deploys, cuts and terminated sessions: each is made,
        and none by two at once.  DW_RESTART, a shell command, restarts the server, too."""
        total = 20000
        self.db.execute("SELECT delay_wheel.create_queue('http', options => '{\"group_max_running\": 0, \"retry_delay\": \"100 ms\"}')")
        ways = [Way() for _ in range(4)]
        options = [("--lease", "3", "--concurrency", "50", "--stop-within", "2", "--connection", f"host=127.0.0.1 port={way.port}") for way in ways]
        running = [self.program(*o) for o in options]
        frozen = {}
        sent = 0
        end = time.monotonic() + 150
        restart_at = time.monotonic() + 10
        restarts = 0
        done = 0
        while True:
            try:
                if sent < total:
                    self.db.execute("SELECT count(delay_http.post(%s || n, '{}', options => %s)) FROM generate_series(%s::int, %s::int) n",
                                    (self.sink.url + "/slow?seconds=0.05&chaos", self.OPTIONS, sent, sent + 124))
                    sent += 125
                done = self.value("SELECT count(*) FROM ended WHERE result IS NOT NULL")
            except psycopg.OperationalError:
                time.sleep(0.2)
                try:
                    type(self).db = psycopg.connect(dbname=DATABASE, autocommit=True)
                except psycopg.OperationalError:
                    pass
                continue
            if sent >= total and self.value("SELECT count(*) FROM delay_wheel.tasks WHERE queue = 'http'") == 0 and done >= total:
                break
            self.assertLess(time.monotonic(), end, f"{done} of {total} done")
            n = random.randrange(4)
            what = random.choice(["kill", "term", "stop", "cut", "terminate"])
            if n in frozen:
                if time.monotonic() > frozen[n]:
                    running[n].signal(signal.SIGCONT)
                    del frozen[n]
            elif running[n].process.poll() is not None:
                running[n] = self.program(*options[n])
            elif what == "kill":
                running[n].kill()
            elif what == "term":
                running[n].signal(signal.SIGTERM)
            elif what == "stop":
                running[n].signal(signal.SIGSTOP)
                frozen[n] = time.monotonic() + random.random() * 5
            elif what == "cut":
                ways[n].cut()
                threading.Timer(random.random() * 2, ways[n].mend).start()
            elif what == "terminate":
                self.terminate(random.choice(["CALL delay_await%", "SELECT n, CASE%"]))
            if os.environ.get("DW_RESTART") and time.monotonic() > restart_at:
                subprocess.run(os.environ["DW_RESTART"], shell=True, check=True)
                restart_at, restarts = time.monotonic() + 15, restarts + 1
            time.sleep(0.2)
        events = {}
        for what in ("begin", "end"):
            for line in self.sink.lines(what):
                if "chaos" in line["target"]:
                    events.setdefault(line["target"], []).append((line["at"], what))
        self.assertEqual(len(events), total)
        for target, list in events.items():
            depth = 0
            for at, what in sorted(list):
                depth += 1 if what == "begin" else -1
                self.assertLessEqual(depth, 1, f"{target} by two at once")
        self.assertEqual(self.value("SELECT count(*) FROM ended WHERE result IS NOT NULL"), total)
        made = sum(len(list) // 2 for list in events.values())
        print(f"\nchaos: {total} calls, {made} requests, {len(self.programs)} processes, {restarts} restarts", flush=True)


if __name__ == "__main__":
    unittest.main()
