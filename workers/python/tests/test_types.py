"""Types of the library and of the tests."""
from __future__ import annotations

import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from . import harness as h


class Types(unittest.TestCase):
    @unittest.skipUnless(shutil.which("mypy") and sys.version_info < (3, 12), "there is no mypy, or a later one")
    # wrong calls in tests are marked: without types, the marks would be errors
    def test_types(self) -> None:
        found = subprocess.run(["mypy", "--python-executable", sys.executable, "--cache-dir", str(h.scratch / "mypy")], cwd=Path(__file__).parent.parent, capture_output=True, text=True)
        self.assertEqual(found.returncode, 0, found.stdout)


if __name__ == "__main__":
    unittest.main()
