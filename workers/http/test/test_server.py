"""W3: the server takes sessions, rights and queues away; and who may do what."""
import json
import re
import subprocess
import time
import unittest

import psycopg

from harness import DATABASE, HERE, PROGRAM, SECRET, Case, Way, wait_until


class Server(Case):
    def test_terminated_sessions(self):
        program = self.program().ready()
        wait_until(lambda: self.terminate("CALL delay_await%") > 0, "the waiting session is there")
        program.wait_for("event=connected session=wait", 2)
        self.assertEqual(self.result(self.post("/200?after-wait"))[0], "done")
        self.assertGreater(self.terminate("SELECT n, CASE%"), 0)
        program.wait_for("event=connected session=report", 2)
        self.assertEqual(self.result(self.post("/200?after-report"))[0], "done")
        self.assertIsNone(program.process.poll())

    def test_rights_taken_away(self):
        program = self.program().ready()
        self.db.execute("SELECT delay_wheel.create_queue('http', options => '{\"receivers\": []}')")
        try:
            program.wait_for("permission denied")
            time.sleep(1)
        finally:
            self.db.execute("SELECT delay_wheel.create_queue('http', receivers => '{delay_http_worker}')")
        self.assertEqual(self.result(self.post("/200?right"))[0], "done")
        program.wait_for("event=recovered")
        # one line for all the attempts
        self.assertEqual(program.log().count("permission denied"), 1)

    def test_may_not_log_in(self):
        """That is no restart of the server, whose log must not be filled: pauses grow to some seconds."""
        way = Way()
        self.addCleanup(way.close)
        self.db.execute("DROP ROLE IF EXISTS dw_http_later; CREATE ROLE dw_http_later")
        try:
            program = self.program("--connection", f"host=127.0.0.1 port={way.port}", user="dw_http_later").wait_for("not permitted to log in")
            seen = [0, 0.0]

            def is_quiet():
                if len(way.pairs) != seen[0]:
                    seen[:] = len(way.pairs), time.monotonic()
                return time.monotonic() - seen[1] > 1.2

            wait_until(is_quiet, "a pause of more than a second", 40)
            self.db.execute("ALTER ROLE dw_http_later LOGIN")
            program.wait_for("event=connected", 2)
            program.stop()
        finally:
            self.db.execute("DROP ROLE dw_http_later")

    def test_queue_comes_and_goes(self):
        """A queue that is missing, made SQL-only, paused: the program goes on when it has been mended."""
        def create(**options):
            names = "".join(f", {name} => %({name})s" for name in options)
            self.db.execute(f"SELECT delay_wheel.create_queue('hooks'{names})", options)

        def drop():
            """The program's transactions may be using the queue."""
            end = time.monotonic() + 30
            while True:
                try:
                    return self.db.execute("SELECT delay_wheel.drop_queue('hooks')")
                except psycopg.errors.ObjectInUse:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.01)

        def send(name):
            return self.value("SELECT delay_send('hooks', %s::jsonb, options => %s)",
                              json.dumps({"id": "m", "method": "GET", "url": f"{self.sink.url}/200?{name}"}), self.OPTIONS)

        program = self.program("--queue", "hooks").wait_for("does not exist")
        create(external=True, receivers=["delay_http_worker"])
        self.assertEqual(self.result(send("hooks-there"))[0], "done")
        self.db.execute("SELECT delay_wheel.pause_queue('hooks')")
        paused = send("hooks-paused")
        time.sleep(0.5)
        self.assertEqual(self.sink.lines(target="/200?hooks-paused"), [])
        self.db.execute("SELECT delay_wheel.resume_queue('hooks')")
        self.assertEqual(self.result(paused, 5)[0], "done")
        drop()
        program.wait_for("does not exist", 2)
        create()
        program.wait_for("is not external")
        drop()
        create(external=True, receivers=["delay_http_worker"])
        self.assertEqual(self.result(send("hooks-again"))[0], "done")
        drop()
        self.assertIsNone(program.process.poll())


