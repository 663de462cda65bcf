"""Values with preambles, such as the fragments before the manifests of multi-resolution meshes."""

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from remote_stores import Objects, files

import sharddb
from sharddb import ValueWithPreamble

INFO = {
    "@type": "neuroglancer_multilod_draco",
    "vertex_quantization_bits": 10,
    "transform": [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0],
    "lod_scale_multiplier": 1,
}


def manifest(*fragments: int) -> bytes:
    """A manifest of one lod with fragments of these lengths, as the format's text has it."""
    count = len(fragments)
    return struct.pack(
        f"<3f3fIf3fI{3 * count}I{count}I", *[1.0] * 3, *[0.0] * 3, 1, 1.0, *[0.0] * 3, count, *range(3 * count), *fragments
    )


MESHES = {key: (manifest(key, 20), bytes([key]) * (key + 20)) for key in range(1, 8)}


def pairs(db: sharddb.Reader) -> dict[int, tuple[bytes, bytes]]:
    return {key: (bytes(value), getattr(value, "preamble", b"")) for key, value in db.items()}


@pytest.fixture
def meshes(tmp_path: Path) -> Path:
    with sharddb.Loader(tmp_path / "meshes", info=INFO, checks=False) as loader:
        for key, (value, preamble) in MESHES.items():
            loader[key] = ValueWithPreamble(value, preamble)
    return tmp_path / "meshes"


def foreign(store: Path, to: Path) -> Path:
    """A copy of a store without checks, and without what ShardDb knows of it: the fragments are bytes that no index names."""
    to.mkdir()
    info = json.loads((store / "current/info").read_text())
    del info["sharddb"]
    (to / "info").write_text(json.dumps(info))
    for shard in (store / "current").glob("*.shard"):
        (to / shard.name).write_bytes(shard.read_bytes())
    return to


def test_what_is_written_is_read(meshes: Path) -> None:
    with sharddb.open(meshes) as db:
        assert pairs(db) == MESHES
        assert db[3] == MESHES[3][0] and type(db[3]) is bytes
        found = db.get_with_preamble(3)
        assert found is not None and (bytes(found), found.preamble) == MESHES[3]
        assert db.get_with_preamble(99) is None and db.get_with_preamble(99, "none") == "none"
        assert db.verify().is_clean


COPIES: list[Callable[[sharddb.Reader], Any]] = [
    lambda db: db.items(),
    lambda db: dict(db.items()),
    lambda db: db,
    lambda db: pa.table(db),
    lambda db: polars.DataFrame(db),
    lambda db: ((key, db.get_with_preamble(key)) for key in db),
]


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("is_foreign", [False, True])
def test_a_copy_keeps_them(meshes: Path, tmp_path: Path, copy: Callable[[sharddb.Reader], Any], is_foreign: bool) -> None:
    source = foreign(meshes, tmp_path / "foreign") if is_foreign else meshes
    with sharddb.open(source) as db:
        with sharddb.Loader(tmp_path / "copy", info=db.info) as loader:
            loader.extend(copy(db))
        assert pairs(db) == MESHES
    with sharddb.open(tmp_path / "copy") as db:
        assert pairs(db) == MESHES


def test_an_update_and_a_partitioned_build_take_them(meshes: Path, tmp_path: Path) -> None:
    more = ValueWithPreamble(manifest(5), b"five.")
    sharddb.update(meshes, {9: more})
    with sharddb.Loader(meshes, mode="update") as loader:
        loader[10] = more
    plan = sharddb.PartPlan(sharddb.plan(count=10), 1)
    parts = sharddb.job_directory(tmp_path / "parts", "job")
    with sharddb.open(meshes) as db, sharddb.SpillWriter(parts, plan, 0) as spill:
        assert pairs(db) == {**MESHES, 9: (manifest(5), b"five."), 10: (manifest(5), b"five.")}
        spill.extend(db.items())
    assert spill.receipt is not None
    part = sharddb.build_part(plan, [spill.receipt], 0, parts)
    sharddb.publish_parts(tmp_path / "parts", "job", plan, [spill.receipt], [part], info=INFO)
    with sharddb.open(meshes) as db, sharddb.open(tmp_path / "parts") as copy:
        assert pairs(copy) == pairs(db)


