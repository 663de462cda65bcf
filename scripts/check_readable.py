#!/usr/bin/env python3
"""Reads data sets with TensorStore and CloudVolume and compares with what was inserted.

usage: check_readable.py [--self-test] SETS

SETS has one directory per set, with `data/` (a store, or a directory of shards and an `info`) and
`expected.jsonl`, one line per key:

    {"key": "<decimal>", "len": n, "sha256": "..", "prefix_len": n, "prefix_sha256": ".."}    the preamble if there is one
    {"key": "<decimal>", "absent": true}

Every value, every absent key and the listing must be equal in both readers. With --self-test, copies of some sets are
damaged, and both readers must notice each damage. The last line is `N passed, N failed`; exit 1 if any failed.
"""

import argparse
import hashlib
import json
import re
import shutil
import struct
import sys
import tempfile
import types
from collections import namedtuple
from pathlib import Path

import tensorstore
from cloudvolume.cacheservice import CacheService
from cloudvolume.cloudvolume import SharedConfiguration
from cloudvolume.datasource.precomputed.sharding import ShardingSpecification, ShardReader

# Keys to read at once.
BATCH = 5000
# Upper bound on the differences shown per set.
SHOWN = 10

# `values` and `preambles` map a key to length and SHA-256.
Set = namedtuple("Set", "name data sharding values preambles absent")


def read_set(directory):
    store = directory / "data"
    data = store / "current" if (store / "current").exists() else store
    sharding = json.loads((data / "info").read_text())["sharding"]
    values, preambles, absent = {}, {}, set()
    for line in (directory / "expected.jsonl").read_text().splitlines():
        line = json.loads(line)
        key = int(line["key"])
        if line.get("absent"):
            absent.add(key)
            continue
        values[key] = line["len"], line["sha256"]
        if "prefix_len" in line:
            preambles[key] = line["prefix_len"], line["prefix_sha256"]
    return Set(directory.name, data, sharding, values, preambles, absent)


def shard_files(data):
    return sorted(path for path in data.iterdir() if path.suffix == ".shard")


def batches(keys):
    keys = sorted(keys)
    return (keys[start : start + BATCH] for start in range(0, len(keys), BATCH))


def digest(content):
    return len(content), hashlib.sha256(content).hexdigest()


# ---- what must hold of any reader: each function yields the differences, as sentences ----


def different_values(expected, found):
    """`found` maps keys to bytes, or to None if the reader reports the key as absent."""
    for key, (length, sha256) in expected.items():
        content = found.get(key)
        if content is None:
            yield f"key {key}: expected {length} bytes, found no such key"
        elif digest(content) != (length, sha256):
            yield f"key {key}: expected {length} bytes with SHA-256 {sha256[:8]}.., found {len(content)} others"


def different_listing(expected, found):
    """`found` is a list of keys; a duplicate is a difference."""
    lost, extra = set(expected) - set(found), set(found) - set(expected)
    if lost or extra or len(found) != len(set(found)):
        yield (
            f"listing: expected {len(expected)} keys, found {len(found)}; "
            f"lost {sorted(lost)[:3]}, extra {sorted(extra)[:3]}, twice {len(found) - len(set(found))}"
        )


# ---- file names: both readers look for exact ones, so a wrong one is a lost shard; this explains why ----


