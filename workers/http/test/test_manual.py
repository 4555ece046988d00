"""doc/http.md: its commands, its lists, and its way to verify a signature."""
import os
import re
import signal
import subprocess
import unittest
import urllib.request

from harness import DATABASE, HERE, PROGRAM, SECRET, Case, free_port, wait_until

ROOT = HERE.parents[2]
MANUAL = (ROOT / "doc/http.md").read_text()


def section(heading):
    return MANUAL.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def block(kind, words):
    """The block of the manual that has these words."""
    found, = [text for text in re.findall(rf"^```{kind}\n(.*?)^```", MANUAL, re.M | re.S) if words in text]
    return found


class Manual(Case):
    def test_first_lines(self):
        made = """
            sudo -u postgres psql -d shop <workers/http/setup.sql
            """.replace("shop", DATABASE)
        started = """
            export PGDATABASE=shop PGUSER=delay_http_worker
            export DELAY_HTTP_SECRET_SHOP=whsec_$(openssl rand -base64 24)
            delay-wheel-http
            """.replace("=shop", f"={DATABASE}")
        subprocess.run(["bash", "-euc", 'sudo() { shift 2; "$@"; }' + made], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        env = {**os.environ, "PATH": f"{os.path.dirname(PROGRAM)}:{os.environ['PATH']}", "DELAY_HTTP_ALLOW_ADDRESS": "127.0.0.1"}
        shell = subprocess.Popen(["bash", "-euc", started], cwd=ROOT, env=env, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            self.assertEqual(self.result(self.post("/200?first", endpoint="shop"))[0], "done")
        finally:
            os.killpg(shell.pid, signal.SIGTERM)
            shell.wait()
        self.assertIn("webhook-signature", self.sink.lines(target="/200?first")[0]["headers"])

    def test_options(self):
        """As --help has them, with their defaults."""
        said = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
        helped = dict(re.findall(r"^  (--\S+(?: [A-Z]+)?)  +(.*)$", said, re.M))
        listed = dict(re.findall(r"^\* `(--[^`]+)`: (.*)$", section("Options"), re.M))
        self.assertEqual(list(listed), list(helped))
        self.assertGreater(len(helped), 20)
        for option, meaning in helped.items():
            for default in re.findall(r"\((\w[\w.]*)\)$", meaning):
                with self.subTest(option):
                    self.assertIn(f"({default})", listed[option])

    def test_metrics(self):
        port = free_port()
        self.program("--metrics-port", str(port)).ready()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            names = set(re.findall(r"^# TYPE (\w+)", answer.read().decode(), re.M))
        self.assertEqual(set(re.findall(r"`(delay_http_\w+)`", section("Metrics and alerts"))), names)

    def test_verify(self):
        names = {}
        exec(block("python", "def verify"), names)
        verify = names["verify"]
        other = "whsec_" + "B" * 32
        self.program(env={"DELAY_HTTP_SECRET_SHOP": f"{SECRET} {other}"})
        self.result(self.post("/200?verify", '{"name": "Jörg"}', endpoint="shop"))
        line = self.sink.lines(target="/200?verify")[0]
        headers, body = line["headers"], line["body"].encode()
        self.assertTrue(verify(SECRET, headers, body))
        self.assertTrue(verify(other, headers, body))
        self.assertFalse(verify("whsec_" + "C" * 32, headers, body))
        self.assertFalse(verify(SECRET, headers, body + b" "))
        self.assertFalse(verify(SECRET, {**headers, "webhook-id": "msg_other"}, body))
        self.assertFalse(verify(SECRET, {**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) - 400)}, body))

    def test_secrets_file(self):
        file = f"{self.directory}/manual"
        text = """
            shop shop.example,*.shop.example whsec_dGhlIG5ldyBzZWNyZXQgb2YgdGhlIHNob3A= whsec_dGhlIG9sZCBzZWNyZXQgb2YgdGhlIHNob3A=
            """
        with open(file, "w") as out:
            out.write(text.replace("shop.example,", "127.0.0.1,", 1))
        os.chmod(file, 0o600)
        self.program("--secrets", file)
        self.assertEqual(self.result(self.post("/200?file", endpoint="shop"))[0], "done")
        self.assertEqual(len(self.sink.lines(target="/200?file")[0]["headers"]["webhook-signature"].split()), text.count("whsec_"))

    def test_endpoints_of_others(self):
        """The call for a second queue."""
        self.value("SELECT delay_wheel.create_queue('hooks', external => true, receivers => '{delay_http_worker}')")
        self.addCleanup(lambda: self.value("SELECT delay_wheel.drop_queue('hooks')"))
        self.program("--queue", "hooks")
        call, = re.findall(r"`(delay_send\('hooks', .*?\))`", MANUAL.replace("\n", " "))
        for name, value in (("method", "'PUT'"), ("url", f"'{self.sink.url}/200?hooks'"), ("body", "'x'"), ("headers", "NULL"), ("endpoint", "NULL"), ("timeout", "'5 s'")):
            call = re.sub(rf"\b{name}\b", value, call, count=1)
        self.db.execute(f"SELECT {call}")
        wait_until(lambda: self.sink.lines("end", target="/200?hooks"), "the call")
        wait_until(lambda: self.value("SELECT count(*) = 0 FROM delay_wheel.tasks"), "its end")


if __name__ == "__main__":
    unittest.main()
