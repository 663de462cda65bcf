"""``sharddb.neuroglancer.SkeletonSource``: the skeletons that neuroglancer-python serves are those that CloudVolume reads."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sharddb

neuroglancer = pytest.importorskip("neuroglancer")
cloudvolume = pytest.importorskip("cloudvolume")

from sharddb.neuroglancer import SkeletonSource  # noqa: E402

SEGMENTATION = Path(__file__).resolve().parents[2] / "tests" / "data" / "neuroglancer" / "seg"
ATTRIBUTES = [
    {"id": "radius", "data_type": "float32", "num_components": 1},
    {"id": "kind", "data_type": "uint8", "num_components": 1},
    {"id": "direction", "data_type": "int16", "num_components": 3},
]


def test_skeletons_equal_those_of_cloudvolume() -> None:
    source = SkeletonSource(SEGMENTATION / "skeletons")
    cv = cloudvolume.CloudVolume(f"precomputed://file://{SEGMENTATION}", progress=False)
    labels = cv.skeleton.list().tolist()
    assert labels
    for label in labels:
        found, expected = source.get_skeleton(label), cv.skeleton.get(label)
        np.testing.assert_array_equal(found.vertex_positions, expected.vertices)
        np.testing.assert_array_equal(found.edges, expected.edges)


def test_neuroglancer_serves_the_stored_bytes() -> None:
    source = SkeletonSource(SEGMENTATION / "skeletons")  # its transform is the identity
    label = int(source.db.keys()[0])
    assert source.get_skeleton(label).encode(source) == source.db[label]


def test_attributes_and_transform(tmp_path: Path) -> None:
    transform = [0, 2, 0, 10, 3, 0, 0, 20, 0, 0, 0.5, -30]
    vertices = np.array([[1, 2, 3], [4, 5, 6.5], [-7, 8, 9]], "<f4")
    edges = np.array([[0, 1], [1, 2]], "<u4")
    skeleton = cloudvolume.Skeleton(
        vertices,
        edges,
        segid=5,
        extra_attributes=ATTRIBUTES,
    )
    skeleton.radius = np.array([1.5, 2.5, 3.5], "<f4")
    skeleton.kind = np.array([1, 2, 3], "u1")
    skeleton.direction = np.arange(9, dtype="<i2").reshape(3, 3)
    write(tmp_path, {5: skeleton.to_precomputed()}, vertex_attributes=ATTRIBUTES, transform=transform)

    source = SkeletonSource(tmp_path)
    found = source.get_skeleton(5)
    matrix = np.reshape(transform, (3, 4))
    np.testing.assert_allclose(found.vertex_positions, [matrix @ [*vertex, 1] for vertex in vertices])
    np.testing.assert_array_equal(found.edges, edges)
    assert list(found.vertex_attributes) == ["radius", "kind", "direction"]
    for name in found.vertex_attributes:
        assert found.vertex_attributes[name].reshape(-1).tolist() == getattr(skeleton, name).reshape(-1).tolist()
    spec = source.info()["attributes"]
    assert spec["direction"] == {"dataType": "int16", "numComponents": 3}
    state = neuroglancer.SegmentationLayer(source=[source], segments=[5])
    assert state.to_json()["source"]


def test_an_absent_object_has_no_skeleton() -> None:
    source = SkeletonSource(SEGMENTATION / "skeletons")
    assert source.get_skeleton(2**64 - 1) is None


@pytest.mark.parametrize(
    "change", [lambda value: value[:-1], lambda value: value + b"\0", lambda value: b"", lambda value: value[:7]]
)
def test_a_skeleton_of_another_length_is_corrupt(tmp_path: Path, change: Any) -> None:
    value = cloudvolume.Skeleton(np.zeros((2, 3), "<f4"), np.array([[0, 1]], "<u4")).to_precomputed()
    write(tmp_path, {5: change(value)}, vertex_attributes=[])
    with pytest.raises(sharddb.Corrupt, match="bytes for . vertices and . edges, found") as raised:
        SkeletonSource(tmp_path).get_skeleton(5)
    assert raised.value.key == 5


@pytest.mark.parametrize(
    "change",
    [{"@type": "neuroglancer_multilod_draco"}, {"transform": [1, 2]}, {"vertex_attributes": [{"id": "radius"}]}],
)
def test_an_info_of_something_else_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    write(tmp_path, {5: b""}, **change)
    with pytest.raises(sharddb.InvalidSpec, match="expected"):
        SkeletonSource(tmp_path)


def write(directory: Path, values: dict[int, bytes], **info: Any) -> None:
    """Writes a skeleton database with CloudVolume."""
    from cloudvolume.datasource.precomputed.sharding import ShardingSpecification

    sharding = json.loads((SEGMENTATION / "skeletons" / "info").read_text())["sharding"]
    info = {"@type": "neuroglancer_skeletons", "sharding": sharding, **info}
    (directory / "info").write_text(json.dumps(info))
    for name, shard in ShardingSpecification.from_dict(sharding).synthesize_shards(values).items():
        (directory / name).write_bytes(shard)
