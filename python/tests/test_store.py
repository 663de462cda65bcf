"""A store lists its generations, rolls back, and removes old ones, as its directory shows."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import sharddb


@pytest.fixture
def store(tmp_path: Path) -> sharddb.Store:
    """A store of three generations."""
    for value in (b"one", b"two", b"three"):
        with sharddb.Loader(tmp_path / "store") as loader:
            loader[1] = value
            loader[2] = value
    return sharddb.Store(tmp_path / "store")


def current(store: sharddb.Store) -> bytes:
    with sharddb.open(store.path) as db:
        return db[1]


def test_listing(store: sharddb.Store, tmp_path: Path) -> None:
    assert Path(store.path) == tmp_path / "store" and repr(store) == f'Store("{tmp_path}/store")'
    assert store.current == 3 and store.history() == [1, 2, 3]
    listed = [(stored.id, stored.is_complete, stored.is_current) for stored in store.generations()]
    assert listed == [(1, True, False), (2, True, False), (3, True, True)]
    assert repr(store.generations()[2]) == "Generation(id=3, is_complete=True, is_current=True)"
    totals = store.totals(2)
    assert (totals.keys, totals.value_bytes, totals.shards) == (2, 6, 1)
    assert store.totals("gen-0000000002") == totals
    assert Path(store.generation_path(2)) == tmp_path / "store" / "gen-0000000002"
    with sharddb.open(store.generation_path(2)) as db:
        assert db[1] == b"two"


def test_rollback(store: sharddb.Store) -> None:
    assert store.rollback() == 2
    assert current(store) == b"two"
    assert store.rollback(to=3) == 3
    assert store.rollback("gen-0000000001") == 1
    assert current(store) == b"one"


def test_gc_and_discard(store: sharddb.Store, tmp_path: Path) -> None:
    with sharddb.open(store.generation_path(1)):
        report = store.gc(1)
        assert (report.removed, report.in_use, report.failed) == ([2], [1], [])
        assert "removed=[2]" in repr(report)
        with pytest.raises(sharddb.Locked):
            store.discard(1)
    store.discard(1)
    assert [stored.id for stored in store.generations()] == [3]
    assert not (tmp_path / "store/gen-0000000001").exists()


def test_publish(store: sharddb.Store, tmp_path: Path) -> None:
    shutil.copytree(store.generation_path(1), tmp_path / "elsewhere")
    other = sharddb.Store(tmp_path / "other", create=True)
    assert other.current is None and other.generations() == []
    assert other.publish(tmp_path / "elsewhere") == 1
    assert current(other) == b"one"


def test_an_empty_store_is_created_only_on_request(tmp_path: Path) -> None:
    with pytest.raises(sharddb.NotFound):
        sharddb.Store(tmp_path / "store")
    assert not (tmp_path / "store").exists()
    sharddb.Store(tmp_path / "store", create=True)
    (tmp_path / "text").write_text("")
    with pytest.raises(sharddb.InvalidInput):
        sharddb.Store(tmp_path / "text", create=True)


@pytest.mark.parametrize(
    ("generation", "error"),
    [
        (9, sharddb.NotFound),
        ("gen-0000000009", sharddb.NotFound),
        (-1, sharddb.InvalidInput),
        (2**64, sharddb.InvalidInput),
        (10**10, sharddb.InvalidInput),
        ("3", sharddb.InvalidInput),
        (1.0, TypeError),
        (None, TypeError),
    ],
)
def test_bad_generations(store: sharddb.Store, generation: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        store.totals(generation)
    with pytest.raises(error):
        store.discard(generation)
    if generation is not None:
        with pytest.raises(error):
            store.rollback(generation)
    assert store.current == 3


def test_the_current_generation_is_not_discarded(store: sharddb.Store) -> None:
    with pytest.raises(sharddb.InvalidInput, match="current"):
        store.discard(3)


def test_changes_need_the_lock(store: sharddb.Store) -> None:
    with sharddb.Loader(store.path):
        for change in (store.rollback, lambda: store.gc(1), lambda: store.discard(1)):
            with pytest.raises(sharddb.Locked):
                change()
        assert store.current == 3