class Rights(Case):
    def test_worker_only_receives(self):
        with psycopg.connect(dbname=DATABASE, user="delay_http_worker", autocommit=True) as db:
            for sql in ("SELECT delay_http.post('http://x/', '{}')", "SELECT delay_send('http', '{}')", "SELECT delay_schedule('1 s', 'SELECT 1')",
                        "TABLE ended", "SELECT * FROM delay_wheel_data.task", "CREATE SCHEMA x", "SELECT delay_wheel.create_queue('x')"):
                with self.subTest(sql), self.assertRaises(psycopg.Error):
                    db.execute(sql)
            self.post("/200", delay="1 hour")
            self.assertEqual(db.execute("SELECT count(*) FROM delay_wheel.tasks").fetchone()[0], 0)

    def test_sender_does_not_receive(self):
        self.db.execute("DROP ROLE IF EXISTS dw_http_shop")
        self.db.execute("CREATE ROLE dw_http_shop LOGIN IN ROLE delay_http_sender")
        try:
            with psycopg.connect(dbname=DATABASE, user="dw_http_shop", autocommit=True) as db:
                self.assertGreater(db.execute("SELECT delay_http.post('http://x/', '{}', delay => '1 hour', key => 'a')").fetchone()[0], 0)
                self.assertEqual(db.execute("SELECT delay_http.cancel('a')").fetchone()[0], "cancelled")
                with self.assertRaises(psycopg.Error):
                    db.execute("SELECT * FROM delay_lease('http')")
            with psycopg.connect(dbname=DATABASE, user="delay_http_worker", autocommit=True) as db:
                with self.assertRaises(psycopg.Error):
                    db.execute("SELECT delay_http.cancel('a')")
        finally:
            self.db.execute("DROP OWNED BY dw_http_shop; DROP ROLE dw_http_shop")

    def test_trigger(self):
        self.db.execute(f"""CREATE TABLE t_order (id int PRIMARY KEY, email text, paid_until interval, hook text DEFAULT '{self.sink.url}/200?trigger');
            CREATE TRIGGER unpaid AFTER INSERT OR UPDATE ON t_order FOR EACH ROW
                EXECUTE FUNCTION delay_http.post_trigger('paid_until', 'hook', 'id', 'email', 'key=id', 'tag=orders')""")
        self.addCleanup(lambda: self.db.execute("DROP TABLE t_order"))
        self.db.execute("INSERT INTO t_order VALUES (1, 'a@example.com', '1 hour'), (2, 'b@example.com', '1 hour'), (3, 'c@example.com', '1 hour'), (4, 'd@example.com', NULL)")
        self.assertEqual(self.value("SELECT array_agg(concat(key, tag) ORDER BY key) FROM delay_wheel.tasks"), ["1orders", "2orders", "3orders"])
        self.db.execute("UPDATE t_order SET paid_until = NULL WHERE id = 1; UPDATE t_order SET paid_until = '0', email = 'new' WHERE id = 2")
        self.program()
        wait_until(lambda: self.sink.lines(target="/200?trigger"), "the call")
        self.assertEqual(json.loads(self.sink.lines(target="/200?trigger")[0]["body"]), {"id": 2, "email": "new"})
        self.assertEqual(self.value("SELECT array_agg(key) FROM delay_wheel.tasks WHERE key IS NOT NULL AND due > now()"), ["3"])

    def test_only_public_functions(self):
        text = "".join(path.read_text() for path in (HERE.parent / "src").glob("*.[ch]"))
        self.assertEqual(set(re.findall(r"(?:THEN|FROM|CALL) (delay_\w+)\(", text)),
                         {"delay_await", "delay_lease", "delay_done", "delay_fail", "delay_release", "delay_extend"})
        self.assertNotIn("delay_wheel_data", text)
        self.assertNotIn("delay_wheel.", text)

    def test_usage(self):
        for options in (["--concurrency", "0"], ["--concurrency", "x"], ["--allow-address", "10.0.0.0/33"], ["--allow-address", "x"], ["--host", "a*b"], ["--host", "shop.example:443"], ["--nothing"], ["word"],
                        ["--secrets", "/nowhere"], ["--metrics-port", "1", "--metrics-address", "192.0.2.1"]):
            with self.subTest(options):
                self.assertEqual(self.program(*options).process.wait(30), 2)
        for env in ({"DELAY_HTTP_LEASE": "0"}, {"DELAY_HTTP_SECRET_X": "no secret"}, {"DELAY_HTTP_SECRET_X": ""},
                    {"DELAY_HTTP_SECRET_X": SECRET.removeprefix("whsec_")}):
            with self.subTest(env):
                self.assertEqual(self.program(env=env).process.wait(30), 2)
        self.assertRegex(subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout, r"^delay-wheel-http 1\.0$")


if __name__ == "__main__":
    unittest.main()
