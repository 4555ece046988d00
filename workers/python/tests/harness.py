"""What the tests share.

Workers under test are processes of their own (program.py), as a role that may only receive, so that
they can be killed and frozen. What they did is read from the file that their handlers write, and
from committed rows. Limits are generous: nothing fails because the machine is busy.
"""
from __future__ import annotations

import atexit
import contextlib
import json
import multiprocessing
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from . import program

ROLE = f"dw_python_{os.getpid()}"
LONG = bool(os.environ.get("DW_LONG"))
SOON = 3 if LONG else 10  # s after the server's return; without other work on the machine it is less than 1
Line = dict[str, Any]
Queues = dict[str, dict[str, Any]]  # options by name

scratch = Path(tempfile.mkdtemp(prefix="dw-python-"))
scratch.chmod(0o777)
atexit.register(shutil.rmtree, scratch, True)

# The address of the server, in full: a worker gets it with another user, or another port.
server: dict[str, Any] = {"host": os.environ.get("PGHOST", "localhost"), "port": int(os.environ.get("PGPORT", "5432")), "dbname": os.environ.get("PGDATABASE", "postgres")}
superuser = os.environ.get("PGUSER", pwd.getpwuid(os.getuid()).pw_name)
_db: list[psycopg.Connection[Any]] = []


def conninfo(**more: Any) -> str:
    return psycopg.conninfo.make_conninfo(**{**server, "user": ROLE, **more})


