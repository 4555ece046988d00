"""Tests of the worker library. The cases B1 to B83 are those of workers/behaviour.md.

The server is that of PGHOST, PGPORT, PGUSER (a superuser) and PGDATABASE. Run in the parent of this
folder: python3 -m unittest. With DW_LONG=1, faults at length, too. DW_INSTALLED=1 tests the
installed package instead of ../src.
"""
import os
import sys
from pathlib import Path

here = Path(__file__).parent.parent
paths = [str(here)]
if not os.environ.get("DW_INSTALLED"):
    paths.insert(0, str(here / "src"))
sys.path[:0] = paths
os.environ["PYTHONPATH"] = ":".join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
