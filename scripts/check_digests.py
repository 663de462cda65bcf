#!/usr/bin/env python3
"""Computes the digests that the manifests of generations state, by the package xxhash, and compares them.

    scripts/check_digests.py GENERATION..

The functions are those of docs/format.md. Exit status: 0 if all digests are stated and equal, 1 if not.
"""

import json
import struct
import sys
from pathlib import Path

import xxhash


def shard_digest(shard, minishards):
    index, body = shard[: 16 * minishards], shard[16 * minishards :]
    of_index = xxhash.xxh3_128()
    for number in range(minishards):
        entry = index[16 * number :][:16]
        if any(entry):
            of_index.update(struct.pack("<Q", number) + entry)
    return xxhash.xxh3_128(body + of_index.digest()).hexdigest()


def digests(generation):
    """The digests of `info`, the auxiliary files and the shards of a generation."""
    manifest = json.loads((generation / "manifest.json").read_text())
    sharding = manifest["sharding"]
    digits = (sharding["shard_bits"] + 3) // 4
    shards = generation / manifest.get("nested", {}).get("shards_in", "")
    for name in ["info", *(row[0] for row in manifest.get("auxiliary", []))]:
        yield name, xxhash.xxh3_128((generation / name).read_bytes()).hexdigest()
    for row in manifest["shards"]:
        path = shards / f"{row[0]:0{digits}x}.shard"
        yield path.name, shard_digest(path.read_bytes(), 1 << sharding["minishard_bits"])


def main():
    compared, failed = 0, 0
    for generation in map(Path, sys.argv[1:]):
        stated = json.loads((generation / "manifest.json").read_text()).get("digests", [])
        found = list(digests(generation))
        if len(stated) != len(found):
            print(f"FAIL {generation}: {len(stated)} digests for {len(found)} files")
            failed += 1
        for digest, (name, expected) in zip(stated, found):
            compared += 1
            if digest != expected:
                print(f"FAIL {generation}/{name}: expected {expected}, found {digest}")
                failed += 1
    print(f"{compared - failed} passed, {failed} failed")
    return 1 if failed or compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
