#!/usr/bin/env python3
"""The rate of `db.keys()`, beside the Rust iterator that collects the same keys.

usage: keys.py STORE [ROUNDS]

Run it with a release build of the package. Rounds alternate between both. It prints the rates and their ratio.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import sharddb

PACKAGE = Path(__file__).resolve().parent.parent


def main() -> None:
    store, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
    db = sharddb.open(store, mode="mmap")
    keys = db.keys()
    python, rust = [], []
    for _ in range(rounds):
        begun = time.perf_counter()
        assert len(db.keys()) == len(keys)
        python.append(time.perf_counter() - begun)
        command = ["cargo", "bench", "-q", "--bench", "keys", "--", store, "1"]
        output = subprocess.run(command, cwd=PACKAGE, check=True, capture_output=True, text=True).stdout.split()
        assert [int(field) for field in output[:2]] == [len(keys), int(keys.sum(dtype=np.uint64))]
        rust.append(float(output[2]))
    rates = [len(keys) / statistics.median(seconds) / 1e6 for seconds in (python, rust)]
    print(f"python {rates[0]:.1f} M keys/s, rust {rates[1]:.1f} M keys/s, ratio {rates[0] / rates[1]:.2f}")


if __name__ == "__main__":
    main()
