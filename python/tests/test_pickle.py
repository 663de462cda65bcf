"""A pickled handle is its absolute path, its options and its generation."""

import copy
import errno
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, make_current, remove_generation

import sharddb
import sharddb.errors


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("mode", ["auto", "mmap", "pread", "memory"])
def test_a_database(store: Path, pairs: dict[int, bytes], mode: Any, protocol: int) -> None:
    db = sharddb.open(store, mode=mode, verify="always")
    again = pickle.loads(pickle.dumps(db, protocol))
    assert type(again) is sharddb.Database
    assert (again.path, again.generation, dict(again.items())) == (store, 1, pairs)
    assert again.__reduce__()[1] == db.__reduce__()[1] == (
        store, mode, "always", None, None, (1, store / "gen-0000000001"),
    )  # fmt: skip
    db.close()
    assert dict(again.items()) == pairs
    make_current(store, 2)
    assert again.refresh() == 2


def test_a_relative_path(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(store.parent)
    pickled = pickle.dumps(sharddb.open("store"))
    monkeypatch.chdir("/")
    assert pickle.loads(pickled).path == store


def test_another_generation_is_current(store: Path) -> None:
    db = sharddb.open(store)
    make_current(store, 2)
    again = pickle.loads(pickle.dumps(db))
    assert (again.generation, again.spec["data_encoding"]) == (1, "raw")
    assert pickle.loads(pickle.dumps(again)).generation == 1
    assert again.refresh() == 2
    assert pickle.loads(pickle.dumps(again)).generation == 2


@pytest.mark.parametrize("of", ["database", "snapshot", "generation", "link"])
def test_a_generation_that_was_removed(store: Path, of: str) -> None:
    path = {"generation": store / "gen-0000000001", "link": store / "current"}.get(of, store)
    db: sharddb.Reader = sharddb.open(path)
    if of == "snapshot":
        db = db.snapshot()
    pickled = pickle.dumps(db)
    make_current(store, 2)
    assert pickle.loads(pickled).generation == 1
    remove_generation(store, 1)
    with pytest.raises(sharddb.GenerationGone) as raised:
        pickle.loads(pickled)
    assert raised.value.path == str(store / "gen-0000000001")
    assert "gen-0000000001" in str(raised.value)


def test_a_store_that_was_removed(store: Path) -> None:
    pickled = pickle.dumps(sharddb.open(store))
    store.rename(store.with_name("elsewhere"))
    with pytest.raises(sharddb.NotFound):
        pickle.loads(pickled)


def test_a_snapshot(store: Path, pairs: dict[int, bytes]) -> None:
    snapshot = sharddb.open(store).snapshot()
    make_current(store, 2)
    again = pickle.loads(pickle.dumps(snapshot))
    assert type(again) is sharddb.Snapshot
    assert (again.generation, dict(again.items())) == (1, pairs)
    assert not hasattr(again, "refresh")


def test_a_data_set_of_another_program() -> None:
    db = sharddb.open(DATA / "neuroglancer" / "image", pointer="/scales/0")
    again = pickle.loads(pickle.dumps(db))
    assert again.generation is None
    assert dict(again.items()) == dict(db.items()) != {}


def test_a_copy_is_a_handle_of_its_own(store: Path) -> None:
    db = sharddb.open(store)
    again = copy.copy(db)
    db.close()
    assert again.generation == 1


@pytest.mark.parametrize("cls", [sharddb.Io, sharddb.NotFound])
def test_exceptions_of_the_system(cls: type[sharddb.Io | sharddb.NotFound]) -> None:
    error = cls("no room", path="path", errno=errno.ENOSPC)
    for found in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(found, OSError) and str(found) == "no room"
        assert (found.errno, found.strerror, found.filename) == (errno.ENOSPC, os.strerror(errno.ENOSPC), "path")


@pytest.mark.parametrize("cls", sharddb.errors._CLASSES.values())
def test_exceptions(cls: type[sharddb.Error]) -> None:
    error = cls("message", path="path", key=1, shard=2, minishard=3, offset=4)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls and str(again) == "message" and vars(again) == vars(error)
    assert issubclass(cls, sharddb.Error) and getattr(sharddb, cls.__name__) is cls


@pytest.mark.parametrize("mode", ["pread", "memory"])
def test_the_current_generation_is_damaged(store: Path, pairs: dict[int, bytes], mode: Any) -> None:
    """Unpickling opens the generation that was served, and no other."""
    db = sharddb.open(store, mode=mode)
    text = pickle.dumps(db)
    (store / "gen-0000000002" / "info").unlink()
    make_current(store, 2)
    again = pickle.loads(text)
    assert again.generation == 1 and dict(again.items()) == pairs
    with pytest.raises(sharddb.Error):
        again.refresh()
    assert again.generation == 1
    make_current(store, 1)
    assert again.refresh() is None and again.generation == 1
