"""What a store has is replaced, emptied or published again only if the caller says so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import sharddb

PAIRS = {1: b"one", 2: b"two", 3: b"three"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with sharddb.Loader(tmp_path / "store") as loader:
        loader.extend(PAIRS)
    return tmp_path / "store"


def read(store: Path) -> dict[int, bytes]:
    with sharddb.open(store) as db:
        return {int(key): db[int(key)] for key in db.keys()}


def generations(store: Path) -> list[int]:
    return [generation.id for generation in sharddb.Store(store).generations()]


def test_a_second_loader_says_what_becomes_of_the_keys(store: Path) -> None:
    with pytest.raises(sharddb.InvalidInput) as raised:
        sharddb.Loader(store)
    message = str(raised.value)
    assert all(word in message for word in ('mode="update"', 'mode="replace"', "3 keys in gen-0000000001")), message
    with sharddb.Loader(store, mode="update") as loader:  # the store is not locked
        loader[4] = b"four"
        loader.extend({1: b"eins"})
    assert loader.published is not None and loader.published.keys_before == 3
    assert read(store) == PAIRS | {1: b"eins", 4: b"four"}
    with sharddb.Loader(store, mode="replace") as loader:
        loader[5] = b"five"
    assert loader.published is not None and loader.published.keys_before == 4
    assert read(store) == {5: b"five"}


@pytest.mark.parametrize("mode", [None, "replace", "update"])
def test_a_store_without_keys_needs_no_mode(tmp_path: Path, mode: Any) -> None:
    for pairs in ({}, {}, PAIRS):  # a new store, then twice one without keys
        with sharddb.Loader(tmp_path / "store", mode=mode) as loader:
            loader.extend(pairs)
    assert read(tmp_path / "store") == PAIRS


def test_a_store_that_cannot_be_read_needs_a_mode(store: Path) -> None:
    manifest = store / "current" / "manifest.json"
    manifest.unlink()
    manifest.write_text("{}")
    with pytest.raises(sharddb.InvalidInput, match="cannot be read .Store.rollback goes back"):
        sharddb.Loader(store)
    with sharddb.Loader(store, mode="replace") as loader:
        loader.extend(PAIRS)
    assert loader.published is not None and loader.published.keys_before is None


def test_a_store_that_lost_its_link_needs_a_mode(store: Path) -> None:
    """As a copy that leaves out links has: the generation is there."""
    (store / "current").unlink()
    with pytest.raises(sharddb.InvalidInput, match="3 keys in gen-0000000001"):
        sharddb.Loader(store)
    with pytest.raises(sharddb.NotFound, match="lost its `current`: roll back to a generation, such as gen-0000000001"):
        sharddb.Loader(store, mode="update")
    with pytest.raises(sharddb.Empty, match="gen-0000000001 has 3 keys"):
        with sharddb.Loader(store, mode="replace"):
            pass
    with sharddb.Loader(store, mode="replace") as loader:
        loader[1] = b"one"
    assert loader.published is not None and loader.published.keys_before == 3
    assert sharddb.Store(store).rollback() == 1
    assert read(store) == PAIRS


def test_the_later_pair_of_an_update_counts(tmp_path: Path) -> None:
    for generation in (1, 2):  # the first builds the store
        with sharddb.Loader(tmp_path / "store", mode="update") as loader:
            loader.extend([(7, b"old"), (7, b"%d" % generation)])
        assert read(tmp_path / "store") == {7: b"%d" % generation}


def test_an_update_is_aborted_by_an_exception(store: Path) -> None:
    with pytest.raises(ZeroDivisionError), sharddb.Loader(store, mode="update") as loader:
        loader[4] = b"four"
        1 / 0
    assert generations(store) == [1] and loader.published is None


OPTIONS: list[dict[str, Any]] = [
    {"spec": {"@type": "neuroglancer_uint64_sharded_v1"}},
    {"profile": "remote"},
    {"info": {}},
    {"ordered": True},
    {"on_duplicate": "first"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options)))
def test_an_update_keeps_how_the_store_is_written(store: Path, options: dict[str, Any]) -> None:
    for path in (store, store.with_name("new")):
        with pytest.raises(TypeError, match=f"no {next(iter(options))} with mode"):
            sharddb.Loader(path, mode="update", **options)
    assert not store.with_name("new").exists()


def test_a_wrong_mode(store: Path) -> None:
    with pytest.raises(ValueError, match='expected mode to be "replace" or "update", found "append"'):
        sharddb.Loader(store, mode="append")  # type: ignore[call-overload]


ARROW = pa.table({"key": pa.array([], pa.uint64()), "value": pa.array([], pa.binary())})
EMPTY: dict[str, Callable[..., Any]] = {
    "nothing": lambda store, **word: sharddb.Loader(store, mode="replace", **word).finish(),
    "no pairs": lambda store, **word: extended(store, [], **word),
    "no arrays": lambda store, **word: extended(store, np.zeros(0, np.uint64), np.zeros(1, np.int64), b"", **word),
    "an empty table": lambda store, **word: extended(store, ARROW, **word),
    "no databases": lambda store, **word: sharddb.merge([], store, **word),
    "nothing left": lambda store, **word: sharddb.update(store, deletes=PAIRS, **word),
    "an empty database": lambda store, **word: sharddb.reshard(empty(store.with_name("empty")), store, profile="remote", **word),
}


def extended(store: Path, *pairs: Any, **word: Any) -> None:
    loader = sharddb.Loader(store, mode="replace", **word)
    loader.extend(*pairs)
    loader.finish()


def empty(store: Path) -> Path:
    with sharddb.Loader(store):
        pass
    return store


@pytest.mark.parametrize("how", EMPTY)
def test_emptiness_needs_a_word(store: Path, how: str) -> None:
    with pytest.raises(sharddb.Empty, match="3 keys"):
        EMPTY[how](store)
    assert read(store) == PAIRS and generations(store) == [1]
    EMPTY[how](store, allow_empty=True)
    assert read(store) == {} and generations(store) == [1, 2]


def test_parts_without_a_pair_need_the_word(store: Path) -> None:
    plan = sharddb.PartPlan(sharddb.plan(count=0, value_bytes=0), parts=1)
    job = sharddb.job_directory(store, "night")
    with sharddb.SpillWriter(job, plan, 0) as writer:
        pass
    assert writer.receipt is not None
    spills = [writer.receipt]
    parts = [sharddb.build_part(plan, spills, 0, job)]
    with pytest.raises(sharddb.Empty):
        sharddb.publish_parts(store, "night", plan, spills, parts)
    assert read(store) == PAIRS
    assert sharddb.publish_parts(store, "night", plan, spills, parts, allow_empty=True).keys_before == 3
    assert read(store) == {}


UNCHANGED: list[dict[str, Any]] = [{}, {"puts": PAIRS}, {"puts": {2: b"two"}}, {"deletes": [4, 5]}]


@pytest.mark.parametrize("changes", UNCHANGED, ids=repr)
def test_nothing_changed_publishes_nothing(store: Path, changes: dict[str, Any]) -> None:
    published, _ = sharddb.update(store, **changes)
    assert published is None and generations(store) == [1]


def test_a_loader_that_changes_nothing_publishes_nothing(store: Path) -> None:
    loader = sharddb.Loader(store, mode="update")
    loader.extend(PAIRS)
    assert loader.finish() is None and loader.published is None
    assert generations(store) == [1]
    with pytest.raises(sharddb.InvalidInput):  # it is finished
        loader.finish()


def test_nothing_to_keep_is_an_error(store: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        sharddb.Store(store).gc(0)