def until(what: str, condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Waits for a condition, and returns its value."""
    limit = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > limit:
            raise AssertionError(f"in vain: {what}")
        time.sleep(0.01)
    return value


def query(sql: str, *values: Any) -> list[Line]:
    """Rows of a statement, as superuser; by a new connection if a test has restarted the server."""
    limit = time.monotonic() + 20
    while True:
        try:
            if not _db or _db[0].closed:
                _db[:] = [psycopg.connect(**server, autocommit=True, row_factory=dict_row)]
            cursor = _db[0].execute(sql, values or None)
            return cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError as e:
            if _db and not _db[0].closed or time.monotonic() > limit:
                raise
            _db.clear()
            time.sleep(0.05)


def one(sql: str, *values: Any) -> Any:
    row = query(sql, *values)[0]
    return next(iter(row.values()))


def send(queue: str, payload: Any, more: str = "", *values: Any) -> int:
    """Sends a message as superuser. more: further arguments, in SQL."""
    return int(one(f"SELECT delay_send(%s, %s::jsonb{', ' + more if more else ''})", queue, json.dumps(payload), *values))


def send_all(queue: str, payloads: list[Any]) -> list[int]:
    """By one transaction, so that they are there at the same time."""
    return [row["id"] for row in query("SELECT delay_send(%s, p) AS id FROM unnest(%s::jsonb[]) p", queue, [json.dumps(payload) for payload in payloads])]


def row(id: int) -> Line:
    return query("SELECT *, round(extract(epoch FROM due - now()))::int AS due_in FROM delay_wheel.tasks WHERE id = %s", id)[0]


def is_gone(*ids: int) -> bool:
    return bool(one("SELECT count(*) = 0 FROM delay_wheel.tasks WHERE id = ANY(%s)", list(ids)))


_queues = 0


def create_queue(name: str, **options: Any) -> None:
    query("SELECT delay_wheel.create_queue(%s, external => true, receivers => %s::name[], options => %s::jsonb)",
          name, [ROLE], json.dumps({"retry_delay": "1 hour", "history": "all", **options}))


def queue_name() -> str:
    global _queues
    _queues += 1
    return f"python_{os.getpid()}_{_queues}"


def new_queue(**options: Any) -> str:
    name = queue_name()
    create_queue(name, **options)
    return name


def set_up() -> None:
    if query("SELECT 1 FROM pg_roles WHERE rolname = %s", ROLE):
        return
    query(f"CREATE ROLE {ROLE} LOGIN")
    atexit.register(tear_down)
    # modules of tests may run at the same time
    query("SELECT pg_advisory_lock(7301)")
    query("CREATE EXTENSION IF NOT EXISTS delay_wheel")
    query("SELECT delay_wheel.allow(%s)", ROLE)
    query("CREATE TABLE IF NOT EXISTS python_ledger (id bigint, note text)")
    query("CREATE TABLE IF NOT EXISTS python_seen (id bigint, result jsonb)")
    query("CREATE TABLE IF NOT EXISTS python_parent (id int PRIMARY KEY)")
    query("CREATE TABLE IF NOT EXISTS python_child (parent int REFERENCES python_parent DEFERRABLE INITIALLY DEFERRED)")
    query(f"GRANT SELECT, INSERT ON python_ledger, python_child TO {ROLE}")
    query("SELECT pg_advisory_unlock(7301)")


def drop(names: str) -> bool:
    try:
        query("SELECT delay_wheel.drop_queue(name) FROM delay_wheel.queues WHERE name LIKE %s", names)
    except psycopg.errors.ObjectInUse:
        return False  # cancelled messages are removed a moment later
    return True


def tear_down() -> None:
    """Of what this process has made in the server: its queues, and its role."""
    kill_programs()
    mine = f"python\\_{os.getpid()}\\_%"
    query("SELECT delay_cancel_all(queue => name, due_from => '-infinity') FROM delay_wheel.queues WHERE name LIKE %s", mine)
    until("its messages are removed", lambda: one("SELECT count(*) = 0 FROM delay_wheel.tasks WHERE queue LIKE %s", mine))
    until("its queues are dropped", lambda: not query("SELECT 1 FROM delay_wheel.queues WHERE name LIKE %s", mine) or drop(mine))
    query("SELECT delay_wheel.disallow(%s)", ROLE)
    query(f"DROP OWNED BY {ROLE}")
    query(f"DROP ROLE {ROLE}")
    _db.pop().close()


# forked by a process that has imported what they need: to start Python takes longer than most tests
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.program"])


class Program:
    """A process with a worker; see program.py for its options."""

    n = 0

    def __init__(self, queues: Queues, **options: Any) -> None:
        Program.n += 1
        self.file = scratch / f"{Program.n}.lines"
        self.log_file = scratch / f"{Program.n}.log"
        self.file.touch()
        self.log_file.touch()
        self._lines: list[Line] = []
        self._read = 0  # bytes of the file
        self.queues = queues
        self.options = {"connection": conninfo(), "file": str(self.file), "log": str(self.log_file), "queues": queues, **options}
        self.process = processes.Process(target=program.main, args=(self.options,))
        self.process.start()
        _programs.append(self)

    @property
    def pid(self) -> int:
        assert self.process.pid
        return self.process.pid

    @property
    def runs(self) -> bool:
        return self.process.is_alive()

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def logged(self, text: str) -> float:
        """When it has written the line with this text into its log."""
        line, = [line for line in self.log.splitlines() if text in line]
        return float(line.split()[0])

    @property
    def lines(self) -> list[Line]:
        with self.file.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[:new.rfind(b"\n") + 1]
        self._read += len(whole)
        self._lines += map(json.loads, whole.splitlines())
        return list(self._lines)

    def all(self, what: str, id: int | None = None) -> list[Line]:
        return [line for line in self.lines if line["what"] == what and id in (None, line.get("id"))]

    def until(self, what: str, n: int = 1, id: int | None = None, seconds: float = 60) -> list[Line]:
        """Waits for so many lines of a kind."""
        def enough() -> list[Line]:
            lines = self.all(what, id)
            return lines if len(lines) >= n else []
        try:
            return list(until("", enough, seconds))
        except AssertionError:
            raise AssertionError(f"in vain: {n} lines {what!r} of message {id} of {self.queues}\n{self.log[-3000:]}\n{self.file.read_text()[-2000:]}") from None

    def waits(self, *names: str) -> Program:
        """Waits until it waits for messages of these queues."""
        names = names or tuple(self.queues)
        try:
            until("", lambda: one("SELECT count(*) FROM delay_wheel.queues WHERE name = ANY(%s) AND awaiting > 0", list(names)) == len(names))
        except AssertionError:
            raise AssertionError(f"in vain: {names} are waited for\n{self.log[-3000:]}") from None
        return self

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it may have ended
            os.kill(self.pid, number)

    def exited(self, seconds: float = 60) -> int:
        """Its exit status; that of a signal is negative."""
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"it goes on\n{self.log[-3000:]}"
        return self.process.exitcode

    def end(self) -> int:
        """Ends it as a deploy does; returns its exit status."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        return self.exited()


_programs: list[Program] = []


def kill_programs() -> None:
    for program in _programs:
        program.process.kill()
        program.process.join()
    _programs.clear()


atexit.register(kill_programs)


def start(queues: Queues, **options: Any) -> Program:
    """A worker of these queues, which already waits for them: {name: options}."""
    return Program(queues, **options).waits()


def check_back(test: unittest.TestCase, worker: Program, queue: str, since: float) -> None:
    """A message comes soon after the server's return, and the worker has told what happened."""
    start, = worker.until("start", 1, send(queue, {}))
    test.assertLess(start["at"] - since, SOON)
    test.assertGreater(len(worker.all("disconnected")), 0)
    test.assertTrue(worker.runs)


class Proxy:
    """Between a worker and the server: a network that can be cut, slowed, and become silent."""

    def __init__(self) -> None:
        self.silent = False
        self.delay = 0.0  # s, in each direction
        self.sent = 0  # pieces of what workers have sent: no more than statements
        self._sockets: set[socket.socket] = set()
        self._port = 0
        self._listen()

    def _listen(self) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self._port))
        self._listener.listen(50)
        self._port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    @property
    def conninfo(self) -> str:
        return conninfo(host="127.0.0.1", port=self._port)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            is_path = server["host"].startswith("/")
            upstream = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET)
            try:
                upstream.connect(f"{server['host']}/.s.PGSQL.{server['port']}" if is_path else (server["host"], server["port"]))
            except OSError:
                client.close()
                upstream.close()
                continue
            self._sockets |= {client, upstream}
            for ends in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._copy, args=(*ends, ends[0] is client), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, is_sent: bool) -> None:
        try:
            while data := source.recv(65536):
                self.sent += is_sent
                if self.delay:
                    time.sleep(self.delay)
                if not self.silent:  # otherwise lost on the way
                    target.sendall(data)
        except OSError:
            pass
        if not self.silent:
            for end in (source, target):
                self._close(end)

    def _close(self, end: socket.socket) -> None:
        self._sockets.discard(end)
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        end.close()

    def reset(self) -> None:
        for end in list(self._sockets):
            self._close(end)

    def cut(self) -> None:
        """Connections break, and new ones are refused."""
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()
        self.reset()

    def mend(self) -> None:
        self.silent = False
        self.reset()  # of silent connections nobody knows how much was lost
        if self._listener.fileno() < 0:
            self._listen()

    def close(self) -> None:
        self.cut()


