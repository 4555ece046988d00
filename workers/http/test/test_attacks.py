"""What a sender, a receiver or a name server may try."""
import json
import os
import signal
import socket
import threading
import time
import unittest

import psycopg

from harness import DATABASE, Case, Sink, build_resolver, wait_until


def status(program):
    """The figures of /proc/PID/status."""
    with open(f"/proc/{program.process.pid}/status") as lines:
        return dict(line.rstrip("\n").split(":\t", 1) for line in lines)


class Attacks(Case):
    def test_name_server_that_never_answers(self):
        """A look-up goes on after the request's time; nothing else waits for it."""
        program = self.program("--lease", "3", env={"LD_PRELOAD": build_resolver(self.directory)}).ready()
        ids = [self.post(f"http://slow.test:{self.sink.port}/200?dns{n}", timeout="1 second") for n in range(3)]
        beside = self.post("/slow?seconds=4&beside")
        began = time.monotonic()
        for id in ids:
            self.assertIn("timed out", self.failure(id))
        for n in range(20):
            self.assertEqual(self.result(self.post(f"/200?lively{n}"))[0], "done")
        self.assertEqual(self.result(beside)[0], "done")
        self.assertEqual(len(self.sink.lines(target="/slow?seconds=4&beside")), 1)
        self.assertEqual(program.stop(), 0)
        self.assertLess(time.monotonic() - began, 15)  # a look-up takes 20 s

    def test_many_headers(self):
        """100,000 headers are refused at once."""
        headers = {f"x{n}": "" for n in range(70_000)}
        self.program().ready()
        id = self.send_raw(headers=headers)
        began = time.monotonic()
        self.assertEqual(self.result(id), ("given up", "there are more than 100 headers"))
        self.assertLess(time.monotonic() - began, 5)
        with self.assertRaisesRegex(psycopg.Error, "more than 100 headers"):
            self.post("/200?many", headers=json.dumps({f"x{n}": "" for n in range(101)}))
        self.assertEqual(self.result(self.post("/200?hundred", headers=json.dumps({f"x{n}": "" for n in range(100)})))[0], "done")

    def test_head_with_a_body(self):
        """It would wait for an answer's body, which never comes."""
        self.program()
        self.assertEqual(self.result(self.send_raw(method="HEAD", body="x")), ("given up", "HEAD cannot have a body"))

    def test_redirect_to_another_port(self):
        """Another service of the same host gets no headers of the sender."""
        other = Sink(self.directory)
        self.addCleanup(other.close)
        self.program("--redirects", "2")
        self.result(self.post(f"/307?location={other.url}/200?port", headers='{"Authorization": "mine", "Content-Type": "text/x"}'))
        headers = other.lines(target="/200?port")[0]["headers"]
        self.assertNotIn("authorization", headers)
        self.assertEqual(headers["content-type"], "text/x")

    def test_hosts_written_strangely(self):
        self.program("--redirects", "1")
        port = self.sink.port
        for host in ("127.0.0.1%0d%0aX-Evil:1", "127.0.0.1%00.example", "127.0.0.1%2f.example", "%e2%93%9bocalhost", "127.0.0.1%20", "a%40127.0.0.1",
                     "127.0.0.1;x", "127.0.0.1,127.0.0.2", "127.0.0.1\\@example.com", "$(id)", "*.example", "[v1.a]", "[]"):
            with self.subTest(host):
                for id in (self.send_raw(url=f"http://{host}:{port}/200?strange"), self.post(f"/302?location=http://{host.replace('%', '%25')}:{port}/200?strange")):
                    kind, error = self.result(id)
                    self.assertEqual(kind, "given up")
                    self.assertRegex(error, "not valid|not printable|names a user|not allowed")
        self.assertEqual(self.sink.lines(target="/200?strange"), [])
        # the same address, in other ways
        for host in ("127.1", "0x7f.1", "017700000001", "%31%32%37.0.0.1", "[::ffff:127.0.0.1%25lo]", "127.0.0.1"):
            with self.subTest(host):
                self.assertEqual(self.result(self.send_raw(url=f"http://{host}:{port}/200?other"))[0], "done")

    def answering(self, answer):
        """A server that answers each connection with these bytes, again and again if it is a function."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def serve():
            try:
                while True:
                    client, _ = listener.accept()
                    client.recv(65536)
                    try:
                        if callable(answer):
                            answer(client)
                        else:
                            client.sendall(answer)
                        client.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass
                    client.close()
            except OSError:
                pass

        threading.Thread(target=serve, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"

    def test_hostile_answers(self):
        """Each is a failure that is tried again, in bounded time and memory."""
        import gzip

        def drip(client):
            client.sendall(b"HTTP/1.1 200 OK\r\n")
            while True:
                client.sendall(b"x")
                time.sleep(0.05)

        def forever(piece, first=b""):
            def send(client):
                client.sendall(first)
                while True:
                    client.sendall(piece)
            return send

        bomb = gzip.compress(b"\0" * 50_000_000)
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        program = self.program("--timeout", "2").ready()
        for name, answer, error in (
                ("nothing", b"", "Empty reply|reset"), ("no HTTP", b"220 smtp.example ESMTP\r\n", "HTTP/0.9|Unsupported"), ("NUL", b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", "."),
                ("101", b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "101|timed out|Empty reply"), ("drip", drip, "timed out"),
                ("endless 100", forever(b"HTTP/1.1 100 Continue\r\n\r\n"), "too long|timed out"), ("long line", forever(b"x" * 1000, b"HTTP/1.1 200 OK\r\nX: "), "too long"),
                ("endless chunk size", forever(b"0" * 1000, chunked), "."), ("endless extension", forever(b"x" * 1000, chunked + b"1;"), "."),
                ("endless trailers", forever(b"X: y\r\n", chunked + b"0\r\n"), "too long|timed out"), ("status 000", b"HTTP/1.1 000 X\r\nContent-Length: 0\r\n\r\n", "."),
                ("status 999", b"HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n", "HTTP 999"), ("negative length", b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "."),
                ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\nhello", "."),
                ("retry", b"HTTP/1.1 503 X\r\nRetry-After: 99999999999999999999999\r\nContent-Length: 0\r\n\r\n", "HTTP 503")):
            with self.subTest(name):
                url = self.answering(answer)
                id = self.send_raw(url=url)
                said = wait_until(lambda: self.value("SELECT last_error FROM delay_wheel.tasks WHERE id = %s AND attempts > 0", id) or self.value("SELECT coalesce(error, 'done') FROM ended WHERE id = %s", id), name)
                self.assertNotIn("No error", said)
                self.assertRegex(said, error)
        for header in (b"Content-Encoding: gzip", b"Transfer-Encoding: gzip"):
            with self.subTest(header):
                kind, result = self.result(self.send_raw(url=self.answering(b"HTTP/1.1 200 OK\r\n" + header + b"\r\nConnection: close\r\n\r\n" + bomb)))
                self.assertEqual(kind, "done")
        self.assertLess(int(status(program)["VmHWM"].split()[0]), 60_000 if "valgrind" not in os.environ.get("DELAY_HTTP_UNDER", "") else 10 ** 9)

    def test_nothing_of_an_answer_in_the_log(self):
        """Not even if the server shows a statement's parameters with its errors."""
        self.db.execute(f"ALTER ROLE delay_http_worker IN DATABASE {DATABASE} SET log_parameter_max_length_on_error = -1")
        program = self.program("--lease", "30")
        target = "/200?body=hidden"
        id = self.send_raw(url=self.sink.url + "/slow?seconds=1&hidden")
        self.wait_for_request("/slow?seconds=1&hidden")
        with psycopg.connect(dbname=DATABASE) as other:
            other.execute("SELECT FROM delay_wheel_data.task WHERE id = %s FOR UPDATE", (id,))
            program.wait_for("event=report_failed")
            other.rollback()
        self.assertEqual(self.result(id), ("done", {"status": 200, "answer": "late"}))
        self.assertNotIn("late", program.log())

    @unittest.skipIf(os.environ.get("DELAY_HTTP_UNDER"), "is about the program alone")
    def test_passwords(self):
        """Neither other users, by ps, nor a core can have them."""
        program = self.program("--connection", f"dbname={DATABASE} password=hidden", "--wait-connection=password=hidden").ready()
        with open(f"/proc/{program.process.pid}/cmdline") as line:
            said = line.read()
        self.assertIn("--verbose", said)
        self.assertNotIn("hidden", said)
        self.assertNotIn("hidden", program.log())
        if os.geteuid() != 0:
            with self.assertRaises(PermissionError):  # it cannot be dumped, or traced
                open(f"/proc/{program.process.pid}/environ")

    def test_functions_of_others(self):
        """A function in the caller's search_path takes the place of none of ours."""
        with psycopg.connect(dbname=DATABASE, autocommit=True) as db:
            db.execute("CREATE SCHEMA evil")
            self.addCleanup(lambda: self.db.execute("DROP SCHEMA evil CASCADE"))
            for arguments in ("text, jsonb", ", ".join(["text"] * 9) + ", jsonb, text, text, text, numeric"):
                db.execute(f"CREATE FUNCTION evil.jsonb_build_object({arguments}) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN RAISE 'evil'; END$$")
            db.execute("CREATE FUNCTION evil.jsonb_build_object(text, text) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN RAISE 'evil'; END$$")
            db.execute("CREATE TABLE evil.t (id int, note text)")
            db.execute("CREATE TRIGGER t AFTER INSERT ON evil.t FOR EACH ROW EXECUTE FUNCTION delay_http.post_trigger('1 hour', 'https://shop.example/', 'id', 'key=id')")
            db.execute("SET search_path = evil, public")
            db.execute("INSERT INTO t VALUES (1, 'x')")
            self.assertEqual(db.execute("SELECT key, payload ->> 'body' FROM delay_wheel.tasks").fetchall(), [("1", '{"id": 1}')])


if __name__ == "__main__":
    unittest.main()
