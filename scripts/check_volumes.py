#!/usr/bin/env python3
"""Builds and imports volumes with the command and reads their voxels with TensorStore and CloudVolume.

usage: check_volumes.py SHARDDB

SHARDDB   the command

A volume of random voxels is built from the encoded chunks of one scale, named by their keys, next to a scale that has no
data. Another one is written by TensorStore and imported. Both readers must find every voxel in STORE/current, and must not
if the chunks of two keys are exchanged. The last line is `N passed, N failed`; exit 1 if any failed.
"""

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorstore
from cloudvolume import CloudVolume
from programs import limited

SIZE, OFFSET, CHUNK = (100, 70, 50), (10, 20, 30), (32, 16, 16)

SHARDING = {
    "@type": "neuroglancer_uint64_sharded_v1",
    "preshift_bits": 2,
    "hash": "identity",
    "minishard_bits": 2,
    "shard_bits": 2,
    "minishard_index_encoding": "gzip",
    "data_encoding": "gzip",
}


def scale(key, factor, sharding):
    return {
        "key": key,
        "size": [max(1, size // factor) for size in SIZE],
        "voxel_offset": list(OFFSET),
        "resolution": [8 * factor] * 3,
        "chunk_sizes": [list(CHUNK)],
        "encoding": "raw",
        "sharding": sharding,
    }


def volume_info(sharding):
    return {
        "@type": "neuroglancer_multiscale_volume",
        "type": "image",
        "data_type": "uint16",
        "num_channels": 1,
        "scales": [scale("16_16_16", 2, SHARDING), scale("8_8_8", 1, sharding)],
        "kept": {"as": ["given", 1.5]},
    }


def morton(position, grid):
    """The compressed Morton code, by the text of the format."""
    code = bit = 0
    for level in range(64):
        for value, count in zip(position, grid):
            if level < (count - 1).bit_length():
                code |= (value >> level & 1) << bit
                bit += 1
    return code


def write_chunks(voxels, directory):
    """Writes one file per chunk: its key, and its voxels with x fastest."""
    directory.mkdir()
    grid = [-(-size // chunk) for size, chunk in zip(SIZE, CHUNK)]
    keys = []
    for position in itertools.product(*map(range, grid)):
        box = tuple(slice(at * chunk, (at + 1) * chunk) for at, chunk in zip(position, CHUNK))
        keys.append(morton(position, grid))
        (directory / str(keys[-1])).write_bytes(voxels[box].tobytes(order="F"))
    assert len(set(keys)) == len(keys)
    return keys


def spec_of(path, index):
    return {"driver": "neuroglancer_precomputed", "kvstore": f"file://{path}/", "scale_index": index}


def by_tensorstore(path, index):
    return tensorstore.open(spec_of(path, index), read=True, open=True).result().read().result()[..., 0]


def by_cloudvolume(path, index):
    volume = CloudVolume(f"precomputed://file://{path}", mip=index, fill_missing=True, progress=False)
    return np.asarray(volume[volume.bounds])[..., 0]


def read_equally(path, index, voxels):
    """The names of the readers that do not find exactly these voxels."""
    for name, read in [("TensorStore", by_tensorstore), ("CloudVolume", by_cloudvolume)]:
        try:
            if not np.array_equal(read(path, index), voxels):
                yield f"{name}: other voxels"
        except Exception as error:
            yield f"{name}: {error}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sharddb = str(Path(sys.argv[1]).resolve())

    def run(*args):
        subprocess.run(limited([sharddb, *args]), check=True)

    passed = failed = 0

    def check(name, differences, is_right=True):
        nonlocal passed, failed
        print(f"{name}: {len(differences)} differences, expected {'none' if is_right else 'some'}", *differences, sep="\n  ")
        passed, failed = (passed + 1, failed) if is_right == (not differences) else (passed, failed + 1)

    rng = np.random.default_rng(1)
    voxels = rng.integers(0, 2**16, SIZE, dtype=np.uint16)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary).resolve()
        keys = write_chunks(voxels, work / "chunks")
        for name, sharding, options in [
            ("planned", None, ()),
            ("of the scale", SHARDING, ()),
            ("given", None, ("--sharding", json.dumps(dict(SHARDING, data_encoding="raw", minishard_bits=9)))),
        ]:
            store = work / name.replace(" ", "-")
            info = work / "given.info"
            info.write_text(json.dumps(volume_info(sharding)))
            run("build", store, "--input", work / "chunks", "--info", info, "--sharding-at", "/scales/1", *options)
            check(f"built, sharding {name}", list(read_equally(store / "current", 1, voxels)))
            found, expected = json.loads((store / "current/info").read_text()), volume_info(sharding)
            found["scales"][1].pop("sharddb")
            expected["scales"][1]["sharding"] = found["scales"][1]["sharding"]
            check(f"built, sharding {name}: info", [] if found == expected else ["other members"])
        exchanged = work / "chunks"
        one, other = (exchanged / str(key) for key in keys[:2])
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
        run("build", work / "planned", "--input", exchanged, "--info", work / "given.info", "--sharding-at", "/scales/1")
        check("exchanged chunks", list(read_equally(work / "planned/current", 1, voxels)), is_right=False)

        metadata = {
            "multiscale_metadata": {"type": "image", "data_type": "uint16", "num_channels": 1},
            "scale_metadata": {
                "key": "8_8_8",
                "size": SIZE,
                "voxel_offset": OFFSET,
                "resolution": [8, 8, 8],
                "chunk_size": CHUNK,
                "encoding": "raw",
                "sharding": SHARDING,
            },
        }
        spec = {"driver": "neuroglancer_precomputed", "kvstore": f"file://{work}/foreign/", **metadata}
        foreign = tensorstore.open(spec, create=True).result()
        foreign[..., 0].write(voxels).result()
        run("import", work / "foreign", work / "imported")
        check("imported", list(read_equally(work / "imported/current", 0, voxels)))
        run("import", work / "foreign", work / "remote", "--profile", "remote")
        check("imported with another sharding", list(read_equally(work / "remote/current", 0, voxels)))
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
