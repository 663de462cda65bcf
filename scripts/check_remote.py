#!/usr/bin/env python3
"""Publishes with the command to object stores, and reads with the command, TensorStore and CloudVolume.

usage: check_remote.py SHARDDB [AZURITE]

SHARDDB is the command, built with the feature remote; AZURITE a directory with the npm package azurite. The servers are on
loopback: moto, which speaks S3, a static web server with ranges and one without; and if AZURITE is given, azurite, which speaks
Azure's protocol, and a server that speaks Google's (gcs_server.py). Prints how many requests the same lookups cost each reader,
and ends with the line `N passed, N failed`; exit 1 if any failed.
"""

import contextlib
import http.server
import json
import logging
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path

import boto3
import tensorstore
from azurite import ACCOUNT, KEY, Azurite
from cloudvolume.cacheservice import CacheService
from cloudvolume.cloudvolume import SharedConfiguration
from cloudvolume.datasource.precomputed.sharding import ShardingSpecification, ShardReader
from gcs_server import GcsServer
from moto.server import ThreadedMotoServer
from programs import limited

# Pairs of the stores: keys 0, 7, 14, .. with values of 100 to 1,000 bytes.
PAIRS = 20_000
# Keys that each reader looks up for the comparison.
LOOKUPS = 100
# The times of one request, in milliseconds, for which the comparison is modelled.
LATENCIES = 25, 100

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


def value_of(key, version=1):
    return f"version {version} of key {key} ".encode() * (5 + key % 35)


# ---- servers ----


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves files, with ranges unless the server has none, and counts requests."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.paths.append(self.path)
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            return self.answer(404, b"")
        content = path.read_bytes()
        etag = {"ETag": f'"{hash(content):016x}"'}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        suffix = re.fullmatch(r"bytes=-(\d+)", self.headers.get("Range") or "")
        if not self.server.has_ranges or not (wanted or suffix):
            return self.answer(200, content, **etag)
        first = int(wanted[1]) if wanted else max(0, len(content) - int(suffix[1]))
        last = min(int(wanted[2]), len(content) - 1) if wanted and wanted[2] else len(content) - 1
        if first >= len(content):
            return self.answer(416, b"")
        etag["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        return self.answer(206, content[first : last + 1], **etag)

    def do_HEAD(self):
        self.do_GET()

    def answer(self, status, content, **headers):
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        try:
            if self.command != "HEAD":
                self.wfile.write(content)
        except ConnectionError:
            self.close_connection = True  # the client does not want the rest

    def log_message(self, *_):
        pass


def serve(directory, has_ranges=True):
    def handler(*args):
        Files(*args, directory=str(directory))

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.has_ranges, server.paths = has_ranges, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}"


# ---- the readers ----


class Command:
    """The command, with the credentials of the server and no others."""

    def __init__(self, path, home, settings):
        names = [name for name in os.environ if not name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]
        self.path = path
        self.environment = {name: os.environ[name] for name in names}
        self.environment |= settings | {
            "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "NO_PROXY": "127.0.0.1", "SHARDDB_REMOTE_RETRIES": "2",
        }  # fmt: skip

    def run(self, *args, expect=0):
        run = subprocess.run(limited([self.path, *args]), capture_output=True, env=self.environment)
        if run.returncode != expect:
            call, error = " ".join(map(str, args)), run.stderr.decode()
            raise Failed(f"{call}: expected exit code {expect}, found {run.returncode}: {error}")
        return run

    def get_many(self, url, keys):
        args = [argument for key in keys for argument in ("--key", key)]
        lines = self.run("get-many", url, "--values", *args).stdout.splitlines()
        return [json.loads(line) for line in lines]


def tensorstore_reader(base, sharding, cache_bytes=0):
    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": cache_bytes}})
    spec = {"driver": "neuroglancer_uint64_sharded", "base": base, "metadata": sharding}
    return tensorstore.KvStore.open(spec, context=context).result()


def tensorstore_values(store, keys, at_once=False):
    pending = (store.read(key.to_bytes(8, "big")) for key in keys)
    pending = list(pending) if at_once else pending
    answers = (answer.result() for answer in pending)
    return [answer.value if answer.state == "value" else None for answer in answers]


