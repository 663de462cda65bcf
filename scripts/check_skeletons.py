#!/usr/bin/env python3
"""Builds a data set of skeletons with the command of the README and reads it with CloudVolume.

usage: check_skeletons.py SHARDDB [BYFILE]

SHARDDB   the command
BYFILE    a directory of encoded skeletons, one file per segment; default: 300 generated ones

Every skeleton that CloudVolume reads must have the vertices, edges and radii of its file; with an --info that describes
the types, also these. A data set that is built with another transform must not. The last line is `N passed, N failed`; exit 1 if any failed.
"""

import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from cloudvolume.datasource.precomputed.skeleton import PrecomputedSkeletonSource
from programs import limited

GENERATED = 300


def encode(vertices):
    """A path of random positions, with radii and types, and some bytes above 127."""
    points = [[random.uniform(-1e6, 1e6) for _ in range(3)] for _ in range(vertices)]
    edges = [(at, at + 1) for at in range(vertices - 1)]
    return b"".join(
        [
            struct.pack("<II", vertices, len(edges)),
            *(struct.pack("<3f", *point) for point in points),
            *(struct.pack("<2I", *edge) for edge in edges),
            *(struct.pack("<f", random.uniform(0, 500)) for _ in points),
            bytes(random.randrange(256) for _ in points),
        ]
    )


def generate(directory):
    random.seed(1)
    directory.mkdir()
    for number in range(GENERATED):
        segment = random.randrange(2**63) if number else 2**63 - 1
        (directory / str(segment)).write_bytes(encode(random.randrange(2, 200)))


READ = ("vertices", "edges", "radius", "vertex_types")


def decode(encoded):
    """The arrays of READ, by the text of the format and not by CloudVolume."""
    vertices, edges = struct.unpack_from("<II", encoded)
    points = np.frombuffer(encoded, "<f4", 3 * vertices, 8).reshape(-1, 3)
    pairs = np.frombuffer(encoded, "<u4", 2 * edges, 8 + 12 * vertices).reshape(-1, 2)
    at = 8 + 12 * vertices + 8 * edges
    return points, pairs, np.frombuffer(encoded, "<f4", vertices, at), np.frombuffer(encoded, "u1", vertices, at + 4 * vertices)


def build(sharddb, byfile, store, *options):
    subprocess.run(limited([sharddb, "build", store, "--input", byfile, *options]), check=True)


def differences(byfile, store, names):
    """Each segment that CloudVolume does not read, or not as it is in its file."""
    source = PrecomputedSkeletonSource.from_cloudpath(f"file://{store}/current")
    segments = sorted(int(path.name) for path in byfile.iterdir() if path.name.isdigit())
    for segment in segments:
        expected = decode((byfile / str(segment)).read_bytes())
        try:
            found = source.get(segment)
            found = [getattr(found, name) for name in names]
        except Exception as error:
            yield f"segment {segment}: {error}"
            continue
        if not all(np.array_equal(one, other) for one, other in zip(expected, found)):
            yield f"segment {segment}: expected the skeleton of its file, found another"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sharddb = Path(sys.argv[1]).resolve()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary).resolve()
        byfile = Path(sys.argv[2]).resolve() if len(sys.argv) == 3 else work / "byfile"
        if len(sys.argv) == 2:
            generate(byfile)
        kind = ("--kind", "skeletons", "--profile", "remote")
        build(sharddb, byfile, work / "raw", *kind)
        build(sharddb, byfile, work / "gzip", *kind, "--data-encoding", "gzip")
        info = json.loads((work / "raw/current/info").read_text())
        info["vertex_attributes"].append({"id": "vertex_types", "data_type": "uint8", "num_components": 1})
        (work / "types.info").write_text(json.dumps(info))
        build(sharddb, byfile, work / "types", "--kind", "skeletons", "--info", work / "types.info")
        info["transform"][0] = 2
        (work / "other.info").write_text(json.dumps(info))
        build(sharddb, byfile, work / "other", "--info", work / "other.info")
        for name, read, is_right in [
            ("raw", READ[:3], True),
            ("gzip", READ[:3], True),
            ("types", READ, True),
            ("other", READ, False),
        ]:
            found = list(differences(byfile, work / name, read))
            expected = "none" if is_right else "some"
            print(f"{name}: {len(found)} differences, expected {expected}", *(found[:5] if is_right else ()), sep="\n  ")
            passed, failed = (passed + 1, failed) if is_right == (not found) else (passed, failed + 1)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
