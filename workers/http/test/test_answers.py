"""What becomes of a message by what its receiver answers, or does not."""
import base64
import hashlib
import hmac
import json
import os
import time

import psycopg

from harness import DATABASE, SECRET, Case, set_up, wait_until


def sign(secret, id, timestamp, body):
    """Standard Webhooks 1.0.0, by its text, not by our code."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.new(key, f"{id}.{timestamp}.{body}".encode(), hashlib.sha256).digest()).decode()


class Answers(Case):
    def test_done(self):
        self.program()
        ok = self.post("/200?body=taken")
        empty = self.post("/204")
        self.assertEqual(self.result(ok), ("done", {"status": 200, "answer": "taken"}))
        self.assertEqual(self.result(empty), ("done", {"status": 204, "answer": ""}))
        self.assertEqual(len(self.sink.lines(target="/200?body=taken")), 1)

    def test_given_up(self):
        self.program()
        for status in (301, 400, 401, 404, 410, 422):
            with self.subTest(status):
                id = self.post(f"/{status}?body=no&n=giveup")
                self.assertEqual(self.result(id), ("given up", f"HTTP {status}: no"))
                self.assertEqual(len(self.sink.lines(target=f"/{status}?body=no&n=giveup")), 1)

    def test_tried_again(self):
        self.program("--timeout", "2")
        for path, error in (("/500?body=broken", "HTTP 500: broken"), ("/503?body=", "HTTP 503"), ("/408?body=", "HTTP 408"), ("/425?body=", "HTTP 425"),
                            ("/429?body=", "HTTP 429"), ("/half", "transfer closed"), ("/slow", "timed out"), ("/headers", "the headers of the answer are too long")):
            with self.subTest(path):
                id = self.post(path)
                self.assertIn(error, self.failure(id))
                # the queue's pause: 5 seconds and up to a quarter
                seconds = float(self.value("SELECT extract(epoch FROM due - now()) FROM delay_wheel.tasks WHERE id = %s", id))
                self.assertTrue(0 < seconds < 6.5, seconds)
        nobody = self.post("http://127.0.0.1:1/")
        self.assertIn("connect", self.failure(nobody))

    def test_succeeds_later(self):
        self.db.execute("SELECT delay_wheel.create_queue('http', options => '{\"retry_delay\": \"100 ms\"}')")
        self.program()
        id = self.post("/flaky?times=2", endpoint=None)
        self.assertEqual(self.result(id)[1]["status"], 200)
        requests = [line for line in self.sink.lines() if line["target"] == "/flaky?times=2"]
        self.assertEqual(len(requests), 3)
        self.assertEqual(len({line["id"] for line in requests}), 1)

    def test_attempts_end(self):
        self.program()
        id = self.post("/500?body=once", max_attempts=1)
        self.assertEqual(self.result(id), ("given up", "HTTP 500: once"))

    def test_retry_after(self):
        self.program("--max-retry-after", "600")
        for after, least, most in ((100, 90, 111), (100000, 590, 661), (-5, 0, 6.5), ("tomorrow", 0, 6.5)):
            with self.subTest(after):
                id = self.post(f"/429?retry-after={after}")
                self.assertIn("HTTP 429", self.failure(id))
                seconds = float(self.value("SELECT extract(epoch FROM due - now()) FROM delay_wheel.tasks WHERE id = %s", id))
                self.assertTrue(least < seconds < most, seconds)
        date = time.strftime("%a,%%20%d%%20%b%%20%Y%%20%H:%M:%S%%20GMT", time.gmtime(time.time() + 200))
        self.failure(id := self.post(f"/503?retry-after={date}"))
        self.assertTrue(180 < self.value("SELECT extract(epoch FROM due - now()) FROM delay_wheel.tasks WHERE id = %s", id) < 222)

    def test_long_answers(self):
        self.program("--timeout", "20")
        for path in ("/large", "/endless"):
            with self.subTest(path):
                id = self.post(path)
                kind, result = self.result(id)
                self.assertEqual((kind, result["status"], len(result["answer"])), ("done", 200, 1024))
                # the rest was not read
                wait_until(lambda: self.sink.lines("end", target=path, gone=True), f"{path} is cut off")

    def test_strange_answers(self):
        self.program()
        kind, result = self.result(self.post("/bytes"))
        self.assertEqual(kind, "done")
        self.assertEqual(result["answer"][:128], "?" + bytes(range(1, 128)).decode())
        self.assertEqual(set(result["answer"][128:]), {"?"})
        kind, result = self.result(self.post("/gzip"))
        self.assertTrue(kind == "done" and len(result["answer"]) < 300, "not unpacked")
        self.assertNotIn("accept-encoding", self.sink.lines()[-1]["headers"])
        self.assertEqual(self.result(self.post('/200?body="},{\\'))[1]["answer"], '"},{\\')

    def test_another_encoding(self):
        """A database that cannot hold the answer: the call is done all the same, without it, and others beside it."""
        name = f"{DATABASE}_latin1"
        self.db.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        self.addCleanup(lambda: self.db.execute(f"DROP DATABASE {name} WITH (FORCE)"))
        set_up(name)
        with psycopg.connect(dbname=name, autocommit=True) as db:
            db.execute("CREATE TABLE ended (result jsonb)")
            for n in range(20):
                db.execute("SELECT delay_http.send('GET', %s, options => '{\"on_success\": \"INSERT INTO ended VALUES ($2)\"}')",
                           (self.sink.url + ("/euro?latin1" if n == 7 else "/200?body=fine&latin1"),))
            self.program(database=name)
            count = lambda: dict(db.execute("SELECT result::text, count(*) FROM ended GROUP BY 1").fetchall())
            wait_until(lambda: sum(count().values()) == 20, "all calls")
            self.assertEqual(count(), {'{"status": 200}': 1, '{"answer": "fine", "status": 200}': 19})
        self.assertEqual(len([line for line in self.sink.lines() if "latin1" in line["target"]]), 20)

    def test_methods_and_bodies(self):
        self.program()
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
            for body in (None, "", "x", "schön"):
                if method == "HEAD" and body is not None:
                    continue
                with self.subTest(method=method, body=body):
                    target = f"/200?{method}{len(body) if body is not None else ''}"
                    id = self.value("SELECT delay_http.send(%s, %s, %s, options => %s)", method, self.sink.url + target, body, self.OPTIONS)
                    self.assertEqual(self.result(id)[0], "done")
                    line = self.sink.lines(target=target)[-1]
                    self.assertEqual((line["method"], line["body"]), (method, body or ""))
        large = self.post("/200?large", json.dumps({"x": "y" * 900_000}))
        self.assertEqual(self.result(large)[0], "done")
        self.assertEqual(len(json.loads(self.sink.lines(target="/200?large")[0]["body"])["x"]), 900_000)
        with self.assertRaisesRegex(Exception, "too (long|large)"):
            self.post("/200", json.dumps({"x": "y" * 10_000_000}))

    def test_timeouts_of_messages(self):
        self.program("--timeout", "60", "--max-timeout", "2")
        short = self.post("/slow?short", timeout="1 second")
        longest = self.post("/slow?long", timeout="1 hour")
        self.assertIn("timed out", self.failure(short))
        self.assertIn("timed out", self.failure(longest))
        for name in ("short", "long"):
            begin, end = self.sink.lines(target=f"/slow?{name}")[0], wait_until(lambda: self.sink.lines("end", target=f"/slow?{name}"), "end")[0]
            self.assertTrue(0.5 < end["at"] - begin["at"] < 20)

    def test_traceparent(self):
        self.program()
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        with self.db.transaction():
            self.db.execute(f"SET LOCAL delay_wheel.traceparent = '{trace}'")
            id = self.post("/200?trace")
        self.result(id)
        self.assertEqual(self.sink.lines(target="/200?trace")[0]["headers"]["traceparent"], trace)


class Signatures(Case):
    def test_the_checker(self):
        """Our checker itself, by the example of the standard's own libraries."""
        self.assertEqual(sign(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, '{"test": 2432232314}'),
                         "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")

    def check(self, target, *secrets, body='{"order": 7}'):
        line = self.sink.lines(target=target)[0]
        headers = line["headers"]
        self.assertEqual(line["body"], body)
        self.assertLess(abs(int(headers["webhook-timestamp"]) - time.time()), 60)
        self.assertEqual(headers["webhook-signature"],
                         " ".join(sign(secret, headers["webhook-id"], headers["webhook-timestamp"], line["body"]) for secret in secrets))

    def test_environment(self):
        self.program(env={"DELAY_HTTP_SECRET_MY_SHOP": SECRET})
        id = self.post("/200?environment", endpoint="my-shop")
        self.assertEqual(self.result(id)[0], "done")
        self.check("/200?environment", SECRET)
        umlauts = self.post("/200?umlauts", '{"name": "Jörg"}', endpoint="my-shop")
        self.result(umlauts)
        self.check("/200?umlauts", SECRET, body='{"name": "Jörg"}')

    def test_file_and_rotation(self):
        other = "whsec_" + base64.b64encode(bytes(range(32))).decode()
        file = f"{self.directory}/secrets"

        def write(text):
            with open(file, "w") as out:
                out.write(text)

        write(f"# shops\nshop 127.0.0.1,*.shop.example {SECRET} {other}\nelsewhere other.example {SECRET}\n")
        os.chmod(file, 0o600)
        self.db.execute("SELECT delay_wheel.create_queue('http', options => '{\"retry_delay\": \"2 seconds\"}')")
        program = self.program("--secrets", file).ready()
        self.result(self.post("/200?two", endpoint="shop"))
        self.check("/200?two", SECRET, other)
        # not to where the endpoint is not
        kind, error = self.result(self.post("/200?else", endpoint="elsewhere"))
        self.assertEqual((kind, error), ("given up", 'endpoint "elsewhere" is for other hosts'))
        self.assertEqual(self.sink.lines(target="/200?else"), [])
        # never without a signature: it waits for the secret
        missing = self.post("/200?later", endpoint="later")
        self.assertEqual(self.failure(missing), 'endpoint "later" has no secret here')
        self.assertEqual(self.sink.lines(target="/200?later"), [])
        # a file that is wrong changes nothing
        write("shop 127.0.0.1 nosecret!\n")
        program.signal(1)
        program.wait_for("event=secrets_not_read")
        self.result(self.post("/200?still", endpoint="shop"))
        self.check("/200?still", SECRET, other)
        write(f"shop * {other}\nlater * {SECRET}\n")
        program.signal(1)
        program.wait_for("event=secrets_read")
        self.result(self.post("/200?new", endpoint="shop"))
        self.check("/200?new", other)
        self.result(missing)
        self.check("/200?later", SECRET)
        # a host that no URL has, or what is no secret
        for line, error in ((f"shop 127.0.0.1:18419 {SECRET}", "host without scheme, port and path"), (f"shop http://127.0.0.1 {SECRET}", "host without scheme, port and path"),
                            (f"shop a.example,[::1 {SECRET}", "host without scheme, port and path"), (f"shop , {SECRET}", "host without scheme, port and path"),
                            ("shop 127.0.0.1 nonsense", "24 bytes"), (f"shop 127.0.0.1 {SECRET.removeprefix('whsec_')}", "24 bytes"),
                            ("shop 127.0.0.1 whsec_" + "A" * 28, "24 bytes"), (f"shop 127.0.0.1 {SECRET[:-1]}", "24 bytes")):
            with self.subTest(line):
                write(line + "\n")
                refused = self.program("--secrets", file)
                self.assertEqual(refused.process.wait(5), 2)
                self.assertIn(error, refused.log())
        write(f"shop [::1],*.shop.example {SECRET}\n")
        program.signal(1)
        program.wait_for("event=secrets_read", 2)
        # others may not read it
        os.chmod(file, 0o644)
        self.assertEqual(self.program("--secrets", file).process.wait(30), 2)

    def test_nothing_leaks(self):
        """No secret, path, query, header or body in the log; none of the first in the database."""
        program = self.program(env={"DELAY_HTTP_SECRET_SHOP": SECRET})
        for path in ("/500?body=&token=hidden1", "/404?body=&token=hidden1", "/200?body=&token=hidden1", "/slow?token=hidden1"):
            self.post(path, '{"x": "hidden2"}', endpoint="shop", headers='{"Authorization": "hidden3"}', timeout="1 second")
        self.post("http://127.0.0.1:1/hidden1", '{"x": "hidden2"}', endpoint="shop", headers='{"Authorization": "hidden3"}')
        self.post("http://10.0.0.1/hidden1", '{"x": "hidden2"}', endpoint="shop", headers='{"Authorization": "hidden3"}')
        program.wait_for("attempt=1", 6)
        program.stop()
        for word in ("hidden", SECRET, SECRET[6:]):
            self.assertNotIn(word, program.log())
        texts = self.value("SELECT string_agg(concat(payload, last_error), ' ') FROM delay_wheel.tasks") + str(self.db.execute("TABLE ended").fetchall())
        self.assertNotIn(SECRET[6:], texts)