def cloudvolume_reader(url, sharding):
    config = SharedConfiguration(
        cdn_cache=False, compress=True, compress_level=None, green=False, mip=0, parallel=1, progress=False,
        secrets=None, spatial_index_db=None, cache_locking=None, codec_threads=1,
    )  # fmt: skip
    meta = types.SimpleNamespace(cloudpath=url)
    cache = CacheService(cloudpath=url, enabled=False, config=config, meta=meta)
    return ShardReader(url, cache, ShardingSpecification.from_dict(sharding))


# ---- checks ----


class Failed(Exception):
    """A check that did not hold."""


def equal(what, found, expected):
    if found != expected:
        raise Failed(f"{what}: expected {str(expected)[:200]}, found {str(found)[:200]}")


def check_published(command, place, root):
    """Two versions are pushed, listed, verified, rolled back, collected and pulled."""
    url, keys = f"{root}/numbers", [0, 7, 8, 70_000]

    def version():
        value = command.run("get", url, 7).stdout
        return next((number for number in (1, 2) if value == value_of(7, number)), None)

    layer = command.run("push", place / "first", url).stdout.decode().strip()
    first = layer.rsplit("/", 1)[1]
    equal("layer", layer, f"precomputed://{url}/{first}")
    equal("version after the first push", version(), 1)
    found = [(line["key"], line.get("len")) for line in command.get_many(url, keys)]
    equal("values", found, [(str(key), None if key % 7 else len(value_of(key))) for key in keys])
    command.run("contains", url, 8, expect=1)

    pushed = json.loads(command.run("push", place / "second", url, "--json").stdout)
    equal("version after the second push", version(), 2)
    states = [(it["generation"], it["state"]) for it in json.loads(command.run("generations", url, "--json").stdout)]
    equal("generations", states, [(first, "earlier"), (pushed["generation"], "current")])
    command.run("verify", url, "--level", "data")

    command.run("rollback", url)
    equal("version after the rollback", version(), 1)
    command.run("gc", url, expect=2)
    command.run("gc", url, "--older-than", "7d")
    equal("generations after a gc of old ones", len(json.loads(command.run("generations", url, "--json").stdout)), 2)
    collected = json.loads(command.run("gc", url, "--older-than", "0s", "--json").stdout)
    equal("collected", collected["removed"], [pushed["generation"]])
    equal("version after the gc", version(), 1)

    command.run("pull", url, place / "copy")
    command.run("diff", place / "first", place / "copy")
    equal("local version", command.run("get", place / "copy", 7).stdout, value_of(7))
    return first


def check_read_by_others(command, place, bucket, endpoint, generation):
    """TensorStore, by S3 and by HTTP, and CloudVolume read what was pushed."""
    keys = random.Random(1).sample(range(0, 7 * PAIRS, 7), 200) + [8]
    expected = [None if key % 7 else value_of(key) for key in keys]
    sharding = json.loads((place / "first/current/info").read_text())["sharding"]
    path = f"numbers/{generation}/"
    s3 = {
        "driver": "s3", "bucket": bucket, "path": path, "endpoint": endpoint, "aws_region": "us-east-1",
        "aws_credentials": {"type": "environment"}, "use_conditional_write": True,
    }  # fmt: skip
    by_http = {"driver": "http", "base_url": f"{endpoint}/{bucket}/{path}"}
    equal("TensorStore by HTTP", tensorstore_values(tensorstore_reader(by_http, sharding), keys), expected)
    reader = cloudvolume_reader(f"{endpoint}/{bucket}/numbers/{generation}", sharding)
    found = reader.get_data(keys)
    equal("CloudVolume by HTTP", [found.get(key) for key in keys], expected)
    equal("TensorStore by S3", tensorstore_values(tensorstore_reader(s3, sharding), keys), expected)


def check_built(command, place, root):
    """`build` with a URL builds and pushes, and leaves nothing in the temporary directory; an empty input replaces nothing."""
    temporary = place / "temporary"
    temporary.mkdir()
    url = f"{root}/built"
    command.run("build", url, "--input", place / "first.ndjson", "--temp-dir", temporary)
    equal("value", command.run("get", url, 70).stdout, value_of(70))
    equal("temporary files", list(temporary.iterdir()), [])
    empty = place / "empty.ndjson"
    empty.write_bytes(b"")
    command.run("build", url, "--input", empty, expect=3)
    equal("a key after an empty build", command.run("get", url, 7).stdout, value_of(7))
    command.run("build", url, "--input", empty, "--allow-empty")
    command.run("get", url, 7, expect=1)
    foreign = f"{root}/a prefix%2f/numbers"
    command.run("push", place / "first", foreign)
    equal("a key at a prefix of odd characters", command.run("get", foreign, 7).stdout, value_of(7))


