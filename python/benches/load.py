#!/usr/bin/env python3
"""The rate of `Loader.extend` from NumPy arrays, beside the Rust loader with the same pairs.

usage: load.py [KEYS [VALUE_BYTES [ROUNDS]]]

Run it with a release build of the package. Each round builds a store with each, in alternating order, without syncs, on
all cores. It prints the rates in MB/s of keys and values, of insertion alone and of the whole build, and their ratios.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sharddb

PACKAGE = Path(__file__).resolve().parent.parent


def keys_of(count: int) -> NDArray[np.uint64]:
    """The keys of `load.rs`: SplitMix64."""
    mixed = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def load_python(store: Path, keys: NDArray[Any], offsets: NDArray[Any], data: NDArray[Any]) -> tuple[float, float]:
    begun = time.perf_counter()
    loader = sharddb.Loader(store, durable=False)
    loader.extend(keys, offsets, data)
    inserted = time.perf_counter() - begun
    assert loader.finish().keys == len(keys)
    return inserted, time.perf_counter() - begun


def load_rust(store: Path, keys: int, value_bytes: int) -> tuple[float, float]:
    command = ["cargo", "bench", "-q", "--bench", "load", "--", str(store), str(keys), str(value_bytes)]
    output = subprocess.run(command, cwd=PACKAGE, check=True, capture_output=True, text=True).stdout.split()
    assert int(output[2]) == keys
    return float(output[0]), float(output[1])


def main() -> None:
    count, value_bytes, rounds = [*map(int, sys.argv[1:]), *(2_000_000, 100, 5)[len(sys.argv) - 1 :]]
    keys = keys_of(count)
    offsets = np.arange(count + 1, dtype=np.int64) * value_bytes
    patterns = keys.astype("<u8").view(np.uint8).reshape(count, 8)
    data = np.tile(patterns, (1, -(-value_bytes // 8)))[:, :value_bytes].ravel()
    times: dict[str, list[tuple[float, float]]] = {"python": [], "rust": []}
    with tempfile.TemporaryDirectory() as work:
        stores = {name: Path(work) / name for name in times}
        for number in range(rounds):
            for store in stores.values():
                shutil.rmtree(store, ignore_errors=True)
            runs: list[Callable[[], None]] = [
                lambda: times["rust"].append(load_rust(stores["rust"], count, value_bytes)),
                lambda: times["python"].append(load_python(stores["python"], keys, offsets, data)),
            ]
            for run in runs if number % 2 else reversed(runs):
                run()
        assert not sharddb.diff(stores["python"], stores["rust"], bytes=True)
    for at, what in enumerate(("insert", "whole")):
        for name, choose in (("median", statistics.median), ("best", min)):
            python, rust = (count * (8 + value_bytes) / 1e6 / choose([run[at] for run in of]) for of in times.values())
            print(f"{what}, {name}: python {python:.0f} MB/s, rust {rust:.0f} MB/s, ratio {python / rust:.2f}")


if __name__ == "__main__":
    main()
