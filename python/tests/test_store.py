"""A store lists its generations, rolls back, and removes old ones, as its directory shows."""

import copy
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

import sharddb


@pytest.fixture
def store(tmp_path: Path) -> sharddb.Store:
    """A store of three generations."""
    for value in (b"one", b"two", b"three"):
        with sharddb.Loader(tmp_path / "store", mode="replace") as loader:
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
    with sharddb.Loader(store.path, mode="update"):
        for change in (store.rollback, lambda: store.gc(1), lambda: store.discard(1)):
            with pytest.raises(sharddb.Locked):
                change()
        assert store.current == 3


class Bar:
    total: float | None = None

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.done = 0.0

    def set_description(self, text: str) -> None:
        self.phases.append(text)

    def reset(self) -> None:
        self.done = 0.0

    def update(self, n: float) -> None:
        self.done += n


def test_progress_of_a_publication(store: sharddb.Store, tmp_path: Path) -> None:
    other, bar = sharddb.Store(tmp_path / "other", create=True), Bar()
    shards = sum(path.stat().st_size for path in (store.path / "current").glob("*.shard"))
    assert other.publish(store.path / "current", progress=bar) == 1
    assert bar.phases == ["copy"] and bar.done == bar.total == shards


def test_pickling(store: sharddb.Store) -> None:
    """What methods return goes to other processes, as Dask sends it; a store is its path."""
    with sharddb.Loader(store.path, mode="replace") as loader:
        loader[1] = b"four"
    assert loader.published is not None
    again = pickle.loads(pickle.dumps(store))
    assert again.path == store.path and again.current == 4
    with sharddb.open(store.path) as db:
        shard = next((store.path / "current").glob("*.shard"))
        shard.chmod(0o644)
        shard.write_bytes(b"damage")
        report = db.verify()
    objects: list[Any] = [
        store.generations()[0],
        store.totals(2),
        loader.published,
        sharddb.plan(count=10**6),
        sharddb.update(store.path, {5: b"five"}, base=store.generation_path(1))[1],
    ]
    for found in objects:
        assert pickle.loads(pickle.dumps(found)) == found == copy.deepcopy(found)
        assert hash(copy.deepcopy(found)) == hash(found)
    assert not report.is_clean and report.findings
    unpickled = pickle.loads(pickle.dumps(report))
    assert (str(unpickled), repr(unpickled), unpickled.is_clean) == (str(report), repr(report), False)
    assert list(map(str, unpickled.findings)) == list(map(str, report.findings))
    assert [finding.path for finding in unpickled.findings] == [finding.path for finding in report.findings]
    differences = sharddb.diff(store.generation_path(1), store.generation_path(2))
    unpickled = pickle.loads(pickle.dumps(differences))
    assert unpickled.changed.tolist() == [1, 2] and repr(unpickled) == repr(differences)
    collected = store.gc(1)
    assert collected.removed and repr(pickle.loads(pickle.dumps(collected))) == repr(collected)
