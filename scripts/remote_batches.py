#!/usr/bin/env python3
"""Measures batches of cold lookups in an object store: ShardDb's, TensorStore's and CloudVolume's.

usage: remote_batches.py SHARDDB [LATENCY_MS:VALUE_BYTES:KEYS[:SET[:PROFILE]] ..]

SHARDDB is the command, built with --release --all-features. It and the others look up KEYS of the SET (20,000) keys of a store with
the PROFILE (local and remote), whose values have VALUE_BYTES on average. Each part may be a list with commas.
Default: 1,20:50,190,8000,50000:1,10,100,1000,5000,20000 and 100:190,8000,50000:1000, which writes 5 GB.

A server on loopback, of one thread, answers each request after the latency, and counts requests and bytes; bytes cost nothing there.
The keys and their order are random. Each reader has opened the data before, and has read nothing of it. Writes a line of JSON per
cell to standard output, and the table to standard error: medians of five interleaved rounds. The time of the command is that of the
lookups as -v states it, in whole milliseconds; of the others, that of a call in Python, which returns objects. A cell is a loss if
it takes more than 1.1 times the least time of the others and one latency. CloudVolume makes one request after the other, and is
measured up to 1,000 keys at 20 ms. Needs the Python package, obstore and scripts/requirements-remote.txt.
"""

import asyncio
import itertools
import json
import logging
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from base64 import b64decode
from pathlib import Path

import numpy
import obstore.store
import tensorstore
from check_remote import cloudvolume_reader, tensorstore_reader

import sharddb

STEP, ROUNDS = 977, 5
REST = ["20000", "local,remote"]
DEFAULT = "1,20:50,190,8000,50000:1,10,100,1000,5000,20000", "100:190,8000,50000:1000"
CLOUDVOLUME_KEYS, CLOUDVOLUME_LATENCY = 1000, 20


# ---- the server ----


