"""Compares lookups from Python with py-lmdb, on one thread, with data in memory.

    pip install ./python lmdb
    python python/benches/peers.py [--pairs N] [--value BYTES] [--rounds N] [--directory DIR]

Builds a ShardDb store and an LMDB file of the same random keys and values, reads both completely twice, and then measures
in rounds: each round measures every candidate once, so that all of them see the same state of the machine. Prints medians
and their ratios. Every value that is read is compared before. TensorStore and CloudVolume are measured if they are
installed; both read the shards that ShardDb wrote.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

import sharddb

BATCH = 10_000
"""Random keys of a measurement."""


def build(directory: Path, keys: np.ndarray[Any, Any], data: np.ndarray[Any, Any]) -> tuple[Path, Path]:
    """Writes both databases, unless they exist: the values are the rows of `data`."""
    store, environment = directory / "store", directory / "lmdb"
    if not store.exists():
        offsets = np.arange(0, data.size + 1, data.shape[1], dtype=np.int64)
        with sharddb.Loader(store) as loader:
            loader.extend(keys, offsets, data.reshape(-1))
    if not environment.exists():
        order = np.argsort(keys)
        size = 4 * (data.size + 64 * len(keys)) + (1 << 20)
        with lmdb.open(str(environment), map_size=size, sync=False) as env, env.begin(write=True) as txn:
            cursor = txn.cursor()
            for at in order:
                cursor.put(int(keys[at]).to_bytes(8, "big"), data[at].tobytes(), append=True)
    return store, environment


def measure(rounds: int, candidates: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Returns the median seconds of each candidate over interleaved rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, candidate in candidates.items():
            begun = time.perf_counter()
            candidate()
            seconds[name].append(time.perf_counter() - begun)
    return {name: statistics.median(times) for name, times in seconds.items()}


def report(title: str, medians: dict[str, float], operations: int, base: str) -> None:
    print(f"\n{title}")
    for name, seconds in medians.items():
        rate = operations / seconds / 1e6
        print(f"  {name:32} {seconds / operations * 1e9:8.0f} ns  {rate:7.2f} M/s  {medians[base] / seconds:6.2f}x {base}")


def other_readers(store: Path, keys: list[int]) -> dict[str, Callable[[], Any]]:
    """The readers of the same shards that are installed."""
    found: dict[str, Callable[[], Any]] = {}
    generation = (store / "current").resolve()
    with sharddb.open(store) as db:
        spec = db.spec
    try:
        import tensorstore

        kv = tensorstore.KvStore.open(
            {
                "driver": "neuroglancer_uint64_sharded",
                "base": f"file://{generation}/",
                "metadata": spec,
                "context": {"cache_pool": {"total_bytes_limit": 1 << 30}},
            }
        ).result()
        encoded = [key.to_bytes(8, "big") for key in keys]

        def of_tensorstore() -> None:
            batch = tensorstore.Batch()
            values = [kv.read(key, batch=batch) for key in encoded]
            batch.submit()
            for value in values:
                value.result()

        found["TensorStore, batch"] = of_tensorstore
    except ImportError:
        pass
    try:
        from types import SimpleNamespace

        from cloudvolume.cacheservice import CacheService
        from cloudvolume.cloudvolume import SharedConfiguration
        from cloudvolume.datasource.precomputed.sharding import ShardingSpecification, ShardReader
        from cloudvolume.paths import extract

        path = f"file://{generation}"
        config = SharedConfiguration(
            cdn_cache=False, compress=True, compress_level=None, green=False, mip=0, parallel=1, progress=False,
            secrets=None, spatial_index_db=None, cache_locking=None, codec_threads=1,
        )  # fmt: skip
        cache = CacheService("", False, config, meta=SimpleNamespace(cloudpath=path, path=extract(path)))
        reader = ShardReader(path, cache, ShardingSpecification.from_dict(spec))
        few = keys[:100]

        def of_cloudvolume() -> None:
            for _ in range(len(keys) // len(few)):  # each call reads the indexes again: a sample shows the rate
                reader.get_data(few, path="", progress=False)

        found["CloudVolume, 100 keys per call"] = of_cloudvolume
    except ImportError:
        pass
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--value", type=int, default=100, help="bytes per value")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--directory", type=Path, help="where the databases are kept; default: a temporary directory")
    arguments = parser.parse_args()

    random = np.random.default_rng(1)
    keys = np.unique(random.integers(0, 1 << 64, arguments.pairs, np.uint64, endpoint=False))
    random.shuffle(keys)
    data = random.integers(0, 256, (len(keys), arguments.value), np.uint8)
    with tempfile.TemporaryDirectory() as temporary:
        directory = arguments.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        store, environment = build(directory, keys, data)
        run(store, environment, keys, data, arguments.rounds)


def run(
    store: Path, environment: Path, keys: np.ndarray[Any, Any], data: np.ndarray[Any, Any], rounds: int
) -> None:
    db = sharddb.open(store, mode="mmap")
    env = lmdb.open(str(environment), readonly=True, lock=False, readahead=False)
    txn = env.begin(buffers=False)
    print(f"{len(keys)} pairs of {data.shape[1]} bytes; {db!r}")

    for _ in range(2):  # two full passes warm both
        for start in range(0, len(keys), BATCH):
            values, _, found = db.get_ragged(keys[start : start + BATCH])
            assert found.all() and (values == data[start : start + BATCH].reshape(-1)).all()
        assert sum(len(value) for _, value in txn.cursor()) == data.size

    chosen = np.random.default_rng(2).integers(0, len(keys), (rounds, BATCH))
    batches = [keys[at] for at in chosen]
    integers = [batch.tolist() for batch in batches]
    encoded = [[key.to_bytes(8, "big") for key in batch] for batch in integers]
    for at, batch in zip(chosen, encoded, strict=True):
        assert [txn.get(key) for key in batch] == [row.tobytes() for row in data[at]]

    turn = iter_cycle(rounds)

    def lmdb_get() -> None:
        get = txn.get
        for key in encoded[turn("lmdb")]:
            get(key)

    def lmdb_getmulti() -> None:
        txn.cursor().getmulti(encoded[turn("getmulti")])

    def getitem() -> None:
        for key in integers[turn("getitem")]:
            db[key]

    def get() -> None:
        lookup = db.get
        for key in integers[turn("get")]:
            lookup(key)

    def get_many() -> None:
        db.get_many(batches[turn("get_many")])

    def get_ragged() -> None:
        db.get_ragged(batches[turn("get_ragged")])

    def get_into() -> None:
        db.get_into(batches[turn("get_into")], out)

    out = np.empty((BATCH, data.shape[1]), np.uint8)
    single = measure(rounds, {"py-lmdb txn.get": lmdb_get, "db[k]": getitem, "db.get(k)": get})
    report("one key at a time", single, BATCH, "py-lmdb txn.get")
    many = {
        "py-lmdb txn.get": lmdb_get,
        "py-lmdb cursor.getmulti": lmdb_getmulti,
        "db.get_many": get_many,
        "db.get_ragged": get_ragged,
        "db.get_into": get_into,
        **other_readers(store, integers[0]),
    }
    report(f"{BATCH} random keys in one call", measure(rounds, many), BATCH, "py-lmdb txn.get")
    report("all keys", measure(5, {"db.keys()": db.keys}), len(keys), "db.keys()")


def iter_cycle(rounds: int) -> Callable[[str], int]:
    """Returns a function that returns 0, 1, .. up to `rounds` and again, separately for each name."""
    turns: dict[str, int] = {}

    def turn(name: str) -> int:
        turns[name] = (turns.get(name, -1) + 1) % rounds
        return turns[name]

    return turn


if __name__ == "__main__":
    main()