def wrong_file_names(case):
    bits = case.sharding["shard_bits"]
    digits = max(1, -(-bits // 4))
    for path in shard_files(case.data):
        exact = re.fullmatch(f"[0-9a-f]{{{digits}}}", path.stem)
        if not exact or int(path.stem, 16) >> bits:
            yield f"{path.name}: expected {digits} lowercase hex digits, below 2^{bits}"


# ---- TensorStore ----


def tensorstore_differences(case):
    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": 64_000_000}})
    base = {"driver": "file", "path": f"{case.data.resolve()}/"}
    spec = {"driver": "neuroglancer_uint64_sharded", "base": base, "metadata": case.sharding}
    store = tensorstore.KvStore.open(spec, context=context).result()

    def read(keys):
        pending = {key: store.read(key.to_bytes(8, "big")) for key in keys}
        answers = {key: answer.result() for key, answer in pending.items()}
        return {key: answer.value if answer.state == "value" else None for key, answer in answers.items()}

    for keys in batches(case.values):
        yield from different_values({key: case.values[key] for key in keys}, read(keys))
    for keys in batches(case.absent):
        yield from (f"key {key}: expected none, found one" for key, value in read(keys).items() if value is not None)
    yield from different_listing(case.values, [int.from_bytes(key, "big") for key in store.list().result()])


# ---- CloudVolume ----


def cloudvolume_reader(data, sharding):
    """CloudVolume's reader of shards alone, over a local directory, without its file cache."""
    path = f"file://{data.resolve()}"
    config = SharedConfiguration(
        cdn_cache=False, compress=True, compress_level=None, green=False, mip=0, parallel=1, progress=False,
        secrets=None, spatial_index_db=None, cache_locking=None, codec_threads=1,
    )  # fmt: skip
    meta = types.SimpleNamespace(cloudpath=path)
    cache = CacheService(cloudpath=str(data), enabled=False, config=config, meta=meta)
    return ShardReader(path, cache, ShardingSpecification.from_dict(sharding))


def cloudvolume_differences(case):
    reader = cloudvolume_reader(case.data, case.sharding)
    for keys in batches(case.values):
        # also for several empty values: the reader distinguishes them by their offsets
        yield from different_values({key: case.values[key] for key in keys}, reader.get_data(keys))
    for keys in batches(case.absent):
        found = reader.exists(keys)
        yield from (f"key {key}: expected none, found one" for key in keys if found[key] is not None)

    listed, decoded = [], {}
    for path in shard_files(case.data):
        listed += [int(key) for key in reader.list_labels(path.name)]
        decoded |= {int(key): bytes(value) for key, value in reader.disassemble_shard(path.read_bytes()).items()}
    yield from different_listing(case.values, listed)
    yield from (f"whole shards: {difference}" for difference in different_values(case.values, decoded))

    # as a mesh reader does: find the value, then read the bytes before it
    places = reader.exists(list(case.preambles), return_byte_range=True) if case.preambles else {}
    before = {}
    for key, (name, offset, _) in ((key, place) for key, place in places.items() if place):
        with open(case.data / name, "rb") as shard:
            shard.seek(offset - case.preambles[key][0])
            before[key] = shard.read(case.preambles[key][0])
    yield from (f"preamble: {difference}" for difference in different_values(case.preambles, before))


READERS = {"TensorStore": tensorstore_differences, "CloudVolume": cloudvolume_differences}


def differences(case, reader):
    """All differences of a set in one reader. An exception of the reader is a difference."""
    found = []
    try:
        found.extend(READERS[reader](case))
    except Exception as error:
        found.append(f"{type(error).__name__}: {str(error)[:300]}")
    return [f"{reader}: {difference}" for difference in found]


# ---- the check ----


def passes(case):
    found = list(wrong_file_names(case)) + [line for reader in READERS for line in differences(case, reader)]
    counts = f"{len(case.values)} keys, {len(case.absent)} absent, {len(shard_files(case.data))} shards"
    print(f"{'FAIL' if found else 'ok  '} {case.name}: {counts}")
    for line in found[:SHOWN]:
        print(f"       {line}")
    if len(found) > SHOWN:
        print(f"       and {len(found) - SHOWN} more")
    return not found


# ---- self-test: each damage changes a copy of a set, and returns what to read ----


def flip(path, offset):
    """Flips one bit of a file."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.chmod(0o644)
    path.write_bytes(content)


def key_of_some_length(values):
    return next(key for key, (length, _) in values.items() if length > 8)


def place_of(case, key):
    """Where a value is stored: file, offset, length."""
    name, offset, length = cloudvolume_reader(case.data, case.sharding).exists([key], return_byte_range=True)[key]
    return case.data / name, offset, length


def flip_value(case):
    path, offset, length = place_of(case, key_of_some_length(case.values))
    flip(path, offset + length // 2)  # the header of a gzip member has unused bytes, its middle has none
    return case


def flip_index(case):
    path = shard_files(case.data)[0]
    entries = struct.iter_unpack("<QQ", path.read_bytes()[: 16 << case.sharding["minishard_bits"]])
    start = next(start for start, end in entries if start != end)
    flip(path, (16 << case.sharding["minishard_bits"]) + start)
    return case


def flip_preamble(case):
    path, offset, _ = place_of(case, key_of_some_length(case.preambles))
    flip(path, offset - 1)
    return case


def lose_a_shard(case):
    shard_files(case.data)[0].unlink()
    return case


def misname_a_shard(case):
    path = shard_files(case.data)[0]
    path.rename(path.with_name(f"0{path.name}"))
    return case


def expect_another_value(case):
    key = key_of_some_length(case.values)
    return case._replace(values={**case.values, key: digest(b"another")})


def expect_a_key_less(case):
    key, *keys = case.values
    return case._replace(values={key: case.values[key] for key in keys})


def expect_a_key_to_be_absent(case):
    return case._replace(absent={next(iter(case.values))})


DAMAGES = [
    flip_value,
    flip_index,
    lose_a_shard,
    misname_a_shard,
    expect_another_value,
    expect_a_key_less,
    expect_a_key_to_be_absent,
]


def notices(directory, damage, readers):
    """Whether each of these readers reports a difference after the damage, one answer per reader."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / directory.name
        shutil.copytree(directory, copy, symlinks=True)
        case = damage(read_set(copy))
        for reader in readers:
            noticed = bool(differences(case, reader))
            print(f"{'ok  ' if noticed else 'FAIL'} self-test: {reader} notices {damage.__name__} in {directory.name}")
            yield noticed


def self_test(root):
    for name in ["shards-murmur-raw-extras", "shards-murmur-gzip-plain"]:
        for damage in DAMAGES:
            yield from notices(root / name, damage, READERS)
    yield from notices(root / "shards-murmur-raw-extras", flip_preamble, ["CloudVolume"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path)
    parser.add_argument("--self-test", action="store_true", help="damage copies too, and expect that it is noticed")
    arguments = parser.parse_args()
    directories = sorted(path.parent for path in arguments.sets.glob("*/expected.jsonl"))
    if not directories:
        sys.exit(f"expected sets in {arguments.sets}, found none: write them with scripts/interop.sh")
    results = [passes(read_set(directory)) for directory in directories]
    if arguments.self_test:
        results += self_test(arguments.sets)
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
