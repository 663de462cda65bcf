"""``sharddb.cloudvolume``: CloudVolume with our reader returns what it returns with its own, and reads what we write."""

import json
import os
import time
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import DATA, PUBLIC

import sharddb

cloudvolume = pytest.importorskip("cloudvolume")

import sharddb.cloudvolume  # noqa: E402
import tensorstore  # noqa: E402
from cloudfiles import CloudFiles  # noqa: E402
from cloudvolume.cacheservice import CacheService  # noqa: E402
from cloudvolume.cloudvolume import SharedConfiguration  # noqa: E402
from cloudvolume.datasource.precomputed import sharding  # noqa: E402
from cloudvolume.exceptions import EmptyFileException, SpecViolation  # noqa: E402
from cloudvolume.paths import extract  # noqa: E402

NEUROGLANCER = DATA / "neuroglancer"
SPEC = {
    "@type": "neuroglancer_uint64_sharded_v1",
    "preshift_bits": 1,
    "hash": "murmurhash3_x86_128",
    "minishard_bits": 3,
    "shard_bits": 2,
    "minishard_index_encoding": "gzip",
    "data_encoding": "gzip",
}


def sets() -> list[Path]:
    """The sets of TensorStore and CloudVolume whose specification CloudVolume accepts."""
    return [path.parent for path in sorted((PUBLIC).glob("*/info")) if is_accepted(sharding_of(path.parent))]


def sharding_of(directory: Path) -> dict[str, Any]:
    raw = {"minishard_index_encoding": "raw", "data_encoding": "raw"}
    return {**raw, **json.loads((directory / "info").read_text())["sharding"]}


def is_accepted(spec: dict[str, Any]) -> bool:
    try:
        sharding.ShardingSpecification.from_dict(spec)
    except SpecViolation:
        return False
    return True


def readers(directory: Path, spec: dict[str, Any], cache: Any = False) -> tuple[Any, sharddb.cloudvolume.ShardReader]:
    """CloudVolume's reader of a directory, and ours."""
    cloudpath = f"file://{directory}"
    config = SharedConfiguration(
        cdn_cache=False, compress=True, compress_level=None, green=False, mip=0, parallel=1, progress=False, secrets=None,
        spatial_index_db=None, cache_locking=None, codec_threads=1,
    )  # fmt: skip
    service = CacheService(
        str(cache), bool(cache), config, meta=SimpleNamespace(cloudpath=cloudpath, path=extract(cloudpath))
    )
    arguments = (cloudpath, service, sharding.ShardingSpecification.from_dict(spec))
    return sharding.ShardReader(*arguments), sharddb.cloudvolume.ShardReader(*arguments)


def labels_of(directory: Path) -> tuple[list[int], list[int]]:
    """The labels with values of at least one byte, and the others."""
    lines = [json.loads(line) for line in (directory / "expected.jsonl").read_text().splitlines()]
    filled = [int(line["key"]) for line in lines if line.get("len")]
    return filled, [int(line["key"]) for line in lines if not line.get("len")]


@pytest.mark.parametrize("directory", sets(), ids=lambda path: path.name)
def test_a_set_of_another_writer(directory: Path) -> None:
    own, ours = readers(directory, sharding_of(directory))
    filled, others = labels_of(directory)
    labels = filled + [label for label in others if own.exists(label) is None]  # CloudVolume omits some empty values
    assert ours.get_data(labels) == own.get_data(labels)
    assert ours.exists(filled + others) == own.exists(filled + others)
    assert ours.exists(filled + others, return_byte_range=True) == own.exists(filled + others, return_byte_range=True)
    for label in (filled + others)[:20]:
        assert ours.get_data(label) == own.get_data(label)
        assert ours.exists(label, return_byte_range=True) == own.exists(label, return_byte_range=True)
    if own.spec.data_encoding == "gzip":
        assert ours.get_data(labels, raw=True) == own.get_data(labels, raw=True)
    for file in sorted(directory.glob("*.shard"))[:20]:
        assert outcome(lambda reader: reader.list_labels(file.name), own, ours)
        assert outcome(lambda reader: reader.list_labels(file.name, size=True), own, ours)


def outcome(call: Callable[[Any], Any], own: Any, ours: Any) -> bool:
    """Compares the results of a call with both readers, or the types of their errors."""
    expected, found = attempt(call, own), attempt(call, ours)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    else:
        assert type(found) is type(expected)
        assert isinstance(expected, Exception) or found == expected
    return True