def test_without_them_a_build_of_meshes_is_an_error(meshes: Path, tmp_path: Path) -> None:
    plain = {key: value for key, (value, _) in MESHES.items()}
    with pytest.raises(sharddb.InvalidInput, match="expected 21 bytes before this manifest.*its preamble, found 0") as error:
        with sharddb.Loader(tmp_path / "copy", info=INFO) as loader:
            loader.extend(plain)
    assert error.value.key == 1
    with pytest.raises(sharddb.InvalidInput, match="found no pair with a preamble"):
        with sharddb.Loader(tmp_path / "copy", info=INFO) as loader:
            loader[1] = b"what is no manifest"
    with pytest.raises(sharddb.InvalidInput, match="expected 27 bytes before this manifest"):
        sharddb.update(meshes, {7: MESHES[7][0]})
    with pytest.raises(sharddb.InvalidInput, match="found 26"):
        sharddb.update(meshes, {7: ValueWithPreamble(MESHES[7][0], bytes(26))})
    assert sharddb.Store(meshes).current == 1 and not (tmp_path / "copy/current").exists()

    plan = sharddb.PartPlan(sharddb.plan(count=10), 1)
    parts = sharddb.job_directory(tmp_path / "parts", "job")
    with sharddb.SpillWriter(parts, plan, 0) as spill:
        spill.extend(plain)
    assert spill.receipt is not None
    part = sharddb.build_part(plan, [spill.receipt], 0, parts)
    with pytest.raises(sharddb.InvalidInput, match="found no pair with a preamble"):
        sharddb.publish_parts(tmp_path / "parts", "job", plan, [spill.receipt], [part], info=INFO)
    assert sharddb.publish_parts(tmp_path / "parts", "job", plan, [spill.receipt], [part]).keys == len(plain)


def test_all_meshes_need_them(tmp_path: Path) -> None:
    """Also where the info is known only after the pairs."""
    some = {key: ValueWithPreamble(value, preamble if key < 5 else b"") for key, (value, preamble) in MESHES.items()}
    plan = sharddb.PartPlan(sharddb.plan(count=10), 1)
    parts = sharddb.job_directory(tmp_path / "parts", "job")
    with sharddb.SpillWriter(parts, plan, 0) as spill:
        spill.extend(some)
    assert spill.receipt is not None
    part = sharddb.build_part(plan, [spill.receipt], 0, parts)
    with sharddb.Loader(tmp_path / "plain") as loader:
        loader.extend(some)
    builds: list[Callable[[], object]] = [
        lambda: sharddb.publish_parts(tmp_path / "parts", "job", plan, [spill.receipt or ""], [part], info=INFO),
        lambda: sharddb.merge([tmp_path / "plain"], tmp_path / "merged", info=INFO),
        lambda: sharddb.reshard(tmp_path / "plain", tmp_path / "resharded", profile="remote", info=INFO),
    ]
    for build in builds:
        with pytest.raises(sharddb.InvalidInput, match=r"expected \d+ bytes before this manifest.*, found 0") as error:
            build()
        assert error.value.key is not None and error.value.key >= 5
    assert not any((tmp_path / name / "current").exists() for name in ("parts", "merged", "resharded"))


def test_verify_reports_lost_fragments(tmp_path: Path) -> None:
    """A copy that lost the fragments, as a program makes it that does not know of them."""
    with sharddb.Loader(tmp_path / "lost", checks=False) as loader:
        loader.extend({key: value for key, (value, _) in MESHES.items()})
    path = foreign(tmp_path / "lost", tmp_path / "foreign")
    info = path / "info"
    info.write_text(info.read_text().replace("{", '{"@type": "neuroglancer_multilod_draco", ', 1))
    with sharddb.open(path) as db:
        found = [finding for finding in db.verify().findings if finding.severity == "error"]
        assert not any(finding.severity == "error" for finding in db.verify("index").findings)
    assert sorted((finding.kind, finding.key) for finding in found) == [("missing-fragments", key) for key in MESHES]
    assert any("expected 21 bytes before this manifest" in finding.message for finding in found)


def test_the_value_is_bytes() -> None:
    value = ValueWithPreamble(np.frombuffer(b"value", np.uint8), memoryview(b"before"))
    assert value == b"value" and hash(value) == hash(b"value") and value.preamble == b"before"
    copy = pickle.loads(pickle.dumps(value))
    assert type(copy) is ValueWithPreamble and (copy, copy.preamble) == (value, b"before")
    assert repr(value) == "ValueWithPreamble(b'value', b'before')"
    for wrong in [(3, b""), (b"", 3), (b"", "text")]:
        with pytest.raises(TypeError):
            ValueWithPreamble(*wrong)  # type: ignore[arg-type]


