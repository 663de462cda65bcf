#!/usr/bin/env python3
"""Changes data sets with the command, and reads the results with TensorStore and CloudVolume.

usage: check_living.py SHARDDB

SHARDDB   the command

The data sets are those of other programs in tests/data/neuroglancer/seg. What a result must have is read from them with
TensorStore. The last line is `N passed, N failed`; exit 1 if any failed.
"""

import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorstore
from cloudvolume.datasource.precomputed.skeleton import PrecomputedSkeletonSource
from programs import limited

SEG = Path(__file__).resolve().parent.parent / "tests/data/neuroglancer/seg"
SKELETONS = SEG / "skeletons"


def pairs(directory):
    """All pairs of a data set, as TensorStore lists and reads them."""
    base = {"driver": "file", "path": f"{directory.resolve()}/"}
    sharding = json.loads((directory / "info").read_text())["sharding"]
    spec = {"driver": "neuroglancer_uint64_sharded", "base": base, "metadata": sharding}
    store = tensorstore.KvStore.open(spec).result()
    values = {int.from_bytes(key, "big"): store.read(key) for key in store.list().result()}
    return {key: value.result().value for key, value in values.items()}


def skeleton():
    """A path of three vertices, with a radius of each as in `info`."""
    points = [(1.0, 2.0, 3.0), (4.0, 5.0, 6.0), (7.0, 8.0, 9.5)]
    encoded = struct.pack("<II", len(points), 2) + b"".join(struct.pack("<3f", *point) for point in points)
    encoded += struct.pack("<4I", 0, 1, 1, 2)
    for attribute in json.loads((SKELETONS / "info").read_text()).get("vertex_attributes", []):
        size = np.dtype(attribute["data_type"]).itemsize * attribute["num_components"]
        encoded += bytes(size * len(points))
    return points, encoded


def vertices(directory, segments):
    """The vertices of segments, as CloudVolume reads them."""
    source = PrecomputedSkeletonSource.from_cloudpath(f"file://{directory.resolve()}")
    return {segment: source.get(segment).vertices for segment in segments}


def same_vertices(found, expected):
    return found.keys() == expected.keys() and all(np.allclose(found[key], expected[key]) for key in found)


def one_key_changes(sharddb, work):
    """A foreign data set of skeletons with another value of one key, in one command."""
    old = pairs(SKELETONS)
    segments = sorted(old)
    changed = segments[len(segments) // 2]
    points, encoded = skeleton()
    (work / "fixed").mkdir()
    (work / "fixed" / str(changed)).write_bytes(encoded)
    sharddb("update", work / "store", "--base", SKELETONS, "--input", work / "fixed")
    yield "update: TensorStore", pairs(work / "store/current") == {**old, changed: encoded}
    some = segments[:20] + [segments[-1]]
    found = vertices(work / "store/current", [*some, changed])
    is_new = np.allclose(found.pop(changed), transformed(points))
    yield "update: CloudVolume, the changed key", is_new
    yield "update: CloudVolume, other keys", same_vertices(found, vertices(SKELETONS, some))

    # the store itself again, by linking what has no change
    sharddb("delete", work / "store", str(changed))
    del old[changed]
    yield "delete: TensorStore", pairs(work / "store/current") == old


def transformed(points):
    """Positions as CloudVolume returns them, by the transform of `info`."""
    matrix = np.array(json.loads((SKELETONS / "info").read_text())["transform"]).reshape(3, 4)
    return np.array(points) @ matrix[:, :3].T + matrix[:, 3]


def a_subset(sharddb, work):
    """Some pairs of a foreign data set in a new store, in one command."""
    old = pairs(SKELETONS)
    wanted = sorted(old)[::100]
    (work / "keys.txt").write_text("".join(f"{key}\n" for key in wanted))
    sharddb("copy", SKELETONS, work / "some", "--keys", work / "keys.txt")
    yield "copy --keys: TensorStore", pairs(work / "some/current") == {key: old[key] for key in wanted}
    found, expected = vertices(work / "some/current", wanted), vertices(SKELETONS, wanted)
    yield "copy --keys: CloudVolume", same_vertices(found, expected)
    first, last = wanted[2], wanted[5]
    sharddb("copy", SKELETONS, work / "range", "--range", f"{first}..{last}")
    yield "copy --range: TensorStore", pairs(work / "range/current") == {
        key: value for key, value in old.items() if first <= key < last
    }


def other_specifications(sharddb, work):
    """The same pairs under another specification, and two parts as one store."""
    old = pairs(SKELETONS)
    middle = sorted(old)[len(old) // 2]
    sharddb("reshard", SKELETONS, work / "raw", "--profile", "remote", "--data-encoding", "raw")
    yield "reshard: TensorStore", pairs(work / "raw/current") == old
    sharddb("copy", SKELETONS, work / "low", "--range", f"..{middle}")
    sharddb("copy", work / "raw", work / "high", "--range", f"{middle}..")
    sharddb("merge", work / "all", work / "low", work / "high")
    yield "merge: TensorStore", pairs(work / "all/current") == old


def a_chunk_changes(sharddb, work):
    """A foreign volume with another chunk, in one command."""

    def voxels(directory):
        spec = {"driver": "neuroglancer_precomputed", "kvstore": {"driver": "file", "path": f"{directory.resolve()}/"}}
        return tensorstore.open(spec).result().read().result()

    expected = voxels(SEG).copy()
    scale = json.loads((SEG / "info").read_text())["scales"][0]
    shape = scale["chunk_sizes"][0]
    chunk = np.arange(np.prod(shape), dtype=expected.dtype).reshape(shape, order="F")
    expected[: shape[0], : shape[1], : shape[2], 0] = chunk
    (work / "chunk").mkdir()
    (work / "chunk/0").write_bytes(chunk.tobytes("F"))  # the chunk at the origin has key 0
    base = ("--base", SEG, "--sharding-at", "/scales/0")
    sharddb("update", work / "volume", *base, "--input", work / "chunk")
    yield "update of a volume: TensorStore", np.array_equal(voxels(work / "volume/current"), expected)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    command = Path(sys.argv[1]).resolve()

    def sharddb(*args):
        subprocess.run(limited([command, *args, "-q"]), check=True)

    passed = failed = 0
    for job in (one_key_changes, a_chunk_changes, a_subset, other_specifications):
        with tempfile.TemporaryDirectory() as work:
            for name, is_right in job(sharddb, Path(work)):
                print(f"{'ok  ' if is_right else 'FAIL'}  {name}")
                passed, failed = (passed + 1, failed) if is_right else (passed, failed + 1)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
