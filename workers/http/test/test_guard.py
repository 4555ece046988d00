"""What may not be sent, and whereto: the private network, injected headers, other protocols."""
import json
import re
import subprocess
import unittest

from harness import HERE, Case, Program, Sink, build_resolver

PRIVATE = """0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.254 169.254.169.254
    169.254.1.1 172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.7
    224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16
    :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0.0.0.0 ::ffff:0:127.0.0.1
    64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::a00:1 64:ff9b:1::808:808 100::1 2001::1 2001:db8::1 2002:7f00:1:: 2002:808:808:: 3fff::1 4000::1
    fc00::1 fd00:ec2::254 fe80::1 febf::1 fec0::1 ff02::1 ff0e::1""".split()
PUBLIC = """1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0
    192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 168.63.129.15 168.63.129.17
    2000::1 2001:200::1 2606:4700:4700::1111 2a00:1450::1 ::ffff:8.8.8.8 64:ff9b::808:808""".split()


class Addresses(Case):
    def test_ranges(self):
        program = f"{self.directory}/guard"
        source = HERE.parent / "src"
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libcurl", "libpq"], capture_output=True, text=True, check=True).stdout.split()
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-o", program, HERE / "guard.c", source / "guard.c", source / "settings.c", source / "log.c", *flags], check=True)
        answers = subprocess.run([program, *PRIVATE, *PUBLIC], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual([a for a, answer in zip(PRIVATE + PUBLIC, answers) if answer == "yes"], PUBLIC)

    def test_literals(self):
        """The ways in which an address can be written; only 127.0.0.1 itself is allowed."""
        self.program()
        for host in ("127.0.0.2", "2130706434", "0x7f000002", "0177.0.0.2", "127.2", "0", "0.0.0.0", "[::1]", "[::ffff:127.0.0.2]", "[::]", "10.1.2.3",
                     "169.254.169.254", "[64:ff9b::7f00:2]", "[fe80::1]", "[::127.0.0.2]"):
            with self.subTest(host):
                kind, error = self.result(self.post(f"http://{host}:{self.sink.port}/200?{host}"))
                self.assertEqual(kind, "given up")
                self.assertIn("which is not allowed", error)
        self.assertEqual(self.result(self.post("/200?itself"))[0], "done")

    def test_names(self):
        library = build_resolver(self.directory)
        strict = Program(self.directory, "--allow-address", "127.0.0.2", "--verbose", env={"LD_PRELOAD": library})
        self.programs.append(strict)
        for name in ("localhost", "private.test", "link-local.test", "mapped.test"):
            with self.subTest(name):
                kind, error = self.result(self.post(f"http://{name}:{self.sink.port}/200?name={name}"))
                self.assertEqual(kind, "given up")
                self.assertRegex(error, f"{name} has the address .* which is not allowed")
        # an allowed address is tried first, nobody answers there, and the next one is not allowed
        error = self.failure(self.post(f"http://rebind.test:{self.sink.port}/200?name=rebind"))
        self.assertEqual(error, "rebind.test has the address 127.0.0.1, which is not allowed")
        self.assertEqual([line for line in self.sink.lines() if "name=" in line["target"]], [])
        # the names do lead to the sink
        strict.stop()
        self.program("--allow-address", "127.0.0.2", "--allow-address", "::1", env={"LD_PRELOAD": library})
        for name in ("localhost", "private.test", "mapped.test", "rebind.test"):
            with self.subTest(name):
                self.assertEqual(self.result(self.post(f"http://{name}:{self.sink.port}/200?reached={name}"))[0], "done")

    def test_refused_by_option(self):
        self.program("--refuse-address", "127.0.0.0/8")
        self.assertIn("not allowed", self.result(self.post("/200"))[1])

    def test_proxies_of_the_environment(self):
        """They would connect for us, past our checks."""
        proxy = Sink(self.directory)
        self.addCleanup(proxy.close)
        self.program(env={name: proxy.url for name in ("http_proxy", "https_proxy", "all_proxy", "ALL_PROXY", "HTTPS_PROXY")})
        self.assertEqual(self.result(self.post("/200?proxy"))[0], "done")
        self.assertEqual(self.result(self.post("http://10.0.0.1/200"))[0], "given up")
        self.assertEqual(proxy.lines(), [])

    def test_hosts(self):
        self.program("--host", "*.shop.example", "--host", "shop.example")
        for host in ("127.0.0.1", "other.example", "xshop.example", "shop.example.evil.example", "shop.example.", ".shop.example@evil.example"):
            with self.subTest(host):
                kind, error = self.result(self.send_raw(url=f"http://{host}:{self.sink.port}/200?list"))
                self.assertEqual(kind, "given up")
                self.assertTrue("list of hosts" in error or "names a user" in error or "not valid" in error, error)
        self.assertEqual(self.sink.lines(target="/200?list"), [])
        self.failure(self.post("https://a.shop.example/"))  # may be reached, but is not there

    def test_https_only(self):
        self.program("--https-only")
        self.assertEqual(self.result(self.post("/200?plain")), ("given up", "the URL is not https"))
        self.assertEqual(self.sink.lines(target="/200?plain"), [])


class Redirects(Case):
    def test_not_followed(self):
        self.program()
        for status in (301, 302, 307, 308):
            self.assertEqual(self.result(self.post(f"/{status}?location=/200?followed"))[0], "given up")
        self.assertEqual(self.sink.lines(target="/200?followed"), [])

    def test_followed(self):
        other = Sink(self.directory)
        self.addCleanup(other.close)
        self.program("--redirects", "2", "--allow-address", "127.0.0.2", env={"DELAY_HTTP_SECRET_SHOP": "whsec_" + "A" * 32})
        for status in (301, 302, 307, 308):
            with self.subTest(status):
                kind, result = self.result(self.post(f"/{status}?location=/200?to{status}", headers='{"Authorization": "mine"}', endpoint="shop"))
                self.assertEqual(kind, "done")
                line = self.sink.lines(target=f"/200?to{status}")[0]
                self.assertEqual((line["method"], line["body"], line["headers"]["authorization"]), ("POST", '{"order": 7}', "mine"))
        self.assertEqual(self.result(self.post("/303?location=/200?to303"))[0], "given up")
        # a loop ends
        target = "/302?loop&location=/302?loop%26location=/302?loop%2526location=/302?loop"
        self.assertEqual(self.result(self.post(target))[0], "given up")
        self.assertEqual(len([line for line in self.sink.lines() if "loop" in line["target"]]), 3)

    def test_another_host_gets_no_secrets(self):
        self.program("--redirects", "2", "--allow-address", "::1")
        url = f"http://localhost:{self.sink.port}/200?elsewhere"
        self.result(self.post(f"/307?location={url}", headers='{"Authorization": "mine", "Content-Type": "text/x"}'))
        headers = self.sink.lines(target="/200?elsewhere")[0]["headers"]
        self.assertNotIn("authorization", headers)
        self.assertEqual(headers["content-type"], "text/x")

    def test_into_the_private_network(self):
        self.program("--redirects", "5")
        for url, error in ((f"http://127.0.0.2:{self.sink.port}/200?inside", "not allowed"), ("http://169.254.169.254/", "not allowed"), ("http://a:b@127.0.0.1/", "names a user"),
                           ("file:///etc/passwd", "neither http nor https"), ("gopher://127.0.0.1/", "neither http nor https"), ("//[::1]/", "not allowed")):
            with self.subTest(url):
                kind, said = self.result(self.post(f"/302?location={url.replace('?', '%3F')}"))
                self.assertEqual(kind, "given up")
                self.assertIn(error, said)
        self.assertEqual(self.sink.lines(target="/200?inside"), [])


class Certificates(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()

        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=cls.directory)

        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=Test CA")
        for name, alternative in (("right", "IP:127.0.0.1"), ("wrong", "DNS:other.example")):
            openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            with open(f"{cls.directory}/{name}.ext", "w") as out:
                out.write(f"subjectAltName={alternative}")
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext")
        cls.right, cls.wrong = (Sink(cls.directory, f"{cls.directory}/{name}.pem", f"{cls.directory}/{name}.key") for name in ("right", "wrong"))

    @classmethod
    def tearDownClass(cls):
        cls.right.close()
        cls.wrong.close()
        super().tearDownClass()

    def test_certificates(self):
        self.program("--ca-file", f"{self.directory}/ca.pem").ready()
        self.assertEqual(self.result(self.post(self.right.url + "/200"))[0], "done")
        self.assertIn("SSL", self.failure(self.post(self.wrong.url + "/200")))
        self.assertEqual(self.wrong.lines(), [])

    def test_unknown_authority(self):
        self.program()
        before = len(self.right.lines())
        self.assertIn("certificate", self.failure(self.post(self.right.url + "/200?unknown")))
        self.assertEqual(len(self.right.lines()), before)

    def test_redirect_leaves_https(self):
        self.program("--redirects", "2", "--ca-file", f"{self.directory}/ca.pem")
        kind, error = self.result(self.post(f"{self.right.url}/307?location={self.sink.url}/200?plain"))
        self.assertEqual((kind, error), ("given up", "a redirect leaves https"))
        self.assertEqual(self.sink.lines(target="/200?plain"), [])


class Injection(Case):
    BAD_HEADERS = [{"X-A": "b\r\nX-Evil: 1"}, {"X-A": "b\nX-Evil: 1"}, {"X-A": "b\rX-Evil: 1"}, {"X-A\r\nX-Evil": "1"}, {"X-A: b\nX-Evil": "1"}, {"": "x"}, {"X A": "b"}, {"X:": "b"},
                   {"Host": "other.example"}, {"content-length": "0"}, {"Transfer-Encoding": "chunked"}, {"Connection": "close"}, {"Webhook-Id": "1"},
                   {"webhook-signature": "v1,x"}, {"Proxy-Authorization": "x"}, {"Expect": "100-continue"}, {"X-A": "b\x7f"}, {"X-A": "\x01"}, {"X-A": "b" * 9000}]
    BAD_URLS = ["http://127.0.0.1:{port}/200 HTTP/1.1\r\nX-Evil: 1", "http://127.0.0.1:{port}/\n", "http://a@127.0.0.1:{port}/200", "http://a:b@127.0.0.1:{port}/200", "http://@127.0.0.1:{port}/200",
                "ftp://127.0.0.1:{port}/", "file:///etc/passwd", "gopher://127.0.0.1:{port}/_x", "127.0.0.1:{port}/200", "", "http://", "javascript:1",
                "http://127.0.0.1:{port}/schön", "http://127.0.0.1:{port}/" + "x" * 9000, "http://127.0.0.1:99999/200"]

    def test_refused_when_scheduled(self):
        for headers in [*self.BAD_HEADERS, {"X-A": None}]:
            with self.subTest(headers), self.assertRaisesRegex(Exception, "(?s)header .* is not valid"):
                self.post("/200?evil", headers=json.dumps(headers))
        for url in self.BAD_URLS[:-1]:
            with self.subTest(url), self.assertRaisesRegex(Exception, "url is not valid"):
                self.post(url.format(port=self.sink.port))
        for method in ("CONNECT", "TRACE", "get", "POST / HTTP/1.1\r\nX: y", "", None):
            with self.subTest(method), self.assertRaisesRegex(Exception, "method must be"):
                self.value("SELECT delay_http.send(%s, 'http://x/')", method)
        for arguments in ({"endpoint": "a.b"}, {"endpoint": ""}, {"timeout": "0"}, {"headers": "[]"}, {"headers": '"x"'}):
            with self.subTest(arguments), self.assertRaises(Exception):
                self.post("/200", **arguments)
        self.assertEqual(self.value("SELECT count(*) FROM delay_wheel.tasks"), 0)

    def test_refused_when_sent(self):
        self.program()
        for headers in self.BAD_HEADERS:
            with self.subTest(headers):
                kind, error = self.result(self.send_raw(url=self.sink.url + "/200?evil", headers=headers))
                self.assertEqual(kind, "given up")
                self.assertIn("header", error)
        for url in self.BAD_URLS:
            with self.subTest(url):
                kind, error = self.result(self.send_raw(url=url.format(port=self.sink.port)))
                self.assertEqual(kind, "given up")
                self.assertIn("URL", error)
        for method in ("CONNECT", "TRACE", "get", "POST / HTTP/1.1\r\nX: y", "", None):
            with self.subTest(method):
                self.assertIn("no method", self.result(self.send_raw(method=method))[1])
        for id in ("a.b", "", "a\r\nX-Evil: 1", None, "x" * 101):
            with self.subTest(id):
                self.assertIn("no valid id", self.result(self.send_raw(id=id))[1])
        self.assertEqual(self.result(self.send_raw(endpoint="../x")), ("given up", "the name of the endpoint is not valid"))
        for payload in ("1", "[]", '"x"', "null", "{}", '{"url": 7, "method": {}}'):
            with self.subTest(payload):
                self.assertEqual(self.result(self.value("SELECT delay_send('http', %s::jsonb, options => %s)", payload, self.OPTIONS))[0], "given up")
        id = self.value("SELECT delay_send('http', %s::jsonb, headers => %s::jsonb, options => %s)", json.dumps({"id": "x", "method": "GET", "url": self.sink.url + "/200?evil"}),
                        json.dumps({"traceparent": "00\r\nX-Evil: 1"}), self.OPTIONS)
        self.assertIn("traceparent", self.result(id)[1])
        self.assertEqual([line for line in self.sink.lines() if "evil" in line["target"] or "x-evil" in line["headers"]], [])
        # strange, but good; and the program still works
        good = {"X-Empty": "", "X-Tab": "a\tb", "X-Utf8": "schön", "Content-Type": "text/x", "x!#$%&'*+.^_`|~-": "1", "Authorization": "a: b"}
        self.assertEqual(self.result(self.post("/200?good", headers=json.dumps(good)))[0], "done")
        head = self.sink.lines(target="/200?good")[0]["head"].encode("latin1").decode()
        for name, value in good.items():
            self.assertRegex(head, rf"\r\n{re.escape(name)}: ?{value}\r\n")


if __name__ == "__main__":
    unittest.main()
