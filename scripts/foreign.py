#!/usr/bin/env python3
"""Foreign shards: writes a data set with CloudVolume, or measures how long TensorStore takes to read its keys.

usage: foreign.py write SET     200,000 values of 496 bytes, gzip indexes of about 1,500 keys each
       foreign.py read SET      TensorStore, one key after another, mapped files and a cache that holds all indexes

`read` prints the nanoseconds per get; every value is compared.
"""

import json
import random
import sys
import time
from pathlib import Path

KEYS = 200_000
VALUE_LEN = 496
# Timed gets, after as many untimed ones to fill the cache.
GETS = 20_000

SHARDING = {
    "@type": "neuroglancer_uint64_sharded_v1",
    "hash": "murmurhash3_x86_128",
    "preshift_bits": 0,
    "minishard_bits": 6,
    "shard_bits": 1,
    "minishard_index_encoding": "gzip",
    "data_encoding": "raw",
}


def value_of(key):
    return key.to_bytes(8, "little") * (VALUE_LEN // 8)


def keys():
    scrambled = random.Random(1)
    return [scrambled.getrandbits(64) for _ in range(KEYS)]


def write(directory):
    from cloudvolume.datasource.precomputed.sharding import ShardingSpecification, synthesize_shard_files

    directory.mkdir(parents=True)
    specification = ShardingSpecification.from_dict(SHARDING)
    for name, content in synthesize_shard_files(specification, {key: value_of(key) for key in keys()}).items():
        # CloudVolume names shards in decimal here
        (directory / f"{int(name.removesuffix('.shard')):x}.shard").write_bytes(content)
    (directory / "info").write_text(json.dumps({"sharding": SHARDING}))


def read(directory):
    import tensorstore

    context = {"cache_pool": {"total_bytes_limit": 1 << 30}, "file_io_mode": {"mode": "memmap"}}
    base = {"driver": "file", "path": f"{directory.resolve()}/"}
    spec = {"driver": "neuroglancer_uint64_sharded", "base": base, "metadata": SHARDING}
    store = tensorstore.KvStore.open(spec, context=tensorstore.Context(context)).result()
    wanted = random.Random(2).choices(keys(), k=2 * GETS)

    def get(key):
        answer = store.read(key.to_bytes(8, "big")).result()
        if answer.value != value_of(key):
            raise SystemExit(f"expected the value of key {key}, found another")

    for key in wanted[:GETS]:
        get(key)
    start = time.perf_counter_ns()
    for key in wanted[GETS:]:
        get(key)
    print((time.perf_counter_ns() - start) // GETS)


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](Path(sys.argv[2]))
