"""All modules at the same time, since they mostly wait; then those that need the server for themselves.

Usage: python3 -m tests [module ...]
"""
from __future__ import annotations

import re
import subprocess
import sys
import time
import unittest
from pathlib import Path

ALONE = ["test_alone", "test_long"]
HERE = Path(__file__).parent


class Result(unittest.TextTestResult):
    """With the time of each test."""

    def startTest(self, test: unittest.TestCase) -> None:
        self._began = time.monotonic()
        super().startTest(test)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.stream.write(f"{time.monotonic() - self._began:.1f} s ... ")
        super().addSuccess(test)


def run_all() -> bool:
    modules = sorted(file.stem for file in HERE.glob("test_*.py"))
    counts = {"passed": 0, "failed": 0, "skipped": 0}

    def start(module: str) -> "subprocess.Popen[str]":
        return subprocess.Popen([sys.executable, "-m", "tests", module], cwd=HERE.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(module: str, process: "subprocess.Popen[str]") -> None:
        output, _ = process.communicate()
        print(f"# {module}\n{output}", flush=True)
        ran, bad, skipped = (sum(map(int, re.findall(pattern, output, re.M))) for pattern in (r"^Ran (\d+) tests? in", r"(?:failures|errors)=(\d+)", r"skipped=(\d+)"))
        counts["passed"] += max(ran - bad - skipped, 0)
        counts["failed"] += bad or process.returncode != 0
        counts["skipped"] += skipped

    running = [(module, start(module)) for module in modules if module not in ALONE]
    for module, process in running:
        finish(module, process)
    for module in ALONE:
        finish(module, start(module))
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    return counts["failed"] == 0


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(not run_all())
    names = [f"tests.{module}" for module in sys.argv[1:]]
    unittest.main(module=None, argv=["tests", *names], testRunner=unittest.TextTestRunner(resultclass=Result, verbosity=2))
