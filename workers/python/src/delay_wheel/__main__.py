"""python -m delay_wheel run shop.tasks:worker"""
from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import threading

from .worker import Worker

EXIT_DELAY = 5.0  # s that the application has after the worker has ended


def main() -> None:
    parser = argparse.ArgumentParser(prog="delay_wheel", description="Runs a worker until SIGTERM or SIGINT.")
    parser.add_argument("command", choices=["run"])
    parser.add_argument("worker", metavar="MODULE:NAME", help="where the worker is, such as shop.tasks:worker")
    parser.add_argument("--within", metavar="SECONDS", type=float, default=30, help="how long handlers may go on after a signal, default: %(default)s")
    parser.add_argument("--log", metavar="LEVEL", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"], help="default: %(default)s")
    options = parser.parse_args()
    logging.basicConfig(level=options.log, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    sys.path.insert(0, os.getcwd())
    module, _, name = options.worker.partition(":")
    worker = getattr(importlib.import_module(module), name or "worker", None)
    if not isinstance(worker, Worker):
        parser.error(f"{options.worker} is no Worker")
    worker.run(within=options.within)
    # something of the application may be open still, such as a thread: a deploy does not wait for it
    ending = threading.Timer(EXIT_DELAY, os._exit, (0,))
    ending.daemon = True
    ending.start()


if __name__ == "__main__":
    main()
