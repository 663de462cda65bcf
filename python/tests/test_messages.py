"""Messages about wrong arguments: they say what was expected, what was found, and what to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas  # type: ignore[import-untyped]
import polars
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import sharddb


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with sharddb.Loader(tmp_path / "store") as loader:
        loader.extend({1: b"one", 2: b"two"})
    return tmp_path / "store"


KEYS = [
    (np.array([1.0]), TypeError, "items of the type float64"),
    (np.array(["1"]), TypeError, "items of the type <U1"),
    (pandas.Series([1.5]), TypeError, "items of the type float64"),
    (pa.array([1, None]), ValueError, "expected keys without nulls, found 1 of them"),
    (polars.Series([1, None, None]), ValueError, "expected keys without nulls, found 2 of them"),
]


@pytest.mark.parametrize(("keys", "error", "message"), KEYS)
def test_keys(store: Path, keys: Any, error: type[Exception], message: str) -> None:
    with sharddb.open(store) as db, pytest.raises(error, match=message):
        db.get_many(keys)


OPENINGS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"verify": True}, TypeError, 'expected verify to be one of "once", "never", "always", found bool'),
    ({"mode": 3}, TypeError, 'expected mode to be one of "auto", "mmap", "pread", "memory", found int'),
    ({"mode": "rb"}, ValueError, 'expected mode to be one of "auto", "mmap", "pread", "memory", found "rb"'),
]


@pytest.mark.parametrize(("options", "error", "message"), OPENINGS)
def test_opening(store: Path, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sharddb.open(store, **options)


def test_an_empty_path() -> None:
    with pytest.raises(FileNotFoundError, match="expected the path of a database, found an empty path"):
        sharddb.open("")


PAIRS: list[tuple[Any, type[Exception], str]] = [
    ("file.parquet", TypeError, "expected a mapping, an iterable of pairs or an Arrow stream, found str: read a file first"),
    (Path("file.parquet"), TypeError, "Arrow stream, found PosixPath: read a file first"),
    (b"bytes", TypeError, "Arrow stream, found bytes"),
    ([(1, b"a", b"b")], ValueError, "expected pairs of a key and a value, found 3 items"),
    ([[1]], ValueError, "expected pairs of a key and a value, found 1 items"),
    ([1], TypeError, "expected pairs of a key and a value, found <class 'int'>"),
]


@pytest.mark.parametrize(("pairs", "error", "message"), PAIRS)
def test_pairs(tmp_path: Path, pairs: Any, error: type[Exception], message: str) -> None:
    works: list[Callable[[], object]] = [
        lambda: sharddb.Loader(tmp_path / "new").extend(pairs),
        lambda: sharddb.update(tmp_path / "old", pairs),
    ]
    with sharddb.Loader(tmp_path / "old") as loader:
        loader[1] = b"one"
    for work in works:
        with pytest.raises(error, match=message):
            work()


def test_offsets_in_items(tmp_path: Path) -> None:
    """They would be within the data, and all values wrong."""
    loader = sharddb.Loader(tmp_path / "store")
    data = np.arange(6.0).reshape(2, 3)
    with pytest.raises(ValueError, match="expected offsets in bytes, found offsets in items of data: multiply them by 8"):
        loader.extend([1, 2], [0, 3, 6], data)
    with sharddb.Loader(tmp_path / "store") as loader:
        loader.extend([1, 2], np.array([0, 3, 6]) * 8, data)
        loader.extend([3], [0, 6], b"bytes.")
    with sharddb.open(tmp_path / "store") as db:
        assert np.frombuffer(db[2]).tolist() == [3, 4, 5]


def test_a_duplicate_key_names_the_choice(tmp_path: Path) -> None:
    with pytest.raises(sharddb.DuplicateKey, match=r'\(.*key 1.*\); on_duplicate="first", "last" or a function'):
        with sharddb.Loader(tmp_path / "store") as loader:
            loader.extend([(1, b"a"), (1, b"b")])
    with sharddb.Loader(tmp_path / "store", on_duplicate="first") as loader:
        loader.extend([(1, b"a"), (1, b"b")])


@pytest.mark.parametrize("form", ["precomputed://{}", "precomputed://file://{}", "precomputed://file://{}/|neuroglancer-precomputed:"])
def test_addresses_of_cloudvolume_open(store: Path, form: str) -> None:
    with sharddb.open(form.format(store)) as db:
        assert len(db) == 2