def attempt(call: Callable[[Any], Any], reader: Any) -> Any:
    try:
        return call(reader)
    except Exception as error:
        return error


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, dict[int, bytes]]:
    """A volume whose directory "part" has shards by CloudVolume."""
    values = {label: b"value %d" % label * (label % 7 + 1) for label in range(0, 3000, 7)}
    put(tmp_path / "part", values)
    return tmp_path, values


def put(directory: Path, values: dict[int, bytes], spec: dict[str, Any] = SPEC) -> None:
    directory.mkdir(exist_ok=True)
    for name, shard in sharding.ShardingSpecification.from_dict(spec).synthesize_shards(dict(values)).items():
        (directory / name).write_bytes(shard)


def test_labels_of_all_kinds(written: tuple[Path, dict[int, bytes]]) -> None:
    volume, values = written
    own, ours = readers(volume, SPEC)
    for labels in [
        7, np.uint64(7), np.int32(7), 8, -1, 2**64, 2**64 + 7, 7.0, 7.5, "7", [7], [7, 7, 14], (7, 8), {7, 14}, [], [-1, 7],
        np.array([7, 14], ">u8"), np.array([], "u8"), range(0, 70, 7), [np.uint64(14), 7.0],
    ]:  # fmt: skip
        assert ours.get_data(labels, "part") == own.get_data(labels, "part"), labels
        if not isinstance(labels, str):
            for as_range in (False, True):
                assert ours.exists(labels, "part", as_range) == own.exists(labels, "part", as_range), labels
    assert ours.get_data(7, "part") == values[7]
    assert ours.get_data(iter([7, 14]), "part") == own.get_data(iter([7, 14]), "part")


@pytest.mark.parametrize("label", [None, [None], "seven", {}, {"a": 1}, [[7]]])
def test_labels_that_are_not_numbers(written: tuple[Path, dict[int, bytes]], label: Any) -> None:
    volume, _ = written
    assert outcome(lambda reader: reader.get_data(label, "part"), *readers(volume, SPEC))


def test_the_progress_bar_changes_nothing(written: tuple[Path, dict[int, bytes]], capsys: Any) -> None:
    volume, values = written
    _, ours = readers(volume, SPEC)
    assert ours.get_data(list(values), "part", progress=True) == values
    assert "Reading" in capsys.readouterr().err


def test_a_directory_and_a_shard_that_are_absent(written: tuple[Path, dict[int, bytes]]) -> None:
    volume, values = written
    (volume / "part" / "2.shard").unlink()
    own, ours = readers(volume, SPEC)
    assert ours.get_data(list(values), "part") == own.get_data(list(values), "part")
    assert None in ours.get_data(list(values), "part").values()
    assert outcome(lambda reader: reader.get_data([7, 14], "nothing"), own, ours)
    assert outcome(lambda reader: reader.list_labels("2.shard", "part"), own, ours)
    assert isinstance(attempt(lambda reader: reader.list_labels("2.shard", "part"), ours), EmptyFileException)


@pytest.mark.parametrize("name", ["0.shard", "1.shard", "00.shard", "zero.shard", "2", "f.shard", "nothing.shard", ""])
def test_names_of_files(written: tuple[Path, dict[int, bytes]], name: str) -> None:
    volume, _ = written
    for copy in ("00.shard", "zero.shard", "2"):
        shutil.copy(volume / "part" / "1.shard", volume / "part" / copy)
    assert outcome(lambda reader: reader.list_labels(name, "part"), *readers(volume, SPEC))
    assert outcome(lambda reader: reader.list_labels(f"part/{name}"), *readers(volume, SPEC))


def test_values_that_share_a_range_are_all_returned() -> None:
    directory = PUBLIC / "cv_all_zero_length_raw"
    own, ours = readers(directory, sharding_of(directory))
    _, others = labels_of(directory)
    present = [label for label in others if own.exists(label) is not None]
    assert set(own.get_data(present)) < set(present), "CloudVolume no longer omits labels: simplify the tests"
    assert ours.get_data(present) == dict.fromkeys(present, b"")


# CloudVolume returns a value, no value, or an error of Python for some labels of these; ShardDb names the damage
REFUSED = {
    "file_empty", "gz_fhcrc_bad", "gz_multi_member", "gz_trailing_garbage", "gz_trailing_zeros", "ix_end_1_beyond",
    "ix_only", "ix_start_beyond_file", "msi_len_minus24", "msi_offset_beyond", "msi_offset_into_index",
    "msi_offset_overflow", "msi_size_1tb", "msi_size_2_63", "msi_size_eof_plus1", "msi_size_u64max", "msi_zero_len_beyond",
}  # fmt: skip


