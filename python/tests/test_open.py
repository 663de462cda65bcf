"""A database of another writer opens, and its values are those that the writer recorded."""

import json
from pathlib import Path

import pytest

import sharddb

PUBLIC = Path(__file__).resolve().parents[2] / "tests" / "data" / "public"


@pytest.mark.parametrize("name", ["cv_00_id_p9_m1_s11_ir_dg", "cv_01_mm3_p63_m3_s2_ig_dr"])
def test_values_of_another_writer(name: str) -> None:
    with sharddb.open(PUBLIC / name) as db:
        for line in (PUBLIC / name / "expected.jsonl").read_text().splitlines():
            expected = json.loads(line)
            key = int(expected["key"])
            assert (key in db) == ("absent" not in expected)
            if "hex" in expected:
                assert db[key] == bytes.fromhex(expected["hex"])


def test_nothing_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(sharddb.NotFound) as raised:
        sharddb.open(tmp_path / "nothing")
    assert raised.value.path == str(tmp_path / "nothing")
    assert isinstance(raised.value, FileNotFoundError)
