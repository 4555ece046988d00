"""What the tests share: a database of their own, sinks, the program, and a network that can be cut.
PGHOST and the like lead to a server with delay_wheel, as a superuser."""
import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import psycopg

HERE = Path(__file__).resolve().parent
PROGRAM = os.environ.get("DELAY_WHEEL_HTTP", str(HERE.parent / "delay-wheel-http"))
UNDER = os.environ.get("DELAY_HTTP_UNDER", "").split()  # valgrind, for instance
LONG = os.environ.get("DW_LONG") == "1"
DATABASE = f"delay_http_{os.getpid()}"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def wait_until(condition, what, limit=30):
    """Returns the first result that is true."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {limit} s")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class Sink:
    def __init__(self, directory, *certificate):
        self.file = Path(tempfile.mkstemp(dir=directory, prefix="sink")[1])
        self.process = subprocess.Popen([sys.executable, str(HERE / "sink.py"), str(self.file), *certificate], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.port}"

    def lines(self, what="begin", **wanted):
        text = self.file.read_text()
        lines = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
        return [line for line in lines if line["what"] == what and all(line.get(k) == v for k, v in wanted.items())]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Program:
    def __init__(self, directory, *options, env=None, user="delay_http_worker", database=None):
        self.log_file = Path(tempfile.mkstemp(dir=directory, prefix="log")[1])
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DELAY_HTTP")}
        environment.update({"PGDATABASE": database or DATABASE, "PGUSER": user, **(env or {})})
        with open(self.log_file, "w") as log:
            self.process = subprocess.Popen([*UNDER, PROGRAM, *options], stderr=log, env=environment)

    def log(self):
        return self.log_file.read_text()

    def wait_for(self, word, count=1, limit=30):
        wait_until(lambda: self.log().count(word) >= count or self.process.poll() is not None, f"{word} in the log", limit)
        assert self.log().count(word) >= count, f"ended without {word}:\n{self.log()}"
        return self

    def ready(self):
        return self.wait_for("event=connected session=wait").wait_for("event=connected session=report")

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self, limit=60):
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.process.wait(limit)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Way:
    """A way to the server, over TCP, that can be cut (connections end) or held (nothing is passed on)."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.pairs = []
        self.is_open = True
        self.is_held = False
        self.hold_after = None  # bytes of a statement whose answer is held
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if not self.is_open:
                client.close()
                continue
            host, port = os.environ.get("PGHOST", "localhost"), os.environ.get("PGPORT", "5432")
            server = socket.socket(socket.AF_UNIX if host.startswith("/") else socket.AF_INET)
            try:
                server.connect(f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, int(port)))
            except OSError:  # the server is away
                client.close()
                server.close()
                continue
            pair = (client, server)
            self.pairs.append(pair)
            threading.Thread(target=self.pass_on, args=pair, daemon=True).start()

    def pass_on(self, client, server):
        other = {client: server, server: client}
        try:
            while True:
                for source in select.select([client, server], [], [], 0.05)[0] if not self.is_held else time.sleep(0.02) or []:
                    data = source.recv(65536)
                    if not data:
                        return
                    other[source].sendall(data)
                    if self.hold_after and self.hold_after in data:
                        self.hold_after, self.is_held = None, True
        except (OSError, ValueError):
            pass
        finally:
            for end in (client, server):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                end.close()

    def cut(self):
        self.is_open = False
        for pair in self.pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.pairs = []

    def mend(self):
        self.is_open = True

    def close(self):
        self.cut()
        self.listener.close()


def build_resolver(directory):
    """What is preloaded into the program, so that it finds the names of tests."""
    library = f"{directory}/resolve.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", library, HERE / "resolve.c", "-ldl"], check=True)
    return library


