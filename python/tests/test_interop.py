"""TensorStore and CloudVolume read what a loader wrote, pair by pair."""

import importlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharddb

tensorstore = pytest.importorskip("tensorstore")
cloudvolume = pytest.importorskip("cloudvolume")

PAIRS = {key * 2654435761 % 2**64: b"%d" % key * (key % 7) for key in range(1000)} | {0: b"zero", 2**64 - 1: b"last"}


def by_tensorstore(directory: Path) -> dict[int, bytes]:
    """All pairs of a data set, as TensorStore lists and reads them."""
    base = {"driver": "file", "path": f"{directory.resolve()}/"}
    sharding = json.loads((directory / "info").read_text())["sharding"]
    spec = {"driver": "neuroglancer_uint64_sharded", "base": base, "metadata": sharding}
    store = tensorstore.KvStore.open(spec).result()
    values = {int.from_bytes(key, "big"): store.read(key) for key in store.list().result()}
    return {key: value.result().value for key, value in values.items()}


@pytest.mark.parametrize("profile", ["local", "remote", "cloudvolume"])
@pytest.mark.parametrize("data_encoding", ["raw", "gzip"])
def test_every_profile_and_encoding(tmp_path: Path, profile: Any, data_encoding: Any) -> None:
    with sharddb.Loader(tmp_path / "store", profile=profile, data_encoding=data_encoding) as loader:
        loader.extend(PAIRS)
    assert by_tensorstore(tmp_path / "store/current") == PAIRS


def test_after_update_merge_and_reshard(tmp_path: Path) -> None:
    pairs = dict(PAIRS)
    with sharddb.Loader(tmp_path / "store", max_shard_bytes=2000) as loader:
        loader.extend(pairs)
    sharddb.update(tmp_path / "store", {5: b"five"}, [0])
    pairs[5] = b"five"
    del pairs[0]
    assert by_tensorstore(tmp_path / "store/current") == pairs
    with sharddb.Loader(tmp_path / "more") as loader:
        loader[0] = b"again"
    pairs[0] = b"again"
    sharddb.merge([tmp_path / "store", tmp_path / "more"], tmp_path / "all")
    assert by_tensorstore(tmp_path / "all/current") == pairs
    sharddb.reshard(tmp_path / "all", tmp_path / "all", profile="cloudvolume", data_encoding="gzip")
    assert by_tensorstore(tmp_path / "all/current") == pairs


def skeleton(number: int) -> tuple[list[tuple[float, float, float]], bytes]:
    """Vertices of a path, and the path as precomputed skeletons have it."""
    vertices = [(float(number), float(at), 0.5) for at in range(number % 5 + 2)]
    edges = [(at, at + 1) for at in range(len(vertices) - 1)]
    encoded = struct.pack("<II", len(vertices), len(edges))
    encoded += b"".join(struct.pack("<3f", *vertex) for vertex in vertices)
    return vertices, encoded + b"".join(struct.pack("<2I", *edge) for edge in edges)


def test_skeletons_by_cloudvolume(tmp_path: Path) -> None:
    info = {
        "@type": "neuroglancer_skeletons",
        "transform": [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0],
        "vertex_attributes": [],
    }
    segments = [10**15 + number for number in range(300)]
    encoded = [skeleton(number)[1] for number in range(300)]
    offsets = np.cumsum([0, *map(len, encoded)])
    with sharddb.Loader(tmp_path / "store", profile="cloudvolume", data_encoding="gzip", info=info) as loader:
        loader.extend(np.array(segments, ">u8"), offsets, b"".join(encoded))
    skeletons = importlib.import_module("cloudvolume.datasource.precomputed.skeleton")
    source = skeletons.PrecomputedSkeletonSource.from_cloudpath(f"file://{(tmp_path / 'store/current').resolve()}")
    for number in (0, 7, 299):
        assert np.array_equal(source.get(segments[number]).vertices, np.array(skeleton(number)[0], np.float32))


def test_a_volume(tmp_path: Path) -> None:
    """Chunks under compressed Morton codes, as the format numbers them, are a volume of TensorStore and CloudVolume."""
    sharding = {
        "@type": "neuroglancer_uint64_sharded_v1",
        "preshift_bits": 1,
        "hash": "identity",
        "minishard_bits": 1,
        "shard_bits": 1,
        "minishard_index_encoding": "gzip",
        "data_encoding": "gzip",
    }
    scale = {
        "key": "8_8_8",
        "size": [8, 8, 8],
        "chunk_sizes": [[4, 4, 4]],
        "resolution": [8, 8, 8],
        "voxel_offset": [0, 0, 0],
        "encoding": "raw",
        "sharding": sharding,
    }
    info = {
        "@type": "neuroglancer_multiscale_volume",
        "type": "image",
        "data_type": "uint16",
        "num_channels": 1,
        "scales": [scale],
    }
    voxels = np.random.default_rng(19).integers(0, 2**16, (8, 8, 8), dtype=np.uint16)
    with sharddb.Loader(tmp_path / "store", info=info, sharding_at="/scales/0") as loader:
        for x, y, z in np.ndindex(2, 2, 2):
            chunk = voxels[4 * x : 4 * x + 4, 4 * y : 4 * y + 4, 4 * z : 4 * z + 4]
            loader[x + 2 * y + 4 * z] = chunk.tobytes("F")
    directory = (tmp_path / "store/current").resolve()
    spec = {"driver": "neuroglancer_precomputed", "kvstore": {"driver": "file", "path": f"{directory}/"}}
    assert np.array_equal(tensorstore.open(spec).result().read().result()[..., 0], voxels)
    volume = cloudvolume.CloudVolume(f"file://{directory}", progress=False)
    assert np.array_equal(np.asarray(volume[:, :, :])[..., 0], voxels)