def test_broken_sets(corrupt: Path) -> None:
    refused, values, errors = set(), 0, 0
    for directory in sorted(path for part in ("file", "gz", "ix", "msi") for path in corrupt.glob(f"{part}_*")):
        if directory.name == "file_old_index_data_pair":
            continue  # of two files per shard, which CloudVolume does not read
        probe = json.loads((directory / "probe.json").read_text())
        own, ours = readers(directory, sharding_of(directory))
        for label in probe["keys"] + probe["ok_keys"]:
            expected, found = (attempt(lambda reader: reader.get_data(label), reader) for reader in (own, ours))
            if isinstance(found, sharddb.Corrupt):
                refused.add(directory.name)
            elif isinstance(expected, Exception):
                assert type(found) is type(expected), (directory.name, label)
                errors += 1
            else:
                assert found == expected, (directory.name, label)
                values += 1
    assert refused == REFUSED
    assert values > 500 and errors > 90


def test_a_changed_directory_is_read_again(written: tuple[Path, dict[int, bytes]]) -> None:
    volume, values = written
    _, ours = readers(volume, SPEC)
    assert ours.get_data(7, "part") == values[7]
    changed = {label: value + b" changed" for label, value in values.items()}
    put(volume / "new", changed)
    for file in (volume / "new").iterdir():
        os.replace(file, volume / "part" / file.name)
    os.utime(volume / "part", ns=(1, 1))
    assert ours.get_data(list(values), "part") == changed