def test_empty_preambles_and_mixed_values(tmp_path: Path) -> None:
    with sharddb.Loader(tmp_path / "store") as loader:
        loader[1] = b"plain"
        loader[2] = ValueWithPreamble(b"two", b"before two")
        loader[3] = ValueWithPreamble(b"three", b"")
        loader[4] = ValueWithPreamble(b"", b"before nothing")
    with sharddb.open(tmp_path / "store") as db:
        expected = {1: (b"plain", b""), 2: (b"two", b"before two"), 3: (b"three", b""), 4: (b"", b"before nothing")}
        assert pairs(db) == expected
        table = pa.table(db)
        assert table.column_names == ["key", "value", "preamble"]
        assert dict(zip(table["key"].to_pylist(), table["preamble"].to_pylist(), strict=True)) == {
            key: preamble for key, (_, preamble) in expected.items()
        }
    with sharddb.Loader(tmp_path / "no-preambles") as loader:
        loader[1] = b"plain"
    with sharddb.open(tmp_path / "no-preambles") as db:
        assert [type(value) for _, value in db.items()] == [bytes]
        assert pa.table(db).column_names == ["key", "value"]


def test_a_column_of_preambles_is_checked(tmp_path: Path) -> None:
    wrong = [
        (pa.table({"key": [1], "value": [b"one"], "preamble": [1]}), TypeError, "binary or strings in the column \"preamble\""),
        (pa.table({"key": [1], "value": [b"one"], "preamble": pa.array([None], pa.binary())}), ValueError, "nulls in the column \"preamble\""),
    ]
    for table, error, message in wrong:
        with pytest.raises(error, match=message):
            sharddb.Loader(tmp_path / "store").extend(table)
    with sharddb.Loader(tmp_path / "store") as loader:
        loader.extend(pa.table({"preamble": ["before"], "other": [1], "value": [b"one"], "key": [1]}))
    with sharddb.open(tmp_path / "store") as db:
        assert pairs(db) == {1: (b"one", b"before")}


def test_a_preamble_of_unknown_length_is_read_but_not_copied(store: Path, tmp_path: Path) -> None:
    """The store of version 0.1.0 has preambles before aligned values, and no digests."""
    with sharddb.open(store) as db:
        items = dict(db.items())
        assert items == {key: db[key] for key in db}
        unknown = [key for key, value in items.items() if not is_known(value)]
        assert unknown and len(unknown) < len(items)
        with pytest.raises(sharddb.Unsupported, match="which may be padding"):
            db.get_with_preamble(unknown[0])
        table = pa.table(db)
        assert [key for key, is_null in zip(table["key"].to_pylist(), table["preamble"].is_null().to_pylist(), strict=True) if is_null] == unknown
        for pairs_of_db in (db.items(), table):
            with pytest.raises((sharddb.Unsupported, ValueError), match="may be padding|expected no nulls"):
                sharddb.Loader(tmp_path / "copy").extend(pairs_of_db)


@pytest.mark.parametrize("is_foreign", [False, True])
def test_a_remote_database_copies_no_value_without_its_preamble(meshes: Path, tmp_path: Path, is_foreign: bool) -> None:
    source = foreign(meshes, tmp_path / "foreign") if is_foreign else meshes / "current"
    with sharddb.open("", store=Objects(files(source))) as db:
        value = next(value for _, value in db.items())
        assert isinstance(value, ValueWithPreamble) and bytes(value) in [value for value, _ in MESHES.values()]
        with pytest.raises(sharddb.Unsupported, match="a remote database reads values only"):
            _ = value.preamble
        for pairs in (db.items(), db):
            with pytest.raises((sharddb.Unsupported, ValueError), match="a remote database|expected no nulls"):
                sharddb.Loader(tmp_path / "copy").extend(pairs)


def test_a_merge_function_returns_no_preamble(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="expected bytes without a preamble from the merge function for key 1"):
        with sharddb.Loader(tmp_path / "store", on_duplicate=lambda _, values: ValueWithPreamble(values[0], b"lost")) as loader:
            loader[1] = b"one"


def is_known(value: Any) -> bool:
    try:
        return isinstance(value.preamble, bytes)
    except sharddb.Unsupported:
        return False
