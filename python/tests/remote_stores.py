"""Object stores in memory for the tests, with the methods of obspec: the full set, and only ``get_range``; and a web server.

They also play the part of a bucket: ``bucket`` publishes a generation as ``docs/format.md`` says.
"""

import json
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import sharddb


class PreconditionError(Exception):
    """Found by its name: every store has its own class."""


class NotModifiedError(Exception):
    """Found by its name: every store has its own class."""


@dataclass
class Result:
    """What ``get`` returns: ``obspec.GetResult``."""

    meta: dict[str, Any]
    range: tuple[int, int]
    body: bytes

    def buffer(self) -> bytes:
        return self.body

    async def buffer_async(self) -> bytes:
        return self.body


class Objects:
    """A store with ``get`` and ``get_async``, ETags and conditions, which counts its requests."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.requests: list[tuple[str, Any]] = []
        """The path and options of every request."""

    def get(self, path: str, *, options: dict[str, Any] | None = None) -> Result:
        options = options or {}
        self.requests.append((path, options))
        if path not in self.objects:
            raise FileNotFoundError(path)
        body = self.objects[path]
        etag = f'"{zlib.crc32(body):08x}"'
        if options.get("if_match", etag) != etag:
            raise PreconditionError(path)
        if options.get("if_none_match") == etag:
            raise NotModifiedError(path)
        start, end = options.get("range", (0, len(body)))
        if start >= max(len(body), 1):
            raise ValueError(f"range {start}..{end} of an object of {len(body)} bytes")
        end = min(end, len(body))
        return Result({"path": path, "size": len(body), "e_tag": etag, "version": None}, (start, end), body[start:end])

    async def get_async(self, path: str, *, options: dict[str, Any] | None = None) -> Result:
        return self.get(path, options=options)

    def count(self, call: Callable[[], object]) -> int:
        """Returns the number of requests of a call."""
        before = len(self.requests)
        call()
        return len(self.requests) - before


class Ranges:
    """A store with ``get_range`` only."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.calls: list[str] = []

    def get_range(self, path: str, *, start: int, end: int) -> bytes:
        self.calls.append(path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path][start:end]


class ManyRanges(Ranges):
    """A store with ``get_range`` and ``get_ranges``."""

    def get_ranges(self, path: str, *, starts: Sequence[int], ends: Sequence[int]) -> list[memoryview]:
        self.calls.append(f"{len(starts)} of {path}")
        return [memoryview(self.objects[path])[start:end] for start, end in zip(starts, ends, strict=True)]


class Handler(BaseHTTPRequestHandler):
    """A web server of a dict of objects, with ranges, ETags and conditions. It logs what it serves."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet
    objects: ClassVar[dict[str, bytes]]
    has_ranges: ClassVar[bool]
    log: ClassVar[list[str]]

    def do_GET(self) -> None:
        body = self.objects.get(self.path.removeprefix("/"))
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        self.log.append(f"{self.path} {self.headers.get('Range', '')}")
        if body is None:
            return self.reply(404)
        etag = f'"{zlib.crc32(body):08x}"'
        if self.headers.get("If-Match", etag) != etag:
            return self.reply(412)
        if self.headers.get("If-None-Match") == etag:
            return self.reply(304, etag=etag)
        if not wanted or not self.has_ranges:
            return self.reply(200, body, etag)
        start, end = int(wanted[1]), min(int(wanted[2]) + 1, len(body))
        if start >= end:
            return self.reply(416)
        self.reply(206, body[start:end], etag, f"bytes {start}-{end - 1}/{len(body)}")

    def reply(self, status: int, body: bytes = b"", etag: str = "", content_range: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Mon, 23 Nov 2026 10:00:00 GMT")
        for name, value in (("ETag", etag), ("Content-Range", content_range)):
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def web_server(objects: dict[str, bytes], has_ranges: bool = True) -> Iterator[tuple[str, list[str]]]:
    """Serves objects on loopback. Returns the URL and the log."""
    log: list[str] = []
    handler = type("Handler", (Handler,), {"objects": objects, "has_ranges": has_ranges, "log": log})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", log
        finally:
            server.shutdown()
            thread.join()


def files(directory: Path, prefix: str = "") -> dict[str, bytes]:
    """Returns the files of a directory as objects."""
    return {
        prefix + path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "lease"
    }


def generation_name(number: int) -> str:
    return f"gen-{number:010}-{number:032x}"


def publish(objects: dict[str, bytes], directory: Path, number: int) -> str:
    """Puts a generation into a bucket, and makes it current. Returns its name."""
    name = generation_name(number)
    objects |= files(directory, f"{name}/")
    make_current(objects, number)
    return name


def make_current(objects: dict[str, bytes], number: int) -> None:
    """Writes ``current`` as the format says: the last line has the checksum of all bytes before it."""
    history = [{"generation": generation_name(number), "replaced": None}]
    text = json.dumps(
        {"format_version": 1, "generation": generation_name(number), "id": f"{number:032x}", "history": history},
        indent=0,
    )
    head = text.removesuffix("\n}").encode() + b",\n"
    objects["current"] = head + b'"crc32": %d\n}\n' % zlib.crc32(head)


def remove(objects: dict[str, bytes], name: str) -> None:
    for path in [path for path in objects if path.startswith(f"{name}/")]:
        del objects[path]


def keys_apart(db: sharddb.RemoteReader, keys: Iterable[int]) -> list[int]:
    """Returns keys of one shard whose values are so far apart that requests which cost 16 KiB are not joined."""
    places = sorted((place, key) for key in keys if (place := db.locate(key)))
    found: list[int] = []
    next_offset = 0
    for (path, offset, _), key in places:
        if path == places[0][0][0] and offset >= next_offset:
            found.append(key)
            next_offset = offset + (40 << 10)
    return found
