#!/usr/bin/env python3
"""Copies a precomputed dataset and rebuilds everything sharded in it with the command sharddb.

usage: rebuild_sharded.py --sharddb BINARY [--profile PROFILE] DATASET COPY

Every `info` below DATASET is searched for "sharding" members. The shards of each are exported and built with the
specification that the profile plans, or else with the same one; then the new shards and the new "sharding" object
replace the old ones. Values keep their encoding and their preambles (mesh fragments).
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from programs import limited


def nested_members(value, pointer=""):
    """JSON pointer and object of all objects below `value` that have a member "sharding"."""
    if isinstance(value, dict):
        if isinstance(value.get("sharding"), dict):
            yield pointer, value
        for name, child in value.items():
            yield from nested_members(child, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for at, child in enumerate(value):
            yield from nested_members(child, f"{pointer}/{at}")


class Rebuild:
    def __init__(self, sharddb, profile):
        self.sharddb = sharddb
        self.profile = profile

    def dataset(self, root):
        rebuilt = 0
        for path in sorted(root.rglob("info")):
            info = json.loads(path.read_text())
            for pointer, member in list(nested_members(info)):
                self.member(root, path, pointer, member)
                rebuilt += 1
            if not isinstance(info.get("sharding"), dict):  # the loader has written that one
                path.write_text(json.dumps(info, indent=1))
        return rebuilt

    def member(self, root, info, pointer, member):
        """Rebuilds one sharded directory and changes the specification in `member`."""
        shards = info.parent / (member["key"] if pointer else "")
        # next to the copy: export refuses to write into its input, and shards are renamed within one file system
        with tempfile.TemporaryDirectory(dir=root.parent) as scratch:
            pairs, store = Path(scratch) / "pairs.bin2", Path(scratch) / "store"
            at = ["--sharding-at", pointer] if pointer else []
            self.run("export", info.parent, *at, "--format", "bin2", "--output", pairs)
            given = [] if pointer else ["--info", info]
            self.run("build", store, "--input", pairs, *self.specification(member["sharding"]), *given)
            generation = store / "current"
            for old in shards.glob("*.shard"):
                old.unlink()
            for new in generation.glob("*.shard"):
                new.rename(shards / new.name)
            member["sharding"] = json.loads((generation / "info").read_text())["sharding"]
            if not pointer:
                (generation / "info").replace(info)
        sharding = {name: value for name, value in member["sharding"].items() if name != "@type"}
        print(f"{info.relative_to(info.parents[1])}{pointer}: {sharding}", flush=True)

    def specification(self, sharding):
        if not self.profile:
            return ["--sharding", json.dumps(sharding)]
        return ["--profile", self.profile, "--data-encoding", sharding.get("data_encoding", "raw")]

    def run(self, *arguments):
        subprocess.run(limited([self.sharddb, *arguments, "--quiet"]), check=True)


def copy_writable(source, target):
    """Copies a tree that may be read-only to a writable one."""
    target.mkdir()
    for path in source.iterdir():
        copy = copy_writable if path.is_dir() else shutil.copyfile
        copy(path, target / path.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sharddb", required=True, metavar="BINARY")
    parser.add_argument("--profile")
    parser.add_argument("dataset", type=Path)
    parser.add_argument("copy", type=Path)
    arguments = parser.parse_args()
    copy_writable(arguments.dataset, arguments.copy)
    if not Rebuild(arguments.sharddb, arguments.profile).dataset(arguments.copy):
        sys.exit(f'expected an info with "sharding" below {arguments.dataset}, found none')


if __name__ == "__main__":
    main()
