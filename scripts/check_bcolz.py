#!/usr/bin/env python3
"""Reads what ShardDb wrote with bcolz, bloscpack and a script that follows the RFC of bcolz, and compares all bytes.

usage: check_bcolz.py [--self-test] DIRECTORY

DIRECTORY has one directory per set: check.json describes it, `rows` (for tables rows.<column>) is its expected content,
`set` is the array, table or file. With --self-test, one byte of each set is changed in a copy, and it is a failure
if no reader notices. The last line is `N passed, N failed`.
"""

import argparse
import collections
import collections.abc
import json
import shutil
import sys
import tempfile
from pathlib import Path

# the last release of bloscpack is older than the Python versions that moved these
for name in ("MutableMapping", "Mapping", "Iterable", "Callable"):
    if not hasattr(collections, name):
        setattr(collections, name, getattr(collections.abc, name))

import bcolz  # noqa: E402
import bloscpack  # noqa: E402
import numpy  # noqa: E402

import check_superchunks  # noqa: E402


def carray(path):
    array = bcolz.open(rootdir=str(path), mode="r")
    return {"": array[:].tobytes()}


def ctable(path):
    table = bcolz.open(rootdir=str(path), mode="r")
    return {name: table[name][:].tobytes() for name in table.names}


def bloscpack_file(path):
    if json.loads((path.parent / "check.json").read_text())["metadata"]:
        return {"": bloscpack.unpack_ndarray_from_file(str(path)).tobytes()}
    return {"": bloscpack.unpack_bytes_from_file(str(path))[0]}


def superchunks(path):
    names = sorted(entry.name for entry in (path / "data").iterdir() if entry.is_dir())
    return {name: check_superchunks.rows(path, name) for name in names or [""]}


def superchunk_files(path):
    """The superchunks of an array without reserved room, each read by bloscpack itself."""
    files = sorted((path / "data").glob("__*__.bin"), key=lambda file: int(file.name[2:-6]))
    return {"": b"".join(bloscpack.unpack_bytes_from_file(str(file))[0] for file in files)}


READERS = {
    "carray": [carray],
    "ctable": [ctable],
    "bloscpack": [bloscpack_file],
    "superchunks": [superchunks, superchunk_files],
    "superchunks-reserve": [superchunks],
    "superchunks-table": [superchunks],
}


def expected(directory):
    if (directory / "rows").exists():
        return {"": (directory / "rows").read_bytes()}
    return {file.name[len("rows.") :]: file.read_bytes() for file in directory.glob("rows.*")}


def damage_is_noticed(reader, directory):
    """Whether a reader returns other bytes or an error for a copy with a byte of a chunk changed."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "copy"
        shutil.copytree(directory, copy)
        files = sorted(file for pattern in ("*.blp", "*.bin") for file in copy.rglob(pattern) if file.stat().st_size > 64)
        if not files:
            return True
        data = bytearray(files[0].read_bytes())
        data[-20] ^= 0x55  # of the last chunk
        files[0].write_bytes(data)
        try:
            return reader(path_of(copy)) != expected(directory)
        except Exception:
            return True


def path_of(directory):
    file = directory / "set.blp"
    return file if file.exists() else directory / "set"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    print(f"bcolz {bcolz.__version__}, bloscpack {bloscpack.__version__}, numpy {numpy.__version__}")
    passed = failed = 0
    for directory in sorted(path.parent for path in arguments.directory.glob("*/check.json")):
        kind = json.loads((directory / "check.json").read_text())["kind"]
        for reader in READERS[kind]:
            try:
                fine = reader(path_of(directory)) == expected(directory)
                reason = "" if fine else ": other bytes"
            except Exception as error:  # any error of a reader is a finding
                fine, reason = False, f": {type(error).__name__}: {error}"
            if fine and arguments.self_test and not damage_is_noticed(reader, directory):
                fine, reason = False, ": a changed byte went unnoticed"
            passed, failed = passed + fine, failed + (not fine)
            if not fine:
                print(f"FAILED {directory.name} by {reader.__name__}{reason}")
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