def check_built_in_parts(command, place, root):
    """A build in parts has the generation of a single build, and leaves no objects of the job."""
    url, temporary = f"{root}/parts", place / "temporary"
    lines = (place / "first.ndjson").read_text().splitlines(keepends=True)
    pairs = str(len(lines))
    plan, spills, parts = place / "plan", place / "spills", place / "parts"
    plan.write_bytes(command.run("plan", "--keys", pairs, "--bytes", "20MB", "--parts", "3").stdout)
    receipts = b""
    for task in range(2):
        (place / "task.ndjson").write_text("".join(lines[task::2]))
        spill = ["spill", url, "night", "--plan", plan, "--task", task, "--dir", temporary]
        receipts += command.run(*spill, "--input", place / "task.ndjson").stdout
    spills.write_bytes(receipts)
    of_job = [url, "night", "--plan", plan, "--spills", spills]
    build = ["build-part", *of_job, "--temp-dir", temporary, "--part"]
    parts.write_bytes(b"".join(command.run(*build, part).stdout for part in range(3)))
    publish = ["publish-parts", *of_job, "--parts", parts, "--json"]
    published = command.run(*publish).stdout
    equal("repeated publication", command.run(*publish).stdout, published)
    equal("keys", json.loads(published)["keys"], len(lines))
    equal("value", command.run("get", url, 70).stdout, value_of(70))
    command.run("verify", url, "--level", "data")
    command.run("pull", url, place / "from_parts")
    command.run("diff", place / "first", place / "from_parts")
    command.run("clean-parts", url, expect=2)
    command.run("clean-parts", url, "night")
    command.run("clean-parts", url, "night", expect=4)
    equal("temporary files", list(temporary.iterdir()), [])


def check_static(command, place, bucket, client):
    """A static web server with ranges serves the objects; one without is a clear error."""
    mirror = place / "mirror"
    for it in client.list_objects_v2(Bucket=bucket, Prefix="numbers/")["Contents"]:
        path = mirror / it["Key"]
        path.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(bucket, it["Key"], str(path))
    _, base = serve(mirror)
    url = f"{base}/numbers"
    equal("value", command.run("get", url, 70).stdout, value_of(70))
    command.run("contains", url, 71, expect=1)
    command.run("pull", url, place / "from_static")
    command.run("diff", place / "first", place / "from_static")
    command.run("push", place / "first", url, expect=2)
    _, base = serve(mirror, has_ranges=False)
    error = command.run("get", f"{base}/numbers", 70, expect=3).stderr.decode()
    if "ignores Range requests" not in error or base not in error:
        raise Failed(f"expected an error that names Range requests and the URL, found: {error}")


def check_google(path, place):
    """The life of a store, in a bucket of Google's protocol."""
    server = GcsServer("shards")
    account = copy_of_inputs(place, "google") / "account.json"
    # a service account without keys: the client asks nobody for a token
    account.write_text('{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}')
    settings = {"GOOGLE_BASE_URL": server.endpoint, "GOOGLE_SERVICE_ACCOUNT": str(account)}
    with contextlib.closing(server):
        check_life(Command(path, account.parent, settings), account.parent, "gs://shards")


def check_azure(path, place, azurite):
    """The life of a store, in a container of Azure."""
    server = Azurite(azurite, "shards")
    place = copy_of_inputs(place, "azure")
    settings = {"AZURE_STORAGE_ACCOUNT_KEY": KEY, "AZURE_STORAGE_ENDPOINT": server.endpoint}
    with contextlib.closing(server):
        check_life(Command(path, place, settings), place, f"az://shards@{ACCOUNT}")


def check_life(command, place, root):
    check_published(command, place, root)
    check_built(command, place, root)
    check_built_in_parts(command, place, root)
    check_refused(command, place, root)


def copy_of_inputs(place, name):
    """A directory with what the checks publish."""
    (place / name).mkdir()
    for path in "first", "second", "first.ndjson":
        (place / name / path).symlink_to(place / path)
    return place / name


def check_refused(command, place, root):
    """An absent bucket and an absent store are errors of exit code 4."""
    command.run("get", f"{root}-absent/numbers", 7, expect=4)
    command.run("get", f"{root}/absent", 7, expect=4)
    command.run("rollback", f"{root}/absent", expect=4)


# ---- the comparison ----


