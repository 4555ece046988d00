"""20,000 messages through four processes, and faults all the time; DW_LONG=1. About two minutes."""
from __future__ import annotations

import collections
import random
import signal
import time
import unittest

from . import harness as h

MESSAGES = 20_000
LEASE = 4  # s


@unittest.skipUnless(h.LONG, "DW_LONG is not set")
class Faults(unittest.TestCase):
    setUpClass = staticmethod(h.set_up)

    def test_W1_W2_W3_each_is_done_and_none_by_two(self) -> None:
        rng = random.Random(7301)
        server, proxy = h.Server(), h.Proxy()
        self.addCleanup(proxy.close)
        queue, table = h.new_queue(max_attempts=1000, history="off"), h.new_queue(max_attempts=1000, history="off")
        n_table = MESSAGES // 10
        h.query("""SELECT count(delay_send(%s, jsonb_build_object('sleep', random() * CASE WHEN n %% 500 = 0 THEN 12 ELSE 0.6 END), delay => make_interval(secs => random() * 60),
                   options => '{"on_success": "INSERT INTO python_seen VALUES ($1)"}')) FROM generate_series(1, %s) n""", queue, MESSAGES - n_table)
        h.query("SELECT count(delay_send(%s, '{\"insert\": \"long\", \"sleep\": 0.05}', delay => make_interval(secs => random() * 60))) FROM generate_series(1, %s)", table, n_table)
        first, last = h.one("SELECT min(id) FROM delay_wheel.tasks WHERE queue = %s", queue), h.one("SELECT max(id) FROM delay_wheel.tasks WHERE queue = %s", table)

        def begin(i: int) -> h.Program:
            return h.Program({queue: {"lease": f"{LEASE} s", "concurrency": 40, "plain": i == 3}, table: {"transaction": True, "concurrency": 3, "plain": i == 3}},
                             connection=proxy.conninfo if i < 2 else h.conninfo(), within=3)

        running = [begin(i) for i in range(4)]
        programs = list(running)
        ends: list[tuple[int, float]] = []
        faults: collections.Counter[str] = collections.Counter()
        statuses: collections.Counter[int] = collections.Counter()
        thawed: list[tuple[float, h.Program]] = []
        undo: list[float] = []
        kinds = ["deploy"] * 8 + ["kill"] * 3 + ["freeze"] * 2 + ["terminate"] * 4 + ["cut"] * 2 + ["silence"] + ["restart", "crash"]
        began = time.monotonic()
        while time.monotonic() - began < 170 and not h.one("SELECT count(*) = 0 FROM delay_wheel.tasks WHERE queue IN (%s, %s)", queue, table):
            kind = rng.choice(kinds)
            faults[kind] += 1
            i = rng.randrange(4)
            program = running[i]
            if any(program is frozen for _, frozen in thawed):
                continue
            if kind == "deploy":
                program.signal(signal.SIGTERM)
                running[i] = begin(i)
                programs.append(running[i])
            elif kind == "kill":
                program.signal(signal.SIGKILL)
                program.exited()
                ends.append((program.pid, time.time()))
                running[i] = begin(i)
                programs.append(running[i])
            elif kind == "freeze":
                program.signal(signal.SIGSTOP)
                ends.append((program.pid, time.time()))
                thawed.append((time.monotonic() + LEASE + 1, program))
            elif kind == "terminate":
                h.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s AND random() < 0.5", h.ROLE)
            elif kind == "cut":
                proxy.cut()
                time.sleep(0.5)
                proxy.mend()
            elif kind == "silence":
                proxy.silent = True
                undo.append(time.monotonic() + 7)
            elif kind == "restart":
                server.ctl("restart", "-m", "fast")
            elif kind == "crash":
                server.ctl("restart", "-m", "immediate")
            time.sleep(1)
            for at, program in list(thawed):
                if at < time.monotonic():
                    program.signal(signal.SIGCONT)
                    thawed.remove((at, program))
            if undo and undo[0] < time.monotonic():
                undo.clear()
                proxy.mend()
        proxy.mend()
        for _, program in thawed:
            program.signal(signal.SIGCONT)
        h.until("all are done", lambda: h.one("SELECT count(*) = 0 FROM delay_wheel.tasks WHERE queue IN (%s, %s)", queue, table), 60)
        took = time.monotonic() - began
        for program in programs:
            program.signal(signal.SIGTERM)
        killed = {pid for pid, _ in ends}
        for program in programs:
            status = program.exited()
            statuses[status] += 1
            if program.pid not in killed:
                self.assertEqual(status, 0, program.log[-2000:])
        lines = [line for program in programs for line in program.lines]
        count = collections.Counter(line["what"] for line in lines)
        print(f"\n{took:.0f} s, {len(programs)} processes, faults: {dict(faults)}, exits: {dict(statuses)}, lines: {dict(count)}", flush=True)

        in_queue = [line for line in lines if line.get("queue") == queue]
        started = {line["id"] for line in in_queue if line["what"] == "start"}
        self.assertEqual(len(started), MESSAGES - n_table)  # each was handled
        self.assertEqual(h.overlaps(in_queue, ends), [])  # none by two at the same time
        self.assertEqual(h.one("SELECT count(*) FROM delay_wheel.failed WHERE id BETWEEN %s AND %s", first, last), 0)
        h.until("each end counted", lambda: h.one("SELECT count(*) FROM python_seen WHERE id BETWEEN %s AND %s", first, last) >= MESSAGES - n_table, 60)
        # and once: words of those that had lost the lease were refused
        self.assertEqual(h.query("SELECT id, count(*) FROM python_seen WHERE id BETWEEN %s AND %s GROUP BY id HAVING count(*) > 1", first, last), [])
        self.assertEqual(h.one("SELECT count(*) FROM python_seen WHERE id BETWEEN %s AND %s", first, last), MESSAGES - n_table)
        self.assertEqual(h.query("SELECT id, count(*) FROM python_ledger WHERE id BETWEEN %s AND %s GROUP BY id HAVING count(*) <> 1", first, last), [])
        self.assertEqual(h.one("SELECT count(*) FROM python_ledger WHERE id BETWEEN %s AND %s", first, last), n_table)


if __name__ == "__main__":
    unittest.main()
