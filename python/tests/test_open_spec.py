"""A directory of shards without ``info`` opens with a specification, and the keys of one shard are those that it has."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PUBLIC

import sharddb

SET = PUBLIC / "cv_01_mm3_p63_m3_s2_ig_dr"


@pytest.fixture
def bare(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """The shards of a set without its ``info``, and their specification."""
    for shard in SET.glob("*.shard"):
        shutil.copy(shard, tmp_path)
    return tmp_path, json.loads((SET / "info").read_text())["sharding"]


def test_a_bare_directory_opens_with_a_specification(bare: tuple[Path, dict[str, Any]]) -> None:
    directory, spec = bare
    with pytest.raises(sharddb.NotFound):
        sharddb.open(directory)
    with sharddb.open(SET) as expected:
        for given in (spec, json.dumps(spec)):
            db = sharddb.open(directory, spec=given)
            assert dict(db.items()) == dict(expected.items())
            assert db.spec == expected.spec
            assert dict(pickle.loads(pickle.dumps(db)).items()) == dict(expected.items())


@pytest.mark.parametrize(
    ("spec", "error"),
    [({}, sharddb.InvalidSpec), ("{", sharddb.InvalidSpec), (5, TypeError), ([], TypeError), ({"a": b""}, TypeError)],
)
def test_another_specification_is_refused(bare: tuple[Path, dict[str, Any]], spec: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        sharddb.open(bare[0], spec=spec)


def test_the_keys_of_a_shard() -> None:
    with sharddb.open(SET) as db:
        files, file_no, _, _ = db.locate_many(keys := db.keys())
        for number in range(4):
            expected = [key for key, no in zip(keys.tolist(), file_no) if Path(files[no]).stem == str(number)]
            found = db.keys(shard=number)
            assert found.dtype == np.uint64
            assert found.tolist() == expected
        assert sum(len(db.keys(shard=number)) for number in range(4)) == len(keys)
        assert db.keys(shard=2**64 - 1).tolist() == []


def test_a_shard_excludes_a_range_and_sorting() -> None:
    with sharddb.open(SET) as db:
        with pytest.raises(ValueError, match="expected shard without range and sorted"):
            db.keys(range(5), shard=0)
        with pytest.raises(ValueError, match="expected shard without range and sorted"):
            db.keys(sorted=True, shard=0)
        with pytest.raises(OverflowError):
            db.keys(shard=-1)


def test_pairs_in_wrong_places_are_walked(bare: tuple[Path, dict[str, Any]]) -> None:
    """With another hash, lookups do not find most keys, but a walk has them all, with their values."""
    import pyarrow as pa  # type: ignore[import-untyped]

    directory, spec = bare
    assert spec["hash"] == "murmurhash3_x86_128"
    with sharddb.open(SET) as db:
        expected = {int(key): db[int(key)] for key in db.keys()}
    with sharddb.open(directory, spec={**spec, "hash": "identity"}) as db:
        assert sum(int(key) in db for key in db.keys()) < len(expected)
        assert dict(db.items()) == expected
        rows = pa.table(db)
        assert dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)) == expected


def test_a_directory_without_info_has_none(bare: tuple[Path, dict[str, Any]]) -> None:
    with sharddb.open(bare[0], spec=bare[1]) as db:
        with pytest.raises(sharddb.NotFound, match="expected the file info, found none") as raised:
            db.info
        assert raised.value.path == str(bare[0] / "info")
        (bare[0] / "info").write_text("{")
        with pytest.raises(sharddb.InvalidSpec, match="expected JSON"):
            db.info