class Case(unittest.TestCase):
    """A test with a database, in which no call is pending, and a sink."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="delay-http-")
        make_database()
        cls.db = psycopg.connect(dbname=DATABASE, autocommit=True)
        # so that tests see what a call has come to
        cls.db.execute("CREATE TABLE IF NOT EXISTS ended (id bigint, result jsonb, sqlstate text, error text)")
        cls.sink = Sink(cls.directory)

    @classmethod
    def tearDownClass(cls):
        cls.sink.close()
        cls.db.close()

    def setUp(self):
        self.db.execute("SELECT delay_cancel_all(due_from => '-infinity')")
        self.db.execute("SELECT delay_wheel.create_queue('http', max_attempts => 18, options => %s)",
                        (json.dumps({"group_max_running": 20, "retry_delay": "5 seconds"}),))
        self.programs = []

    def tearDown(self):
        for program in self.programs:
            if program.process.poll() is None:
                program.signal(signal.SIGCONT)
                if UNDER:  # it looks for leaks at its end
                    self.assertIn(program.stop(), (0, 1), program.log())
            program.kill()
        errors = getattr(self._outcome.result, "failures", []) + getattr(self._outcome.result, "errors", [])
        if errors and errors[-1][0] is self:
            for program in self.programs:
                sys.stderr.write(f"--- {program.log_file}\n{program.log()}")

    def program(self, *options, **more):
        """Starts the program, which may reach the sink."""
        program = Program(self.directory, "--allow-address", "127.0.0.1", "--verbose", *options, **more)
        self.programs.append(program)
        return program

    def value(self, sql, *arguments):
        row = self.db.execute(sql, arguments or None).fetchone()
        return row and row[0]

    OPTIONS = json.dumps({"on_success": "INSERT INTO ended VALUES ($1, $2)", "on_failure": "INSERT INTO ended VALUES ($1, NULL, $2, $3)"})

    def attempts(self, id):
        return self.value("SELECT attempts FROM delay_wheel.tasks WHERE id = %s", id)

    def terminate(self, pattern):
        """Ends the program's sessions whose last statement is like this."""
        return self.value("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                          " WHERE usename = 'delay_http_worker' AND datname = current_database() AND query LIKE %s", pattern)

    def wait_for_request(self, target, count=1):
        wait_until(lambda: len(self.sink.lines(target=target)) >= count, f"request {count} of {target}")

    def post(self, url, body='{"order": 7}', **arguments):
        """Schedules a POST; returns the id of its message."""
        names = "".join(f", {name} => %({name})s" for name in arguments)
        return self.db.execute(f"SELECT delay_http.post(%(url)s, %(body)s::jsonb, options => %(options)s{names})",
                               {"url": self.sink.url + url if url.startswith("/") else url, "body": body, "options": self.OPTIONS, **arguments}).fetchone()[0]

    def send_raw(self, **payload):
        """Sends what delay_http.send() would refuse."""
        payload = {"id": "msg_raw", "method": "POST", "url": self.sink.url + "/200", "body": "{}", **payload}
        return self.value("SELECT delay_send('http', %s::jsonb, options => %s)", json.dumps(payload), self.OPTIONS)

    def webhook_id(self, id):
        return self.value("SELECT payload ->> 'id' FROM delay_wheel.tasks WHERE id = %s", id)

    def result(self, id, limit=30):
        """What the call has come to: ('done', result), or ('given up', error)."""
        row = wait_until(lambda: self.db.execute("SELECT result, error FROM ended WHERE id = %s", (id,)).fetchone(), f"the end of message {id}", limit)
        return ("done", row[0]) if row[1] is None else ("given up", row[1])

    def failure(self, id, attempts=1, limit=30):
        """The error of a message that is tried again."""
        return wait_until(lambda: self.value("SELECT last_error FROM delay_wheel.tasks WHERE id = %s AND attempts >= %s AND last_error IS NOT NULL", id, attempts),
                          f"a failed attempt of message {id}", limit).removeprefix("DW007: ")


@functools.cache
def make_database():
    with psycopg.connect("", autocommit=True, dbname=os.environ.get("PGDATABASE", "postgres")) as db:
        db.execute(f"CREATE DATABASE {DATABASE}")
        atexit.register(drop_database)
        # roles belong to the server: of several test processes one makes them
        db.execute("SELECT pg_advisory_lock(613)")
        if db.execute("SELECT to_regrole('delay_http_worker')").fetchone()[0]:
            db.execute("SELECT pg_advisory_unlock(613)")
        set_up(DATABASE)


def set_up(database):
    subprocess.run(["psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-d", database, "-f", str(HERE.parent / "setup.sql")], check=True)


def drop_database():
    with psycopg.connect("", autocommit=True, dbname=os.environ.get("PGDATABASE", "postgres")) as db:
        db.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
