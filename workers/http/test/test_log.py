"""The log, as one reads it at night: which message, which attempt, where, what, and what follows."""
import os
import re
import signal
import unittest

import psycopg

from harness import DATABASE, SECRET, Case, Way, wait_until


def lines(program, **wanted):
    """The log's lines that have these values, as dicts."""
    found = []
    for line in program.log().splitlines():
        pairs = {key: re.sub(r"\\(.)", r"\1", value[1:-1]) if value[:1] == '"' else value
                 for key, value in re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)', line)}
        if all(pairs.get(key) == str(value) for key, value in wanted.items()):
            found.append(pairs)
    return found


class Attempts(Case):
    def line(self, program, **wanted):
        return wait_until(lambda: lines(program, **wanted), f"a line with {wanted}\n{program.log()}", 30)[0]

    def check(self, line, **wanted):
        self.assertEqual({key: line.get(key) for key in wanted}, {key: str(value) for key, value in wanted.items()}, line)

    def test_last_attempt(self):
        """The last attempt is told from those after which the message is tried again."""
        self.db.execute("SELECT delay_wheel.create_queue('http', options => '{\"retry_delay\": \"100 ms\"}')")
        program = self.program()
        id = self.post("/500?body=broken", max_attempts=2)
        self.result(id)
        first = self.line(program, id=id, attempt=1)
        self.check(first, event="failed", level="warning", host="127.0.0.1", status=500, error="HTTP 500")
        self.assertRegex(first["next"], r"^attempt 2 of 2 at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
        self.check(self.line(program, id=id, attempt=2), event="given_up", level="error", host="127.0.0.1", status=500, error="HTTP 500", next="none")
        self.assertEqual(len(lines(program, id=id)), 2)

    def test_many_reports_in_one_statement(self):
        program = self.program("--concurrency", "50")
        ids = [self.post(f"/{503 if n % 2 else 404}?body=&many", max_attempts=1 if n % 4 == 1 else 3) for n in range(40)]
        for n, id in enumerate(ids):
            line = self.line(program, id=id)
            self.check(line, event="failed" if n % 4 == 3 else "given_up", attempt=1)
            self.assertEqual(line["next"] != "none", n % 4 == 3, line)

    def test_given_up_at_once(self):
        program = self.program()
        for path, wanted in (("/404", {"status": 404, "error": "HTTP 404"}), ("/410", {"status": 410, "error": "HTTP 410"})):
            self.check(self.line(program, id=self.post(path)), event="given_up", level="error", attempt=1, host="127.0.0.1", next="none", **wanted)
        refused = self.line(program, id=self.post("http://10.0.0.1/"))
        self.check(refused, event="given_up", host="10.0.0.1", next="none")
        self.assertIn("not allowed", refused["error"])

    def test_retry_after(self):
        program = self.program()
        id = self.post("/429?retry-after=100")
        self.assertTrue(self.line(program, id=id)["next"].startswith("attempt 2 of 18 at "))

    def test_endpoints(self):
        """Log and last_error name the endpoint; a name that no secret can have is not waited for."""
        program = self.program(env={"DELAY_HTTP_SECRET_SHOP": SECRET})
        id = self.post("/200", endpoint="other-shop")
        self.assertEqual(self.failure(id), 'endpoint "other-shop" has no secret here')
        line = self.line(program, id=id)
        self.check(line, event="failed", endpoint="other-shop", host="127.0.0.1", error='endpoint "other-shop" has no secret here')
        self.assertTrue(line["next"].startswith("attempt 2 of 18 at "), line)
        bad = self.send_raw(endpoint="../x")
        self.assertEqual(self.result(bad), ("given up", "the name of the endpoint is not valid"))
        self.assertNotIn("endpoint", self.line(program, id=bad))
        good = self.post("/200", endpoint="shop")
        self.check(self.line(program, id=good), event="done", endpoint="shop", status=200)

    def test_lost(self):
        """A message that is cancelled while its request runs."""
        program = self.program("--lease", "9")
        id = self.post("/slow?lost")
        self.wait_for_request("/slow?lost")
        self.value("SELECT delay_cancel(%s, stop_running => true)", id)
        line = self.line(program, id=id)
        self.check(line, event="lost", host="127.0.0.1", attempt=1)
        self.assertIn("next", line)

    def test_report_fails(self):
        program = self.program()
        id = self.post("/slow?seconds=1&row")
        self.wait_for_request("/slow?seconds=1&row")
        with psycopg.connect(dbname=DATABASE) as other:
            other.execute("SELECT FROM delay_wheel_data.task WHERE id = %s FOR UPDATE", (id,))
            line = self.line(program, id=id, event="report_failed")
            other.rollback()
        self.check(line, host="127.0.0.1", attempt=1, report="done")
        self.assertIn("lock timeout", line["error"])
        self.assertRegex(line["next"], r"^reported again in \d+\.\d s$")
        self.result(id)

    def test_not_reported(self):
        """The database is away when the program ends: the log has the messages that will come again."""
        way = Way()
        self.addCleanup(way.close)
        program = self.program("--connection", f"host=127.0.0.1 port={way.port}", "--stop-within", "0").ready()
        id = self.post("/slow?seconds=1&away")
        self.wait_for_request("/slow?seconds=1&away")
        way.cut()
        self.line(program, id=id, event="done")
        program.signal(signal.SIGTERM)
        self.assertEqual(program.process.wait(60), 1)
        self.check(self.line(program, id=id, event="not_reported"), host="127.0.0.1", attempt=1, report="done", next="the message comes again when its lease ends")


class Logins(Case):
    def line(self, program, event="disconnected"):
        return wait_until(lambda: lines(program, event=event), event)[0]

    def test_login_fails(self):
        way = Way()
        self.addCleanup(way.close)
        where = f"host=127.0.0.1 port={way.port}"
        for user, database, error in (("nobody_here", DATABASE, "28"), ("delay_http_worker", "nothing_here", "3D000")):
            program = self.program("--connection", f"{where} user={user} dbname={database} password=hidden4")
            line = self.line(program)
            self.assertEqual([line.get(key) for key in ("session", "server", "port", "user", "database")], [line["session"], "127.0.0.1", str(way.port), user, database])
            self.assertIn(f"FATAL:  {error}", line["error"])
            self.assertRegex(line["next"], r"^tried again, at least every \d+(\.\d)? s$")
            self.assertNotIn("hidden4", program.log())

    def test_each_address(self):
        """Of several servers the log has the errors of all, not of the first alone."""
        way = Way()
        self.addCleanup(way.close)
        program = self.program("--connection", f"host=127.0.0.1,127.0.0.1 port=1,{way.port} user=nobody_here")
        self.assertRegex(self.line(program)["error"], "refused.*FATAL")

    def test_connected(self):
        program = self.program().ready()
        line = self.line(program, "connected")
        self.assertEqual((line["user"], line["database"], line["server"]), ("delay_http_worker", DATABASE, os.environ.get("PGHOST", "localhost")))
        self.assertEqual(self.line(program, "started").get("queue"), "http")

    def test_wrong_connection_strings(self):
        """libpq's error for them can have a password, so it is not shown."""
        for text in ("host=127.0.0.1 password=hidden5 hidden6", "postgresql://u:hidden5@[hidden6/x", "host=127.0.0.1 passwort=hidden5"):
            for option in ("--connection", "--wait-connection"):
                with self.subTest(text):
                    program = self.program(option, text)
                    self.assertEqual(program.process.wait(30), 2)
                    self.assertNotIn("hidden", program.log())
                    self.assertIn(option, program.log())

    def test_wrong_secrets(self):
        """What is wrong has its name; what it is stays hidden; and what follows."""
        program = self.program(env={"DELAY_HTTP_SECRET_MY_SHOP": "hidden7"})
        self.assertEqual(program.process.wait(30), 2)
        self.assertEqual(self.line(program, "secrets_not_read").get("variable"), "DELAY_HTTP_SECRET_MY_SHOP")
        self.assertNotIn("hidden7", program.log())
        file = f"{self.directory}/night"
        program = self.program("--secrets", file)
        self.assertEqual(program.process.wait(30), 2)
        self.assertIn("No such file", self.line(program, "secrets_not_read")["error"])
        with open(file, "w") as out:
            out.write(f"shop * {SECRET}\nother * {SECRET}\n")
        os.chmod(file, 0o600)
        program = self.program("--secrets", file).ready()
        with open(file, "w") as out:
            out.write("shop * hidden7\n")
        program.signal(signal.SIGHUP)
        line = self.line(program, "secrets_not_read")
        self.assertEqual((line["file"], line["line"], line.get("next")), (file, "1", "the former secrets stay"))
        self.assertNotIn("hidden7", program.log())

    def test_port_in_use(self):
        way = Way()
        self.addCleanup(way.close)
        program = self.program("--metrics-port", str(way.port))
        self.assertEqual(program.process.wait(30), 2)
        line = self.line(program, "no_metrics")
        self.assertEqual((line.get("address"), line.get("port"), line["error"]), ("127.0.0.1", str(way.port), "Address already in use"))


if __name__ == "__main__":
    unittest.main()