def owner_of(path: str) -> dict[str, Any]:
    """Options of subprocess to be the owner of a directory: programs of the server refuse root."""
    status = os.stat(path)
    return {} if status.st_uid == os.getuid() else {"user": status.st_uid, "group": status.st_gid, "extra_groups": []}


class Server:
    """The server as its owner, to stop it and to start it again."""

    def __init__(self) -> None:
        self._data = one("SHOW data_directory")
        self._bin = one("SELECT setting FROM pg_config WHERE name = 'BINDIR'")

    def ctl(self, *args: str) -> None:
        subprocess.run([f"{self._bin}/pg_ctl", "-D", self._data, "-w", "-s", "-l", f"{self._data}/../restarted.log", *args],
                       check=True, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **owner_of(self._data))


class ServerLog:
    """What the server logs of sessions with this application_name."""

    def __init__(self) -> None:
        self.name = f"{ROLE}_{random.randrange(10**9)}"
        self._file = ""
        with contextlib.suppress(OSError):
            postmaster = (Path(one("SHOW data_directory")) / "postmaster.pid").read_text().split("\n")[0]
            self._file = os.readlink(f"/proc/{postmaster}/fd/2")  # of pg_ctl -l
        with psycopg.connect(conninfo(application_name=self.name), autocommit=True) as db, contextlib.suppress(psycopg.Error):
            db.execute("SELECT 1 / 0")
        self.shows_errors = len(self._lines()) == 1
        self._before = len(self._lines())

    def _lines(self) -> list[str]:
        """With errors of statements, of sessions, and of connections."""
        if not os.access(self._file, os.R_OK):
            return []
        return [line for line in Path(self._file).read_text(errors="replace").splitlines()
                if self.name in line and re.search(r"(ERROR|FATAL|PANIC|WARNING): |could not (send|receive)|unexpected EOF", line)]

    def errors(self) -> list[str]:
        return self._lines()[self._before:]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class PgBouncer:
    """In transaction mode, with one session of the server: who waits over it stops all others."""

    def __init__(self) -> None:
        self.port = free_port()
        users, ini = scratch / "users", scratch / "pgbouncer.ini"
        users.write_text(f'"{ROLE}" ""\n')
        ini.write_text(f"[databases]\n{server['dbname']} = host={server['host']} port={server['port']}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\n"
                       f"unix_socket_dir =\nauth_type = trust\nauth_file = {users}\npool_mode = transaction\ndefault_pool_size = 1\nserver_lifetime = 3\nlogfile = {scratch}/pgbouncer.log\n")
        self._command = [shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin") or "", "-q", str(ini)]
        self.start()

    def start(self) -> None:
        user: dict[str, Any] = {"user": pwd.getpwnam("nobody").pw_uid} if os.getuid() == 0 else {}
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user)
        until("PgBouncer accepts connections", self._accepts)

    def _accepts(self) -> bool:
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    @property
    def conninfo(self) -> str:
        return conninfo(host="127.0.0.1", port=self.port)


def overlaps(lines: Iterable[Line], ends: Iterable[tuple[int, float]] = ()) -> list[tuple[Line, Line]]:
    """Pairs of work on one message at the same time. Work that was begun and not ended lasts until
    its program was killed or frozen: ends has these programs and times."""
    spans: dict[tuple[int, int, int], Line] = {}
    for line in lines:
        key = line["pid"], line.get("id", 0), line.get("attempt", 0)
        if line["what"] == "start":
            spans[key] = {"id": line["id"], "pid": line["pid"], "from": line["at"], "to": float("inf")}
        elif line["what"] == "end" and key in spans:
            spans[key]["to"] = line["at"]
    by_id: dict[int, list[Line]] = {}
    for span in spans.values():
        for pid, at in ends:
            if pid == span["pid"] and span["from"] <= at < span["to"]:
                span["to"] = at
        by_id.setdefault(span["id"], []).append(span)
    found = []
    for group in by_id.values():
        group.sort(key=lambda span: float(span["from"]))
        found += [(a, b) for a, b in zip(group, group[1:]) if b["from"] < a["to"]]
    return found


def most_at_once(lines: Iterable[Line]) -> int:
    now = most = 0
    for line in lines:
        now += {"start": 1, "end": -1}.get(line["what"], 0)
        most = max(most, now)
    return most