def test_a_change_within_a_tick_of_the_clock(
    written: tuple[Path, dict[int, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard that is created right after a read is found, though the time of the directory is the same."""
    volume, values = written
    part = volume / "part"
    shard = sorted(part.iterdir())[0]
    hidden = shard.read_bytes()
    shard.unlink()
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)
    os.utime(part, ns=(now, now))
    _, ours = readers(volume, SPEC)
    assert None in ours.get_data(list(values), "part").values()
    shard.write_bytes(hidden)
    os.utime(part, ns=(now, now))
    assert ours.get_data(list(values), "part") == values


def test_a_shard_that_is_truncated_in_place_raises(written: tuple[Path, dict[int, bytes]]) -> None:
    volume, values = written
    _, ours = readers(volume, SPEC)
    assert ours.get_data(list(values), "part") == values
    for file in (volume / "part").iterdir():
        os.truncate(file, 8)
    with pytest.raises(Exception, match="."):
        ours.get_data(list(values), "part")


def test_an_enabled_cache_is_cloudvolumes(written: tuple[Path, dict[int, bytes]]) -> None:
    volume, values = written
    _, ours = readers(volume, SPEC, cache=volume / "cache")
    assert ours.get_data([7, 8], "part") == {7: values[7], 8: None}
    assert (volume / "cache" / "part").is_dir()
    shutil.rmtree(volume / "part")
    assert ours.get_data([7], "part") == {7: values[7]}


@pytest.fixture(params=["image", "seg"])
def volume(request: Any) -> Any:
    return cloudvolume.CloudVolume(f"precomputed://file://{NEUROGLANCER / request.param}", progress=False)


def test_an_image(volume: Any) -> None:
    expected = np.asarray(volume[:, :, :])
    with sharddb.cloudvolume.installed():
        assert sharding.ShardReader is sharddb.cloudvolume.ShardReader
        found = np.asarray(volume[:, :, :])
    assert sharding.ShardReader is not sharddb.cloudvolume.ShardReader
    np.testing.assert_array_equal(found, expected)
    assert expected.any()


def test_skeletons() -> None:
    cv = cloudvolume.CloudVolume(f"precomputed://file://{NEUROGLANCER / 'seg'}", progress=False)
    own = cv.skeleton.reader
    labels = cv.skeleton.list().tolist()
    expected = cv.skeleton.get(labels)
    cv.skeleton.reader = sharddb.cloudvolume.ShardReader(cv.cloudpath, cv.cache, own.spec)
    assert cv.skeleton.list().tolist() == labels
    found = cv.skeleton.get(labels)
    assert len(found) == len(labels) > 1
    for mine, theirs in zip(found, expected):
        assert mine.id == theirs.id
        assert mine.to_precomputed() == theirs.to_precomputed()
    with pytest.raises(EmptyFileException):
        cv.skeleton.get(2**63)


def test_meshes() -> None:
    cv = cloudvolume.CloudVolume(f"precomputed://file://{NEUROGLANCER / 'seg'}", progress=False)
    own = cv.mesh.reader
    labels = [
        label
        for file in (NEUROGLANCER / "seg" / "mesh").glob("*.shard")
        for label in own.list_labels(file.name, "mesh").tolist()
    ]
    expected = cv.mesh.get(labels)
    cv.mesh.reader = sharddb.cloudvolume.ShardReader(cv.cloudpath, cv.cache, own.spec)
    found = cv.mesh.get(labels)
    assert found.keys() == expected.keys() and len(labels) > 1
    for label in labels:
        np.testing.assert_array_equal(found[label].vertices, expected[label].vertices)
        np.testing.assert_array_equal(found[label].faces, expected[label].faces)
    with pytest.raises(cloudvolume.exceptions.MeshMissingError):
        cv.mesh.get([2**63])


def test_other_paths_are_read_by_cloudvolume() -> None:
    spec = sharding.ShardingSpecification.from_dict(SPEC)
    config = SimpleNamespace(progress=False, secrets=None, parallel=1, cache_locking=None)
    service = CacheService("", False, config, meta=SimpleNamespace(cloudpath="mem://bucket/volume"))
    reader = sharddb.cloudvolume.ShardReader("mem://bucket/volume", service, spec)
    files = spec.synthesize_shards({7: b"seven"})
    CloudFiles("mem://bucket/volume").puts([(name, shard) for name, shard in files.items()], compress=False)
    assert reader.get_data([7, 8]) == {7: b"seven", 8: None}


@pytest.mark.parametrize("index", ["raw", "gzip"])
@pytest.mark.parametrize("data", ["raw", "gzip"])
@pytest.mark.parametrize("bits", [(0, 0, 0), (1, 3, 2), (0, 2, 5)])
def test_files_of_shards(tmp_path: Path, bits: tuple[int, int, int], data: str, index: str) -> None:
    spec = SPEC | dict(zip(("preshift_bits", "minishard_bits", "shard_bits"), bits))
    spec |= {"data_encoding": data, "minishard_index_encoding": index}
    cv_spec = sharding.ShardingSpecification.from_dict(spec)
    values = {label: os.urandom(label % 50 + 1) for label in [0, 1, 2**64 - 1, *range(10, 20_000, 37)]}
    files = sharddb.cloudvolume.synthesize_shard_files(cv_spec, values)
    assert files.keys() == sharding.synthesize_shard_files(cv_spec, dict(values)).keys()
    for name, shard in files.items():
        (tmp_path / name).write_bytes(shard)
    own, _ = readers(tmp_path, spec)
    assert own.get_data(list(values)) == values
    assert own.exists(3) is None
    assert sorted(label for name in files for label in own.list_labels(name).tolist()) == sorted(values)
    kvstore = tensorstore.KvStore.open(
        {"driver": "neuroglancer_uint64_sharded", "base": f"file://{tmp_path}/", "metadata": spec}
    ).result()
    for label in list(values)[:50]:
        assert kvstore.read(label.to_bytes(8, "big")).result().value == values[label]


def test_a_published_generation(tmp_path: Path) -> None:
    values = {label: b"value %d" % label * (label % 7) for label in range(1, 3000, 5)}
    published = sharddb.Loader(tmp_path / "store", SPEC)
    published.extend(values)
    published.finish()
    [shard, *_] = (tmp_path / "store").rglob("*.shard")
    own, ours = readers(shard.parent, SPEC)
    filled = [label for label in values if values[label]]
    assert ours.get_data(filled) == own.get_data(filled) == {label: values[label] for label in filled}
    assert ours.exists(list(values), return_byte_range=True) == own.exists(list(values), return_byte_range=True)


def test_files_of_no_values() -> None:
    cv_spec = sharding.ShardingSpecification.from_dict(SPEC)
    assert sharddb.cloudvolume.synthesize_shard_files(cv_spec, {}) == sharding.synthesize_shard_files(cv_spec, {}) == {}


def test_files_of_meshes_with_manifests(tmp_path: Path) -> None:
    spec = SPEC | {"data_encoding": "raw"}
    cv_spec = sharding.ShardingSpecification.from_dict(spec)
    data, manifests = {7: b"mesh of 7MANIFEST", 8: b"MANIFEST"}, {7: 8, 8: 8}
    files = sharddb.cloudvolume.synthesize_shard_files(cv_spec, dict(data), manifests)
    assert files == sharding.synthesize_shard_files(cv_spec, dict(data), manifests)
