#!/usr/bin/env python3
"""Reads arrays and volumes that ShardDb wrote with zarr-python and TensorStore, and compares every element.

usage: check_zarr.py [--self-test] DIRECTORY

DIRECTORY has one directory per set: check.json states the expectation, `set` is the array or volume. With --self-test,
one byte of each set is changed in a copy, and it is a failure if no reader notices. The last line is
`N passed, N failed`.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy
import tensorstore
import zarr

SHAPE = (7, 6, 10)


def expected(check):
    """The elements, from the array that another program wrote or by rule, in the order of the array's axes."""
    if check["kind"] == "stack":
        z, y, x = numpy.indices(SHAPE)
        return (z * 100 + y * 10 + x + 1000).astype("uint16")
    return zarr.open_array(check["like"], mode="r")[...]


def readers(check, path):
    """The readers of a set, by name."""
    if check["kind"] == "volume":
        spec = {"driver": "neuroglancer_precomputed", "kvstore": {"driver": "file", "path": f"{path}/"}}
        # x, y, z, channel
        return {"tensorstore": lambda: open_tensorstore(spec)[..., 0].transpose()}
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"}}
    return {"zarr-python": lambda: zarr.open_array(str(path), mode="r")[...], "tensorstore": lambda: open_tensorstore(spec)}


def open_tensorstore(spec):
    return numpy.asarray(tensorstore.open(spec, open=True).result().read().result())


def same(found, wanted):
    wanted = numpy.asarray(wanted)
    found = numpy.asarray(found)
    return found.shape == wanted.shape and found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


def shard_files(path):
    return sorted(file for file in path.rglob("*") if file.is_file() and file.name not in ("zarr.json", "info"))


def damage_is_noticed(check, path, wanted):
    """Whether a reader returns something else or an error for a copy with the first byte of a file changed."""
    files = shard_files(path)
    if not files:
        return True
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "set"
        shutil.copytree(path, copy)
        damaged = copy / files[0].relative_to(path)
        content = bytearray(damaged.read_bytes())
        content = bytearray(byte ^ 0xFF for byte in content)
        damaged.write_bytes(content)
        for read in readers(check, copy).values():
            try:
                if same(read(), wanted):
                    return False
            except Exception:  # any error means that the damage was noticed
                pass
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("directory", type=Path)
    args = parser.parse_args()
    passed, failed = 0, 0
    for directory in sorted(args.directory.iterdir()):
        check = json.loads((directory / "check.json").read_text())
        wanted = expected(check)
        for name, read in readers(check, directory / "set").items():
            try:
                good, why = same(read(), wanted), "other elements"
            except Exception as error:
                good, why = False, error
            passed, failed = passed + good, failed + (not good)
            if not good:
                print(f"FAIL {directory.name}, {name}: {why}")
        if args.self_test and not damage_is_noticed(check, directory / "set", wanted):
            failed += 1
            print(f"FAIL {directory.name}: nobody notices a damaged file")
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