class Connection(asyncio.Protocol):
    """A connection of HTTP/1.1. The paths that begin with /- set the latency, and return and reset the counts."""

    root, latency, requests, bytes = "", 0.0, 0, 0
    files: dict = {}

    def connection_made(self, transport):
        self.transport, self.received = transport, b""

    def data_received(self, data):
        *heads, self.received = (self.received + data).split(b"\r\n\r\n")
        for head in heads:
            path = head.split(b" ", 2)[1].decode()
            if path.startswith("/-"):
                counts = f"[{Connection.requests}, {Connection.bytes}]".encode()
                Connection.latency, Connection.requests, Connection.bytes = float(path[2:]) / 1000, 0, 0
                self.reply(b"200 OK", counts)
            else:
                asyncio.get_running_loop().call_later(Connection.latency, self.answer, path, head)

    def answer(self, path, head):
        Connection.requests += 1
        content = self.content(path)
        if content is None:
            return self.reply(b"404 Not Found", b"")
        size = len(content)
        wanted = re.search(rb"\r\nrange: *bytes=(\d+)-(\d*)", head, re.IGNORECASE)
        first, last = (int(wanted[1]), min(size, int(wanted[2] or size - 1) + 1)) if wanted else (0, size)
        if first >= last:
            return self.reply(b"416 Range Not Satisfiable", b"")
        body = content[first:last]
        Connection.bytes += len(body)
        part = b"Content-Range: bytes %d-%d/%d\r\n" % (first, last - 1, size) if wanted else b""
        self.reply(b"206 Partial Content" if wanted else b"200 OK", body, part + b'ETag: "1"\r\n')

    def content(self, path):
        """Returns the bytes of a file, which stay in memory: no disk is measured."""
        if path not in self.files:
            local = Path(self.root + path)
            self.files[path] = memoryview(local.read_bytes()) if local.is_file() else None
        return self.files[path]

    def reply(self, status, body, headers=b""):
        self.transport.write(b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n" % (status, headers, len(body)))
        self.transport.write(body)


async def serve(root):
    Connection.root = root
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def reset(base, latency):
    """Sets the latency; returns the requests and bytes since the last call."""
    with urllib.request.urlopen(f"{base}/-{latency}") as response:
        return json.load(response)


def load(base, place, directories):
    """Lets the server read all files of directories."""
    for directory in directories:
        for file in (place / directory).iterdir():
            first_byte = urllib.request.Request(f"{base}/{directory}/{file.name}", headers={"Range": "bytes=0-0"})
            if file.stat().st_size:
                urllib.request.urlopen(first_byte).close()


# ---- the data ----


def write(place, value_len, keys, profile):
    """Writes a generation, ``native``, and the same with TensorStore, ``foreign``. Returns their directories and the specification."""
    store, native, foreign = (place / f"{name}-{value_len}-{keys}-{profile}" for name in ("store", "native", "foreign"))
    random_bytes = numpy.random.default_rng(value_len)
    value_bytes = 0
    with sharddb.Loader(store, profile=profile) as loader:
        for first in range(0, keys, 1000):
            lens = random_bytes.exponential(value_len, 1000).astype(int) + 1
            offsets = numpy.concatenate([[0], numpy.cumsum(lens)])
            values = random_bytes.integers(0, 256, offsets[-1], dtype="u1")
            value_bytes += offsets[-1]
            loader.extend(numpy.arange(first, first + 1000) * STEP, offsets, values)
    (store / "gen-0000000001").rename(native)
    sharding = json.loads((native / "info").read_text())["sharding"]
    foreign.mkdir()
    (foreign / "info").write_text(json.dumps({"sharding": sharding}))
    transaction = tensorstore.Transaction()
    writer = tensorstore_reader({"driver": "file", "path": f"{foreign}/"}, sharding).with_transaction(transaction)
    with sharddb.open(native) as db:
        for key, value in db.items():
            writer.write(key.to_bytes(8, "big"), value).result()
    transaction.commit_sync()
    beyond = sum(file.stat().st_size for file in native.iterdir()) / keys - value_bytes / keys
    print(f"{profile}: {keys} keys, {beyond:.1f} bytes per key beyond the value", file=sys.stderr)
    return {"native": native.name, "foreign": foreign.name}, sharding


# ---- the readers: each returns a function that looks up keys, and returns their values ----


def command(sharddb_command):
    def reader(url, _):
        def look_up(keys):
            args = [sharddb_command, "get-many", url, "--values", "-v", *map(str, keys)]
            run = subprocess.run(args, capture_output=True, text=True, check=True)
            cost = re.search(r"get-many: ([\d,]+) requests?, (\d+) bytes,.* ([0-9.]+) s", run.stderr)
            values = [b64decode(json.loads(line)["value_b64"]) for line in run.stdout.splitlines()]
            return values, int(cost[1].replace(",", "")), int(cost[2]), float(cost[3])

        return look_up

    return reader


def package(url, _):
    db = sharddb.open("", store=obstore.store.HTTPStore(url, client_options={"allow_http": True}))
    return db.get_many


def tensorstore_batch(url, sharding):
    store = tensorstore_reader({"driver": "http", "base_url": f"{url}/"}, sharding)

    def look_up(keys):
        with tensorstore.Batch() as batch:
            pending = [store.read(key.to_bytes(8, "big"), batch=batch) for key in keys]
        return [answer.result().value for answer in pending]

    return look_up


def cloudvolume(url, sharding):
    reader = cloudvolume_reader(url, sharding)

    def look_up(keys):
        values = reader.get_data(keys)
        return [values[key] for key in keys]

    return look_up


# ---- the measurement ----


def measure(reader, base, path, sharding, keys, latency):
    """Returns the values, and the seconds, requests and bytes of the lookups."""
    look_up = reader(f"{base}/{path}", sharding)
    reset(base, latency)
    start = time.perf_counter()
    values = look_up(keys)
    seconds = time.perf_counter() - start
    if isinstance(values, tuple):  # the command has also opened the data, and states what the lookups cost
        return values[0], (values[3], values[1], values[2])
    return values, (seconds, *reset(base, latency))


def compare(readers, base, name_of_set, data, count, latency):
    """Measures one batch size with all readers, of native and of foreign data."""
    value_len, keys_of_set, profile = name_of_set
    paths, sharding = data
    cells = [(name, kind) for name in readers for kind in paths]
    taken = {cell: [] for cell in cells}
    for number in range(ROUNDS):
        keys = [key * STEP for key in random.Random(number).sample(range(keys_of_set), count)]
        expected = None
        for name, kind in random.Random(number).sample(cells, len(cells)):
            if name == "CloudVolume" and (count > CLOUDVOLUME_KEYS or latency != CLOUDVOLUME_LATENCY):
                continue
            values, cost = measure(readers[name], base, paths[kind], sharding, keys, latency)
            expected = expected or values
            assert values == expected, f"{name} found other values"
            taken[name, kind].append(cost)
    medians = {cell: [statistics.median(parts) for parts in zip(*costs, strict=True)] for cell, costs in taken.items() if costs}
    for (name, kind), (seconds, requests, read) in medians.items():
        best = min(medians[other][0] for other in medians if not other[0].startswith("ShardDb") and other[1] == kind)
        line = {
            "latency_ms": latency, "value_bytes": value_len, "set": keys_of_set, "profile": profile, "data": kind, "keys": count,
            "reader": name, "requests": requests, "bytes": read, "seconds": round(seconds, 5),
            "is_loss": name.startswith("ShardDb") and seconds > 1.1 * best + latency / 1000,
        }  # fmt: skip
        print(json.dumps(line), flush=True)
    for kind in paths:
        of_kind = ((name, medians[name, kind]) for name in readers if (name, kind) in medians)
        texts = [f"{name} {1000 * s:.1f} ms, {r:.0f} requests, {b / 1e6:.2f} MB" for name, (s, r, b) in of_kind]
        print(f"{latency} ms, {value_len} B, {profile}, {kind}, {count} of {keys_of_set} keys: {'; '.join(texts)}", file=sys.stderr)


def main(args):
    if args[:1] == ["--serve"]:
        return asyncio.run(serve(args[1]))
    if not args or args[0].startswith("-"):
        sys.exit(__doc__)
    logging.disable(logging.WARNING)
    readers = {
        "ShardDb command": command(args[0]), "ShardDb Python": package, "TensorStore": tensorstore_batch, "CloudVolume": cloudvolume,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        written = {}
        server = subprocess.Popen([sys.executable, __file__, "--serve", directory], stdout=subprocess.PIPE, text=True)
        base = f"http://127.0.0.1:{int(server.stdout.readline())}"
        try:
            for part in args[1:] or DEFAULT:
                given = part.split(":")
                *numbers, profiles = given + REST[max(0, len(given) - 3) :]
                latencies, value_lens, counts, sets = ([int(number) for number in some.split(",")] for some in numbers)
                assert max(counts) <= min(sets) and not any(keys % 1000 for keys in sets), "SET: thousands, at least KEYS"
                for latency, *name, count in itertools.product(latencies, value_lens, sets, profiles.split(","), counts):
                    if (*name,) not in written:
                        written[*name] = write(Path(directory), *name)
                        load(base, Path(directory), written[*name][0].values())
                    compare(readers, base, name, written[*name], count, latency)
        finally:
            server.kill()


if __name__ == "__main__":
    main(sys.argv[1:])
