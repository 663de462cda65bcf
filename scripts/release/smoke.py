#!/usr/bin/env python3
"""Runs a command of a release as its first user would: builds, looks up, verifies, serves; and with --remote from a bucket.

usage: smoke.py [--remote] ROOT COMMAND..

ROOT is the root directory as COMMAND sees it: / but for a command in a chroot. --remote needs moto and openssl: the command
publishes to moto, and reads there and on a server whose certificate is of an authority that only SSL_CERT_FILE names. Prints the
seconds from the start to the first lookup. Exit: 0 if all went well.
"""

import http.server
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from programs import Server  # noqa: E402

LIMIT = 300  # seconds
PAIRS, VALUE = b'{"key": 1, "text": "one"}\n{"key": 2, "text": "two"}\n', b"two"  # NDJSON, and the value of key 2


class Smoke:
    def __init__(self, root, command):
        self.command = command
        self.place = Path(tempfile.mkdtemp(prefix="smoke-", dir=None if root == "/" else root))  # on the disk of the host
        self.inside = Path("/", self.place.relative_to(root))  # as the command sees it

    def run(self, *arguments, code=0, **variables):
        """Standard output of a run that ends with the exit code `code`."""
        environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        environment |= {name: str(value) for name, value in variables.items()}
        words = [*self.command, *map(str, arguments)]
        done = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=LIMIT)
        expect(f"exit code of {arguments[0]}", done.returncode, code)
        return done.stdout

    def look_up(self):
        begun = time.monotonic()
        (self.place / "pairs.ndjson").write_bytes(PAIRS)
        store = self.inside / "store"
        self.run("build", store, "--input", self.inside / "pairs.ndjson")
        expect("value", self.run("get", store, 2), VALUE)
        print(f"first lookup after {time.monotonic() - begun:.1f} s")
        self.run("get", store, 3, code=1)
        self.run("verify", store, "--level", "data")
        server = Server([*self.command, "serve", str(store), "-q"], r"http://\S+")
        try:
            with urllib.request.urlopen(server.url, timeout=LIMIT) as response:
                expect("page", response.status, 200)
        finally:
            code = server.stop()
        expect("exit code of serve", code, 0)

    def read_remotely(self):
        from moto.server import ThreadedMotoServer

        moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        moto.start()
        endpoint = "http://{}:{}".format(*moto.get_host_and_port())
        s3 = {"AWS_ENDPOINT": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        s3 |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT"), timeout=LIMIT).close()
        self.run("push", self.inside / "store", "s3://bucket/store", **s3)
        expect("value at s3://", self.run("get", "s3://bucket/store", 2, **s3), VALUE)
        moto.stop()
        with serving(self.place) as url:
            trusted = {"SSL_CERT_FILE": self.inside / "authority.pem"}
            expect("value at https://", self.run("get", f"{url}/store/gen-0000000001", 2, **trusted), VALUE)
            self.run("get", f"{url}/store/gen-0000000001", 2, code=4)  # nobody vouches for the certificate


@contextmanager
def serving(directory):
    """Serves a directory over https, with a certificate of an authority that is made for it."""
    authority = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-x509", "-days", "2", "-subj", "/CN=authority"]
    for_us = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    openssl("req", *authority, "-keyout", "authority.key", "-out", "authority.pem", at=directory)
    signer = ["-CA", "authority.pem", "-CAkey", "authority.key"]
    openssl("req", *authority, *for_us, *signer, "-keyout", "server.key", "-out", "server.pem", at=directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem", directory / "server.key")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Ranges, directory=str(directory)))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Files, and the ranges of them that a reader requests."""

    def do_GET(self):
        path, range_of = Path(self.translate_path(self.path)), self.headers.get("Range")
        if not range_of or not path.is_file():
            return super().do_GET()
        content = path.read_bytes()
        first, last = range_of.removeprefix("bytes=").split("-")
        begin = int(first) if first else max(0, len(content) - int(last))
        part = content[begin : int(last) + 1 if first and last else None]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{begin + len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *_):
        pass


def openssl(*arguments, at):
    subprocess.run(["openssl", *arguments], cwd=at, check=True, stderr=subprocess.DEVNULL, timeout=LIMIT)


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"smoke.py: {what}: expected {expected!r}, found {found!r}")


def main(arguments):
    is_remote = arguments[:1] == ["--remote"]
    root, *command = arguments[is_remote:]
    smoke = Smoke(root, command)
    try:
        smoke.look_up()
        if is_remote:
            smoke.read_remotely()
    finally:
        shutil.rmtree(smoke.place)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1:])
