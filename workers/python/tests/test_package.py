"""The package as its users get it: the wheel, its program, and the blocks of workers/python/README.md."""
from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
import unittest
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from delay_wheel import Context, Message, Worker, send

from . import harness as h

setUpModule = h.set_up
PROJECT = Path(__file__).parent.parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)


class Package(unittest.TestCase):
    @unittest.skipIf(os.environ.get("DW_INSTALLED"), "the package is tested where it is installed")
    def test_wheel_and_quick_start(self) -> None:
        source, wheels, installed, app = (h.scratch / name for name in ("source", "wheels", "installed", "app"))
        shutil.copytree(PROJECT, source, ignore=shutil.ignore_patterns("tests", "build", "*.egg-info", "__pycache__", ".mypy_cache"))
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        build = subprocess.run([sys.executable, "-m", "build", "--version"], env=env, capture_output=True)
        wheel_module = subprocess.run([sys.executable, "-c", "import setuptools, wheel"], env=env, capture_output=True)
        if build.returncode or wheel_module.returncode:
            self.skipTest("there is no build, setuptools or wheel")
        # nothing is downloaded
        made = subprocess.run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(source)], env=env, capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        wheel, = wheels.glob("delay_wheel-*-py3-none-any.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            archive.extractall(installed)
        self.assertIn("delay_wheel/py.typed", names)
        self.assertEqual([name for name in names if not name.startswith(("delay_wheel/", "delay_wheel-"))], [])
        entry, = installed.glob("*.dist-info/entry_points.txt")
        self.assertIn("delay-wheel = delay_wheel.__main__:main", entry.read_text())

        app.mkdir()
        (app / "tasks.py").write_text(blocks("python")[0])
        # the commands of the README, "<!-- shown by: workers/python/tests/test_package.py -->", but for apt-get
        install, start = ("\n".join(line for line in block.splitlines() if not line.startswith("sudo apt-get")) for block in blocks("sh"))
        home, clone = h.scratch / "home", h.scratch / "clone"
        home.mkdir()
        (clone / "workers").mkdir(parents=True)
        source.rename(clone / "workers/python")
        command = ["python3", "-c", "import ensurepip"]
        if shutil.which("python3") == sys.executable and not subprocess.run(command, capture_output=True).returncode:
            offline = {**env, "HOME": str(home), "PIP_NO_INDEX": "1"}
            made = subprocess.run(["bash", "-ec", install], cwd=clone, env=offline, capture_output=True, text=True)
            self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
            env, start = {**env, "HOME": str(home)}, f"exec {start}"
        else:
            env, start = {**env, "PYTHONPATH": str(installed)}, f"exec {start.replace('~/venv/bin/python', sys.executable)}"
        env = {**env, "PGHOST": str(h.server["host"]), "PGPORT": str(h.server["port"]), "PGDATABASE": h.server["dbname"], "PGUSER": h.superuser}
        process = subprocess.Popen(["bash", "-c", start], cwd=app, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        self.addCleanup(process.stdout.close)
        for block in blocks("sql"):
            for statement in block.split(";\n"):
                h.query(statement)
        h.until("the mail is written", lambda: h.one("SELECT count(*) = 0 FROM delay_wheel.tasks WHERE queue = 'mail'"))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 0)
        self.assertIn("a mail to anna@example.com attempt 1", process.stdout.read())

        (app / "test_mail.py").write_text(blocks("python")[3])
        test = start.replace("-m delay_wheel run tasks:worker", "-m unittest test_mail")
        tested = subprocess.run(["bash", "-c", test], cwd=app, env=env, capture_output=True, text=True)
        self.assertEqual(tested.returncode, 0, tested.stderr)
        self.assertIn("Ran 1 test", tested.stderr)
        self.assertIn("a mail to anna@example.com attempt 1", tested.stdout)
        h.query("SELECT delay_wheel.drop_queue('mail')")

    def test_B10_around_of_the_readme(self) -> None:
        """With what stands for OpenTelemetry."""
        seen: list[Any] = []

        class Tracing:
            def extract(self, carrier: dict[str, str]) -> str:
                return carrier["traceparent"]

            @contextlib.contextmanager
            def start_as_current_span(self, name: str, context: str) -> Iterator[None]:
                seen.append(("begin", name, context))
                yield
                seen.append("end")

        names: dict[str, Any] = {"propagate": Tracing(), "tracer": Tracing()}
        exec(blocks("python")[2], names)
        queue = h.new_queue()
        worker = Worker(h.conninfo(user=h.superuser), around=names["around"])

        @worker.queue(queue)
        async def handle(message: Message, context: Context) -> None:
            seen.append(message.payload)

        with psycopg.connect(**h.server, autocommit=True) as db:
            send(db, queue, 7, headers={"traceparent": "00-1-2-01"})
        self.assertEqual(asyncio.run(worker.drain()), 1)
        self.assertEqual(seen, [("begin", queue, "00-1-2-01"), 7, "end"])
        self.assertEqual(len(blocks("python")), 4)

    def test_plain_handler_of_the_readme(self) -> None:
        written: list[Any] = []
        worker = Worker(h.conninfo(user=h.superuser))
        names: dict[str, Any] = {"worker": worker, "write": written.append}
        exec(blocks("python")[1], names)
        h.query("SELECT delay_wheel.create_queue('report', external => true)")
        with psycopg.connect(**h.server, autocommit=True) as db:
            send(db, "report", {"pages": [1, 2]})
        self.assertEqual(asyncio.run(worker.drain()), 1)
        self.assertEqual(written, [1, 2])
        stopping = threading.Event()
        stopping.set()
        with self.assertRaisesRegex(RuntimeError, "stopped"):
            names["report"](types.SimpleNamespace(payload={"pages": [3]}), types.SimpleNamespace(stopping=stopping))
        self.assertEqual(written, [1, 2])
        h.query("SELECT delay_wheel.drop_queue('report')")

    def test_wrong_program(self) -> None:
        (h.scratch / "nothing.py").write_text("worker = 7\n")
        run = subprocess.run([sys.executable, "-m", "delay_wheel", "run", "nothing:worker"], cwd=h.scratch, capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("is no Worker", run.stderr)

    def test_B61_the_application_keeps_it_alive(self) -> None:
        queue = h.new_queue()
        (h.scratch / "open_tasks.py").write_text(
            f"import threading\nfrom delay_wheel import Worker\nworker = Worker({h.conninfo()!r})\n"
            f"@worker.queue({queue!r})\nasync def handle(message, context): print('handled', flush=True)\n"
            "threading.Thread(target=threading.Event().wait).start()\n")
        process = subprocess.Popen([sys.executable, "-m", "delay_wheel", "run", "open_tasks:worker"], cwd=h.scratch, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        self.addCleanup(process.stdout.close)
        h.send(queue, {})
        self.assertEqual(process.stdout.readline(), "handled\n")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 0)
        self.assertGreater(time.monotonic() - began, 4)


if __name__ == "__main__":
    unittest.main()