def compare(command, place):
    """Requests of each reader for the same keys, from the same server."""
    keys = random.Random(2).sample(range(0, 7 * PAIRS, 7), LOOKUPS)
    foreign = place / "foreign"
    foreign.mkdir()
    for path in (place / "first/current/").iterdir():
        if path.suffix == ".shard":
            (foreign / path.name).write_bytes(path.read_bytes())
    info = json.loads((place / "first/current/info").read_text())
    sharding = info["sharding"]
    (foreign / "info").write_text(json.dumps({"@type": "x", "sharding": sharding}))
    server, base = serve(place)
    native, foreign = f"{base}/first/current", f"{base}/foreign"
    expected = [value_of(key) for key in keys]
    rows = []

    def count(what, read, but=0):
        server.paths.clear()
        values = read()
        if values is not None:
            equal(what, values, expected)
        rows.append((what, len(server.paths) - but))

    def opened(url):
        server.paths.clear()
        command.run("info", url)
        return len(server.paths)

    def get(url):
        return lambda: [command.run("get", url, key).stdout for key in keys]

    def get_many(url):
        return lambda: command.get_many(url, keys) and None

    for name, url in ("native", native), ("foreign", foreign):
        opening = opened(url)
        rows.append((f"sharddb, {name}: open", opening))
        count(f"sharddb, {name}: get, one by one, nothing cached", get(url), but=opening * LOOKUPS)
        count(f"sharddb, {name}: get-many, one batch", get_many(url), but=opening)
    by_http = {"driver": "http", "base_url": f"{native}/"}
    for what, cache, at_once in (
        ("one by one, nothing cached", 0, False),
        ("one by one, cache of 64 MB", 64_000_000, False),
        ("at once, cache of 64 MB", 64_000_000, True),
    ):
        store = tensorstore_reader(by_http, sharding, cache)
        count(f"TensorStore: read, {what}", lambda: tensorstore_values(store, keys, at_once))
    reader = cloudvolume_reader(native, sharding)
    count("CloudVolume: get_data, one by one", lambda: [reader.get_data([key])[key] for key in keys])
    reader = cloudvolume_reader(native, sharding)
    count("CloudVolume: get_data, one batch", lambda: list(map(reader.get_data(keys).get, keys)))

    times = "".join(f"{f'at {latency} ms':>12}" for latency in LATENCIES)
    print(f"\n{LOOKUPS} random keys of {PAIRS:,}; times if the requests follow one another\n{'':56}{'requests':>10}{times}")
    for what, requests in rows:
        times = "".join(f"{requests * latency / 1000:>10.1f} s" for latency in LATENCIES)
        print(f"{what:56}{requests:>10}{times}")
    counted = dict(rows)
    equal("one request per cold get", counted["sharddb, native: get, one by one, nothing cached"], LOOKUPS)
    if counted["sharddb, foreign: get, one by one, nothing cached"] > 3 * LOOKUPS:
        raise Failed("expected at most 3 requests per cold get of foreign data")


def main():
    with tempfile.TemporaryDirectory(prefix="sharddb-remote-") as place:
        return run(Path(place))


def run(place):
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs every request
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    os.environ |= CREDENTIALS  # for boto3 and TensorStore
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="shards", ACL="public-read")
    command = Command(os.path.abspath(sys.argv[1]), place, CREDENTIALS | {"AWS_ENDPOINT_URL": endpoint})
    for version, name in (1, "first"), (2, "second"):
        lines = (json.dumps({"key": key, "text": value_of(key, version).decode()}) for key in range(0, 7 * PAIRS, 7))
        (place / f"{name}.ndjson").write_text("\n".join(lines))
        command.run("build", place / name, "--input", place / f"{name}.ndjson")

    passed, failed, generation = 0, 0, None
    checks = [
        lambda: check_published(command, place, "s3://shards"),
        lambda: check_read_by_others(command, place, "shards", endpoint, generation),
        lambda: check_built(command, place, "s3://shards"),
        lambda: check_built_in_parts(command, place, "s3://shards"),
        lambda: check_static(command, place, "shards", client),
        lambda: check_refused(command, place, "s3://shards"),
        lambda: compare(command, place),
    ]
    if len(sys.argv) > 2:
        checks += [lambda: check_google(command.path, place), lambda: check_azure(command.path, place, sys.argv[2])]
    for check in checks:
        try:
            generation = check() or generation
            passed += 1
        except Exception as error:  # any failure of a reader is a failed check
            print(f"failed: {type(error).__name__}: {error}")
            failed += 1
    moto.stop()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
